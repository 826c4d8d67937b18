"""The published interval of a row: its visits and what runs differ by, once, and by whose account."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bench.judge.noise import RESTLESS, USUAL, interval, usual_half
from bench.judge.read_runs import runs
from bench.judge.within_run import within_run
from bench.judge.work_class import WorkClass, work_of
from bench.runner.merge_visits import joined
from bench.store.schema import Measurement
from tests.bench.comparable import CPU, GPU, NOTHING, Seen, run, still, timed, visits_to
from tests.bench.rows import Chance, older, with_ends, with_interval

KINDS = {"cpu": {"device_kind": "cpu"} | CPU, "cuda": GPU}


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


def halves(one: Measurement) -> tuple[float, float]:
    """How far below and above its median the published interval reaches, ln."""
    assert one.median_s and one.low_s and one.high_s
    return math.log(one.median_s / one.low_s), math.log(one.high_s / one.median_s)


def stepping(step: float, kind: str) -> list[Measurement]:
    """Rows of a run whose cases differ by this step, ln, from one visit to the next."""
    levels = [Seen(np.full(60, math.exp(step * (n % 2))), 1.0) for n in range(4)]
    return joined([visit for case in range(12) for visit in visits_to(case, levels, **KINDS[kind])])


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_publishes_its_run_s_noise_and_what_runs_differ_by(kind: str, chance: Chance) -> None:
    """A calm run says nothing of the next one; a restless one says that it will be as restless."""
    usual = USUAL[kind][WorkClass.COMPUTE].runs
    for made in (run(chance, still, 8, 3, **KINDS[kind]), stepping(0.2, kind)):
        for one in made:
            assert one.run_half is not None and one.noise_runs is not None
            assert halves(one) == pytest.approx([math.hypot(one.run_half, one.noise_runs)] * 2)
            assert one.noise_by == "assumed"
    calm = next(one for one in run(chance, still, 8, 3, **KINDS[kind]) if work_of(one) == "compute")
    assert calm.noise_runs == usual and (calm.run_half or 1) < 0.003
    restless = stepping(0.2, kind)[0]
    deviation = 0.2 * math.sqrt(1 / 3)  # of four visits that take turns; of so few by a fifth more
    assert restless.noise_runs == pytest.approx(RESTLESS * 1.2 * deviation, rel=0.05)
    assert restless.run_half == pytest.approx(2.57 * deviation / 2, rel=0.15)


@pytest.mark.parametrize("kind", KINDS)
def test_an_older_row_is_made_anew_from_its_samples(kind: str) -> None:
    """It may hold some of the noise already: its interval then is what a row of today would publish."""
    today = stepping(0.05, kind)
    for told in (0.001, 0.3):
        before = [older(with_interval(one, told)) for one in today]
        (read,) = runs(before)
        for one, was, within in zip(today, before, read.within, strict=True):
            found = interval(was, within)
            assert found is not None and found[:2] == pytest.approx(halves(one))
            assert found[2].half == pytest.approx(one.noise_runs) and found[2].by == "assumed"


def test_a_row_of_today_is_taken_at_its_word(chance: Chance) -> None:
    one = replace(with_ends(timed(chance), 0.8, 1.5), noise_runs=0.1)
    found = interval(one, within_run([one])[0])
    assert found is not None and found[:2] == pytest.approx((-math.log(0.8), math.log(1.5)))
    assert found[2] == (0.1, "history")


def test_an_imported_row_has_its_own_interval_and_the_usual_noise(chance: Chance) -> None:
    """Whoever measured it, and by whatever protocol: it does not say what it holds of the noise."""
    one = replace(older(with_interval(timed(chance), 0.01)), source="somebody; a file", samples_s=None)
    one = replace(one, visit_samples=None, visits=None)
    usual = USUAL["cuda"][WorkClass.COMPUTE]
    found = interval(one, within_run([one])[0])
    half = math.hypot(usual.visits / math.sqrt(2), usual.runs)
    assert found is not None and found[:2] == pytest.approx([half] * 2, rel=1e-3)
    assert found[2].by == "assumed"
    # Its own counts where it is the wider: the part between runs is still added to it.
    wide = with_interval(one, 0.2)
    found = interval(wide, within_run([wide])[0])
    assert found is not None
    assert found[0] == pytest.approx(math.hypot(-math.log(0.8), usual.runs))
    assert found[1] == pytest.approx(math.hypot(math.log(1.2), usual.runs))


def test_where_it_is_not_known_there_is_no_interval(chance: Chance) -> None:
    """One visit of a few samples tells nothing; two visits tell how far they are apart."""
    one = timed(chance, visits=1)
    ends: list[dict[str, Any]] = [{"low_s": None}, {"high_s": None}, {"median_s": None}]
    ends += [{"low_s": 0.0}, {"high_s": math.inf}]
    for unknown in (*(replace(one, **changes) for changes in ends), with_ends(one, 1.1, 1.2)):
        assert interval(unknown, within_run([unknown])[0]) is None
    few = [Seen(np.full(5, level), 1.0) for level in (1.0, 1.1)]
    (alone,) = joined(visits_to(0, few[:1], **GPU))
    (both,) = joined(visits_to(0, few, **GPU))
    assert alone.low_s is alone.noise_runs is None and halves(both)[0] > 0.1


def test_how_wide_a_row_is_by_noise_alone(chance: Chance) -> None:
    """By its own account, else by what is usual of such work."""
    usual = USUAL["cuda"][WorkClass.COMPUTE]
    assert usual_half(replace(timed(chance), noise_visits=0.03, noise_runs=0.04)) == pytest.approx(0.05)
    assert usual_half(older(timed(chance, visits=1))) == pytest.approx(math.hypot(usual.visits, usual.runs))
