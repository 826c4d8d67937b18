"""How a visit settles and when its sampling stops; what a row says of several visits."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from bench.runner.rounds import SAMPLING_S
from bench.sampling.protocol import Protocol, protocol
from bench.sampling.publish import VisitSamples, interval, publish
from bench.sampling.stopping import LEAST_WORTH, collect, settle

CPU = protocol("cpu")
CUDA = protocol("cuda")
NIGHTLY = protocol("cuda", visits=3)


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


class Level(Stream):
    """A level that depends on the time, with a little noise."""

    def __init__(self, level: Callable[[float], float], seed: int, noise: float = 0.003) -> None:
        super().__init__(iter(()))
        self.level, self.noise, self.generator = level, noise, np.random.default_rng(seed)

    def sample(self) -> tuple[float, float]:
        value = self.level(self.wall_s) * (1 + self.noise * float(self.generator.standard_normal()))
        self.wall_s += value
        return value, value


def noisy(median_s: float, spread: float, seed: int) -> Iterator[float]:
    generator = np.random.default_rng(seed)
    while True:
        yield median_s * float(np.exp(spread * generator.standard_normal()))


def collected(stream: Stream, settings: Protocol, budget_s: float = 10.0, **more: Any) -> VisitSamples:
    """A visit that samples this stream by its own clock."""
    return collect(stream.sample, settings, budget_s, stream.now, **more)


def visit(level: float, seed: int = 0, count: int = 40, **facts: object) -> VisitSamples:
    """A settled visit whose samples scatter by 0.1 % about a level, their median exactly there."""
    samples = level * (1 + 1e-3 * np.random.default_rng(seed).standard_normal(count))
    samples *= level / np.median(samples)
    found = VisitSamples(tuple(samples.tolist()), True, 0.1, "converged", 0.0)
    return replace(found, **facts)  # type: ignore[arg-type]


# ---- when sampling stops


def test_stragglers_do_not_move_the_median_and_stay_in_the_record(seed: int) -> None:
    """One sample in 20, and a second holds a thousand quick ones: none at all has a chance of 0.95^1000."""
    generator = np.random.default_rng(seed)
    values = (1e-4 * (3.0 if generator.random() < 0.05 else 1.0) for _ in itertools.count())
    found = collected(stream := Stream(values, 10), CPU, 5.0, least_timed_s=1.0)
    assert found.stop == "converged"
    assert publish([found], CPU).median_s == pytest.approx(1e-4, rel=1e-9)
    assert max(found.samples_s) == pytest.approx(3e-4)  # and none is thrown away
    assert sum(found.samples_s) * 10 == pytest.approx(stream.wall_s - found.settle_s)


@pytest.mark.parametrize(("settings", "spread"), [(CPU, 0.1), (CUDA, 0.15), (NIGHTLY, 0.06)])
def test_converged_means_as_narrow_as_the_protocol_says(settings: Protocol, spread: float, seed: int) -> None:
    """Noise that makes the least timed work far too little."""
    settings = replace(settings, most_samples=50_000)
    found = collected(Stream(noisy(1e-3, spread, seed)), settings, 100.0)
    row = publish([found], replace(settings, visits=1))
    assert found.stop == row.stop == "converged"
    assert max(row.high_s - row.median_s, row.median_s - row.low_s) <= settings.half_width * row.median_s
    assert row.median_s == pytest.approx(1e-3, rel=4 * settings.half_width)
    least = found.samples_s[: math.ceil(settings.least_timed_s / 1.2e-3)]
    _, low, high = interval(least, settings)
    assert high - low > 2 * settings.half_width * row.median_s and len(found.samples_s) > len(least)


@pytest.mark.parametrize("settings", [CPU, CUDA, NIGHTLY])
def test_a_quiet_case_settles_and_takes_no_longer_than_it_must(settings: Protocol, seed: int) -> None:
    found = collected(Stream(noisy(1e-3, 0.001, seed)), settings)
    assert found.settled and found.stop == "converged"
    assert settings.least_timed_s <= sum(found.samples_s) < 1.2 * settings.least_timed_s


@pytest.mark.parametrize(("asked_s", "least_s"), [(1.0, 1.0), (CPU.least_timed_s / 5, CPU.least_timed_s)])
def test_a_case_can_be_watched_for_longer_than_the_protocol_asks_and_not_for_less(
    asked_s: float, least_s: float, seed: int
) -> None:
    found = collected(Stream(noisy(1e-3, 0.001, seed)), CPU, least_timed_s=asked_s)
    assert found.stop == "converged" and least_s <= sum(found.samples_s) < 1.2 * least_s


def test_the_budget_is_wall_time_and_precision_is_sample_time(seed: int) -> None:
    """A host that needs 9 ms beside each sample of 1 ms: the budget is over after a tenth as many."""
    stream = Stream(noisy(1e-3, 0.5, seed))

    def slow_host() -> tuple[float, float]:
        stream.wall_s += 9e-3
        return stream.sample()

    found = collect(slow_host, CPU, 1.0, stream.now)
    assert found.stop == "budget" and 1.0 <= stream.wall_s < 1.1
    assert sum(found.samples_s) < 0.2


def test_slow_launches_get_their_least_samples_but_not_for_ever() -> None:
    assert len(collected(Stream(itertools.repeat(0.04)), CPU, 0.5).samples_s) >= CPU.least_samples
    found = collected(stream := Stream(itertools.repeat(0.3)), CPU, 0.5)
    assert stream.wall_s < 2.0 and found.stop == "budget"
    assert publish([found], CPU).high_s == math.inf


@pytest.mark.parametrize("settings", [CPU, CUDA, NIGHTLY])
@pytest.mark.parametrize("took_s", [0.0, 1e-3])
@pytest.mark.parametrize("tick_s", [0.0, 1e-4])
def test_clocks_that_stand_still_hang_nothing(settings: Protocol, took_s: float, tick_s: float) -> None:
    """A zero estimate, or a wall clock that does not move, ends after a number of samples."""
    ticks, asked = itertools.count(), itertools.count()

    def sample() -> tuple[float, float]:
        assert next(asked) < 20_000
        return took_s, took_s

    found = collect(sample, settings, 1.0, lambda: tick_s * next(ticks))
    assert found.stop in ("samples", "budget", "converged")
    assert not math.isnan(publish([found], settings).high_s)


def test_what_never_agrees_is_accepted_all_the_same_and_says_so(seed: int) -> None:
    """No loop of discarding: samples anywhere between 1 and 3 ms, for as long as one looks."""
    generator = np.random.default_rng(seed)
    values = (1e-3 * float(generator.uniform(1, 3)) for _ in itertools.count())
    found = collected(Stream(values), CUDA, 20.0)
    row = publish([found], CUDA)
    assert found.stop == "samples" and len(found.samples_s) == CUDA.most_samples
    assert row.stop == "samples" and row.high_s - row.low_s > 2 * CUDA.half_width * row.median_s


# ---- settling


def falling(constant_s: float) -> Callable[[float], float]:
    """1 ms, 12 % less at first: the seconds of a launch while the clock falls."""
    return lambda at_s: 1e-3 * (1 - 0.12 * math.exp(-at_s / constant_s))


@pytest.mark.parametrize("settings", [CPU, CUDA])
def test_settling_waits_for_a_falling_clock(settings: Protocol, seed: int) -> None:
    """12 % slower with a time constant of 0.1 s: nothing is kept before windows agree."""
    found = collected(Level(falling(0.1), seed), settings)
    assert found.settled and 0.1 < found.settle_s < 2.5
    assert publish([found], settings).median_s > (0.98e-3 if settings is CPU else 0.998e-3)


def test_a_slow_fall_that_windows_hide_is_seen_as_a_trend(seed: int) -> None:
    """12 % in 2 s: after four seconds windows span less than half a percent, and 1.6 % are still to come."""
    found = collected(Level(falling(2.0), seed), CUDA)
    assert not found.settled and found.settle_s == pytest.approx(CUDA.settle_most_s, abs=0.01)
    blind = replace(CUDA, settle_trend=1.0)
    assert collected(Level(falling(2.0), seed), blind).settled  # so the test above can fail


@pytest.mark.parametrize("sign", [-1, 1])
def test_a_trend_in_either_direction_is_not_settled(sign: int) -> None:
    """4 % a window: below what windows may span, above what a trend may be worth."""
    stream = Level(lambda at_s: 1e-3 * (1 + sign * 0.04 * at_s / CPU.settle_window_s), 0, noise=0.0)
    assert not settle(stream.sample, CPU, 8 * CPU.settle_window_s, stream.now)


def test_white_noise_is_no_reason_to_be_unsettled(seed: int) -> None:
    """Launches of 5 ms with 5 % of it, on a GPU: three windows of 0.25 s span 2 % by chance.

    Chance refuses three windows for their span in 5 % and for their trend (two standard errors, 13 degrees of
    freedom) in 7 %. Five times three fit into the 4.5 s of settling, so a visit ends unsettled in 0.12^5, and
    three of 40 do in C(40, 3) 0.12^15, 2e-10. Without an allowance for chance 22 to 30 of 40 settled.
    """
    settled = sum(collected(Stream(noisy(5e-3, 0.05, seed + at)), CUDA, 6.0).settled for at in range(40))
    assert settled >= 38


@pytest.mark.parametrize("settings", [CPU, CUDA], ids=["cpu", "cuda"])
def test_a_short_visit_can_settle(settings: Protocol, seed: int) -> None:
    """A probe's 0.2 s: of that, three windows of the usual length do not fit into the share for settling."""
    budget_s = 3 * settings.settle_window_s / settings.settle_share
    visit = collected(Stream(noisy(1e-5, 0.001, seed)), settings, budget_s)
    assert visit.settled and visit.settle_s <= settings.settle_share * budget_s


def test_settling_takes_its_share_of_the_budget_and_no_more() -> None:
    ramp = (1e-3 * 1.01**i for i in itertools.count())
    found = collected(Stream(ramp), CPU, 0.5)
    assert not found.settled and found.settle_s == pytest.approx(0.15, rel=0.05)


def test_times_that_agree_do_not_settle_while_the_clock_falls(seed: int) -> None:
    stream = Stream(noisy(1e-3, 0.001, seed))
    assert not collected(stream, CUDA, 20.0, clock_hz=lambda: 1.9e9 - 1e7 * stream.wall_s).settled
    rising = itertools.count(1_500_000_000, 1_000_000)
    for clock_hz in (lambda: 1.9e9, lambda: None, lambda: float(next(rising))):
        found = collected(Stream(noisy(1e-3, 0.001, seed)), CUDA, 20.0, clock_hz=clock_hz)
        assert found.settled and found.settle_s < 3.0


def test_work_bound_by_power_settles_in_a_visit(seed: int) -> None:
    """A cold GPU whose clock falls by 5 % with a time constant of 0.5 s, and is read to 30 MHz."""
    limit_s, settled = SAMPLING_S["cuda"][0], []

    def share_of_clock(at_s: float) -> float:
        return 0.95 + 0.05 * math.exp(-at_s / 0.5)

    for draw in range(seed, seed + 20):
        stream = Level(lambda at_s: 5e-3 / share_of_clock(at_s), draw, noise=0.001)

        def clock_hz(stream: Level = stream) -> float:
            return 1.98e9 * share_of_clock(stream.wall_s) + float(stream.generator.uniform(-30e6, 30e6))

        visit = collected(stream, CUDA, limit_s, light=lambda: False, clock_hz=clock_hz)
        settled.append(visit.settled and visit.stop == "converged" and stream.wall_s < limit_s)
    assert sum(settled) >= 19  # of 300 by hand all were


@pytest.mark.parametrize(("light", "least_s"), [(True, 0.1), (False, 0.85), (None, 0.75)])
def test_a_light_load_settles_after_one_short_window(light: bool | None, least_s: float) -> None:
    """Asked under load, once, after the window."""
    asked_at: list[float] = []
    stream = Stream(itertools.repeat(1e-3))

    def far_from_limits() -> bool:
        asked_at.append(stream.wall_s)
        return bool(light)

    found = collected(stream, CUDA, light=None if light is None else far_from_limits)
    assert found.settled and found.settle_s == pytest.approx(least_s, abs=0.005)
    assert asked_at == ([] if light is None else [pytest.approx(0.1, abs=0.002)])


# ---- protocols


def test_the_protocol_hash_changes_with_any_setting() -> None:
    assert Protocol().hash == Protocol().hash
    others = {f.name: "other" if isinstance(getattr(CUDA, f.name), str) else 77 for f in fields(Protocol)}
    changed = {replace(CUDA, **{name: other}).hash for name, other in others.items()}  # type: ignore[arg-type]
    assert len(changed | {CUDA.hash}) == len(fields(Protocol)) + 1


def test_rows_of_before_are_of_the_same_protocol() -> None:
    """The hashes in committed result files: rows of another one are compared with none of them."""
    hashes = [protocol(kind, visits).hash for kind in ("cpu", "cuda") for visits in (1, 3)]
    assert hashes == ["a141916f8706", "825c73380623", "10d398c5e3e6", "5b919bad1875"]


# ---- what a row says of its visits


def test_the_median_is_that_of_the_samples_of_all_visits(seed: int) -> None:
    row = publish([one := visit(1e-3, seed)], CUDA)
    assert (row.median_s, row.low_s, row.high_s) == interval(one.samples_s, CUDA)
    assert row.stop == "converged"
    visits = [visit(level, seed + i, 30 + i) for i, level in enumerate((1.0, 1.001, 0.999))]
    row = publish(visits, NIGHTLY)
    assert row.stop == "converged"
    assert row.median_s == np.median(np.concatenate([one.samples_s for one in visits]))


LOOSE = replace(NIGHTLY, half_width=0.5)


@pytest.mark.parametrize(
    ("levels", "settings", "stop"),
    [
        # Visits agree within a percent; one of three that disagrees is enough.
        ((1.0, 1.0, 1.0099), LOOSE, "converged"),
        ((1.0, 1.0, 1.0101), LOOSE, "visits"),
        ((1.02, 1.0, 1.0), LOOSE, "visits"),
        ((1.0, 1.02, 1.0), LOOSE, "visits"),
        # The width decides, too: a spread of 0.0017, t 4.3 / sqrt 3: 0.43 % about a mean that is 0.1 % above.
        ((1.0, 1.003, 1.0), replace(NIGHTLY, half_width=0.0055), "converged"),
        ((1.0, 1.003, 1.0), replace(NIGHTLY, half_width=0.0045), "visits"),
        # Fewer visits than asked for have not converged.
        ((1.0,), NIGHTLY, "budget"),
        ((1.0, 1.0), NIGHTLY, "budget"),
        ((1.0, 1.002, 0.998, 1.001, 0.999, 1.002, 0.998, 1.0), NIGHTLY, "converged"),
        ((0.8, 1.0, 1.1, 1.2), NIGHTLY, "visits"),
        # What came before the last three may have been settling: it widens the interval, and no more.
        ((1.0, 1.05, 1.0, 1.0, 1.0), NIGHTLY, "converged"),
    ],
)
def test_whether_visits_have_converged(levels: tuple[float, ...], settings: Protocol, stop: str) -> None:
    assert publish([visit(level) for level in levels], settings).stop == stop


def test_the_interval_reaches_every_visit() -> None:
    """Two states are both in it; many visits narrow it."""
    assert publish([visit(level) for level in (1.0, 1.1, 1.2)], NIGHTLY).high_s > 1.3
    states = publish([visit(level) for level in (1.0, 1.05, 1.0, 1.0, 1.0)], NIGHTLY)
    assert states.median_s == pytest.approx(1.0, abs=1e-3) and states.high_s > 1.035
    wide = [visit(level, stop="budget") for level in (1.0, 1.003, 1.0)]
    assert publish(wide, replace(NIGHTLY, half_width=0.0045)).stop == "budget"
    levels = (1.0, 1.002, 0.998, 1.001, 0.999, 1.002, 0.998, 1.0)
    three, eight = (publish([visit(level) for level in levels[:count]], NIGHTLY) for count in (3, 8))
    assert eight.high_s - eight.low_s < 0.6 * (three.high_s - three.low_s)


def test_the_clocks_step_of_the_coarsest_visit_counts() -> None:
    row = publish([visit(1.0), visit(1.0, step_s=0.03), visit(1.0)], NIGHTLY)
    assert row.high_s == pytest.approx(1.03) and row.low_s == pytest.approx(0.97)


# ---- one visit's interval


def test_the_interval_is_never_narrower_than_floor_and_clock() -> None:
    for count in (20, 57, 400):
        median, low, high = interval([1e-6] * count, CPU)
        assert high - median == pytest.approx(2e-9) and median - low == pytest.approx(2e-9)
        median, low, high = interval([1e-6] * count, CPU, step_s=5e-8)
        assert high - median == pytest.approx(5e-8)


def test_too_few_samples_give_no_interval() -> None:
    assert interval([1.0] * 9, CPU) == (1.0, 0.0, math.inf)
    assert interval([1.0] * 10, CPU)[2] < 1.01


def remembering(memory: float, seed: int) -> Iterator[float]:
    """1 ms and 1 % of noise of which each sample remembers this share."""
    generator, noise = np.random.default_rng(seed), 0.0
    while True:
        noise = memory * noise + math.sqrt(1 - memory**2) * float(generator.standard_normal())
        yield 1e-3 * (1 + 0.01 * noise)


def test_samples_that_remember_each_other_are_watched_until_they_are_worth_enough() -> None:
    """Quiet ones stop as soon as they may; by chance the others look narrow long before they are."""
    settled = replace(CUDA, light_window_s=1e-3)

    def count(memory: float, seed: int) -> int:
        stream = Stream(remembering(memory, seed))
        return len(collected(stream, settled, 60.0, light=lambda: True).samples_s)

    quiet, dependent = ([count(memory, seed) for seed in range(20)] for memory in (0.0, 0.95))
    assert max(quiet) <= 1.1 * CUDA.least_timed_s / 1e-3 + 1
    worth = (1 - 0.95) / (1 + 0.95)
    assert np.median(dependent) > LEAST_WORTH * 0.5 / worth > 1.5 * np.median(quiet)
