"""What a synchronous job loses: the slowest of the units that it was given."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.special import gammaln

Floats = npt.NDArray[np.float64]


def slowest_of(effects: Floats, size: int) -> float:
    """The mean time of the slowest of `size` units over the median unit's, of all jobs that could be drawn.

    `effects` [units] are ln of each unit's time over the median's, none NaN. Exact for these effects: the
    slowest of a job is the unit of rank i in C(i - 1, size - 1) of C(units, size) draws. A job of more units
    than there are is drawn with repetition, as from a larger fleet alike. ValueError without units.
    """
    times = np.exp(np.sort(effects) - np.median(effects))
    count = len(times)
    if not count or size < 1:
        raise ValueError(f"slowest_of: {size} of {count} units")
    ranks = np.arange(1, count + 1)
    if size > count:
        below = (ranks / count) ** size
    else:
        log = _log_choose(np.maximum(ranks, size), size) - _log_choose(np.array(count), size)
        below = np.where(ranks >= size, np.exp(log), 0.0)
    return float(times @ np.diff(below, prepend=0.0))


def _log_choose(of: npt.NDArray[np.int64], size: int) -> Floats:
    """ln of the number of ways to choose so many of so many."""
    return np.asarray(gammaln(of + 1) - gammaln(size + 1) - gammaln(of - size + 1))
