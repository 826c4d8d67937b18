"""What the harness costs: its commands, and of the parent a request, a row's way to the disk, a whole visit.

A run survives a kernel because another process runs it; this is the price. `python -m studies self`.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import numpy as np

from bench.device.detect import detect
from bench.environment.dependencies import child_environment
from bench.errors import UserError
from bench.runner.session import Session
from bench.runner.worker_process import Worker, WorkerDied
from bench.spec import Problem
from bench.store.journal import Journal
from bench.store.schema import Measurement
from bench.sweep.load import load

TIMES = 200
"""Requests, and rows."""
BUDGET_S = 15.0
"""Of a run that is planned among thousands of cases, as a long one is, but ends soon: some 20 visits."""
GOAL_S = 5e-3
"""A visit takes some tenths of a second; more than this beside it would be worth saving."""
DEADLINE_S = 60.0
ROOT = Path(__file__).parents[1]


def five_thousand_cases() -> Path:
    """A sweep of 5,000 cases in a temporary folder, for measuring how long collecting takes."""
    path = Path(tempfile.mkdtemp()) / "five_thousand.yaml"
    path.write_text(
        "title: Five thousand cases\n"
        "source: {document: none, range: ours}\n"
        "operator: gemm\n"
        "implementations: onednn\n"
        "cases:\n"
        "  - {m: {from: 1, to: 50}, n: {from: 1, to: 50}, k: 64, dtype: [float32, float64], layout: NN}\n"
    )
    return path


def commands_overhead() -> Iterator[str]:
    """Lines that say how long listing and collecting take, and with how much memory."""
    begin = time.perf_counter()
    listed = _python("-X", "importtime", "-m", "bench", "list")
    torch = "imports" if " torch\n" in listed.stderr else "never imports"
    yield f"python -m bench list: {time.perf_counter() - begin:.2f} s; it {torch} torch"
    sweep = str(five_thousand_cases())
    begin = time.perf_counter()
    words = ("bench/", "--benchmark", "--collect-only", "-q", "--bench-sweep", sweep)
    collected = _python("-m", "pytest", *words)
    counts = collected.stdout.strip().splitlines()[-1]
    yield f"pytest collecting 5,000 cases: {time.perf_counter() - begin:.2f} s ({counts})"
    peak_mb = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    yield f"largest memory of the two: {peak_mb:.0f} MB"


def _python(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words], cwd=ROOT, env=child_environment(), capture_output=True, text=True
    )


def parent_overhead(find: Callable[[str], type[Problem]]) -> Iterator[str]:
    """Lines that say what the parent costs, on the CPU: a process boundary costs the same on any device.

    `find` gives the problem of an operator. UserError if no worker starts.
    """
    device = detect("cpu")
    try:
        with closing(Worker(device.kind, device.cache_byte, seed=1, threads=device.sm_count)) as worker:
            asking_s = requests_s(worker)
    except WorkerDied as death:
        raise UserError(f"the parent's cost cannot be measured: {death}") from death
    with tempfile.TemporaryDirectory() as folder:
        session = Session(device, Path(folder), BUDGET_S)
        try:
            session.open()
            # Warm, one set of tensors: giving back the thousands of a cold ring would be the worker's time.
            cases = load(five_thousand_cases(), find, device.sm_count).cases
            session.planner.plan(replace(case, cache="warm") for case in cases)
            visiting_s = visits_s(session)
            if not visiting_s:
                yield f"the parent's cost is not known: fewer than two visits ended within {BUDGET_S:.0f} s"
                return
            row = next(row for row in session.planner.rows if row.status == "ok")
            with Journal(Path(folder) / "beside.journal") as journal:
                writing_s = rows_s(journal, row)
        finally:
            session.interrupted()
    yield f"process boundary: {_spread(asking_s)} a request; journal: {_spread(writing_s)} a row"
    yield (
        f"all beside the worker's own account: {_spread(visiting_s)} a visit; goal: under "
        f"{1e3 * GOAL_S:.0f} ms; on average, with planning anew among 5,000 cases, "
        f"{1e3 * fmean(visiting_s):.0f} ms"
    )


def requests_s(worker: Worker) -> list[float]:
    """Seconds of each of several trivial requests, without the first, which imports modules."""
    return _each_s(lambda: worker.ask({"do": "hello"}, DEADLINE_S), 1 + TIMES)[1:]


def rows_s(journal: Journal, row: Measurement) -> list[float]:
    """Seconds until a row is on the disk."""
    return _each_s(lambda: journal.append(row), TIMES)


def _each_s(action: Callable[[], object], times: int) -> list[float]:
    """Seconds that each of so many calls takes."""
    taken = []
    for _ in range(times):
        begin = time.perf_counter()
        action()
        taken.append(time.perf_counter() - begin)
    return taken


def visits_s(session: Session) -> list[float]:
    """Seconds of each visit beyond what its row accounts for, in an opened session that is planned.

    From one row to the next: choosing the case, looking at the plan again, asking, tidying up, writing.
    Without the first visit, which starts the worker.
    """
    taken = []
    begin = time.perf_counter()
    for _, row in session.walk():
        end = time.perf_counter()
        if row.status == "ok":
            taken.append(end - begin - (row.setup_s or 0.0) - (row.check_s or 0.0) - (row.measure_s or 0.0))
        begin = time.perf_counter()
        if session.elapsed_s > BUDGET_S:
            break
    return taken[1:]


def _spread(seconds: Sequence[float]) -> str:
    """`0.31 ms (p95 0.52)`."""
    median_s, high_s = np.percentile(seconds, (50, 95))
    return f"{1e3 * median_s:.2f} ms (p95 {1e3 * high_s:.2f})"
