"""Duels: our GEMM against the library's, case by case, by regions of shapes.

A duel is one problem that both timed soundly in one run with one cache: ratio = median seconds of the library
/ median seconds of ours, so that ours is faster above 1. Its 95 % interval combines the rows' own, as the
root of the sum of squared logarithms.
"""

from __future__ import annotations

import json
import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from bench.case_name import row_name
from bench.judge.flags import SUSPECT
from bench.judge.frame import Run
from bench.judge.gemm_regions import REGIONS, Region, region
from bench.judge.goals import Goal, goals
from bench.judge.noise import OURS
from bench.spec import is_custom
from bench.store.schema import Measurement

LIBRARIES = ("cublas", "cublaslt")
"""Ours are compared with the first of these that has a sound time."""

ALL_16_BIT = "16-bit, all aligned"


@dataclass(frozen=True)
class Duel:
    """One problem: ours against the library."""

    implementation: str
    name: str
    """Name of our case."""
    library: str
    parameters: str
    """The column of the rows: JSON."""
    region: Region
    ratio: float
    """Seconds of the library / seconds of ours."""
    low: float
    high: float
    """The 95 % interval of the ratio."""


@dataclass(frozen=True)
class Standing:
    """One of our implementations over the duels of a region."""

    region: str
    implementation: str
    duels: tuple[Duel, ...]
    """The lowest ratio first; never empty."""

    @property
    def median(self) -> float:
        """The median ratio."""
        return statistics.median(duel.ratio for duel in self.duels)

    @property
    def least(self) -> float:
        """The lowest ratio."""
        return self.duels[0].ratio

    @property
    def mean(self) -> float:
        """The geometric mean of the ratios."""
        return math.exp(statistics.fmean(math.log(duel.ratio) for duel in self.duels))

    @property
    def ahead(self) -> float:
        """Share of the cases where ours is faster by more than the interval."""
        return sum(duel.low > 1 for duel in self.duels) / len(self.duels)

    @property
    def behind(self) -> float:
        """Share of the cases where ours is slower by more than the interval."""
        return sum(duel.high < 1 for duel in self.duels) / len(self.duels)


def goal(place: str, device_name: str) -> Goal | None:
    """The goal of a region on this device, ours over the library; None if none was set."""
    for goal in goals():
        if goal.operator == "gemm" and goal.region == place and goal.about(device_name):
            return goal
    return None


def duels(run: Run, cache: str) -> tuple[list[Duel], int]:
    """(every duel by the name of our implementation, the number left out because one side is suspect).

    They are made of the rows with this cache, from any sweeps. A problem that was timed in several sweeps is
    one problem: its latest row counts.
    """
    timed: dict[str, dict[str, Measurement | None]] = defaultdict(dict)
    for row, flags in zip(run.rows, run.flags, strict=True):
        known = row.implementation in LIBRARIES or _duels(row.implementation)
        if row.operator != "gemm" or row.cache != cache or not known or row.visit or not row.is_timed:
            continue
        sound = SUSPECT.isdisjoint(flags) and bool(row.samples_s)
        by_name = timed[row.parameters]
        if sound or row.implementation not in by_name:
            by_name[row.implementation] = row if sound else None
    complete, suspect = [], 0
    for parameters, by_name in timed.items():
        theirs = [by_name[name] for name in LIBRARIES if name in by_name]
        library = next((row for row in theirs if row is not None), None)
        for name, ours in by_name.items():
            if not _duels(name) or not theirs:
                continue
            if ours is None or library is None:
                suspect += 1
                continue
            place = region(json.loads(parameters))
            complete.append(
                Duel(name, row_name(ours), library.implementation, parameters, place, *ratio(library, ours))
            )
    return sorted(complete, key=lambda duel: (_ours_first(duel.implementation), duel.parameters)), suspect


def standings(every: Iterable[Duel]) -> Iterator[Standing]:
    """Standings by region and implementation, `triton` before its variants; last, aligned 16-bit shapes."""
    by_place: dict[tuple[str, str], list[Duel]] = defaultdict(list)
    for duel in every:
        by_place[duel.region, duel.implementation].append(duel)
        if duel.region.startswith("16-bit"):
            by_place[ALL_16_BIT, duel.implementation].append(duel)
    order = [*REGIONS, ALL_16_BIT]
    for place, name in sorted(by_place, key=lambda key: (order.index(key[0]), _ours_first(key[1]))):
        here = sorted(by_place[place, name], key=lambda duel: duel.ratio)
        yield Standing(place, name, tuple(here))


def ratio(library: Measurement, ours: Measurement) -> tuple[float, float, float]:
    """(library / ours, low, high) of two rows with times; the module's docstring defines it."""
    assert library.median_s and ours.median_s
    middle = library.median_s / ours.median_s
    (library_down, library_up), (ours_down, ours_up) = _shares(library), _shares(ours)
    # The ratio falls as the library's time does and as ours grows.
    down, up = math.hypot(library_down, ours_up), math.hypot(library_up, ours_down)
    return middle, middle * math.exp(-down), middle * math.exp(up)


def _shares(row: Measurement) -> tuple[float, float]:
    """Natural logarithms of median / low and high / median; infinite where an end is unknown."""
    assert row.median_s is not None
    low, high = row.low_s, row.high_s
    down = math.log(row.median_s / low) if low is not None and 0 < low < row.median_s else math.inf
    return down, math.log(high / row.median_s) if high is not None and high > row.median_s else math.inf


def _duels(implementation: str) -> bool:
    """Whether it is one of ours or a custom kernel, which the library is compared with."""
    return implementation.startswith(OURS) or is_custom(implementation)


def _ours_first(name: str) -> tuple[bool, str]:
    return name != OURS, name
