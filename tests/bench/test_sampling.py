"""When sampling stops, and whether the interval it publishes covers the truth."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

import numpy as np
import pytest

from bench.measure.sampling import CPU, CUDA, Protocol, collect, interval, settle


class Stream:
    """Samples from a generator, and a wall clock that advances with them."""

    def __init__(self, values: Iterator[float], launches: int = 1) -> None:
        self.values, self.launches, self.wall_s = values, launches, 0.0

    def sample(self) -> tuple[float, float]:
        value = next(self.values)
        self.wall_s += value * self.launches
        return value, value * self.launches

    def now(self) -> float:
        return self.wall_s


def noisy(median_s: float, spread: float, seed: int) -> Iterator[float]:
    generator = np.random.default_rng(seed)
    while True:
        yield median_s * float(np.exp(spread * generator.standard_normal()))


@pytest.fixture
def seed() -> int:
    chosen = random.randrange(1 << 30)
    print(f"seed {chosen}")
    return chosen


def test_no_interval_reaches_below_the_quickest_sample() -> None:
    """A fifth of the time five times as slow: the spread of the blocks alone would reach below 0."""
    samples_s = [1.0, 1.01] * 40 + [5.0, 5.01] * 10
    median, low, high = interval(samples_s, Protocol())
    assert (median, low) == (1.01, 1.0) and high > 3
    steady = interval([1.0] * 100, Protocol())
    assert steady[1] < 1.0 < steady[2]  # but never narrower than the floor


def test_the_interval_covers_the_median_as_often_as_it_says(seed: int) -> None:
    """Independent samples of a skewed distribution: 95 % of 400 intervals, within three sigma."""
    protocol = Protocol(floor=0.0)
    generator = np.random.default_rng(seed)
    covered = 0
    for _ in range(400):
        samples = 1e-3 * np.exp(0.05 * generator.standard_exponential(60))
        _, low, high = interval(samples.tolist(), protocol)
        covered += low <= 1e-3 * np.exp(0.05 * np.log(2)) <= high
    assert covered / 400 > 0.95 - 3 * (0.95 * 0.05 / 400) ** 0.5


@pytest.mark.parametrize(("count", "rank"), [(12, 3), (20, 6), (100, 40)])
def test_the_interval_is_that_of_the_order_statistics(count: int, rank: int) -> None:
    """Ranks from tables of the sign test; blocks that are alike add nothing."""
    values = [1.0 + 0.01 * i for i in range(count)]
    blocks = [values[i::5] for i in range(5)]
    mixed = [value for block in blocks for value in block]
    _, low, high = interval(mixed, Protocol(floor=0.0))
    if count == 100:
        assert (low, high) == (values[rank - 1], values[-rank])
    assert low <= values[rank - 1] and high >= values[-rank]


def test_drift_widens_the_interval() -> None:
    steady = [1.0 + 1e-4 * (i % 7) for i in range(100)]
    drifting = [1.0 + 0.05 * i / 100 for i in range(100)]
    widths = [high - low for _, low, high in (interval(steady, CPU), interval(drifting, CPU))]
    assert widths[0] < 0.003 and widths[1] > 0.03


def test_too_few_samples_give_no_interval() -> None:
    assert interval([1.0] * 5, CPU) == (1.0, 0.0, float("inf"))


@pytest.mark.parametrize("count", [20, 57, 400])
def test_the_interval_is_never_narrower_than_floor_and_clock(count: int) -> None:
    median, low, high = interval([1e-6] * count, CPU, step_s=0.0)
    assert high - median == pytest.approx(1e-9) and median - low == pytest.approx(1e-9)
    median, low, high = interval([1e-6] * count, CPU, step_s=5e-8)
    assert high - median == pytest.approx(5e-8)


def test_stragglers_do_not_move_the_median(seed: int) -> None:
    generator = np.random.default_rng(seed)
    values = (1e-4 * (3.0 if generator.random() < 0.05 else 1.0) for _ in itertools.count())
    found = collect((stream := Stream(values, 10)).sample, CPU, 1.0, stream.now)
    assert found.stop == "converged"
    assert found.median_s == pytest.approx(1e-4, rel=1e-9)
    assert max(found.samples_s) == pytest.approx(3e-4)  # and none is thrown away


def test_converged_means_within_one_percent(seed: int) -> None:
    found = collect((stream := Stream(noisy(1e-3, 0.02, seed))).sample, CPU, 10.0, stream.now)
    assert found.stop == "converged" and found.settled
    assert found.high_s - found.median_s <= 0.01 * found.median_s
    assert sum(found.samples_s) >= CPU.least_timed_s
    assert found.median_s == pytest.approx(1e-3, rel=0.02)


def test_a_case_can_be_watched_for_longer_than_it_needs(seed: int) -> None:
    stream = Stream(noisy(1e-3, 0.001, seed))
    found = collect(stream.sample, CPU, 10.0, stream.now, least_timed_s=1.0)
    assert found.stop == "converged" and 1.0 <= sum(found.samples_s) < 1.2


def test_the_budget_ends_a_case_that_does_not_converge(seed: int) -> None:
    found = collect((stream := Stream(noisy(1e-3, 0.5, seed))).sample, CPU, 0.5, stream.now)
    assert found.stop == "budget"
    assert 0.5 <= stream.wall_s < 0.6


def test_slow_launches_get_their_least_samples_but_not_for_ever() -> None:
    found = collect((stream := Stream(itertools.repeat(0.04))).sample, CPU, 0.5, stream.now)
    assert len(found.samples_s) >= CPU.least_samples
    found = collect((stream := Stream(itertools.repeat(0.3))).sample, CPU, 0.5, stream.now)
    assert stream.wall_s < 2.0 and found.stop == "budget"
    assert found.high_s == float("inf")


def test_a_clock_that_reads_zero_does_not_hang() -> None:
    ticks = itertools.count()
    found = collect(lambda: (0.0, 0.0), CPU, 1.0, lambda: 1e-4 * next(ticks))
    assert found.stop in ("samples", "budget")


def test_settling_waits_for_a_falling_clock() -> None:
    """12 % slower with a time constant of 0.1 s: nothing is published before windows agree."""
    wall = 0.0

    def sample() -> tuple[float, float]:
        nonlocal wall
        value = 1e-3 * (1 - 0.12 * np.exp(-wall / 0.1))
        wall += value
        return float(value), float(value)

    found = collect(sample, Protocol(), 5.0, lambda: wall)
    assert found.settled
    assert found.samples_s[0] > 0.98e-3


def test_what_never_settles_says_so() -> None:
    ramp = (1e-3 * 1.002**i for i in itertools.count())
    stream = Stream(ramp)
    assert not settle(stream.sample, CPU, 0.3, stream.now)


def test_the_protocol_hash_changes_with_any_setting() -> None:
    assert CPU.hash != CUDA.hash
    assert Protocol().hash == Protocol().hash
    assert Protocol(ring_factor=2.4).hash != Protocol().hash
