"""The interval of a median: ranks by hand, what dependent samples are worth, and how often it covers."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats
from scipy.signal import lfilter

from bench.sampling.publish import _rank, average_ranks, effective_count, median_interval, student, trend
from bench.sampling.stopping import _standard_error


def remembering(chance: np.random.Generator, memory: float, count: int) -> np.ndarray:
    """A stationary AR(1) process of variance 1."""
    pushes = math.sqrt(1 - memory**2) * chance.standard_normal(count)
    return np.asarray(lfilter([1.0], [1.0, -memory], pushes, zi=[memory * chance.standard_normal()])[0])


@pytest.mark.parametrize(("count", "rank"), [(12, 3), (20, 6), (100, 40)])
def test_the_interval_is_that_of_the_order_statistics(count: int, rank: int) -> None:
    """Ranks from tables of the sign test; parts that are alike add nothing."""
    values = 1.0 + 0.01 * np.random.default_rng(0).permutation(count)
    _, low, high = median_interval(values, count, [float(np.median(values))] * 5, 0.0, 0.95)
    assert (low, high) == (pytest.approx(1 + 0.01 * (rank - 1)), pytest.approx(1 + 0.01 * (count - rank)))


def test_samples_that_are_worth_less_give_a_wider_interval() -> None:
    """400 worth 12: the third of 12 is the 92nd of 400."""
    values = np.arange(1.0, 401.0)
    _, low, high = median_interval(values, 12.9, [200.5, 200.5], 0.0, 0.95)
    assert (low, high) == (92, 309)
    assert median_interval(values, 5.9, [200.5, 200.5], 0.0, 0.95)[1:] == (0.0, math.inf)


def test_no_interval_reaches_below_the_quickest_sample() -> None:
    """A fifth of the time five times as slow: the spread of the parts alone would reach below 0."""
    values = np.array([1.0, 1.01] * 40 + [5.0, 5.01] * 10)
    parts = [float(np.median(part)) for part in np.array_split(values, 5)]
    median, low, high = median_interval(values, 100, parts, 0.0, 0.95)
    assert (median, low) == (1.01, 1.0) and high > 3
    assert median_interval(values, 100, parts, 0.1, 0.95)[1] == pytest.approx(0.91)


def test_students_t_by_hand() -> None:
    """Parts 1, 2, 3: mean 2, standard error 1 / sqrt 3, 4.303 of them."""
    values = np.array([0.0] + [2.0] * 98 + [9.0])
    _, low, high = median_interval(values, 100, [1.0, 2.0, 3.0], 0.0, 0.95)
    assert high == pytest.approx(2 + 4.3027 / 3**0.5, abs=1e-4) and low == 0.0


def test_independent_samples_are_worth_their_number(chance: np.random.Generator) -> None:
    """The estimate only ever takes away: a tenth, on average of 200 samples of any kind."""
    for draw in (chance.standard_normal, chance.standard_exponential, chance.standard_cauchy):
        worth = [effective_count(draw(200)) / 200 for _ in range(300)]
        assert max(worth) <= 1.0 and 0.8 < np.mean(worth) < 0.95
    assert effective_count(np.ones(50)) == 50.0
    assert effective_count(np.array([1.0])) == 1.0


@pytest.mark.parametrize("memory", [0.5, 0.9])
def test_samples_that_remember_are_worth_less(chance: np.random.Generator, memory: float) -> None:
    """AR(1): the number times (1 - memory) / (1 + memory), a little more in ranks.

    One estimate scatters by a fifth (Sokal: sqrt((4 w + 2) / 4000), lags up to w = 40 summed up), the mean of
    a hundred by 2 %: seven standard errors are 15 %, which it is too small in 1e-12 of runs.
    """
    expected = (1 - memory) / (1 + memory)
    worth = [effective_count(remembering(chance, memory, 4000)) / 4000 for _ in range(100)]
    assert 0.85 * expected < np.mean(worth) < 1.35 * expected


def test_stragglers_do_not_hide_that_samples_remember(chance: np.random.Generator) -> None:
    """With 1 % of stragglers a series is worth 1.04 times as much; 1 in 300, though, over 1.2 times.

    Five of nine are in C(9, 5) / 300^5, 5e-11.
    """
    apart = []
    for _ in range(9):
        values = remembering(chance, 0.9, 4000)
        before = effective_count(values)
        values[chance.integers(0, 4000, 40)] += 1000.0
        apart.append(effective_count(values) / before)
    assert np.median(apart) < 1.2


def test_the_interval_covers_the_median_as_often_as_it_says(chance: np.random.Generator) -> None:
    """Independent samples of a skewed distribution: 95 % of 2000 intervals, within five sigma."""
    covered = 0
    for _ in range(2000):
        values = chance.standard_exponential(60)
        parts = [float(np.median(part)) for part in np.array_split(values, 5)]
        _, low, high = median_interval(values, effective_count(values), parts, 0.0, 0.95)
        covered += low <= math.log(2) <= high
    assert covered / 2000 > 0.95 - 5 * (0.95 * 0.05 / 2000) ** 0.5


def test_a_trend_is_the_change_between_the_first_and_the_last_window(chance: np.random.Generator) -> None:
    at = np.arange(300)
    values = 5 + 0.01 * at + 0.1 * chance.standard_normal(300)
    windows = [part.tolist() for part in np.split(values, 3)]
    assert trend(windows) == pytest.approx(2.0, abs=0.2)
    assert trend([[-value for value in window] for window in windows]) == pytest.approx(-2.0, abs=0.2)


def test_noise_is_rarely_a_trend(chance: np.random.Generator) -> None:
    """Two standard errors of 13 degrees of freedom: 6.7 % of the time, within 6.5 sigma, 1e-10."""
    found = [trend(np.split(chance.standard_normal(300), 3)) != 0 for _ in range(1000)]  # type: ignore[arg-type]
    assert abs(np.mean(found) - 0.067) < 6.5 * (0.067 * 0.933 / 1000) ** 0.5


def test_too_few_samples_have_no_trend() -> None:
    assert trend([[1.0], [2.0], [3.0]]) == 0.0


def test_what_is_computed_without_scipys_statistics_is_what_these_say(chance: np.random.Generator) -> None:
    """bench/sampling imports scipy.stats nowhere: it is half of what a worker would import beside torch."""
    count, confidence = int(chance.integers(1, 300)), float(chance.choice([0.9, 0.95, 0.999]))
    values = chance.integers(0, count, count) + float(chance.integers(2))
    assert (average_ranks(values) == stats.rankdata(values)).all()
    freedom = float(chance.uniform(1, 50))
    assert student(freedom, confidence) == pytest.approx(stats.t.ppf(0.5 + confidence / 2, freedom))
    assert _rank(count, confidence) == stats.binom.ppf((1 - confidence) / 2, count, 0.5)
    windows = [chance.normal(10 + 0.4 * number, 1, 25) for number in range(3)]
    line = stats.linregress(range(15), [np.median(part) for w in windows for part in np.split(w, 5)])
    known = 10 * line.slope if abs(line.slope) > 2 * line.stderr else 0.0
    assert trend(windows) == pytest.approx(known)
    assert _standard_error(values) == pytest.approx(1.2533 * stats.iqr(values, scale="normal") / count**0.5)
