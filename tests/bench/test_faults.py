"""Kernels that misbehave in every way there is: one row each, its reason for people, and the run goes on.

The operator (faulty/) is put into the kernels of a copy of the checkout.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bench.device.detect import detect
from bench.runner.run import Run
from bench.store import parquet, schema
from bench.store.journal import recover
from tests.bench.killed_runs import ends, trial, worker_of
from tests.bench.several import QUICK_BENCH, QUICK_PYTEST
from tests.drawing import drawn
from tests.processes import python

ROOT = Path(__file__).parents[2]
SWEEP = """\
title: Faults
source: {{document: none, range: ours}}
operator: faulty
implementations: [{names}]
cache: warm
cases:
  - {{length: {lengths}, dtype: float32}}
plot: {{x: length}}
"""
EXPECTED = {
    "good": ("ok", ""),
    "chatty": ("ok", ""),
    "scribble": ("crashed", "the worker answered nonsense: b'"),
    "segfault": ("crashed", "the worker ended with SIGSEGV: in segfault (kernels/faulty/operator.py:"),
    "kill": ("crashed", "the worker was killed (SIGKILL), perhaps for memory"),
    "raise": ("error", "RuntimeError: no tile fits"),
    "huge": ("out_of_memory", "1000000000000000 bytes"),
    "wrong": ("wrong", "before timing; the arithmetic explains 0.00e+00"),
}
"""Implementation -> status and a part of the reason; test_process.py has all ways in which a worker dies."""

CRASHES = [(name, told) for name, told in EXPECTED.items() if told[0] == "crashed"]
OTHERS = {name: told for name, told in EXPECTED.items() if told[0] != "crashed"}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of the checkout, with the bytecode that there is, whose kernels include `faulty`."""
    copy = tmp_path / "checkout"
    for name in ("bench", "kernels", "plots", "sweeps"):
        shutil.copytree(ROOT / name, copy / name)
    for name in ("conftest.py", "pyproject.toml"):
        shutil.copy(ROOT / name, copy / name)
    faulty = shutil.copytree(ROOT / "tests" / "bench" / "faulty", copy / "kernels" / "faulty")
    (faulty / "functions.py").rename(faulty / "operator.py")
    return copy


def run(checkout: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return python(*words, cwd=checkout, PYTHONPATH=str(checkout), COLUMNS="300")


def by_implementation(path: Path) -> dict[str, list[schema.Measurement]]:
    found: dict[str, list[schema.Measurement]] = {}
    for row in parquet.read_rows(path):
        found.setdefault(row.implementation, []).append(row)
    return found


def test_every_fault_is_a_row_and_the_run_goes_on(checkout: Path) -> None:
    """By the command that a person types, with work that is right before, between and after."""
    # A new worker takes seconds, so a run of the tests kills one that it draws, and a deep run all.
    expected = {"good": EXPECTED["good"], **dict(drawn(CRASHES, 1, "crashes")), **OTHERS}
    names = {"faults": ", ".join(expected), "right": "good"}
    for sweep, lengths in (("faults", 1000), ("right", 2000)):
        (checkout / f"{sweep}.yaml").write_text(SWEEP.format(names=names[sweep], lengths=lengths))
    words = ("-c", QUICK_PYTEST, "bench", "-p", "no:cacheprovider", "--benchmark", "-k", "faults or right")
    words += ("--bench-sweep", "faults.yaml", "--bench-sweep", "right.yaml")
    done = run(checkout, *words, "--bench-results", "r", "--bench-budget", "inf", "--bench-precision", "99%")
    said = done.stdout + done.stderr
    assert done.returncode == 1 and "Traceback" not in said and "INTERNALERROR" not in said, said
    (path,) = (checkout / "r").rglob("*.parquet")
    assert [p.name for p in path.parent.iterdir()] == [path.name]
    found = by_implementation(path)
    assert set(found) == set(expected)
    for name, (status, reason) in expected.items():
        assert len(found[name]) == (2 if name == "good" else 1)
        for row in found[name]:
            assert row.status == status, (name, row.reason)
            assert reason in row.reason and len(row.reason) < 500 and "\n" not in row.reason, row.reason
            assert (row.median_s is not None) == (status == "ok") == (not row.reason)
            assert row.median_s is None or row.median_s > 1e-9  # not what `chatty` printed
        assert f"faults-{name}-faulty-float32-length1000-warm" in said
        assert status == "ok" or f"{status}: " in said


@pytest.mark.deep
def test_faults_without_the_clock_are_failures_of_their_own(checkout: Path) -> None:
    """`pytest bench/`, which times nothing, outlives them too."""
    chosen = "faulty-segfault- or faulty-good- or faulty-wrong-"
    done = run(checkout, "-m", "pytest", "bench", "-p", "no:cacheprovider", "-q", "-k", chosen)
    assert "2 failed, 1 passed" in done.stdout, done.stdout
    assert "crashed: the worker ended with SIGSEGV: in segfault (kernels/faulty/operator.py:" in done.stdout


# ---- SIGKILL

STUCK = """
import os
from pathlib import Path
HERE = Path(__file__).parent
def softmax(x, out):
    if (HERE / "now").exists():
        os.close(os.open(HERE / "stuck", os.O_WRONLY))
        while True:
            pass
    out.copy_(x.softmax(1))
"""


def test_a_killed_run_takes_its_worker_along_and_the_next_finds_its_rows(tmp_path: Path) -> None:
    """As `timeout -s KILL` kills it, with its process group, to which the worker does not belong."""
    (tmp_path / "mine.py").write_text(STUCK)
    os.mkfifo(tmp_path / "stuck")
    words = ["run", "softmax", "rows=8..128", "length=64", "--kernel", f"{tmp_path / 'mine.py'}:softmax"]
    # However busy the machine, the run is not over before its worker is stuck.
    words += ["--implementation", "aten", "--bench-device", "cpu"]
    words += ["--bench-budget", "inf", "--bench-precision", "0.1%"]
    words += ["--bench-results", str(tmp_path / "r")]
    with subprocess.Popen(
        [sys.executable, "-c", QUICK_BENCH, *words],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as parent:
        assert parent.stdout is not None
        assert any(line.startswith("[ 1/") for line in parent.stdout)  # that row is safe
        (tmp_path / "now").touch()
        (tmp_path / "stuck").open().close()  # returns once the worker is in the kernel that does not end
        pid = worker_of(parent.pid)
        assert pid is not None
        worker = os.pidfd_open(pid)
        try:
            os.killpg(parent.pid, signal.SIGKILL)
            assert ends(worker, 60.0), "the worker lives on"
        finally:
            signal.pidfd_send_signal(worker, signal.SIGKILL)
            os.close(worker)
    (journal,) = (tmp_path / "r").rglob("*.journal")
    kept = recover(journal).rows
    following = Run(detect("cpu"), tmp_path / "r")
    following.open()
    (found,) = following.left
    following.close()
    assert len(kept) == found.rows >= 1 and not journal.exists()
    assert {row.case for row in parquet.read_rows(found.path)} == {row.case for row in kept}


@pytest.mark.deep
def test_killed_at_any_moment_a_run_loses_nothing(tmp_path: Path, seed: int) -> None:
    random.seed(seed)
    assert trial(5, tmp_path) == []
