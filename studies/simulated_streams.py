"""Streams of launch times as kernels and machines produce them, to judge rules of sampling by.

A stream is a relative level that moves over a run (clocks, heat, neighbours) times the noise of each launch.
Synthetic, so that the truth is known.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from scipy.signal import lfilter

from bench.sampling.publish import Floats
from bench.spec import DeviceKind

Level = Callable[[Floats], Floats]
"""Relative level at times of the run, seconds from its start."""
Noise = Callable[[int], Floats]
"""Relative factors of so many launches that follow one another."""

RUN_S = 160.0
"""How long a run lasts, seconds."""


def steady(chance: Generator) -> Level:
    """A constant level."""
    return np.ones_like


def settling(tau_s: float) -> Callable[[Generator], Level]:
    """At boost first, then 12 % slower as power and heat bring the clock down, with this time constant."""
    return lambda chance: lambda at_s: 1 - 0.12 * np.exp(-at_s / tau_s)


def two_states(apart: float, dwell_s: float) -> Callable[[Generator], Level]:
    """Two clock states, the quick one 70 % of the time; a stay lasts `dwell_s` on average."""

    def level(chance: Generator) -> Level:
        pairs = int(2 * RUN_S / dwell_s) + 20
        stays_s = chance.exponential([1.4 * dwell_s, 0.6 * dwell_s], (pairs, 2)).ravel()
        changes_s = np.cumsum(stays_s) - chance.uniform(0, 10 * dwell_s)
        return lambda at_s: np.where(np.searchsorted(changes_s, at_s) % 2, 1 + apart, 1.0)

    return level


def slow_drift(chance: Generator) -> Level:
    """2 % up and down again within the run: a room that warms and cools."""
    phase = chance.uniform(0, 2 * math.pi)
    return lambda at_s: 1 + 0.02 * np.sin(2 * math.pi * at_s / RUN_S + phase)


def new_levels(chance: Generator) -> Level:
    """Another level every 5 s, with a standard deviation of 0.5 %: memory laid out anew."""
    levels: Floats = 1 + 0.005 * chance.standard_normal(int(RUN_S / 5) + 20)
    return lambda at_s: levels[(at_s / 5).astype(np.int64)]


def periodic(share: float, period_s: float) -> Callable[[Generator], Level]:
    """A periodic level of this amplitude: a controller that oscillates."""

    def level(chance: Generator) -> Level:
        phase = chance.uniform(0, 2 * math.pi)
        return lambda at_s: 1 + share * np.sin(2 * math.pi * at_s / period_s + phase)

    return level


def jitter(share: float) -> Callable[[Generator], Noise]:
    """Each launch on its own, normal with this standard deviation."""
    return lambda chance: lambda count: 1 + share * chance.standard_normal(count)


def stragglers(share: float, often: float, factor: float) -> Callable[[Generator], Noise]:
    """Jitter, and every so `often` a launch that takes `factor` times as long."""

    def noise(chance: Generator) -> Noise:
        def factors(count: int) -> Floats:
            slow = chance.random(count) < often
            return np.asarray((1 + share * chance.standard_normal(count)) * np.where(slow, factor, 1.0))

        return factors

    return noise


def remembering(share: float, memory: float) -> Callable[[Generator], Noise]:
    """Autocorrelated launches: an AR(1) process with this standard deviation."""

    def noise(chance: Generator) -> Noise:
        state = np.array([memory * share * chance.standard_normal()])

        def factors(count: int) -> Floats:
            nonlocal state
            pushes = share * math.sqrt(1 - memory**2) * chance.standard_normal(count)
            deviations, state = lfilter([1.0], [1.0, -memory], pushes, zi=state)
            return np.asarray(1 + deviations)

        return factors

    return noise


@dataclass(frozen=True)
class Stream:
    """One kind of kernel on one kind of machine."""

    name: str
    launch_s: float
    level: Callable[[Generator], Level]
    noise: Callable[[Generator], Noise]
    first: bool = False
    """Whether the first visit is the first of the run, on an idle device; else the device is loaded."""
    kind: DeviceKind = "cuda"
    """Of device: whose protocol and usual noise count."""
    follows: bool = True
    """Whether the case gets slower when the machine's ceilings do."""
    step_s: float = 0.5e-6
    """What its clock reads in."""


_PROCESSOR = two_states(0.09, 5.0)

STREAMS = (
    Stream("steady, 0.3 % jitter", 50e-6, steady, jitter(0.003)),
    Stream("5 us, 1 % of the launches doubled", 5e-6, steady, stragglers(0.02, 0.01, 2.0)),
    Stream("5 % stragglers, 3 times as long", 50e-6, steady, stragglers(0.005, 0.05, 3.0)),
    Stream("5 ms, 5 % of white noise", 5e-3, steady, jitter(0.05)),
    Stream("a clock that reads in 10 us", 1e-4, steady, jitter(0.003), step_s=1e-5),
    Stream("clock settles by 12 % in 1 s", 1e-3, settling(1.0), jitter(0.003), first=True),
    Stream("clock settles by 12 % in 3 s", 1e-3, settling(3.0), jitter(0.003), first=True),
    Stream("two states 5 % apart, 75 ms each", 5e-4, two_states(0.05, 0.075), jitter(0.002)),
    Stream("two states 3 % apart, 0.4 s each", 5e-4, two_states(0.03, 0.4), jitter(0.002)),
    Stream("two states 5 % apart, 5 s each", 5e-4, two_states(0.05, 5.0), jitter(0.002)),
    Stream("two states 3 % apart, 20 s each", 5e-4, two_states(0.03, 20.0), jitter(0.002)),
    Stream("slow drift, 2 % up and down", 1e-3, slow_drift, jitter(0.003)),
    Stream("1 % up and down every 0.7 s", 5e-4, periodic(0.01, 0.7), jitter(0.003)),
    Stream("AR 0.9 from launch to launch, 1 %", 1e-3, steady, remembering(0.01, 0.9)),
    Stream("AR 0.95 from launch to launch, 1 %", 1e-3, steady, remembering(0.01, 0.95)),
    Stream("another level every 5 s, 0.5 %", 1e-3, new_levels, jitter(0.003)),
    Stream("CPU, two speeds 9 % apart, 5 s each", 1e-3, _PROCESSOR, jitter(0.01), kind="cpu"),
    Stream("CPU, bound by memory beside them", 1e-3, _PROCESSOR, jitter(0.01), kind="cpu", follows=False),
)


class Launches:
    """A stream's launches one after the other from some time of the run on: what a clock would read."""

    ahead_s = 0.05
    """Launches are drawn for about so long at a time."""

    def __init__(self, stream: Stream, level: Level, at_s: float, per_sample: int, chance: Generator) -> None:
        """From `at_s` of the run on, `per_sample` launches a sample."""
        self.per_sample, self.samples, self.step_s = per_sample, 0, stream.step_s
        self._launch_s, self._level, self._noise = stream.launch_s, level, stream.noise(chance)
        self._drawn: list[float] = []
        self._wall_s = self._drawn_until_s = at_s

    def each_s(self, count: int) -> Floats:
        """Seconds of the next so many launches, singly, as a perfect clock would read them."""
        at_s = self._drawn_until_s + self._launch_s * np.arange(count, dtype=np.float64)
        each_s = self._launch_s * self._level(at_s) * self._noise(count)
        self._drawn_until_s += float(each_s.sum())
        return each_s

    def sample(self) -> tuple[float, float]:
        """(seconds per launch, seconds it took) of the next sample."""
        if not self._drawn:
            count = max(1, round(self.ahead_s / (self._launch_s * self.per_sample)))
            took_s = self.each_s(count * self.per_sample).reshape(-1, self.per_sample).sum(axis=1)
            self._drawn = (np.round(took_s / self.step_s) * self.step_s).tolist()[::-1]
        took = self._drawn.pop()
        self.samples += 1
        self._wall_s += took
        return took / self.per_sample, took

    def now(self) -> float:
        """Seconds of the run."""
        return self._wall_s
