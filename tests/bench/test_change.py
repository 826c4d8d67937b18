"""Chance in the one test of whether something changed: by few observations, and among many cases."""

import math

import numpy as np
import pytest

from bench.judge.change import adjusted, chance


def test_few_observations_are_less_certain_than_many() -> None:
    assert chance(0.03, 0.01, 3) > chance(0.03, 0.01, 30) > chance(0.03, 0.01)
    assert chance(-1.96, 1.0) == pytest.approx(0.05, rel=1e-3)


def test_among_many_cases_each_has_to_stand_out_farther() -> None:
    p = np.array([0.001, *np.linspace(0.2, 1, 9), math.nan])
    assert (adjusted(p) <= 0.05).tolist() == [True] + [False] * 10
    assert adjusted([0.001, *np.linspace(0.2, 1, 99)]).min() > 0.05
    assert adjusted([math.nan]).tolist() == [1.0] and not len(adjusted([]))
