"""The noise of a row: how restless its run was, and how far its interval is widened by that, once."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bench.judge.noise import (
    CALMEST,
    PRIOR_STEPS,
    USUAL,
    Noise,
    Repeated,
    interval,
    noise_of,
    usual_half,
)
from bench.judge.work_class import WorkClass, work_of
from bench.sampling.publish import PRIOR_FREEDOM, MedianSpread, student
from bench.store.schema import Measurement
from tests.bench.comparable import CPU, GPU, NOTHING, Seen, clean, row, run, still, timed, visits_to
from tests.bench.rows import Chance, older, with_ends, with_interval

KINDS = ("cpu", "cuda")


def stepping(kind: str, work: WorkClass, share: float, steps: int = 1, undisturbed: bool = True) -> Repeated:
    """A case each of whose visits is so many times the usual step from the one before."""
    step = share * USUAL[kind][work].visits
    return Repeated(work, [1e-3 * math.exp(step * (visit % 2)) for visit in range(steps + 1)], undisturbed)


# --- how restless a run was -------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_without_a_repeated_case_a_run_is_as_restless_as_usual(kind: str, chance: Chance) -> None:
    alone = [Repeated(WorkClass.COMPUTE, [1e-3], True), Repeated(WorkClass.CACHE, [], True)]
    assert Noise.seen(kind, []) == Noise.seen(kind, alone) == Noise(kind, 1.0, 0)
    one = timed(chance, device_kind=kind)
    assert Noise(kind).of(one) == USUAL[kind][WorkClass.COMPUTE]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("work", [WorkClass.COMPUTE, WorkClass.MEMORY, WorkClass.CACHE, WorkClass.LAUNCH])
def test_each_kind_of_work_is_held_against_its_own_usual_noise(kind: str, work: WorkClass) -> None:
    """That a machine was restless is believed at once, that it was calm the more steps say so."""
    for share, factor in ((3.0, 3.0), (0.6, (12 * 0.6 + PRIOR_STEPS) / (12 + PRIOR_STEPS))):
        noise = Noise.seen(kind, [stepping(kind, work, share, 12)])
        assert noise.factor == pytest.approx(factor) and noise.steps == 12


def test_the_factor_is_what_95_in_100_steps_do_not_exceed(chance: Chance) -> None:
    """Of 4,000 steps between normal visits the 95th percentile scatters by 1.5 %."""
    levels = np.exp(chance.normal(0, 0.01, (4000, 2)))
    noise = Noise.seen("cuda", [Repeated(WorkClass.COMPUTE, pair.tolist(), True) for pair in levels])
    step = 1.96 * 0.01 * math.sqrt(2)
    assert noise.factor == pytest.approx(step / USUAL["cuda"][WorkClass.COMPUTE].visits, rel=0.1)
    # One odd case of many does not say that the machine is restless; that every tenth is odd does.
    quiet = [stepping("cuda", WorkClass.COMPUTE, 0.5) for _ in range(90)]
    odd = [stepping("cuda", WorkClass.COMPUTE, 40.0) for _ in range(10)]
    assert Noise.seen("cuda", [*quiet, odd[0]]).factor < 1 < 30 < Noise.seen("cuda", [*quiet, *odd]).factor


def test_few_steps_hardly_lower_the_factor_and_none_brings_it_below_the_calmest() -> None:
    one, many = (Noise.seen("cpu", [stepping("cpu", WorkClass.MEMORY, 0.0, steps)]) for steps in (1, 500))
    assert one.factor == pytest.approx(PRIOR_STEPS / (1 + PRIOR_STEPS)) and many.factor == CALMEST["cpu"] > 0


def test_disturbed_cases_count_only_where_there_are_no_others() -> None:
    calm = [stepping("cpu", WorkClass.COMPUTE, 1.0) for _ in range(5)]
    disturbed = [stepping("cpu", WorkClass.COMPUTE, 9.0, undisturbed=False) for _ in range(20)]
    assert Noise.seen("cpu", [*calm, *disturbed]) == Noise.seen("cpu", calm)
    assert Noise.seen("cpu", disturbed).factor == pytest.approx(9.0)
    # A calm case that was visited once tells nothing, so it keeps nobody out.
    once = Repeated(WorkClass.COMPUTE, [1e-3], True)
    assert Noise.seen("cpu", [once, *disturbed]) == Noise.seen("cpu", disturbed)


def test_both_parts_of_the_usual_spread_grow_by_the_factor(chance: Chance) -> None:
    spread = Noise("cpu", 2.5, 9).of(timed(chance, device_kind="cpu"))
    assert spread == pytest.approx([2.5 * part for part in USUAL["cpu"][WorkClass.COMPUTE]])


@pytest.mark.parametrize(
    ("columns", "work"),
    [
        ({}, WorkClass.COMPUTE),
        ({"arithmetic": "vector"}, WorkClass.MEMORY),  # computes as it may: no product of matrices
        ({"flop": 6400, "byte": 100}, WorkClass.COMPUTE),
        ({"flop": 6399, "byte": 100}, WorkClass.MEMORY),  # the product of a small batch
        ({"flop": 0, "arithmetic": "matrix", "byte": 1, "cache_byte": 1, "cache": "warm"}, WorkClass.CACHE),
        ({"cache": "warm", "byte": 100, "cache_byte": 100}, WorkClass.CACHE),
        # Warm, but it does not fit.
        ({"cache": "warm", "byte": 101, "cache_byte": 100, "arithmetic": "vector"}, WorkClass.MEMORY),
        (NOTHING, WorkClass.LAUNCH),
        (NOTHING | {"cache": "warm"}, WorkClass.LAUNCH),
    ],
)
def test_the_kind_of_work_is_what_was_measured(
    chance: Chance, columns: dict[str, Any], work: WorkClass
) -> None:
    assert work_of(timed(chance, **columns)) == work


# --- the visits of a run ----------------------------------------------------------------------------


def factor(*steps: float) -> float:
    """The factor of a GPU's matrix products that moved by these steps, |ln|."""
    medians_s = [1e-3]
    for step in steps:
        medians_s.append(medians_s[-1] * math.exp(step))
    return Noise.seen("cuda", [Repeated(WorkClass.COMPUTE, medians_s, True)]).factor


def at(level: float) -> Seen:
    return Seen(np.full(20, level), 1.0)


def test_visits_that_were_outvoted_count_and_disturbed_ones_do_not() -> None:
    one = row(0, [at(4.0), at(4.0)], **GPU)
    aside = replace(one, set_aside=["earlier", "contended", "earlier"], set_aside_s=[1e-3, 9e-3, 2e-3])
    noise = noise_of([aside], [False])
    assert noise.steps == 3 and noise.factor == pytest.approx(factor(math.log(2), math.log(2), 0.0))
    assert noise_of([one], [False]).steps == 1
    assert noise_of([replace(one, visit_samples=None)], [False]).steps == 0


def test_visits_that_are_rows_of_their_own_are_taken_in_their_order() -> None:
    """Those of a journal, and those to the ceilings of older files."""
    first, second, third = visits_to(0, [at(1.0), at(2.0), at(8.0)], **GPU)
    noise = noise_of([third, first, second], [False] * 3)
    assert noise.steps == 2 and noise.factor == pytest.approx(factor(math.log(2), math.log(4)))


def test_of_a_case_that_was_disturbed_once_the_other_visits_tell() -> None:
    made = visits_to(0, [at(1.0), at(9.0), at(1.1), at(1.2)], **GPU)
    noise = noise_of(made, [False, True, False, False])
    assert noise == noise_of([made[0], *made[2:]], [False] * 3) and noise.steps == 2
    # With one other it is a disturbed case: it counts if there is no better.
    noise = noise_of(made[:2], [False, True])
    assert noise.steps == 1 and noise.factor == pytest.approx(factor(math.log(9)))
    calm = visits_to(1, [at(1.0), at(1.0)], **GPU)
    assert noise_of([*made[:2], *calm], [False, True, False, False]) == noise_of(calm, [False, False])


def test_visits_that_had_not_settled_or_have_no_time_tell_nothing() -> None:
    first, second = visits_to(0, [at(1.0), at(2.0)], **GPU)
    for spoiled in (
        replace(second, settled=False),
        replace(second, status="wrong"),
        replace(second, status="crashed", median_s=None),
    ):
        assert noise_of([first, spoiled], [False, False]).steps == 0


# --- the interval of a row --------------------------------------------------------------------------


def halves(one: Measurement, ends: tuple[float, float] | None) -> tuple[float, float]:
    """How far below and above its median the interval reaches, ln."""
    assert ends is not None and one.median_s is not None
    return math.log(one.median_s / ends[0]), math.log(ends[1] / one.median_s)


def published(one: Measurement) -> tuple[float, float]:
    assert one.low_s is not None and one.high_s is not None
    return one.low_s, one.high_s


NOISE = Noise("cuda", 4.0, 50)


def test_a_row_of_this_protocol_is_taken_at_its_word(chance: Chance) -> None:
    """Published with the noise of its run, it is not widened by it again."""
    one = row(0, [still(chance, "core", 60) for _ in range(3)], noise=NOISE, **GPU)
    assert interval(one, NOISE) == interval(one, Noise("cuda")) == published(one)
    assert halves(one, published(one)) == pytest.approx([NOISE.of(one).over(3).half] * 2, rel=1e-2)


@pytest.mark.parametrize("sweep", ["gemm/square", "ceilings/gemm"])
@pytest.mark.parametrize("visits", [1, 2, 4])
def test_an_older_row_is_made_anew_from_its_samples(chance: Chance, sweep: str, visits: int) -> None:
    """It may hold some of the noise already: its interval then is what a row of today would publish."""
    seen = [clean(chance, "core", 60) for _ in range(visits)]
    today = row(0, seen, noise=NOISE, sweep=sweep, **GPU)
    for told in (0.001, 0.3):
        ends = interval(older(with_interval(today, told)), NOISE)
        assert halves(today, ends) == pytest.approx(halves(today, published(today)))
    # So it is with the columns that a file without visits lacks.
    if visits == 1:
        bare = replace(older(today), visit_samples=None, visits=None, step_s=None)
        assert halves(today, interval(bare, NOISE)) == pytest.approx(halves(today, published(today)))


def test_an_older_row_whose_first_visits_were_outvoted_is_as_wide_as_one_visit(chance: Chance) -> None:
    seen = [Seen(1.3 * np.ones(60), 1.0), *(clean(chance, "core", 60) for _ in range(3))]
    today = row(0, seen, noise=NOISE, **GPU)
    assert today.set_aside == ["earlier"]
    assert halves(today, published(today)) == pytest.approx([NOISE.of(today).over(1).half] * 2)
    ends = interval(older(with_interval(today, 0.001)), NOISE)
    assert halves(today, ends) == pytest.approx(halves(today, published(today)))


def test_an_imported_row_has_its_own_interval_and_the_devices_noise(chance: Chance) -> None:
    """Whoever measured it, and by whatever protocol: it does not say what it holds of the noise."""
    one = replace(older(with_interval(timed(chance), 0.01)), source="somebody; a file", samples_s=None)
    one = replace(one, visit_samples=None, visits=None)
    spread = NOISE.of(one)
    for version in (None, "p3"):
        ends = interval(replace(one, protocol_version=version), NOISE)
        assert halves(one, ends) == pytest.approx([math.hypot(spread.visits, spread.runs)] * 2)
    # Its own counts where it is the wider: the part between runs is still added to it.
    wide = with_interval(one, 0.2)
    down, up = halves(wide, interval(wide, NOISE))
    assert up == pytest.approx(math.hypot(math.log(1.2), spread.runs))
    assert down == pytest.approx(math.hypot(-math.log(0.8), spread.runs))


def test_where_it_is_not_known_there_is_no_interval(chance: Chance) -> None:
    one = timed(chance)
    ends: list[dict[str, Any]] = [{"low_s": None}, {"high_s": None}, {"median_s": None}]
    ends += [{"low_s": 0.0}, {"high_s": math.inf}]
    few = older(row(0, [at(1.0)._replace(samples=np.ones(5))], **GPU))
    few = with_interval(few, 0.1)  # whatever it says, five samples say nothing
    for unknown in (*(replace(one, **changes) for changes in ends), with_ends(one, 1.1, 1.2), few):
        assert interval(unknown, NOISE) is None


@pytest.mark.parametrize("kind", KINDS)
def test_every_row_of_a_run_holds_the_noise_of_that_run_once_and_says_so(chance: Chance, kind: str) -> None:
    """A machine that hardly moves: what is left of an interval is the noise, of ceilings as of cases."""
    made = run(chance, still, 8, 3, **({"device_kind": kind} | (GPU if kind == "cuda" else CPU)))
    noise = noise_of(made, [False] * len(made))
    assert all(of == pytest.approx(CALMEST[kind], rel=0.25) for of in noise.factors.values())
    for one in made:
        spread = noise.of(one).over(len(one.visit_samples or ()))
        if one.role == "measurement":  # three visits: their own scatter, next to none, and that of the others
            half = student(PRIOR_FREEDOM + 2, 0.95) * math.sqrt(PRIOR_FREEDOM / (PRIOR_FREEDOM + 2) / 3)
            spread = spread._replace(visits=half * spread.deviation)
        assert (one.noise_visits, one.noise_runs) == pytest.approx((spread.visits, spread.runs), rel=0.05)
        least = math.hypot(max(spread.visits, 0.002), spread.runs)  # no row's own interval is narrower
        assert halves(one, published(one)) == pytest.approx([least] * 2, rel=0.15)
        assert usual_half(one) == pytest.approx(spread.half, rel=0.05)


def test_a_spread_of_nothing_widens_nothing() -> None:
    assert MedianSpread(0.0, 0.0).widen(1.0, 0.9, 1.2) == pytest.approx((0.9, 1.2))
