"""The one test of whether something changed: one case by its verdict, many by a share of false ones."""

import math

import numpy as np
import pytest

from bench.judge.change import Change, Z, adjusted, among_all, chance


@pytest.mark.parametrize(
    ("log", "half", "verdict"),
    [
        (0.05, 0.049, "SLOWER"),
        (-0.05, 0.049, "FASTER"),
        (0.05, 0.051, "UNDECIDED"),  # the interval holds 0
        (0.009, 0.001, "SAME"),  # certain, and less than what counts
        (0.009, 0.03, "UNDECIDED"),
        (0.0, 0.019, "SAME"),
        (0.0, 0.0, "SAME"),
        (0.02, 0.0, "SLOWER"),
    ],
)
def test_a_change_is_large_enough_and_beyond_chance(log: float, half: float, verdict: str) -> None:
    change = Change(log, half, half, float(chance(log, half / Z)))
    assert change.verdict(0.01, 0.02) == verdict
    assert change.low <= change.ratio == math.exp(log) <= change.high


def test_few_observations_are_less_certain_than_many() -> None:
    assert chance(0.03, 0.01, 3) > chance(0.03, 0.01, 30) > chance(0.03, 0.01)
    assert chance(-1.96, 1.0) == pytest.approx(0.05, rel=1e-3)


def test_among_many_cases_each_has_to_stand_out_farther() -> None:
    p = np.array([0.001, *np.linspace(0.2, 1, 9), math.nan])
    assert (adjusted(p) <= 0.05).tolist() == [True] + [False] * 10
    assert adjusted([0.001, *np.linspace(0.2, 1, 99)]).min() > 0.05
    assert adjusted([math.nan]).tolist() == [1.0] and not len(adjusted([]))
    changes = [Change(0.1, 0.05, 0.05, each) for each in (0.03, *np.linspace(0.2, 1, 9))]
    assert (
        changes[0].verdict(0.01, 0.02) == "SLOWER"
        and among_all(changes)[0].verdict(0.01, 0.02) == "UNDECIDED"
    )
