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


def begin(folder: Path, run_id: str, sweeps: Sweeps = NO_SWEEPS) -> ResumedRun:
    """Make every run that has ended into a result file, and open a journal for a new one.

    `run_id` gets a number behind it if another run in this folder has it. UserError if something cannot be
    written.
    """
    left = settle(folder)
    journal = Journal.named(folder, run_id, sweeps)
    return ResumedRun(journal, journal.path.stem, left=left)


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


def settle(folder: Path) -> list[UnfinishedRun]:
    """Make every run in this folder that has ended into a result file. UserError if one cannot be made."""
    return [left for path in unfinished(folder) if (left := _settle(path))]


def go_on(folder: Path, run_id: str, kind: RunFacts, sweeps: Sweeps = NO_SWEEPS) -> ResumedRun:
    """Resume the newest unfinished run of this kind, and make others of its device into result files.

    Those of other devices are left alone: GPUs of one kind share a folder. Without any it is a new run,
    `run_id`. UserError if something cannot be written.
    """
    begun: ResumedRun | None = None
    left: list[UnfinishedRun] = []
    for path in reversed(unfinished(folder)):
        with claimed(path) as ended:
            if not ended:
                continue
            recovered = recover(path)
            if recovered.rows and recovered.rows[0].device_id != kind.device_id:
                continue
            # Without a row there is nothing to resume.
            if recovered.rows and begun is None and kind.has(recovered.rows):
                begun = _continued(path, recovered, sweeps)
                continue
        if settled := _settle(path):
            left.insert(0, settled)
    if begun is None:
        journal = Journal.named(folder, run_id, sweeps)
        begun = ResumedRun(journal, journal.path.stem)
    begun.left = left + begun.left
    return begun


def _settle(path: Path) -> UnfinishedRun | None:
    """Make a journal a result file; None if it held nothing, or another run has taken it."""
    with claimed(path) as ended:
        if not ended:
            return None
        recovered = recover(path)
        file = finish(path, joined(recovered.rows, earlier_runs(path.parent)), recovered.damage)
    if not file and not recovered.damage:
        return None
    return UnfinishedRun(file or path, len(recovered.rows), False, tuple(recovered.damage))


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
