"""The interval of a median, from samples that may be neither normal nor independent."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Floats = NDArray[np.float64]


@cache
def _rank(count: int, confidence: float) -> int:
    """1-based rank r such that [x_r, x_(n+1-r)] covers the median with at least this confidence; 0: none."""
    return int(stats.binom.ppf((1 - confidence) / 2, count, 0.5))


@cache
def _t(count: int, confidence: float) -> float:
    """Standard errors either side of the mean of `count` values, by Student."""
    return float(stats.t.ppf(0.5 + confidence / 2, count - 1))


def effective_count(values: Floats) -> float:
    """How many independent samples these, in time order, are worth.

    Their number over the integrated autocorrelation time of their ranks (a straggler counts no more than its
    place), summed up over pairs of lags for as long as a pair is positive (Geyer 1992).
    """
    count = len(values)
    ranks = stats.rankdata(values)
    ranks -= ranks.mean()
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
) -> tuple[float, float, float]:
    """(median, low, high) in the unit of `values`: the widest of three intervals of the median.

    Order statistics (distribution-free) of as many independent values as these are `worth`; Student's t over
    the medians of their `parts`, at least two, in time order (right when values drift together); `least`
    either side. 0 and infinite where there are too few values to say.
    """
    ordered = np.sort(values)
    median = float(np.median(ordered))
    count = int(worth)
    rank = _rank(count, confidence)
    if rank < 1:
        return median, 0.0, math.inf
    rank = int(rank * (len(values) + 1) / (count + 1))
    low, high = float(ordered[rank - 1]), float(ordered[-rank])
    middle = float(np.mean(parts))
    spread = _t(len(parts), confidence) * float(np.std(parts, ddof=1)) / len(parts) ** 0.5
    # Student's interval is symmetric, times are not: downwards it ends at the quickest that was seen.
    quickest = max(middle - spread, float(ordered[0]))
    return median, min(low, quickest, median - least), max(high, middle + spread, median + least)


def trend(windows: Sequence[Sequence[float]]) -> float:
    """Change of the level from the first of these windows to the last; 0 if chance explains it.

    A straight line through the medians of a fifth of a window each; chance explains two standard errors.
    """
    parts = [np.median(part) for window in windows for part in np.array_split(window, 5) if len(part)]
    if len(parts) < 5:
        return 0.0
    line = stats.linregress(np.arange(len(parts)), parts)
    if abs(line.slope) <= 2 * line.stderr:
        return 0.0
    per_window = float(line.slope) * len(parts) / len(windows)
    return per_window * (len(windows) - 1)
