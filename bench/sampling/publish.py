"""What a row says of its visits: the median, its interval, and whether it converged.

Samples may be neither normal nor independent, and visits differ by more than their samples tell. How often
the intervals cover the truth is simulated in studies/interval_coverage.py.

scipy.special is imported where it is used, and scipy.stats not at all: to import it takes longer than most
commands, and than all of a worker's own modules.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, lru_cache
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from bench.sampling.protocol import Protocol

Floats = npt.NDArray[np.float64]
Interval = tuple[float, float, float]
"""Median, lower and upper end."""
Stop = Literal["converged", "budget", "samples", "visits"]
MODERATED = 3
"""Visits from which on they tell by themselves how far off a row may be."""


@dataclass(frozen=True)
class VisitSamples:
    """Samples and outcome of one visit to a case."""

    samples_s: tuple[float, ...]
    """Every sample, seconds per launch, in time order; none is ever thrown away."""
    settled: bool
    """Whether it had settled before the first of them."""
    settle_s: float
    """Wall seconds of settling."""
    stop: Stop
    step_s: float
    """The clock's step divided by the launches of a sample."""


@dataclass(frozen=True)
class Published:
    """What a row says of its visits, seconds per launch."""

    median_s: float
    low_s: float
    high_s: float
    """Ends of the 95 % interval of the median; 0 and infinite where there is too little to tell."""
    stop: Stop

    def columns(self) -> dict[str, Any]:
        """Columns of a row; an interval that too few samples leave unknown is null, not infinite."""
        return asdict(self) | ({} if math.isfinite(self.high_s) else {"low_s": None, "high_s": None})


def interval(samples_s: Sequence[float], settings: Protocol, step_s: float = 0.0) -> Interval:
    """(median, low, high) in seconds of one visit's samples, in time order.

    The widest of three intervals of the median: order statistics of as many independent samples as these are
    worth; Student's t over the medians of consecutive blocks; the clock's step per launch, or the floor. The
    interval is infinite while there are too few samples to say.
    """
    values = np.asarray(samples_s, dtype=np.float64)
    if len(values) < 2 * settings.blocks:
        return median_of(values), 0.0, math.inf
    blocks_s = [median_of(block) for block in np.array_split(values, settings.blocks)]
    least = max(step_s, settings.floor * median_of(values))
    return median_interval(values, effective_count(values), blocks_s, least, settings.confidence)


def settled_ones(visits: Sequence[VisitSamples], settings: Protocol, kind: str) -> list[int]:
    """Indices of the visits of which a row is made: on a GPU those after the clock had settled.

    Where `keep` others are left, those whose windows still drifted are none of them, nor, where the last
    `keep` agree, the first ones that were at another level: a clock that still falls is no scatter of the
    case. On a CPU visits far apart tell more than windows do.
    """
    every = list(range(len(visits)))
    if kind != "cuda":
        return every
    those = [index for index in every if visits[index].settled]
    those = those if len(those) >= settings.keep else every
    each_s = [median_of(visits[index].samples_s) for index in those]
    level_s = median_of(each_s[-settings.keep :])
    at_level = [abs(value_s - level_s) <= settings.agree * level_s for value_s in each_s]
    first = at_level.index(True) if all(at_level[-settings.keep :]) else 0
    return those[min(first, max(0, len(those) - settings.keep)) :]


def publish(visits: Sequence[VisitSamples], settings: Protocol) -> Published:
    """What the visits to a case, at least one, in the order they were made, say by themselves.

    The median is that of all their samples together. Its interval is `interval` for one visit; for several,
    Student's t is over their medians. It has converged if the last `keep` visits agree and theirs is narrow.
    What other cases of the run tell of the noise is no part of it (bench/judge/within_run.py).
    """
    each_s = [median_of(visit.samples_s) for visit in visits]
    step_s = max(visit.step_s for visit in visits)
    if len(visits) == 1:
        median, low, high = interval(visits[0].samples_s, settings, step_s)
    else:
        parts = [np.asarray(visit.samples_s, dtype=np.float64) for visit in visits]
        worth, values = sum(effective_count(part) for part in parts), np.concatenate(parts)
        least = max(step_s, settings.floor * median_of(values))
        median, low, high = median_interval(values, worth, each_s, least, settings.confidence)

    last_s = each_s[-settings.keep :]
    stop: Stop = "converged"
    if len(visits) < settings.visits:
        stop = "budget"
    elif len(visits) > settings.keep:  # what came before may have been settling
        stop = publish(visits[-settings.keep :], replace(settings, visits=1)).stop
    elif max(last_s) - min(last_s) > settings.agree * median_of(last_s):
        stop = "visits"
    else:
        stop = _stop(max(high - median, median - low), median, settings, visits[-1].stop)
    return Published(median, low, high, stop)


def publish_ceiling(visits: Sequence[VisitSamples], settings: Protocol) -> Published:
    """What the visits to a ceiling say: its interval spans those of its visits, each taken alone.

    Of two visits Student's t would make an interval nine times as wide as they are apart; and a roof is what
    was reached at some time, not the mean.
    """
    settings = replace(settings, visits=1)
    together = publish(visits, settings)
    median_s = together.median_s
    alone = [publish([visit], settings) for visit in visits]
    low_s, high_s = min(each.low_s for each in alone), max(each.high_s for each in alone)
    stop = _stop(max(high_s - median_s, median_s - low_s), median_s, settings, alone[-1].stop)
    return Published(median_s, low_s, high_s, stop)


def _stop(half_s: float, median_s: float, settings: Protocol, last: Stop) -> Stop:
    """`converged` where half the interval is narrow; else why the last visit ended, or that visits differ."""
    if half_s <= settings.half_width * median_s:
        return "converged"
    return "visits" if last == "converged" else last


# ---- the interval of a median


def median_of(values: npt.ArrayLike) -> float:
    """As np.median, which takes ten times as long: a year of a fleet has millions of parts. At least one."""
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    return float((ordered[(ordered.size - 1) // 2] + ordered[ordered.size // 2]) / 2)


@cache
def _rank(count: int, confidence: float) -> int:
    """1-based rank r such that [x_r, x_(n+1-r)] covers the median with at least this confidence; 0: none."""
    from scipy import special

    return int(np.searchsorted(special.bdtr(np.arange(count // 2 + 1), count, 0.5), (1 - confidence) / 2))


@lru_cache(maxsize=1 << 10)
def student(freedom: float, confidence: float) -> float:
    """Standard errors either side of a mean that hold it with this confidence; `freedom`: degrees of it."""
    from scipy import special

    return float(special.stdtrit(freedom, 0.5 + confidence / 2))


def average_ranks(values: Floats) -> Floats:
    """The place of each value in order, from 1; equal values share the mean of theirs."""
    _, at, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks: Floats = (np.cumsum(counts) - (counts - 1) / 2)[at]
    return ranks


def effective_count(values: Floats) -> float:
    """How many independent samples these, in time order, are worth.

    Their number over the integrated autocorrelation time of their ranks (a straggler counts no more than its
    place), summed up over pairs of lags for as long as a pair is positive (Geyer 1992).
    """
    count = len(values)
    ranks = average_ranks(values) - (count + 1) / 2
    power = np.abs(np.fft.rfft(ranks, 2 * count)) ** 2
    covariance = np.fft.irfft(power)[:count]
    if covariance[0] <= 0:  # all alike
        return float(count)
    pairs = (covariance[: count // 2 * 2] / covariance[0]).reshape(-1, 2).sum(axis=1)
    negative = np.flatnonzero(pairs <= 0)
    last = int(negative[0]) if len(negative) else len(pairs)
    return count / max(1.0, 2 * float(pairs[:last].sum()) - 1)


def median_interval(
    values: Floats, worth: float, parts: Sequence[float], least: float, confidence: float
) -> Interval:
    """(median, low, high) in the unit of `values`: the widest of three intervals of the median.

    Order statistics (distribution-free) of as many independent values as these are `worth`; Student's t over
    the medians of their `parts`, at least two, in time order (right when values drift together); `least`
    either side. 0 and infinite where there are too few values to say.
    """
    ordered, median, count = np.sort(values), median_of(values), int(worth)
    rank = _rank(count, confidence)
    if rank < 1:
        return median, 0.0, math.inf
    rank = int(rank * (len(values) + 1) / (count + 1))
    low, high = min(float(ordered[rank - 1]), median - least), max(float(ordered[-rank]), median + least)
    middle = float(np.mean(parts))
    spread = student(len(parts) - 1, confidence) * float(np.std(parts, ddof=1)) / len(parts) ** 0.5
    # Student's interval is symmetric, times are not: downwards it ends at the quickest that was seen.
    quickest = max(middle - spread, float(ordered[0]))
    return median, min(low, quickest), max(high, middle + spread)


def trend(windows: Sequence[Sequence[float]]) -> float:
    """Change of the level from the first of these windows to the last; 0 if chance explains it.

    A straight line through the medians of a fifth of a window each; chance explains two standard errors.
    """
    parts = [median_of(part) for window in windows for part in np.array_split(window, 5) if len(part)]
    count = len(parts)
    if count < 5:
        return 0.0
    place, level = np.arange(count) - (count - 1) / 2, np.asarray(parts) - np.mean(parts)
    slope = float(place @ level / (place @ place))
    left = level - slope * place
    if slope**2 * (place @ place) <= 4 * (left @ left) / (count - 2):
        return 0.0
    return slope * count / len(windows) * (len(windows) - 1)
