"""Two runs compared: the bars of every verdict, and what flags and the clock explain."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bench.cli.compare import comparison_lines
from bench.judge.noise import PUBLISHED, USUAL
from bench.judge.within_run import PRIOR_FREEDOM
from bench.judge.work_class import WorkClass
from bench.runner.merge_visits import joined
from bench.sampling.publish import student
from tests.bench.comparable import (
    GPU,
    KNOWN,
    LIBRARY,
    Seen,
    compared,
    judged,
    quiet,
    run,
    runs_of,
    slowed,
    still,
    timed,
    verdicts,
    visits_to,
)
from tests.bench.rows import Chance, lasting, older, with_ends, with_interval

INCLUDES = "the interval includes no change"

# --- slower, faster, the same -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scale", "verdict"),
    [
        *((1.2, "SLOWER"), (1.03, "SLOWER"), (0.97, "FASTER"), (0.5, "FASTER"), (1.0, "SAME")),
        *(
            (1.006, "SAME"),
            (1 / 1.006, "SAME"),
            (1.009, "UNDECIDED"),
            (1.011, "SLOWER"),
            (1 / 1.011, "FASTER"),
        ),
    ],
)
def test_slower_faster_and_the_same(chance: Chance, scale: float, verdict: str) -> None:
    """1 % is the least that counts. Intervals of 0.2 % either side: 0.9 % may be nothing or may be 1.2 %."""
    before = timed(chance)
    found = judged(before, timed(chance, scale))
    assert found.verdict == verdict and bool(found.reason) == (verdict == "UNDECIDED")
    assert found.effect is not None and found.effect.low < found.effect.ratio < found.effect.high
    assert found.effect.ratio == pytest.approx(scale, rel=2e-3) and found.before_s == before.median_s


def test_the_effects_interval_is_both_rows_added_as_squares(chance: Chance) -> None:
    """Downwards as far as the one after may be quicker and the one before slower."""
    one, other = (replace(timed(chance, scale), run_half=0.0) for scale in (1.0, 1.2))
    before, after = with_ends(one, 0.99, 1.04), with_ends(other, 0.97, 1.02)
    effect = judged(before, after).effect
    assert effect is not None and effect.ratio == (after.median_s or 0) / (before.median_s or 1)
    down = math.hypot(math.log(0.97), math.log(1.04))
    up = math.hypot(math.log(0.99), math.log(1.02))
    assert math.log(effect.low / effect.ratio) == pytest.approx(-down)
    assert math.log(effect.high / effect.ratio) == pytest.approx(up)


@pytest.mark.parametrize(
    ("kind", "scale", "share", "verdict"),
    [
        # What differs by less than a tenth is the same on a CPU where nothing was seen.
        *(("cpu", 1.02, 0.03, "SAME"), ("cpu", 1.02, 0.09, "UNDECIDED")),
        *(("cpu", 1.06, 0.01, "SLOWER"), ("cpu", 0.94, 0.01, "FASTER")),
        # Slower needs an interval of the effect without 1: 5 % is as much as two of 3.5 % together.
        *(("cuda", 1.0513, 0.034, "SLOWER"), ("cuda", 1.0513, 0.036, "UNDECIDED")),
        *(("cuda", 1 / 1.0513, 0.034, "FASTER"), ("cuda", 1 / 1.0513, 0.036, "UNDECIDED")),
    ],
)
def test_an_interval_that_includes_no_change_is_none(
    chance: Chance, kind: str, scale: float, share: float, verdict: str
) -> None:
    pair = (with_interval(timed(chance, each, device_kind=kind), share) for each in (1.0, scale))
    found = judged(*pair)
    assert (found.verdict, found.reason) == (verdict, INCLUDES if verdict == "UNDECIDED" else "")


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize(("share", "reason"), [(0.0096, ""), (0.0100, INCLUDES)])
def test_same_is_an_effect_whose_interval_is_within_the_least_effect(
    chance: Chance, side: int, share: float, reason: str
) -> None:
    pair = [timed(chance), timed(chance)]
    pair[side] = with_interval(pair[side], share)
    found = judged(*pair)
    assert (found.verdict, found.reason) == ("UNDECIDED" if reason else "SAME", reason)


# --- the clock --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scale", "clock", "verdict"),
    [
        (1.09, 1 / 1.09, "UNDECIDED"),
        (1.09, 1.0, "SLOWER"),
        (1.09, 1.09, "SLOWER"),  # slower although the clock was faster
        (1.09, 1 / 1.02, "SLOWER"),  # the clock explains a part of it
        (1.09, 1 / 1.084, "UNDECIDED"),  # nearly all
        (0.95, 1 / 1.09, "FASTER"),
        (0.95, 1.09, "UNDECIDED"),  # more cycles than before
        (1.0, 1 / 1.09, "SAME"),
    ],
)
def test_a_change_of_a_matrix_product_is_confirmed_in_cycles(
    chance: Chance, scale: float, clock: float, verdict: str
) -> None:
    """`clock` is how fast the clock is after, for what it was before."""
    found = judged(timed(chance), timed(chance, scale, sm_clock_hz=1.9e9 * clock))
    assert found.verdict == verdict
    if verdict == "UNDECIDED":
        assert found.reason == "the clock explains it"
        percent, rest = found.detail.split(maxsplit=1)
        assert float(percent) == pytest.approx(100 * (scale * clock - 1), abs=0.15)
        assert rest == "% in cycles" and percent != "-0.0"


def test_other_work_need_not_follow_the_clock(chance: Chance) -> None:
    for work in ({"bound": "memory"}, {"flop": 0, "byte": 0}):
        pair = [timed(chance, scale, sm_clock_hz=1.9e9 / scale, **work) for scale in (1.0, 1.09)]
        assert judged(*pair).verdict == "SLOWER"


def test_an_unknown_clock_confirms_nothing(chance: Chance) -> None:
    for changes in ({"sm_clock_hz": None}, {"sm_clock_hz": 0.0}):
        assert judged(timed(chance), timed(chance, 1.09, **changes)).verdict == "SLOWER"
        assert judged(timed(chance, **changes), timed(chance, 1.09)).verdict == "SLOWER"
    pair = [timed(chance, scale, device_kind="cpu") for scale in (1.0, 1.09)]
    assert judged(*pair).verdict == "SLOWER"


# --- flags ------------------------------------------------------------------------------------------

WAITED: list[tuple[dict[str, Any], str]] = [
    ({"pressure": 0.2}, "contended"),
    ({"on_processor": 0.8}, "contended"),
    ({"steal": 0.2}, "stolen"),
]
"""Columns that say that a fifth of the time was lost to others, and the flag that they raise."""
DRIFTED = {"samples_s": [1e-3 * (1 + 0.05 * i / 60) for i in range(60)], "visit_samples": [60]}
"""Samples that end 5 % later than they began."""


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize(("scale", "verdict"), [(2.0, "SLOWER"), (0.5, "FASTER")])
@pytest.mark.parametrize(
    ("changes", "name"),
    [
        *WAITED,
        ({"settled": False}, "unsettled"),
        ({"held_thermal": 0.3}, "throttled"),
        ({"stop": "budget"}, "unconverged"),
        ({"held_power": 0.5}, "power_capped"),
        (DRIFTED, "drifting"),
        ({}, "noisy"),
    ],
)
def test_a_flag_vetoes_no_factor_of_two(
    chance: Chance, changes: dict[str, Any], name: str, scale: float, verdict: str, side: int
) -> None:
    pair = [timed(chance), timed(chance, scale)]
    pair[side] = replace(pair[side], **changes)
    if name == "noisy":
        pair[side] = with_interval(pair[side], 0.1)
    (flagged,) = runs_of([pair[side]])
    assert flagged.flags == [[name]]
    assert judged(*pair).verdict == verdict


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize(("changes", "name"), WAITED)
@pytest.mark.parametrize(
    ("longer", "explained"), [(1.03, True), (1.3, False), (0.97, False)], ids=["3 %", "30 %", "-3 %"]
)
def test_what_a_flag_explains_is_unsure_and_says_which(
    chance: Chance, changes: dict[str, Any], name: str, side: int, longer: float, explained: bool
) -> None:
    """A fifth of the time was lost: of 3 % nobody can say whose doing it was, of 30 % one can.

    Waiting makes a row slower and never quicker: of a row that is quicker all the same, nothing is explained.
    """
    scale = longer if side else 1 / longer
    pair = [timed(chance), timed(chance, scale)]
    pair[side] = replace(pair[side], **changes)
    found = judged(*pair)
    assert found.verdict == ("UNDECIDED" if explained else "SLOWER" if scale > 1 else "FASTER")
    assert found.effect is not None and found.effect.ratio == pytest.approx(scale, rel=1e-2)
    if explained:
        assert found.reason == f"{INCLUDES} ({name})"
        ends = found.effect.low / scale, found.effect.high / scale
        assert ends[0] < 0.82 and 1 < ends[1] < 1.05 if side else 0.95 < ends[0] < 1 and ends[1] > 1.22


def test_another_process_explains_as_much_as_it_may_have_taken(chance: Chance) -> None:
    for scale, verdict in ((1.9, "UNDECIDED"), (2.1, "SLOWER")):
        assert judged(timed(chance), timed(chance, scale, foreign_processes=1)).verdict == verdict


def test_a_case_that_is_quicker_than_its_roof_is_judged_all_the_same(chance: Chance) -> None:
    a = run(chance, still, 2, 3, **GPU)
    assert verdicts(compared(a, [slowed(one, 0.5) for one in a])) == {("FASTER", "")}


@pytest.mark.parametrize("side", [0, 1])
def test_without_an_interval_nobody_can_tell(chance: Chance, side: int) -> None:
    pair = [timed(chance, visits=1), timed(chance, 2.0, visits=1)]
    pair[side] = replace(pair[side], low_s=None, high_s=None)
    found = judged(*pair)
    assert (found.verdict, found.effect) == ("UNDECIDED", None)
    assert found.reason == f"no interval in {'AB'[side]}: too few samples"


# --- the noise of a run -----------------------------------------------------------------------------


@pytest.mark.parametrize("today", [True, False])
@pytest.mark.parametrize("visits", [1, 4])
def test_a_row_has_the_noise_of_its_run_once(chance: Chance, today: bool, visits: int) -> None:
    """An older row has none of it or some of it: it is made anew. One of today was published with it."""
    made = [
        visit
        for case in range(20)
        for visit in visits_to(
            case, [Seen(np.full(60, math.exp(0.05 * (n % 2))), 1.0) for n in range(4)], **GPU
        )
    ]
    made += visits_to(1000, [still(chance, "core", 60) for _ in range(visits)], **GPU)
    rows = joined(made)
    if not today:
        rows = [older(with_interval(one, 0.001)) for one in rows]
    (found,) = (each for each in compared(rows, rows).cases if '"m": 1000}' in each.case.parameters)
    (one,) = (one for one in joined(made) if '"m": 1000}' in one.parameters)
    assert found.effect is not None and one.run_half and one.noise_runs
    half = math.log(found.effect.high / found.effect.low) / 2
    # Two scatters have twice the degrees of freedom of one: its own visits', and those of the prior.
    freedom = PRIOR_FREEDOM + visits - 1
    within = one.run_half * student(2 * freedom, 0.95) / student(freedom, 0.95)
    assert half == pytest.approx(math.sqrt(2) * math.hypot(within, one.noise_runs), rel=0.03)
    assert one.run_half > 0.02, "one case that agrees does not say that a restless machine is calm"


@pytest.mark.parametrize(
    ("kind", "visits", "settled", "verdict"),
    [
        *(("cpu", 1, True, "UNDECIDED"), ("cpu", 2, True, "SLOWER"), ("cpu", 2, False, "SLOWER")),
        *(("cuda", 1, True, "SLOWER"), ("cuda", 1, False, "UNDECIDED")),
    ],
)
def test_one_visit_decides_nothing_on_a_cpu_nor_where_it_had_not_settled(
    chance: Chance, kind: str, visits: int, settled: bool, verdict: str
) -> None:
    before, after = (timed(chance, scale, visits=visits, device_kind=kind) for scale in (1.0, 2.0))
    found = judged(before, replace(after, settled=settled))
    assert (found.verdict, found.reason) == (verdict, "one visit" if verdict == "UNDECIDED" else "")


def test_an_older_row_of_a_run_without_second_visits_has_the_usual_noise(chance: Chance) -> None:
    usual = USUAL["cuda"][WorkClass.COMPUTE]
    apart = math.exp(math.sqrt(2) * math.hypot(usual.visits / math.sqrt(2), usual.runs))
    pair = [timed(chance, scale, visits=1) for scale in (1.0, 0.98 * apart)]
    assert judged(*pair).verdict == "SLOWER"
    assert judged(*map(older, pair)).verdict == "UNDECIDED"
    assert judged(older(pair[0]), older(lasting(pair[1], 1.04))).verdict == "SLOWER"


@pytest.mark.parametrize(
    ("work", "apart"), [({}, 0.052), ({"arithmetic": "vector"}, 0.033), ({"cache": "warm"}, 0.052)]
)
def test_what_published_runs_of_a_launch_differ_by_is_no_change(
    chance: Chance, work: dict[str, Any], apart: float
) -> None:
    """Of an A100 95 pairs of 100, in Vidur's tables; the report says whose noise it is."""
    before, after = (older(timed(chance, scale, visits=1, **work)) for scale in (1.0, math.exp(apart)))
    found = compared([before], [after])
    (one,) = found.cases
    assert one.verdict == "UNDECIDED" and one.effect is not None and one.effect.low < 1 < one.effect.high
    assert f"noise between runs of 1 case: {PUBLISHED}" in list(comparison_lines(found))
    own = compared(*([replace(timed(chance), noise_runs=0.001)] for _ in "ab"))
    assert PUBLISHED not in " ".join(comparison_lines(own))


# --- what the exit code says ------------------------------------------------------------------------


def test_one_operator_that_became_slower(chance: Chance) -> None:
    nights = [run(chance, quiet, 8, 1, **LIBRARY) for _ in range(KNOWN)]
    a, b = (
        [
            replace(one, operator="softmax") if one.sweep == "stream/sizes" else one
            for one in run(chance, quiet, 24, 3, earlier=nights, **LIBRARY)
        ]
        for _ in "ab"
    )
    slow = [slowed(one, 1.1) if one.operator == "softmax" else one for one in b]
    found = compared(a, slow)
    assert {one.verdict for one in found.cases if one.case.operator == "softmax"} == {"SLOWER"}
    assert not [one for one in found.of("SLOWER", "FASTER") if one.case.operator != "softmax"]
    means = {mean.operator: mean for mean in found.means}
    assert {name: mean.verdict for name, mean in means.items()} == {
        "softmax": "SLOWER", "gemm": "SAME", "ceilings: gemm": "SAME"
    }  # fmt: skip
    assert means["softmax"].effect.ratio == pytest.approx(1.1, rel=5e-3) and means["softmax"].cases == 12
    assert found.exit_code == 1
    (shift,) = found.shifts.values()
    assert abs(shift.by) < 0.01, "no shift of the machine, though chance may make a small one sure"
    assert compared(slow, b).exit_code == 0, "faster is no reason to stop"


@pytest.mark.parametrize(("count", "verdict", "code"), [(16, "SLOWER", 1), (1, "UNDECIDED", 3)])
def test_an_operator_is_decided_by_all_its_cases_together(
    chance: Chance, count: int, verdict: str, code: int
) -> None:
    """2 % slower each, and no interval of a case narrower than 3 %: sixteen together are sure."""
    found = compared(
        *([with_interval(timed(chance, by, case=case), 0.03) for case in range(count)] for by in (1.0, 1.02))
    )
    assert {one.verdict for one in found.cases} == {"UNDECIDED"}
    assert [mean.verdict for mean in found.means] == [verdict] and found.exit_code == code


@pytest.mark.parametrize(("others", "verdict"), [(0, "SLOWER"), (30, "UNDECIDED")])
def test_one_of_many_that_stands_out_by_chance_is_no_change(
    chance: Chance, others: int, verdict: str
) -> None:
    """2.5 standard errors: alone that is a change, and among thirty one such is expected now and then."""
    pairs = [[with_interval(timed(chance, case=case), 0.02)] * 2 for case in range(others)]
    pairs += [[with_interval(timed(chance, by, case=99), 0.02) for by in (1.0, 1.037)]]
    (found,) = (
        each for each in compared(*zip(*pairs, strict=True)).cases if '"m": 99}' in each.case.parameters
    )
    assert found.verdict == verdict and found.effect is not None and found.effect.low > 1
    assert found.reason == ("" if verdict == "SLOWER" else "chance, among so many cases")


@pytest.mark.parametrize(("threads", "visits", "compares"), [(1, 3, True), (2, 3, False), (1, 1, False)])
def test_a_thread_that_was_off_the_processor_for_half_of_it_explains_two_times_and_not_five(
    chance: Chance, threads: int, visits: int, compares: bool
) -> None:
    """Others waited all the time; its visits agree. With several threads each launch waits for the last."""
    busy = {"pressure": 1.0, "on_processor": 0.5, "threads": threads, "visits": visits, "device_kind": "cpu"}
    one, twice, five = (timed(chance, scale, **busy) for scale in (1.0, 1.8, 5.0))
    assert not any(run.measured for run in runs_of([one, five])), "no number for a table"
    for after, verdict in ((five, "SLOWER"), (twice, "UNDECIDED")):
        assert [each.verdict for each in compared([one], [after]).cases] == [verdict] * compares


def test_cases_that_all_waited_for_one_neighbour_decide_nothing_together(chance: Chance) -> None:
    """A fifth of the time of every row of B was lost: that may be all of 10 %, however many they are."""
    a = [timed(chance, case=case) for case in range(30)]
    found = compared(a, [timed(chance, 1.1, case=case, pressure=0.2) for case in range(30)])
    assert {one.reason for one in found.cases} == {f"{INCLUDES} (contended)"}
    assert [mean.verdict for mean in found.means] == ["UNDECIDED"] and found.exit_code == 3
