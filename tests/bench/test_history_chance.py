"""The chance of a run of nights, on streams of which it is known; and what is usual of a few nights."""

from __future__ import annotations

import numpy as np
import pytest

from bench.judge.history.rolling import HELD, LEAST, WINDOW, Window
from bench.judge.history.run_probability import LOOK_BACK, Chance


def counted(chance: np.random.Generator, odd: float) -> Chance:
    found = Chance(0.05)
    for _ in range(40):
        found.count(scores(chance, 2000, odd)[:, 0])
    return found


def scores(chance: np.random.Generator, rows: int, odd: float) -> np.ndarray:
    out = chance.standard_normal((rows, LOOK_BACK))
    return out + (chance.random(out.shape) < odd) * chance.uniform(3, 8, out.shape)


@pytest.mark.parametrize("odd", [0.0, 0.05, 0.15])
@pytest.mark.parametrize("slower", [True, False])
def test_no_run_is_rarer_than_it_is(chance: np.random.Generator, odd: float, slower: bool) -> None:
    """Of 100,000 quiet runs one in a thousand is told as that rare, or fewer; 130 are five deviations off."""
    found = counted(chance, odd)
    p = found.run(scores(chance, 100_000, odd), np.full(100_000, slower)).p
    told = int((p <= 0.002).sum())
    assert 10 < told < 130, told


def test_each_side_has_its_own_counts(chance: np.random.Generator) -> None:
    """Where slow nights are frequent, two of them say little; two fast ones say much."""
    found = counted(chance, 0.15)
    run = np.full((1, LOOK_BACK), 0.1)
    run[0, -2:] = 4.0
    slow, fast = found.run(run, np.array([True])).p[0], found.run(-run, np.array([False])).p[0]
    assert slow > 0.02 and fast < 0.001


def test_nights_with_a_quiet_one_between_are_rare_together(chance: np.random.Generator) -> None:
    """No two of them running are far out, so it is their sum that says it; and only on its own side."""
    found = counted(chance, 0.0)
    run = np.array([[1.5, 1.5, 0.2, 1.5, 1.5, 0.2, 1.5]])
    slower = np.array([True])
    assert found.run(run, slower).p[0] < 0.02
    assert found.run(-run, slower).p[0] == 1.0


def test_what_is_unknown_is_no_run(chance: np.random.Generator) -> None:
    run = np.full((1, LOOK_BACK), np.nan)
    run[0, -1] = 20.0
    found = counted(chance, 0.0).run(run, np.array([True]))
    assert found.p[0] == 1.0 and found.length[0] == 0


def test_the_window_is_the_last_twenty_of_what_counts(chance: np.random.Generator) -> None:
    window = Window(2)
    values = chance.standard_normal((2, 50))
    for night in range(50):
        window.push(np.where([True, night % 2 == 0], values[:, night], np.nan), night)
    usual = window.usual()
    assert usual.nights.tolist() == [WINDOW, WINDOW]
    assert usual.centre == pytest.approx([np.median(values[0, 30:]), np.median(values[1, 10::2])])
    window.until[0], window.since[1] = 50 - HELD, 40
    usual = window.usual()
    assert usual.nights.tolist() == [WINDOW, 5]
    assert usual.centre[0] == pytest.approx(np.median(values[0, 16:36]))
    window.forget([1], 46)
    assert window.usual().nights[1] == 3
    window.restart(50)
    assert np.isnan(window.usual().centre).all()


def test_a_spread_leans_on_what_is_usual(chance: np.random.Generator) -> None:
    """Of six nights no row looks nearly as calm as its own median deviation has it."""
    window, alone = Window(500), Window(500)
    for night in range(LEAST):
        values = 0.01 * chance.standard_normal(500)
        window.push(values, night)
        alone.push(np.where(np.arange(500) == 0, 0.0, values), night)
    sigma = window.usual().sigma
    assert sigma.min() > 0.005 and np.median(sigma) == pytest.approx(0.01, rel=0.2)
    assert alone.usual().sigma[0] > 0.005, "no spread at all"
