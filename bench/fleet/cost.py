"""What a fleet's spread costs a synchronous job, in which every step waits for the slowest of k units."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from scipy.special import gammaln

Floats = npt.NDArray[np.float64]

JOBS = (8, 64, 512)
"""Units of a job."""


def slowest(effects: Floats, units: int) -> float:
    """Expected time of the slowest of so many units drawn from these, over the median unit's.

    `effects` are ln of a time over the median's. Drawn without putting back; NaN for more units than there are.
    """
    n = len(effects)
    if not 0 < units <= n:
        return math.nan
    ratio = np.sort(np.exp(effects))
    below = np.arange(n)  # the i-th is the slowest if the other units - 1 are among the i below it
    with np.errstate(invalid="ignore"):
        log_share = _log_choose(below, units - 1) - _log_choose(np.array([n]), units)
    return float(np.sum(np.where(below >= units - 1, np.exp(log_share), 0.0) * ratio))


def _log_choose(of: npt.NDArray[np.int_], count: int) -> Floats:
    free = np.maximum(of - count, 0)
    result: Floats = gammaln(of + 1.0) - gammaln(count + 1.0) - gammaln(free + 1.0)
    return result
