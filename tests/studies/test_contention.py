"""The contention trial's own arithmetic, and that its neighbours leave with it, whatever happens."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import kernels
from bench.store.schema import Measurement
from bench.sweep import load as sweep
from studies import contention
from tests.bench.rows import row

pytestmark = pytest.mark.deep  # of a trial that people start, not of the product


def timed(number: int, median_s: float, half: float = 0.01, **facts: object) -> Measurement:
    """The row of a case, with an interval of this share to either side."""
    ends = {"low_s": median_s * (1 - half), "high_s": median_s * (1 + half)}
    steady = {"samples_s": [median_s] * 9, "stop": "converged", "settled": True, "cache": "warm"}
    values = {"parameters": f'{{"m":{number}}}', "median_s": median_s, **ends, **steady, **facts}
    return row(**values)


BUSY = {"pressure": 0.5}


# ---- what the rows say


@pytest.mark.parametrize("edge", [1 + contention.MOVED, 0.97])
def test_three_percent_either_way_is_where_a_row_counts_as_moved(edge: float) -> None:
    quiet = contention.baseline([timed(1, 1.0)])
    for factor, affected in ((edge + 1e-6, edge > 1), (edge - 1e-6, edge < 1)):
        found = contention.figures(contention.looks(quiet, [timed(1, factor)]).values())
        assert found.affected == found.beyond == affected


@pytest.mark.parametrize("factor", [1.1, 1 / 1.1])
@pytest.mark.parametrize(("half", "apart"), [(0.04, 1), (0.06, 0)])
def test_the_intervals_of_the_unflagged_may_meet(factor: float, half: float, apart: int) -> None:
    """Medians 10 % apart, either way, intervals of 4 and of 6 % to either side."""
    quiet, busy = timed(1, 1.0, half), timed(1, factor, half)
    (found,) = contention.looks({quiet.case: quiet}, [busy]).values()
    assert found.meets == (not apart)
    # So wide an interval is no wider than a CPU's noise makes it.
    assert not found.doubts
    figures = contention.figures([found])
    assert (figures.beyond_apart, figures.beyond) == (apart, 1)


def test_an_interval_that_is_not_known_meets_every_other() -> None:
    quiet, busy = timed(1, 1.0), timed(1, 5.0, low_s=None, high_s=None)
    assert contention.looks({quiet.case: quiet}, [busy])[quiet.case].meets


def test_flags_that_only_inform_are_no_doubts() -> None:
    assert contention.doubts(timed(1, 1.0, stop="budget")) == ()
    assert contention.doubts(timed(1, 1.0, stop="budget", steal=0.5)) == ("stolen",)


def test_the_baseline_is_the_first_quiet_run_without_doubt_and_nothing_else() -> None:
    first = [timed(1, 1.0), timed(2, 2.0, **BUSY), timed(3, 3.0, **BUSY)]
    again = [timed(1, 1.5), timed(2, 2.5), timed(3, 3.5, **BUSY), row(status="error", median_s=None)]
    found = contention.baseline(first, again)
    assert sorted(one.median_s or 0 for one in found.values()) == [1.0, 2.5]


def test_cases_without_a_time_or_a_baseline_are_left_out_and_shown() -> None:
    base = contention.baseline([timed(1, 1.0), timed(2, 1.0)])
    found = contention.looks(base, [timed(1, 2.0, **BUSY), timed(2, 1.0, status="timeout"), timed(3, 1.0)])
    assert [look.ratio for look in found.values()] == [2.0]
    shown = contention.table(base, {"busy": found})
    assert shown.row_count == 2
    assert list(shown.columns[2].cells) == ["x 2.000", "no time"]
    assert list(shown.columns[3].cells) == ["contended", ""]


# ---- the neighbours


def over(pid: int, wait_s: float = 30) -> bool:
    """Whether the process has ended, waiting for it if need be."""
    try:
        end = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([end], [], [], wait_s)[0])
    finally:
        os.close(end)


@pytest.mark.parametrize("program", [contention.NEVER_RESTS, contention.COMES_AND_GOES])
def test_there_is_one_on_every_core_until_the_block_ends(program: str) -> None:
    with contention.burning(program) as pids:
        cores = [os.sched_getaffinity(pid) for pid in pids]
        assert not any(over(pid, wait_s=0) for pid in pids)
    assert sorted(core for one in cores for core in one) == sorted(os.sched_getaffinity(0))
    assert all(len(one) == 1 for one in cores)
    assert all(over(pid) for pid in pids)


def test_they_end_if_the_second_cannot_be_put_in_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[int] = []

    def refuse(pid: int, cores: object) -> None:
        started.append(pid)
        raise OSError

    monkeypatch.setattr(os, "sched_setaffinity", refuse)
    with pytest.raises(OSError), contention.burning(contention.NEVER_RESTS):
        pass
    assert len(started) == 1 and over(started[0])


@pytest.mark.parametrize(
    ("how", "program"),
    [
        *((how, "NEVER_RESTS") for how in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)),
        (signal.SIGKILL, "COMES_AND_GOES"),
    ],
)
def test_they_end_when_the_trial_is_killed(how: signal.Signals, program: str) -> None:
    code = f"""
import sys
from studies.contention import {program}, burning
with burning({program}) as pids:
    print(*pids, flush=True)
    sys.stdin.read()
"""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    trial = subprocess.Popen([sys.executable, "-c", code], cwd=contention.ROOT, text=True, **pipes)
    assert trial.stdout is not None
    pids = [int(word) for word in trial.stdout.readline().split()]
    assert len(pids) == len(os.sched_getaffinity(0))
    trial.send_signal(how)
    trial.communicate()
    assert all(over(pid) for pid in pids)


# ---- the run


def test_its_sweeps_are_sweeps(tmp_path: Path) -> None:
    from studies.contention import _written

    loaded = sweep.load_all([Path(path) for path in _written(tmp_path)], kernels.problem, sm_count=2)
    cases = [case for one in loaded for case in one.cases]
    assert {one.name for one in loaded} == set(contention.SWEEPS) and len(cases) == 16
    assert all(not case.problem.missing(case.implementation, "cpu", None) for case in cases)
    assert {case.threads for case in cases} == {"all", "one"}


def test_a_run_that_leaves_nothing_ends_with_what_it_said(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"(?s)nonesuch.*left no result file"):
        contention.measure(["nonesuch"], tmp_path, 1.0)


def test_the_four_runs_are_set_against_the_quiet_ones(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The runs themselves stood in for: what is printed follows from their rows."""
    made: list[tuple[str, int]] = []
    rows = {
        "quiet": [timed(1, 1e-3), timed(2, 2e-3)],
        "busy": [timed(1, 5e-3, **BUSY), timed(2, 2.01e-3)],
        "now and then": [timed(1, 1e-3), timed(2, 3e-3)],
        "quiet again": [timed(1, 1.02e-3), timed(2, 2e-3)],
    }

    def stood_in(sweeps: list[str], results: Path, seconds: float) -> list[Measurement]:
        neighbours = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
        made.append((results.name, len(neighbours)))
        return rows[results.name]

    monkeypatch.setattr("studies.contention.measure", stood_in)
    before = len(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())
    contention.main(seconds=1.0, sweep=["x"])
    cores = len(os.sched_getaffinity(0))
    neighbours = [count - before for _, count in made]
    assert [name for name, _ in made] == list(rows) and neighbours == [0, cores, cores, 0]
    said = capsys.readouterr().out
    assert "2 of 2 cases have a quiet time" in said
    busy, now, again = said.split("2 cases\n")[1:]
    assert "than 3 %: 1, of them flagged 1: 100 %" in busy and "farthest off by 0.5 %" in busy
    assert "than 3 %: 1, of them flagged 0: 0 %" in now and "farthest off by 50.0 %" in now
    assert "1 farther than that, 1 of them with an interval apart" in now
    assert "none to flag" in again and "farthest off by 2.0 %" in again
