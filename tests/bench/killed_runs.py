"""Runs that are killed at random moments: nothing that was measured is lost. On a CPU.

The suite's own command measures a few small cases. At random moments its process, or its worker's, is killed
(SIGKILL, which nothing can prepare for), and the run is gone on with (--bench-resume), until it is done; then
the next begins. After every kill: is each row that was on the disk still there, as it was? Is each row there
that the run had told of? Is none there twice? Is the worker gone? And at the end: has every case one row,
with a time, or with the reason why there is none?
"""

from __future__ import annotations

import os
import random
import re
import select
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from bench.store.journal import recover
from bench.store.parquet import read_rows
from bench.store.schema import Measurement

ROOT = Path(__file__).parents[2]
SWEEP = """\
title: Small
source: {document: none, range: ours}
operator: gemm
implementations: onednn
cases:
  - {m=n=k: [8, 16, 24, 32], dtype: [float32, float64]}
plot: {x: m}
"""
CASES = 8
BUDGET_S = 15.0
GONE_S = 20.0
"""A worker that is there so long after its parent's end was left behind."""
KILLED = -signal.SIGKILL
NO_WORKER = 2
"""The command's exit code where its first worker did not live to say hello: a refusal, not a row."""
TOLD = re.compile(r"^\[ *\d+/\d+\] ", re.MULTILINE)
"""A line of progress: it is printed after its row was written."""


@dataclass
class KilledRun:
    """One run of the suite in a folder of its own, however often it is killed."""

    folder: Path
    kept: list[Measurement] = field(default_factory=list)
    """The rows of the journal when it was last looked at."""
    told: int = 0
    """Rows that processes which are gone have told of."""
    faults: list[str] = field(default_factory=list)
    """What should not be."""

    def __post_init__(self) -> None:
        self.folder.mkdir()
        self.sweep = self.folder / "small.yaml"
        self.sweep.write_text(SWEEP)
        self.said = self.folder / "said.txt"

    def start(self) -> subprocess.Popen[bytes]:
        """The command, going on with what there is."""
        words = [sys.executable, "-m", "pytest", str(ROOT / "bench"), "-p", "no:cacheprovider", "--benchmark"]
        words += ["-k", "small", "--bench-sweep", str(self.sweep), "--bench-results", str(self.folder / "r")]
        words += ["--bench-budget", str(BUDGET_S), "--bench-resume"]
        with self.said.open("wb") as said:
            return subprocess.Popen(words, cwd=ROOT, stdout=said, stderr=subprocess.STDOUT)

    def look(self, over: bool) -> None:
        """Hold the journal against what is known. `over`: the process that wrote it is gone."""
        told = self.told + len(TOLD.findall(self.said.read_text(errors="replace")))
        if self.is_done:
            return
        found = [row for path in self.folder.rglob("*.journal") for row in recover(path).rows]
        lost = [row for row in self.kept if row not in found]
        if lost:
            self.faults.append(f"{len(lost)} rows lost: {lost[0].case}")
        if len(found) < told:
            self.faults.append(f"told of {told} rows, kept {len(found)}")
        if len({(row.case, row.visit) for row in found}) < len(found):
            self.faults.append("a row is there twice")
        self.kept = found
        if over:
            self.told = told

    @property
    def is_done(self) -> bool:
        """Whether the result file is there, and it alone."""
        return any(self.folder.rglob("*.parquet")) and not any(self.folder.rglob("*.journal"))

    def finish(self) -> None:
        """Hold the rows of the result file against all that was seen before."""
        rows = [row for path in self.folder.rglob("*.parquet") for row in read_rows(path)]
        cases = [row.case for row in rows]
        if len(set(cases)) != len(cases):
            self.faults.append("a case has two rows")
        if len(set(cases)) != CASES:
            self.faults.append(f"{len(set(cases))} of {CASES} cases have a row")
        samples = {row.case: row.samples_s or [] for row in rows}
        set_aside = {row.case: len(row.set_aside or ()) for row in rows}
        for row in self.kept:  # a visit is published as it was, or named among those set aside
            ours, published = row.samples_s or [], samples.get(row.case, [])
            if not _holds(published, ours) and not set_aside.get(row.case):
                self.faults.append(f"the samples of {row.case} changed or went")
        if unexplained := [row.case for row in rows if row.status != "ok" and not row.reason]:
            self.faults.append(f"neither measured nor explained: {unexplained[0]}")
        if left := [p.name for p in self.folder.glob("r/*/*") if p.suffix not in (".parquet", ".damaged")]:
            self.faults.append(f"left lying: {', '.join(left)}")


def _holds(published: list[float], samples: list[float]) -> bool:
    """Whether `samples` stand in `published`, one after the other."""
    places = range(len(published) - len(samples) + 1)
    return any(published[at : at + len(samples)] == samples for at in places)


def worker_of(parent: int) -> int | None:
    """The process id of the worker that a run has started; None if there is none just now."""
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = (status.parent / "cmdline").read_bytes().split(b"\0")
            above = int(status.read_text().rpartition(")")[2].split()[1])
        except OSError:  # it ended meanwhile
            continue
        if above == parent and b"bench.worker" in words:
            return int(status.parent.name)
    return None


def ends(pidfd: int, within_s: float) -> bool:
    """Whether a process ends within this time."""
    return bool(select.select([pidfd], [], [], within_s)[0])


def killed(run: KilledRun, process: subprocess.Popen[bytes], victim: str) -> str:
    """Kill one of the two, look at what is left, say which it was: the parent if there is no worker yet."""
    worker = worker_of(process.pid)
    watched = None
    if worker is not None:
        try:
            watched = os.pidfd_open(worker)
        except ProcessLookupError:
            worker = None
    if victim == "worker" and watched is not None:
        signal.pidfd_send_signal(watched, signal.SIGKILL)
    else:
        victim = "parent"
        process.kill()
        process.wait()
    if watched is not None:
        if not ends(watched, GONE_S):
            run.faults.append(f"worker {worker} was left behind")
            signal.pidfd_send_signal(watched, signal.SIGKILL)
        os.close(watched)
    run.look(over=victim == "parent")
    return victim


def trial(times: int, folder: Path) -> list[str]:
    """What should not be in runs of which one process is killed so often, and each of which ends at last."""
    began, faults, kills = time.monotonic(), list[str](), 0
    undisturbed = KilledRun(folder / "undisturbed")
    undisturbed.start().wait()
    undisturbed.finish()
    horizon_s = time.monotonic() - began
    runs = [undisturbed]
    while kills < times:
        runs.append(run := KilledRun(folder / str(len(runs))))
        process, struck = run.start(), False
        while True:
            try:
                code = process.wait(random.uniform(0.0, horizon_s) if kills < times else None)
            except subprocess.TimeoutExpired:
                victim = killed(run, process, random.choice(("parent", "worker")))
                kills, struck = kills + 1, True
                code = KILLED if victim == "parent" else None
            if code in (0, 1) or run.is_done:  # 1: some case has no time
                break
            if code in (KILLED, NO_WORKER) and struck:
                process, struck = run.start(), False
            elif code is not None:
                run.faults.append(f"exit code {code}: {run.said.read_text(errors='replace')[-500:]}")
                break
        run.finish()
    for run in runs:
        faults += [f"{run.folder.name}: {fault}" for fault in run.faults]
    return faults
