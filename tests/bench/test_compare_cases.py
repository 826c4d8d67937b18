"""Two runs compared: which rows belong together, what must agree, and what becomes of rows without a time."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bench.errors import UserError
from bench.judge.comparability import BLOCKING, NEVER_BLOCKING, value
from bench.judge.comparison import Comparison
from bench.judge.comparison_side import side
from bench.judge.read_runs import runs
from bench.store.schema import Measurement
from tests.bench.comparable import GPU, Seen, compared, judged, run, still, timed
from tests.bench.comparable import row as row_of
from tests.bench.rows import lasting, row, with_ends, with_interval, without_time


def counts(found: Comparison) -> Counter[str]:
    """How many cases have each verdict."""
    return Counter(one.verdict for one in found.cases)


# --- which rows belong together ---------------------------------------------------------------------

OTHER: dict[str, Any] = {
    **{"device": "h200", "unit": "2e", "driver": "560.2", "protocol": "0123", "regime": "boost"},
    **{"clock": "stream", "cache": "warm", "threads": 7, "inputs": "zeros", "power-limit": 350.0},
    **{"ecc": "off", "concurrent-gpus": 2, "mig": "on", "persistence": "off", "governor": "powersave"},
    **{"source": "J. Doe", "sweep": "gemm/renamed"},
}


@pytest.mark.parametrize("fact", BLOCKING, ids=lambda fact: fact.name)
def test_a_fact_that_blocks_unless_waved_through(chance: np.random.Generator, fact: Any) -> None:
    kind = {} if "cuda" in fact.kinds else {"device_kind": "cpu", "device": "cpu-simulated"}
    before = timed(chance, **kind)
    # On a partitioned GPU a neighbour may have had as much of it: that explains a factor of two.
    after = timed(chance, 2.5, **kind | {fact.column: OTHER[fact.name]})
    found = judged(before, after)
    shown = [value(one, fact) for one in (before, after)]
    assert (found.verdict, found.reason) == ("NOT COMPARABLE", fact.name)
    assert found.detail == f"{fact.name} {shown[0]} -> {shown[1]}" and found.effect is None
    passed = compared([before], [after], fact.name)
    assert [one.verdict for one in passed.cases] == ["SLOWER"]
    assert passed.exit_code == 1
    other = next(name for name in ("regime", "clock") if name != fact.name)
    assert judged(before, after, other).verdict == "NOT COMPARABLE"


def test_every_fact_that_differs_is_named(chance: np.random.Generator) -> None:
    after = timed(chance, driver="560.2", ecc="off", regime="boost")
    assert judged(timed(chance), after).reason == "driver, regime, ecc"
    assert judged(timed(chance), after, "regime", "ecc").reason == "driver"


def test_another_device_is_another_unit_with_another_limit(chance: np.random.Generator) -> None:
    """Its clock is part of what is compared: no cycles."""
    after = timed(
        chance, 1 / 1.2, device="h200", device_id="2e", power_limit_w=350.0, sm_clock_hz=1.9e9 * 1.2
    )
    found = judged(timed(chance), after)
    assert found.reason == "device, unit, power-limit"
    assert judged(timed(chance), after, "device").verdict == "FASTER"
    assert judged(timed(chance), replace(after, driver="560.2"), "device").reason == "driver"


def test_facts_that_never_block(chance: np.random.Generator) -> None:
    changes = {"commit": "1234567", "torch": "2.14.0", "triton": "3.8.0", "libraries": "cuBLAS 13.1"}
    found = compared(*(run(chance, still, 2, 3, **columns) for columns in (GPU, GPU | changes)))
    assert len(found.of("SAME", "UNDECIDED")) == len(found.cases) == 18
    assert {name: (text,) for name, text in changes.items()}.items() <= found.after.facts.items()
    # Of a GPU there is no host to tell, only the unit that blocks.
    before, after = (timed(chance, device_id=name) for name in ("1f", "2e"))
    assert judged(before, after, "unit").verdict == "SAME"
    # A CPU's host is told, and blocks nothing: its name changes with every container.
    before, after = (timed(chance, device_kind="cpu", device_id=name) for name in ("1f", "2e"))
    found = compared([before], [after])
    assert [one.verdict for one in found.cases] == ["SAME"]
    assert found.before.facts["host"] != found.after.facts["host"]


@pytest.mark.parametrize("side", [0, 1])
def test_a_fact_that_one_side_does_not_know_does_not_block(chance: np.random.Generator, side: int) -> None:
    pair = [timed(chance), timed(chance)]
    pair[side] = replace(pair[side], regime=None, ecc=None, driver="")
    found = compared(pair[:1], pair[1:])
    assert [one.verdict for one in found.cases] == ["SAME"]


def test_no_such_fact(chance: np.random.Generator) -> None:
    one = timed(chance)
    for name in ("drivers", *(fact.name for fact in NEVER_BLOCKING)):
        says = rf"--across {name}: no condition that must agree.*there is source, device"
        with pytest.raises(UserError, match=says):
            judged(one, one, name)


def test_the_same_problem_in_two_sweeps_is_two_cases(chance: np.random.Generator) -> None:
    a, b = (
        [timed(chance, scale, sweep="gemm/square"), timed(chance, 2.0, sweep="gemm/other")]
        for scale in (1.0, 1.1)
    )
    told = {one.case.sweep: one.verdict for one in compared(a, b).cases}
    assert told == {"gemm/square": "SLOWER", "gemm/other": "SAME"}


@pytest.mark.parametrize(
    "other",
    [{"operator": "x"}, {"implementation": "x"}, {"parameters": '{"dtype": "float32", "m": 7}'}],
    ids=str,
)
def test_what_makes_another_case(chance: np.random.Generator, other: dict[str, Any]) -> None:
    assert counts(compared([timed(chance)], [timed(chance, **other)])) == {"NEW": 1, "GONE": 1}


@pytest.mark.parametrize(
    ("other", "fact"), [({"cache": "warm"}, "cache"), ({"threads": 1, "threads_asked": "one"}, "threads")]
)
def test_another_manner(chance: np.random.Generator, other: dict[str, Any], fact: str) -> None:
    cpu = {"device_kind": "cpu"}
    one, another = timed(chance, **cpu), timed(chance, 0.5, **cpu, **other)
    assert judged(one, another).reason == fact
    assert judged(one, another, fact).verdict == "FASTER"
    # Where a side has both, like meets like, and what has no partner is new or gone.
    assert counts(compared([another, one], [one, another])) == {"SAME": 2}
    assert counts(compared([one], [another, one])) == {"SAME": 1, "NEW": 1}
    assert counts(compared([another, one], [one])) == {"SAME": 1, "GONE": 1}


# --- rows without a time ----------------------------------------------------------------------------


@pytest.mark.parametrize("status", ["wrong", "escaped", "crashed", "error", "timeout", "out_of_memory"])
def test_invalid_says_which_side_and_why(chance: np.random.Generator, status: str) -> None:
    one = timed(chance)
    bad = without_time(one, status)
    for before, after, where in ((bad, one, "A"), (one, bad, "B"), (bad, bad, f"A, {status} in B")):
        found = compared([before], [after])
        (case,) = found.cases
        assert (case.verdict, case.reason, case.detail) == ("INVALID", f"{status} in {where}", "it says why")
        assert found.exit_code == 2
    assert compared([one], [bad], "driver").exit_code == 2
    found = compared([one], [one, without_time(timed(chance, case=1), status)])
    assert counts(found) == {"SAME": 1, "INVALID": 1} and found.exit_code == 2
    another = without_time(one, "wrong" if status != "wrong" else "error", "another")
    case = judged(bad, another)
    assert case.reason == f"{status} in A, {another.status} in B" and case.detail == "it says why; another"


@pytest.mark.parametrize("median_s", [None, 0.0, -1.0, math.inf])
def test_an_ok_row_without_a_time_is_invalid(chance: np.random.Generator, median_s: float | None) -> None:
    found = judged(timed(chance), timed(chance, median_s=median_s))
    assert (found.verdict, found.reason) == ("INVALID", "no time in B")
    # And a row that is not ok has none, whatever it holds.
    found = judged(timed(chance), timed(chance, status="wrong"))
    assert (found.verdict, found.reason) == ("INVALID", "wrong in B")


@pytest.mark.parametrize("status", ["unsupported", "skipped"])
def test_what_was_not_tried_is_no_row_but_says_why(chance: np.random.Generator, status: str) -> None:
    one, there = timed(chance), timed(chance, case=1)
    absent = without_time(one, status)
    gone = compared([one, there], [absent, there])
    new = compared([absent, there], [one, there])
    for found, verdict, name in ((gone, "GONE", "B"), (new, "NEW", "A")):
        (case,) = found.of(verdict)  # type: ignore[arg-type]
        assert (case.reason, case.detail) == (f"{status} in {name}", f"{status}: it says why")
        assert found.exit_code == 0
    assert counts(compared([absent, there], [absent, there])) == {"SAME": 1}
    (case,) = compared([one, there], [there]).of("GONE")
    assert (case.reason, case.detail) == ("no row in B", "")


def test_exit_codes(chance: np.random.Generator) -> None:
    one, other = timed(chance), timed(chance, case=1)
    bad, slow, fast = without_time(other, "crashed"), timed(chance, 1.2), timed(chance, 0.8)
    another = replace(one, driver="560.2")
    for after, code in (
        ([one, other], 0),
        ([fast, other], 0),
        ([one], 0),
        ([slow, other], 1),
        ([slow, bad], 1),
        ([one, bad], 2),
        ([another, bad], 2),
        ([another], 3),
        ([replace(one, sweep="gemm/else")], 3),
    ):
        assert compared([one, other], after).exit_code == code


# --- several runs on a side -------------------------------------------------------------------------


def later(one: Measurement, hour: int) -> Measurement:
    return replace(one, run_id=f"run{hour}", utc=f"2026-11-21T{hour:02}:00:00.000+00:00")


def test_of_several_runs_the_newest_row_counts(chance: np.random.Generator) -> None:
    slow, now, other = timed(chance, 1.5), timed(chance), timed(chance, case=1)
    a = [later(now, 12), later(slow, 11), later(slow, 10), later(other, 10)]
    b = [later(now, 13), later(other, 13)]
    found = compared(a, b)
    assert counts(found) == {"SAME": 2}
    assert [run.run_id for run in found.before.runs] == ["run10", "run12"]
    # A run that had no room for the case does not hide the run that had; one whose newest is wrong is wrong.
    for status, told in (("skipped", {"SAME": 2}), ("wrong", {"INVALID": 1, "SAME": 1})):
        assert counts(compared([*a, later(without_time(now, status), 15)], b)) == told


def test_two_devices_on_one_side_are_refused(chance: np.random.Generator) -> None:
    one, other = timed(chance), timed(chance, case=1, device="h200")
    with pytest.raises(UserError, match="B holds rows of 2 devices, name one's: h100, h200"):
        compared([one], [one, other])
    with pytest.raises(UserError, match="A holds no row"):
        compared([], [one])


def test_older_files_hold_a_ceilings_second_visit_as_a_row(chance: np.random.Generator) -> None:
    """It is no case of its own, and tells how far the machine moves."""
    rows = []
    for case in range(8):
        first, second = (timed(chance, visits=1, case=case, sweep="ceilings/gemm") for _ in "ab")
        second = with_interval(lasting(replace(second, visit=1), math.exp(0.01 * case)), 0.01)
        rows += [replace(one, visits=None, visit_samples=None) for one in (first, second)]
    # A few samples of a slow one, too few for an interval: its medians are known all the same.
    for visit, scale in enumerate((1.0, 1.01)):
        slow = timed(chance, scale, visits=1, case=99, sweep="ceilings/gemm", visit=visit)
        rows.append(replace(slow, low_s=None, high_s=None, visits=None, visit_samples=None))
    found = compared(rows, rows)
    assert len(found.cases) == 9


# --- summing up -------------------------------------------------------------------------------------


def known(case: int, scale: float, own: float, shared: float, **columns: Any) -> Measurement:
    """A row with an interval of these halves, ln: its own, and what all rows of its run may share."""
    one = row_of(case, [Seen(np.ones(60), 1.0)], scale=scale, **(GPU | columns))
    half = math.exp(math.hypot(own, shared))
    return with_ends(replace(one, noise_visits=own, noise_runs=shared, run_half=own), 1 / half, half)


def test_the_mean_of_an_operator(chance: np.random.Generator) -> None:
    """What its cases share is as wide for all of them together; the rest adds up as squares."""
    scales, other = [1.0, 1.1, 1.21], {"operator": "linear"}
    a = [known(case, 1.0, 0.03, 0.01) for case in range(3)] + [known(0, 1.0, 0.03, 0.01, **other)]
    b = [known(case, scale, 0.03, 0.01) for case, scale in enumerate(scales)]
    b += [known(0, 0.5, 0.03, 0.01, **other), known(9, 5.0, 0.03, 0.01)]  # that one is new
    found = compared(a, b)
    gemm, linear = found.means
    assert (gemm.operator, gemm.cases, linear.operator, linear.cases) == ("gemm", 3, "linear", 1)
    assert gemm.effect.ratio == pytest.approx(1.1, rel=1e-6)
    half = math.hypot(0.03 * math.sqrt(2) / math.sqrt(3), 0.01 * math.sqrt(2))
    assert math.log(gemm.effect.high / 1.1) == pytest.approx(half)
    assert math.log(gemm.effect.low / 1.1) == pytest.approx(-half)
    assert gemm.verdict == "SLOWER" and linear.verdict == "FASTER"
    # Of one case it is that case's own.
    (only,) = (one.effect for one in found.cases if one.case.operator == "linear")
    assert only is not None
    assert linear.effect.ratio == pytest.approx(only.ratio)
    assert math.log(linear.effect.high / linear.effect.low) == pytest.approx(math.log(only.high / only.low))


def test_no_number_of_cases_lessens_what_they_all_share() -> None:
    """8 % off in both runs: 10 % of a hundred cases, each known to 3 %, may be nothing but the runs."""
    for shared, verdict in ((0.08, "UNDECIDED"), (0.01, "SLOWER")):
        a, b = ([known(case, scale, 0.03, shared) for case in range(100)] for scale in (1.0, 1.1))
        (mean,) = compared(a, b).means
        assert mean.verdict == verdict


def test_an_operator_s_mean_is_the_same_where_its_interval_is_within_the_least_effect() -> None:
    for count, verdict in ((4, "UNDECIDED"), (64, "SAME")):
        a = [known(case, 1.0, 0.02, 0.001) for case in range(count)]
        (mean,) = compared(a, a).means
        assert mean.verdict == verdict
        assert math.log(mean.effect.high) == pytest.approx(
            math.hypot(0.02 * math.sqrt(2 / count), 0.001 * math.sqrt(2))
        )


def test_ceilings_are_summed_up_apart(chance: np.random.Generator) -> None:
    a = run(chance, still, 4, 3, **GPU)
    means = {mean.operator: mean.cases for mean in compared(a, a).means}
    assert means == {"ceilings: gemm": 16, "gemm": 4}


@pytest.mark.parametrize(("share", "verdict"), [(0.01003, "SLOWER"), (0.00997, "SAME")])
def test_the_least_effect_is_a_share_of_the_smaller_median(share: float, verdict: str) -> None:
    """1 % is a share, not a natural logarithm: that of 1.01003 is 0.00998."""
    quick, slow = (known(0, scale, 1e-7, 1e-7) for scale in (1.0, 1 + share))
    assert judged(quick, slow).verdict == verdict
    assert judged(slow, quick).verdict == verdict.replace("SLOWER", "FASTER")


def test_what_was_imported_is_never_newer_than_what_was_measured() -> None:
    measured = row(utc="2026-01-01T00:00:00Z", run_id="ours")
    imported = row(utc="2026-02-01T00:00:00Z", run_id="theirs", source="somebody; a file")
    for given in ([measured, imported], [imported, measured]):
        (look,) = side(runs(given), "A").looks.values()
        assert look.row.run_id == "ours"
