"""Two runs compared: the bars of every verdict, and how seldom it cries wolf."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bench.judge.compare import Comparison, compare
from tests.bench.comparable import (
    FLOP,
    GPU,
    Machine,
    Seen,
    both,
    clean,
    drifting,
    judged,
    row,
    run,
    runs_of,
    still,
    stragglers,
    timed,
    two_states,
    with_interval,
)
from tests.drawing import drawn
from tests.trials.compare_power import CASES, shares

# --- slower, faster, the same -----------------------------------------------------------------------


def test_slower_faster_and_the_same(chance: np.random.Generator) -> None:
    before = timed(chance)
    for scale, verdict in (
        (1.2, "SLOWER"),
        (1.03, "SLOWER"),
        (0.97, "FASTER"),
        (0.5, "FASTER"),
        (1.0, "SAME"),
    ):
        found = judged(before, timed(chance, scale))
        assert found.verdict == verdict
        assert found.effect is not None and found.effect.low < found.effect.ratio < found.effect.high
        assert found.effect.ratio == pytest.approx(scale, rel=2e-3)
        assert found.before_s == before.median_s and found.sound


def test_the_effects_interval_is_both_rows_added_as_squares(chance: np.random.Generator) -> None:
    """Downwards as far as the one after may be quicker and the one before slower."""
    before, after = timed(chance), timed(chance, 1.2)
    assert before.median_s is not None and after.median_s is not None
    before = replace(before, low_s=before.median_s * 0.99, high_s=before.median_s * 1.04)
    after = replace(after, low_s=after.median_s * 0.97, high_s=after.median_s * 1.02)
    effect = judged(before, after).effect
    assert effect is not None and effect.ratio == after.median_s / before.median_s
    down = math.hypot(math.log(0.97), math.log(1.04))
    up = math.hypot(math.log(0.99), math.log(1.02))
    assert math.log(effect.low / effect.ratio) == pytest.approx(-down)
    assert math.log(effect.high / effect.ratio) == pytest.approx(up)


@pytest.mark.parametrize(("scale", "verdict"), [(1.009, "SAME"), (1.011, "SLOWER"), (1 / 1.011, "FASTER")])
def test_the_least_effect_that_counts_is_one_percent(
    chance: np.random.Generator, scale: float, verdict: str
) -> None:
    assert judged(timed(chance), timed(chance, scale)).verdict == verdict


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize(("share", "verdict"), [(0.018, "SAME"), (0.022, "UNSURE")])
def test_same_needs_two_narrow_intervals(
    chance: np.random.Generator, side: int, share: float, verdict: str
) -> None:
    pair = [timed(chance), timed(chance)]
    pair[side] = with_interval(pair[side], share)
    found = judged(*pair)
    assert found.verdict == verdict
    assert verdict == "SAME" or "too wide" in found.reason


@pytest.mark.parametrize(("share", "verdict"), [(0.024, "SLOWER"), (0.026, "UNSURE")])
def test_slower_needs_intervals_that_do_not_meet(
    chance: np.random.Generator, share: float, verdict: str
) -> None:
    """Rows of one visit on a machine that never moves: the intervals are the rows' own."""
    before, after = (with_interval(timed(chance, scale), share) for scale in (1.0, 1.0513))
    for pair, wanted in (((before, after), verdict), ((after, before), verdict.replace("SLOW", "FAST"))):
        found = judged(*pair)
        assert found.verdict == wanted
        assert wanted != "UNSURE" or found.reason == "the intervals meet"


@pytest.mark.parametrize("nearer", [True, False])
def test_it_is_the_ends_between_the_medians_that_may_not_meet(
    chance: np.random.Generator, nearer: bool
) -> None:
    before, after = timed(chance), timed(chance, 1.0513)
    assert before.median_s is not None and after.median_s is not None
    if nearer:
        before, after = (
            replace(before, high_s=1.04 * before.median_s),
            replace(after, low_s=0.98 * after.median_s),
        )
    else:
        before, after = (
            replace(before, low_s=0.96 * before.median_s),
            replace(after, high_s=1.04 * after.median_s),
        )
    assert judged(before, after).verdict == ("UNSURE" if nearer else "SLOWER")
    assert judged(after, before).verdict == ("UNSURE" if nearer else "FASTER")


def test_slower_needs_samples_that_are_slower(chance: np.random.Generator) -> None:
    """A median and an interval that the samples do not bear out."""
    before, same = timed(chance), timed(chance)
    assert before.median_s is not None
    told = replace(same, median_s=1.05 * before.median_s)
    found = judged(before, with_interval(told, 0.001))
    assert (found.verdict, found.reason) == ("UNSURE", "the rank test sees no difference")


def test_few_samples_are_not_enough_for_the_rank_test(chance: np.random.Generator) -> None:
    """Of 6 blocks against 6 no difference has p < 0.002; of 15 against 15 the plainest has 1e-8."""
    for count, verdict in ((12, "UNSURE"), (24, "SLOWER")):
        pair = []
        for scale in (1.0, 1.05):
            up_and_down = np.arange(count) * (-1.0) ** np.arange(count)  # nothing like its neighbour
            seen = Seen(1 + 1e-5 * up_and_down, 1.0)
            one = row(0, [seen], "core", scale, **GPU)
            three = replace(one, visits=3, visit_samples=[count // 3] * 3)  # else its run would have to tell
            pair.append(with_interval(three, 0.001))
        found = judged(*pair)
        assert found.verdict == verdict
        assert verdict == "SLOWER" or found.reason == "the rank test sees no difference"


# --- the clock --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scale", "clock", "verdict"),
    [
        (1.09, 1 / 1.09, "UNSURE"),
        (1.09, 1.0, "SLOWER"),
        (1.09, 1.09, "SLOWER"),  # slower although the clock was faster
        (1.09, 1 / 1.02, "SLOWER"),  # the clock explains a part of it
        (1.09, 1 / 1.084, "UNSURE"),  # nearly all
        (0.95, 1 / 1.09, "FASTER"),
        (0.95, 1.09, "UNSURE"),  # more cycles than before
        (1.0, 1 / 1.09, "SAME"),
    ],
)
@pytest.mark.parametrize("kind", ["cuda", "cpu"])
def test_a_change_is_confirmed_in_cycles(
    chance: np.random.Generator, kind: str, scale: float, clock: float, verdict: str
) -> None:
    """`clock` is how fast the clock is after, for what it was before."""
    if kind == "cuda":
        before, after = timed(chance), timed(chance, scale, sm_clock_hz=1.9e9 * clock)
    else:
        state_s = {"sentinel_before_s": 0.9e-4 / clock, "sentinel_after_s": 1.1e-4 / clock}
        before = timed(chance, device_kind="cpu")
        after = timed(chance, scale, device_kind="cpu", **state_s)
        before, after = (replace(one, sentinel_moved=0.0) for one in (before, after))
    found = judged(before, after)
    assert found.verdict == verdict
    if verdict == "UNSURE":
        assert found.reason == "the clock explains it"
        percent, rest = found.detail.split(maxsplit=1)
        assert float(percent) == pytest.approx(100 * (scale * clock - 1), abs=0.15)
        assert rest == "% in cycles" and percent != "-0.0"


def test_an_unknown_clock_confirms_nothing(chance: np.random.Generator) -> None:
    for changes in ({"sm_clock_hz": None}, {"sm_clock_hz": 0.0}):
        assert judged(timed(chance), timed(chance, 1.09, **changes)).verdict == "SLOWER"
    before, after = (timed(chance, scale, device_kind="cpu") for scale in (1.0, 1.09))
    assert judged(before, replace(after, sentinel_after_s=None)).verdict == "SLOWER"


def pair_of_runs(
    chance: np.random.Generator, scale: float, machine: Machine = still, cases: int = 4, **after: Any
) -> Comparison:
    """Whole runs on a GPU, with ceilings."""
    a = run(chance, machine, cases, 3, **GPU)
    b = run(chance, machine, cases, 3, scale, run_id="b", **(GPU | after))
    return compare(runs_of(a), runs_of(b))


def test_rows_at_memorys_speed_need_no_cycles(chance: np.random.Generator) -> None:
    found = pair_of_runs(chance, 1.05, sm_clock_hz=1.9e9 / 1.06)
    verdicts = {one.case.sweep: one.verdict for one in found.cases if "ceil" not in one.case.sweep}
    assert verdicts == {"gemm/square": "UNSURE", "stream/sizes": "SLOWER"}


def test_a_row_far_from_memorys_speed_follows_the_cores(chance: np.random.Generator) -> None:
    """The model says memory limits it, knowing no peak of the vector units: the time says otherwise."""
    for slower, verdict in ((1.0, "SLOWER"), (1.3, "UNSURE")):
        rows = [
            [
                *run(chance, still, 0, 3, run_id=name, **GPU),
                timed(chance, slower * scale, bound="memory", run_id=name, sm_clock_hz=1.9e9 / scale),
            ]
            for name, scale in (("a", 1.0), ("b", 1.05))
        ]
        found = compare(*map(runs_of, rows))
        assert [one.verdict for one in found.cases if one.case.sweep == "gemm/square"] == [verdict]


@pytest.mark.parametrize(("share", "verdict"), [(0.4, "SLOWER"), (1.0, "UNSURE")])
def test_a_row_that_computes_nearly_as_long_follows_the_cores_too(
    chance: np.random.Generator, share: float, verdict: str
) -> None:
    """Memory limits both; arithmetic takes 3/10 or 3/4 of the time beside it."""
    rows = []
    for name, scale in (("a", 1.0), ("b", 1.05)):
        both_limits = {"flop": int(share * FLOP), "arithmetic": "matrix", "sm_clock_hz": 1.9e9 / scale}
        one = timed(chance, scale, bound="memory", run_id=name, **both_limits)
        rows.append([*run(chance, still, 0, 3, run_id=name, **GPU), one])
    found = compare(*map(runs_of, rows))
    assert [one.verdict for one in found.cases if one.case.sweep == "gemm/square"] == [verdict]


# --- rows that are in doubt -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"settled": False}, "unsettled"),
        ({"foreign_processes": 1}, "shared"),
        ({"held_thermal": 0.1}, "throttled"),
    ],
)
@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("scale", [1.0, 1.3])
def test_a_row_that_a_flag_casts_doubt_on_is_unsure(
    chance: np.random.Generator, changes: dict[str, Any], name: str, side: int, scale: float
) -> None:
    pair = [timed(chance), timed(chance, scale)]
    pair[side] = replace(pair[side], **changes)
    found = judged(*pair)
    assert (found.verdict, found.reason) == ("UNSURE", f"{name} in {'AB'[side]}")
    assert found.effect is not None and found.effect.ratio == pytest.approx(scale, rel=1e-2)
    assert not found.sound


def test_a_flag_that_needs_the_ceilings(chance: np.random.Generator) -> None:
    """A case quicker than the roof of its run."""
    a = run(chance, still, 2, 3, **GPU)
    b = both(*run(chance, still, 2, 3, 0.5, **GPU))
    reasons = {one.reason for one in compare(runs_of(a), runs_of(b)).cases if "ceil" not in one.case.sweep}
    assert reasons == {"above_roof in B"}


@pytest.mark.parametrize("changes", [{"stop": "budget"}, {"stop": "visits"}, {"held_power": 0.5}])
def test_some_flags_cast_no_doubt(chance: np.random.Generator, changes: dict[str, Any]) -> None:
    assert judged(timed(chance), timed(chance, 1.2, **changes)).verdict == "SLOWER"


def test_a_noisy_row_is_judged_by_its_interval(chance: np.random.Generator) -> None:
    noisy = with_interval(timed(chance, 1.3), 0.06)
    assert judged(timed(chance), noisy).verdict == "SLOWER"
    assert judged(timed(chance, 1.26), noisy).verdict == "UNSURE"


@pytest.mark.parametrize("side", [0, 1])
def test_without_an_interval_nobody_can_tell(chance: np.random.Generator, side: int) -> None:
    pair = [timed(chance), timed(chance, 2.0)]
    pair[side] = replace(pair[side], low_s=None, high_s=None)
    found = judged(*pair)
    assert (found.verdict, found.effect) == ("UNSURE", None)
    assert found.reason == f"no interval in {'AB'[side]}: too few samples"


@pytest.mark.parametrize("side", [0, 1])
def test_one_visit_in_a_run_without_second_visits(chance: np.random.Generator, side: int) -> None:
    for scale in (1.0, 2.0):
        pair = [timed(chance), timed(chance, scale)]
        pair[side] = timed(chance, scale if side else 1.0, visits=1, asked=3)
        found = judged(*pair)
        assert (found.verdict, found.sound) == ("UNSURE", False)
        assert found.reason == f"one visit in {'AB'[side]}, and no case of its run had two"


def moving(share: float) -> Machine:
    """A machine whose every visit is at another level, so many percent (standard deviation) apart."""

    def visit(chance: np.random.Generator, bound: str, count: int) -> Seen:
        seen = still(chance, bound, count)
        return Seen(seen.samples * math.exp(share * chance.standard_normal()), 1.0)

    return visit


def test_one_visit_is_widened_by_what_the_machine_moves(chance: np.random.Generator) -> None:
    """The row's own interval says +-0.1 %; the machine moves by 2 % (1.96 deviations) from visit to visit.

    Ceilings: many, so that the noise is well known, and the same in both runs: nothing moved between them.
    """
    library = {"implementation": "onednn", "asked": 3, "device_kind": "cpu"}
    ceilings = [
        timed(chance, machine=moving(0.01), visits=6, case=case, sweep="ceilings/gemm", **library)
        for case in range(100)
    ]
    widths = {}
    for visits in (1, 4):
        pair = [timed(chance, visits=visits, case=1000, asked=3, device_kind="cpu") for _ in "ab"]
        found = compare(runs_of([*ceilings, pair[0]]), runs_of(both(*ceilings, pair[1])))
        (one,) = (each for each in found.cases if each.case.sweep == "gemm/square")
        assert one.effect is not None
        widths[visits] = math.log(one.effect.high / one.effect.low) / 2
        (seen,) = found.between.values()
        assert seen.core == 0.0
    # One visit on either side, each known to 1.96 standard deviations of 1 %; of four, to half of that.
    assert widths[1] == pytest.approx(0.0196 * math.sqrt(2), rel=0.15)
    assert widths[4] == pytest.approx(widths[1] / 2, rel=0.05)


def test_noise_that_a_row_s_interval_includes_widens_it_no_further(chance: np.random.Generator) -> None:
    """A GPU's row has no fixed kernel beside it, so its interval was published with the run's noise in it."""
    gpu = {"implementation": "cublas", "asked": 3}
    for sweep, visits in (("gemm/square", 1), ("ceilings/gemm", 4)):
        ceilings = [
            timed(chance, machine=moving(0.01), visits=6, case=case, sweep="ceilings/gemm", **gpu)
            for case in range(100)
        ]
        mine = with_interval(timed(chance, visits=visits, case=1000, sweep=sweep, **gpu), 0.02)
        found = compare(runs_of([*ceilings, mine]), runs_of(both(*ceilings, mine)))
        (one,) = (each for each in found.cases if '"m": 1000' in each.case.parameters)
        assert one.effect is not None
        half = math.log(one.effect.high / one.effect.low) / 2
        # A ceiling's interval only spans its visits: a half of 0.0098 is added to its 0.02.
        own = 0.02 if sweep == "gemm/square" else math.hypot(0.02, 0.0098)
        assert half == pytest.approx(own * math.sqrt(2), rel=0.03)


def test_what_ceilings_did_from_run_to_run_no_number_of_visits_lessens(chance: np.random.Generator) -> None:
    """Every ceiling is 4 % slower in B: a case that is 3 % slower may be the machine's doing."""
    for changes, verdicts in (({}, {"UNSURE"}), ({"torch": "2.14.0"}, {"SLOWER"})):
        a = run(chance, still, 4, 3, **GPU | {"implementation": "aten"})
        b = run(chance, still, 4, 3, 1.03, run_id="b", **GPU | {"implementation": "aten"} | changes)
        slow = [
            replace(one, samples_s=[1.04 * s for s in one.samples_s or []])
            if one.sweep.startswith("ceilings")
            else one
            for one in b
        ]
        slow = [
            replace(
                one, **{name: 1.04 * (getattr(one, name) or 0) for name in ("low_s", "median_s", "high_s")}
            )
            if one.sweep.startswith("ceilings")
            else one
            for one in slow
        ]
        found = compare(runs_of(a), runs_of(slow))
        assert {one.verdict for one in found.cases if "ceilings" not in one.case.sweep} == verdicts
        # Cases that are no ceilings tell nothing about the machine, nor do kernels of ours.
        found = compare(runs_of(a), runs_of(b))
        assert {one.verdict for one in found.cases if "ceilings" not in one.case.sweep} == {"SLOWER"}
        ours = [[replace(one, implementation="triton") for one in rows] for rows in (a, slow)]
        found = compare(*map(runs_of, ours))
        assert {one.verdict for one in found.cases if "ceilings" not in one.case.sweep} == {"SLOWER"}


# --- how often it cries wolf ------------------------------------------------------------------------


MACHINES = [
    (kind, machine, visits)
    for kind in ("cpu", "cuda")
    for machine in (clean, stragglers, drifting, two_states)
    for visits in (1, 3)
]


@pytest.mark.parametrize(
    ("kind", "machine", "visits"),
    drawn(MACHINES, 3, "the same code"),
    ids=lambda of: getattr(of, "__name__", of),
)
def test_the_same_code_twice(chance: np.random.Generator, kind: str, machine: Machine, visits: int) -> None:
    """At most 1 % false alarms. Cases enough that no bad luck fails: the worst of these has some 0.2 %."""
    pairs = 16 if visits == 1 else 8
    found = shares(chance, machine, visits, 0.0, pairs, kind)
    print(found)
    assert found.comparable == CASES * pairs
    assert found.of("FASTER", "SLOWER") <= 0.01
    if machine in (clean, stragglers):
        assert found.of("SAME") >= 0.95


@pytest.mark.parametrize(
    ("kind", "effect", "least"),
    drawn(
        [("cuda", 0.02, 0.8), ("cuda", 0.05, 0.95), ("cuda", -0.05, 0.95), ("cpu", 0.05, 0.95)], 1, "effects"
    ),
)
def test_what_is_there_is_found(chance: np.random.Generator, kind: str, effect: float, least: float) -> None:
    """Three visits on a clean machine. (Of a CPU no interval is narrower than 1 %: 2 % is too little.)"""
    found = shares(chance, clean, 3, effect, 4, kind)
    print(found)
    assert found.of("SLOWER" if effect > 0 else "FASTER") >= least
    assert found.of("FASTER" if effect > 0 else "SLOWER") == 0
    assert found.of("SAME") <= 0.01
