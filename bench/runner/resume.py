"""Unfinished runs in a device's folder: they are made into result files, or resumed.

Several runs may begin at once in one folder (tasks of an array job, GPUs of one kind), next to others that
are going on. So a journal is claimed before it is read, and stays claimed until it is a result file or
resumed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.errors import UserError
from bench.runner.merge_visits import joined
from bench.store.journal import Journal, Recovered, claimed, declared_sweeps, finish, recover, unfinished
from bench.store.parquet import NO_SWEEPS, Sweeps, rows, tables
from bench.store.schema import WITHOUT_SAMPLES, Measurement

EARLIER_RUNS = 10
"""Number of a device's last runs that show how far its runs differ."""


@dataclass(frozen=True)
class UnfinishedRun:
    """An earlier unfinished run: what was recovered of it, and whether it was resumed."""

    path: Path
    rows: int
    resumed: bool
    damage: tuple[str, ...]
    """A sentence for each part that could not be read."""


@dataclass(frozen=True)
class RunFacts:
    """The facts that a run must share with an unfinished one to resume it."""

    device_id: str
    protocol: str
    concurrent_gpus: int | None

    def has(self, rows: Sequence[Measurement]) -> bool:
        """Whether these rows and those of the run could be joined."""
        ours = self.device_id, self.protocol, self.concurrent_gpus or 1
        return all((row.device_id, row.protocol, row.concurrent_gpus or 1) == ours for row in rows)


@dataclass
class ResumedRun:
    """An open journal, and the unfinished runs that were there when it was opened."""

    journal: Journal
    run_id: str
    rows: list[Measurement] = field(default_factory=list)
    """The rows of the run that is resumed."""
    left: list[UnfinishedRun] = field(default_factory=list)


def begin(
    folder: Path, run_id: str, sweeps: Sweeps = NO_SWEEPS, resumes: RunFacts | None = None
) -> ResumedRun:
    """Make every run that has ended into a result file, and open a journal for a new one.

    With `resumes` it is that of the newest unfinished run of this kind, if there is one; unfinished runs of
    other devices are then left alone: GPUs of one kind share a folder. `run_id` gets a number behind it if
    another run in this folder has it. UserError if something cannot be written.
    """
    begun: ResumedRun | None = None
    left: list[UnfinishedRun] = []
    paths = unfinished(folder)
    for path in reversed(paths) if resumes else paths:
        with claimed(path) as ended:
            if not ended:  # another run has taken it
                continue
            recovered = recover(path)
            # Without a row there is nothing to resume.
            if resumes and recovered.rows:
                if recovered.rows[0].device_id != resumes.device_id:
                    continue
                if begun is None and resumes.has(recovered.rows):
                    begun = _continued(path, recovered, sweeps)
                    continue
            file = finish(path, joined(recovered.rows, earlier_runs(folder)), recovered.damage)
        if file or recovered.damage:
            left.append(UnfinishedRun(file or path, len(recovered.rows), False, tuple(recovered.damage)))
    if begun is None:
        journal = Journal.named(folder, run_id, sweeps)
        begun = ResumedRun(journal, journal.path.stem)
    begun.left = sorted(left, key=lambda each: each.path) + begun.left
    return begun


def earlier_runs(folder: Path) -> list[list[Measurement]]:
    """The rows of the last runs in this folder, in time order, with which their names begin.

    Files that cannot be read are left out here: whoever reads them gets the error.
    """
    files = sorted(folder.glob("*.parquet"), key=lambda path: path.name)[-EARLIER_RUNS:]
    if not files:
        return []
    try:
        return [list(rows(table)) for _, table in tables(files, lambda refusal: None, WITHOUT_SAMPLES)]
    except UserError:
        return []


def _continued(path: Path, recovered: Recovered, sweeps: Sweeps) -> ResumedRun:
    """Reopen a claimed journal: a copy of its whole rows takes its place."""
    copy = path.with_suffix(".copy")
    copy.unlink(missing_ok=True)  # it never took its journal's place
    journal = Journal(copy, {**declared_sweeps(path), **sweeps})
    try:
        journal.append(*recovered.rows)
        journal.replace(path, recovered.damage)
    except UserError:
        journal.close()
        raise
    left = UnfinishedRun(path, len(recovered.rows), True, tuple(recovered.damage))
    return ResumedRun(journal, path.stem, recovered.rows, [left])
