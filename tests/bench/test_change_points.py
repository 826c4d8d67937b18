"""Change points: placed where they are, and not where one night was odd; what the study of months draws."""

from __future__ import annotations

import numpy as np
import pytest

from bench.judge.history.change_points import change_points
from studies.months import months, repeated, table
from tests.bench.nights_made import Noise, made, missing

SIGMA = 0.005


def level(chance: np.random.Generator, nights: int) -> np.ndarray:
    return SIGMA * chance.standard_normal(nights) - 7.0


@pytest.mark.parametrize("by", [0.1, -0.1])
def test_a_step_is_placed(chance: np.random.Generator, by: float) -> None:
    values = level(chance, 100)
    where = int(chance.integers(10, 90))
    values[where:] += by
    assert any(abs(point - where) <= 1 for point in change_points(values))
    values[min(where + 5, 95) :] = np.nan
    assert any(abs(point - where) <= 1 for point in change_points(values)), "five nights later it is seen"


def test_odd_nights_are_no_change(chance: np.random.Generator) -> None:
    found = 0
    for _ in range(30):
        values = level(chance, 60)
        values[chance.choice(np.arange(5, 55, 8), 3, replace=False)] += 0.3
        found += len(change_points(values))
    assert found < 15, "of 90 odd nights"


def test_levels_of_two_segments_are_not_compared(chance: np.random.Generator) -> None:
    values, segments = 0.001 * level(chance, 60), [0] * 30 + [1] * 30
    values[30:] += 0.1
    values[45:] += 0.1
    found = change_points(values, segments)
    assert 30 not in found and 45 in found
    assert 30 in change_points(values)


def test_constant_values() -> None:
    for values in (np.zeros(50), np.full(50, np.nan), np.arange(5.0), np.array([])):
        assert change_points(values) == []
    assert change_points(np.repeat([0.0, 0.1], 25)) == [25]


@pytest.mark.deep
def test_the_table(chance: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("studies.months.SERIES", 40)
    lines = list(table(int(chance.integers(1000)), 1, Noise()))
    told = {line[:8].strip(): [float(word.rstrip("%")) for word in line[8:].split()] for line in lines[2:-1]}
    assert told["1"][0] < 1.0 and told["all"][3] > 90


def test_nights_of_real_runs_are_drawn_whole(chance: np.random.Generator) -> None:
    """What one night did to all series, a simulated night does to all; and they spread as the real ones."""
    real = missing(made(chance, 30, 9), [10], range(8))
    real = repeated(real)
    assert len(real.series) == 37
    month = months(chance, None, real)
    departed = real.log_s - np.median(real.log_s, axis=1, keepdims=True)
    drawn = (month.log_s - np.median(real.log_s, axis=1, keepdims=True)) / np.sqrt(9 / 8)
    for night in range(50):
        assert np.isclose(departed, drawn[:, night : night + 1]).all(axis=0).any()
    assert len(month.nights) == 50 and len({night.segment for night in month.nights}) == 1
