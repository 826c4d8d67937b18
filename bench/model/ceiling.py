"""One ceiling of a device: the highest rate, or the least time, that a row of its run was measured with."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from bench.case_name import row_name
from bench.store.schema import Measurement

STEP_K, LEAST_POINTS = 64, 4
"""Elements of K in a step, whatever the depth that a kernel walks in; different K through which a line of one
tile is drawn at least."""
VARIED, TWO_SPEEDS = 0.15, 1.25
"""Visits that differ by this share say that the roof is a range; groups of visits this factor apart, that it
has two states, as the memory of a virtual machine."""


@dataclass(frozen=True)
class Ceiling:
    """A highest rate that was measured, FLOP/s or bytes/s, with its row and that row's 95 % interval."""

    per_s: float
    low_per_s: float
    high_per_s: float
    row: str
    """The name of the case that it is read from."""
    visits_per_s: tuple[float, ...] = ()
    """The rate of each visit to it, in time order; first those at another level than the published ones."""
    median_per_s: float = math.nan
    """The rate by the median of its row, which tables and curves show of that row."""

    @property
    def slow_per_s(self) -> float:
        """The rate of its slowest visit, where visits differ by VARIED or more; else its own."""
        slowest = min(self.visits_per_s, default=self.per_s)
        return slowest if self.per_s >= (1 + VARIED) * slowest else self.per_s

    @property
    def speeds(self) -> tuple[float, float] | None:
        """(slow, fast) where the visits have two speeds."""
        groups = two_speeds(self.visits_per_s) if len(self.visits_per_s) > 2 else None
        return groups and (statistics.median(groups[0]), statistics.median(groups[1]))


def two_speeds(rates: Iterable[float]) -> tuple[list[float], list[float]] | None:
    """The slow ones and the fast ones of these rates, if they fall into two groups; else None.

    The members of each are alike within VARIED, and the two are TWO_SPEEDS apart.
    """
    ordered = sorted(rates)
    for at in range(1, len(ordered)):
        slow, fast = ordered[:at], ordered[at:]
        alike = all(group[-1] <= (1 + VARIED) * group[0] for group in (slow, fast))
        if alike and fast[0] >= TWO_SPEEDS * slow[-1]:
            return slow, fast
    return None


@dataclass(frozen=True)
class Duration:
    """A least time that was measured, seconds, with its row (or rows) and the 95 % interval."""

    seconds: float
    low_s: float
    high_s: float
    row: str


def tile_line(rows: list[Measurement], floor_s: float) -> tuple[Duration, Duration] | None:
    """(step, tile) of one data type by the line of Theil and Sen, which one odd point does not move.

    seconds(K) = launch floor + tile + K / STEP_K * step. A device computes no tile of this size faster,
    however few of them there are: what a product that leaves most SMs idle is bound by. None if the points
    are too few, or if time does not grow with K.
    """
    # Importing it takes longer than most that imports this module.
    from scipy.stats import theilslopes

    steps = np.array([json.loads(row.parameters)["k"] for row in rows]) / STEP_K
    median_s = np.array([_seconds(row.median_s) for row in rows])
    if len(np.unique(steps)) < LEAST_POINTS:
        return None
    slope, _, low, high = map(float, theilslopes(median_s, steps, alpha=0.95))
    if slope <= 0:
        return None
    tile_s, least_s, most_s = (
        float(np.median(median_s - each * steps)) - floor_s for each in (slope, high, low)
    )
    named = f"{rows[0].operator} {rows[0].implementation} {rows[0].dtype} at {len(rows)} k"
    return Duration(slope, low, high, named), Duration(tile_s, least_s, most_s, named)


def launch_floor(floor: list[Measurement]) -> Duration:
    """The median over the rows of one implementation, interval by interval end."""
    median_s = [_seconds(row.median_s) for row in floor]
    ends_s = [_ends_s(row, middle_s) for row, middle_s in zip(floor, median_s, strict=True)]
    low_s, high_s = (statistics.median(ends) for ends in zip(*ends_s, strict=True))
    return Duration(statistics.median(median_s), low_s, high_s, row_name(floor[0]))


def highest_rate(row: Measurement, count: float, floor_s: float = 0.0) -> Ceiling:
    """`count` over the row's quickest time, `floor_s` taken off it and off both ends of its interval.

    That of a median may lie above the quickest time; a ceiling's reaches it.
    """
    quickest_s = row.quickest_s
    low_s, high_s = _ends_s(row, quickest_s)
    low_s, high_s = (end_s - floor_s for end_s in (min(low_s, quickest_s), max(high_s, quickest_s)))
    high_per_s = count / low_s if low_s > 0 else math.inf
    rates = tuple(count / (each_s - floor_s) for each_s in visit_medians_s(row) if each_s > floor_s)
    per_s = count / (quickest_s - floor_s)
    median_s = _seconds(row.median_s) - floor_s
    median_per_s = count / median_s if median_s > 0 else per_s
    return Ceiling(per_s, count / high_s, high_per_s, row_name(row), rates, median_per_s)


def visit_medians_s(row: Measurement) -> list[float]:
    """Median seconds of each visit to a case, in time order; first those that later ones outvoted.

    They are not published, but the machine did run at that speed. Visits that were disturbed stay out.
    """
    outvoted = [
        float(median_s)
        for why, median_s in zip(row.set_aside or (), row.set_aside_s or (), strict=False)
        if why == "earlier" and median_s > 0
    ]
    return [*outvoted, *(statistics.median(part.tolist()) for part in row.visit_samples_s)]


def _ends_s(row: Measurement, otherwise_s: float) -> tuple[float, float]:
    """The ends of a row's interval; where there is none, `otherwise_s` twice."""
    ends_s = (row.low_s, row.high_s)
    low_s, high_s = (end if end is not None and 0 < end < math.inf else otherwise_s for end in ends_s)
    return low_s, high_s


def _seconds(seconds: float | None) -> float:
    return float(seconds or 0.0)
