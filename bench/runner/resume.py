"""Unfinished runs in a device's folder: they are made into result files, or resumed.

Several runs may begin at once in one folder (tasks of an array job, GPUs of one kind), next to others that
are going on. So a journal is claimed before it is read, and stays claimed until it is a result file or
resumed.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from bench.errors import UserError
from bench.runner.merge_visits import joined
from bench.store.journal import Journal, claimed, damaged_name, finish, recover
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
    damage: list[str]


class RunFacts(NamedTuple):
    """The facts that a run must share with an unfinished one to resume it."""

    device_id: str
    protocol: str
    concurrent_gpus: int


def begin(
    folder: Path, run_id: str, sweeps: Sweeps = NO_SWEEPS, resumes: RunFacts | None = None
) -> tuple[Journal, list[Measurement], list[UnfinishedRun]]:
    """Make every run that has ended into a result file, and open a journal for a new one.

    With `resumes` it is that of the newest unfinished run of this kind, if there is one, whose rows come with
    it; unfinished runs of other devices are then left alone: GPUs of one kind share a folder. `run_id` gets a
    number behind it if another run in this folder has it. UserError if something cannot be written.
    """
    journal, kept = None, list[Measurement]()
    left: list[UnfinishedRun] = []
    for path in sorted(folder.glob("*.journal"), reverse=resumes is not None):
        with claimed(path) as claim:
            if claim is None:  # its run is going on, or another run has taken it
                continue
            found = recover(path)
            # Without a row there is nothing to resume; with a file its run had come to its end.
            if resumes and found.rows and not path.with_suffix(".parquet").exists():
                first = found.rows[0]
                facts = RunFacts(first.device_id, first.protocol, first.concurrent_gpus or 1)
                if facts.device_id != resumes.device_id:
                    continue
                if journal is None and facts == resumes:
                    if found.damage:
                        shutil.copy(path, damaged_name(path))
                    journal, kept = Journal.again(path, claim, {**found.sweeps, **sweeps}), found.rows
                    left.append(UnfinishedRun(path, len(kept), True, found.damage))
                    continue
            file = finish(path, joined(found.rows, earlier_runs(folder)), found.sweeps, found.damage)
        if file or found.damage:
            left.append(UnfinishedRun(file or path, len(found.rows), False, found.damage))
    return journal or Journal.named(folder, run_id, sweeps), kept, sorted(left, key=lambda each: each.path)


def earlier_runs(folder: Path) -> list[list[Measurement]]:
    """The rows of the last runs in this folder, in time order, with which their names begin.

    Files that cannot be read are left out here: whoever reads them gets the error.
    """
    files = sorted(folder.glob("*.parquet"), key=lambda path: path.name)[-EARLIER_RUNS:]
    try:
        return [list(rows(table)) for _, table in tables(files, lambda refusal: None, WITHOUT_SAMPLES)]
    except UserError:
        return []
