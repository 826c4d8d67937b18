"""Duels: our GEMM against the library's, case by case, by regions of shapes.

A duel is one problem that both timed soundly in one run with one cache: ratio = median seconds of the library
/ median seconds of ours, so that ours is faster above 1. Its 95 % interval reaches, on either side, as far as
the wider of two:

*   a bootstrap: both rows' samples (each a batch of launches) are resampled DRAWS times from a fixed seed,
    and the interval goes from the 2.5th to the 97.5th percentile of the ratios of the medians;
*   the two rows' own intervals, combined as the root of the sum of squared logarithms. They include what a
    bootstrap of single samples misses: the clock's step, and samples that drift together (with drift the
    bootstrap alone covers the truth in 40 of 100 cases, the wider of both in over 90).
"""

from __future__ import annotations

import json
import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from bench.case_name import row_name
from bench.judge.flags import SUSPECT
from bench.judge.frame import Run
from bench.judge.noise import OURS
from bench.store.schema import Measurement

LIBRARIES = ("cublas", "cublaslt")
"""Ours are compared with the first of these that has a sound time."""
DRAWS = 4000
SEED = 0

Region = Literal[
    "16-bit large",
    "16-bit large, short K",
    "16-bit middle",
    "16-bit small",
    "16-bit decode",
    "16-bit other",
    "float8 TN large",
    "float8 other",
    "int8 TN large",
    "int8 other",
    "tf32 TN large",
    "tf32 other",
    "float32 large",
    "float32 other",
    "float64",
    "unaligned",
    "batched",
]
"""Regions of shapes, each with a goal of its own, and the rest of each data type."""
REGIONS: tuple[Region, ...] = get_args(Region)
ALL_16_BIT = "16-bit, all aligned"

_IN_16_BYTES = {
    "float16": (8, 8),
    "bfloat16": (8, 8),
    "tf32": (4, 4),
    "float32": (4, 4),
    "float64": (2, 2),
    "float8_e4m3": (16, 8),
    "int8": (16, 4),
}
"""Elements of an operand, and of the result, in 16 bytes: the alignment that a load or bulk copy needs."""


class Goal(NamedTuple):
    """Ratios to reach: the median of a region's cases, and the least of them (None: not set)."""

    median: float
    least: float | None = None


_HOPPER: Mapping[Region, Goal] = {
    "16-bit large": Goal(1.00, 0.95),
    "16-bit large, short K": Goal(0.93, 0.88),
    "16-bit middle": Goal(0.95, 0.85),
    "16-bit small": Goal(0.90, 0.75),
    "16-bit decode": Goal(1.05, 0.95),
    "float8 TN large": Goal(1.03, 0.95),
    "int8 TN large": Goal(0.95, 0.85),
    "tf32 TN large": Goal(0.95, 0.88),
    "tf32 other": Goal(0.75),  # set for large NN, applied to all other tf32
    "float32 large": Goal(0.93, 0.85),
    "unaligned": Goal(0.90, 0.60),
}
GOALS: Mapping[str, Mapping[Region, Goal]] = {
    "H100": _HOPPER,
    "H200": _HOPPER,
    "A100": {"16-bit large": Goal(0.95), "16-bit small": Goal(0.85)},
    "B200": {"16-bit large": Goal(0.92)},
    "V100": {"float32 large": Goal(0.85)},
}
"""Part of a device's name -> its goals; other devices have none."""


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


def region(parameters: Mapping[str, Any]) -> Region:
    """The region of a GEMM with these `m`, `n`, `k`, `layout`, `dtype`, and `pitch` and `batch` if given."""
    if parameters.get("batch", 1) > 1:
        return "batched"
    m, n, k = parameters["m"], parameters["n"], parameters["k"]
    dtype, layout = parameters["dtype"], parameters["layout"]
    if not _aligned(parameters):
        return "unaligned"
    all_long = min(m, n) >= 4096
    large = all_long and k >= 1024
    if dtype in ("float16", "bfloat16"):
        if min(m, n) <= 64 and max(m, n) >= 4096 and k >= 4096:
            return "16-bit decode"
        if large:
            return "16-bit large"
        if all_long and k <= 512:
            return "16-bit large, short K"
        if max(m, n) <= 1024:
            return "16-bit small"
        if min(m, n) > 1024 and max(m, n) < 4096:
            return "16-bit middle"
        return "16-bit other"
    if dtype == "float8_e4m3":
        return "float8 TN large" if large and layout == "TN" else "float8 other"
    if dtype == "int8":
        return "int8 TN large" if large and layout == "TN" else "int8 other"
    if dtype == "tf32":
        return "tf32 TN large" if large and layout == "TN" else "tf32 other"
    if dtype == "float32":
        return "float32 large" if large else "float32 other"
    return "float64"


def _aligned(parameters: Mapping[str, Any]) -> bool:
    """Whether every row of A, B and D begins at a multiple of 16 bytes."""
    if parameters.get("pitch") == "padded":
        return True
    m, n, k, layout = (parameters[name] for name in ("m", "n", "k", "layout"))
    of_operand, of_result = _IN_16_BYTES[parameters["dtype"]]
    row_a, row_b = m if layout[0] == "N" else k, k if layout[1] == "N" else n
    return not (row_a % of_operand or row_b % of_operand or m % of_result)


def goal(place: str, device_name: str) -> Goal | None:
    """The goal of a region on this device; None if none was set."""
    for part, goals in GOALS.items():
        if part in device_name:
            return next((ratios for name, ratios in goals.items() if name == place), None)
    return None


def duels(run: Run, cache: str) -> tuple[list[Duel], int]:
    """(every duel by the name of our implementation, the number left out because one side is suspect).

    They are made of the rows with this cache, from any sweeps. A problem that was timed in several sweeps is
    one problem: its latest row counts.
    """
    timed: dict[str, dict[str, Measurement | None]] = defaultdict(dict)
    for row, flags in zip(run.rows, run.flags, strict=True):
        known = row.implementation in LIBRARIES or row.implementation.startswith(OURS)
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
            if not name.startswith(OURS) or not theirs:
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
    """(library / ours, low, high) of two rows with times and samples; the module's docstring defines it."""
    chance = np.random.default_rng(SEED)
    drawn = _medians(library.samples_s or [], chance) / _medians(ours.samples_s or [], chance)
    low, high = (float(end) for end in np.quantile(drawn, (0.025, 0.975)))
    assert library.median_s and ours.median_s
    middle = library.median_s / ours.median_s
    (library_down, library_up), (ours_down, ours_up) = _shares(library), _shares(ours)
    # The ratio falls as the library's time does and as ours grows.
    down, up = math.hypot(library_down, ours_up), math.hypot(library_up, ours_down)
    return middle, min(low, middle * math.exp(-down)), max(high, middle * math.exp(up))


def _medians(samples_s: Sequence[float], chance: np.random.Generator) -> npt.NDArray[np.float64]:
    """The medians of DRAWS bootstrap resamples, each of the size of `samples_s`.

    Only the middle order statistics are drawn: the k-th smallest of n uniform numbers is Beta(k, n + 1 - k),
    and given that, the next is the least of n - k numbers above it. Used as places in the sorted samples they
    give the median of one resample.
    """
    ordered, n = np.sort(samples_s), len(samples_s)
    k = (n + 1) // 2
    first = chance.beta(k, n + 1 - k, DRAWS)
    below = ordered[np.minimum((first * n).astype(np.int64), n - 1)]
    if n % 2:
        return np.asarray(below)
    second = first + (1 - first) * chance.beta(1, n - k, DRAWS)
    return np.asarray((below + ordered[np.minimum((second * n).astype(np.int64), n - 1)]) / 2)


def _shares(row: Measurement) -> tuple[float, float]:
    """Natural logarithms of median / low and high / median; infinite where an end is unknown."""
    assert row.median_s is not None
    low, high = row.low_s, row.high_s
    down = math.log(row.median_s / low) if low is not None and 0 < low < row.median_s else math.inf
    return down, math.log(high / row.median_s) if high is not None and high > row.median_s else math.inf


def _ours_first(name: str) -> tuple[bool, str]:
    return name != OURS, name
