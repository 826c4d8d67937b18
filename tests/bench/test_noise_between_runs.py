"""What earlier runs of a device say of how far its runs differ, and what rows make of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from bench.cli.run_summary import noise_lines
from bench.judge.noise import MOST_BETWEEN_RUNS, USUAL, Noise, between_runs
from bench.runner.rows import joined
from bench.store.schema import Measurement
from tests.bench.comparable import timed

LIBRARY = {"device_kind": "cpu", "implementation": "onednn", "sm_clock_hz": None}


def runs(
    chance: np.random.Generator, apart: float, count: int = 8, cases: int = 12
) -> list[list[Measurement]]:
    """Runs of the same cases whose medians differ, from run to run, by this standard deviation."""
    return [
        [
            replace(
                timed(chance, math.exp(apart * chance.standard_normal()), visits=1, case=case, **LIBRARY),
                run_id=str(run),
            )
            for case in range(cases)
        ]
        for run in range(count)
    ]


def test_runs_that_differ_as_usual_have_the_factor_one(chance: np.random.Generator) -> None:
    usual = USUAL["cpu"]["matrix"].runs / 1.96
    as_usual, varying, calm = (
        between_runs(runs(chance, by * usual, cases=48))["matrix"] for by in (1.0, 4.0, 0.01)
    )
    assert as_usual == pytest.approx(1.0, rel=0.35) and varying == pytest.approx(4.0, rel=0.35)
    assert calm < 0.5


def test_what_was_changed_between_runs_is_no_noise(chance: np.random.Generator) -> None:
    def changed(**columns: object) -> list[list[Measurement]]:
        before, after = runs(chance, 0.5, count=2)
        return [before, [replace(row, **columns) for row in after]]  # type: ignore[arg-type]

    assert between_runs(changed()).keys() == {"matrix"}
    for columns in (
        {"torch": "9"},
        {"driver": "9"},
        {"device_id": "other"},
        {"protocol": "other"},
        {"visit": 1},
    ):
        assert not between_runs(changed(**columns)), columns
    ours = [[replace(row, implementation="triton") for row in run] for run in changed()]
    assert not between_runs(ours) and not between_runs([]) and not between_runs(changed()[:1])


def halves(rows: Sequence[Measurement]) -> float:
    return float(np.median([math.log((row.high_s or 0) / (row.median_s or 1)) for row in rows]))


def test_a_row_publishes_what_earlier_runs_say(chance: np.random.Generator) -> None:
    (today,) = runs(chance, 0.0, count=1)
    alone = joined(today)
    assert {row.noise_runs for row in alone} == {USUAL["cpu"]["matrix"].runs}
    earlier = runs(chance, 0.2)
    factor = between_runs(earlier)["matrix"]
    informed = joined(today, earlier)
    assert factor > 3
    assert {row.noise_runs for row in informed} == {factor * USUAL["cpu"]["matrix"].runs}
    assert {row.noise_visits for row in informed} == {row.noise_visits for row in alone}
    assert halves(informed) > halves(alone)
    usual = USUAL["cpu"]["matrix"].runs
    assert Noise("cpu", 2.0).of(today[0]).runs == 2 * usual
    assert Noise("cpu", 0.5).of(today[0]).runs == usual, "visits that agree say nothing of other runs"
    assert Noise("cpu", 9.0).of(today[0]).runs == MOST_BETWEEN_RUNS * usual
    assert Noise("cpu", 2.0, runs_factors={"matrix": 0.5}).of(today[0]).runs == 0.5 * usual


def test_a_run_says_by_how_much_visits_differed(chance: np.random.Generator) -> None:
    """Each case 10 % off from one visit to the next, where usually 95 in 100 are within 3.5 %."""
    usual = USUAL["cpu"]["matrix"].visits
    row = replace(timed(chance, visits=2, **LIBRARY), visit_samples=[9, 9])
    rows = [
        replace(row, parameters=f'{{"m":{case}}}', samples_s=[1.0] * 9 + [math.exp(2.9 * usual)] * 9)
        for case in range(20)
    ]
    line = "from visit to visit, 95 of 100 times changed by at most: matrix multiplications 11 %"
    assert noise_lines(rows) == [line]
    assert noise_lines([replace(row, samples_s=[1.0] * 9, visit_samples=[9])]) == noise_lines([]) == []
