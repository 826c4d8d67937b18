"""When rules to compete with ours would raise an alarm: each a function of many series to nights of alarm.

Published practice, written anew from its description; only slower is an alarm. Values are ln(median seconds).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import stats

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]


class Seen(NamedTuple):
    """What the rules are given."""

    log_s: Floats
    """[series, nights] ln median seconds; no gaps."""
    samples: Floats
    """[series, nights, samples] ln seconds of the samples."""
    half: Floats
    """[series, nights] half of the 95 % interval of the median, ln."""


Rule = Callable[[Seen], Flags]
"""[series, nights] on which of them an alarm stands."""


def previous(seen: Seen) -> Flags:
    """More than 5 % above the previous run."""
    alarm = np.zeros(seen.log_s.shape, dtype=np.bool_)
    alarm[:, 1:] = np.diff(seen.log_s, axis=1) > np.log1p(0.05)
    return alarm


def rank_test(seen: Seen) -> Flags:
    """Mann and Whitney on the samples of two nights running, p < .002, and slower by more than 2 %."""
    alarm = np.zeros(seen.log_s.shape, dtype=np.bool_)
    found = stats.mannwhitneyu(seen.samples[:, 1:], seen.samples[:, :-1], axis=2, method="asymptotic")
    slower = np.diff(np.median(seen.samples, axis=2), axis=1) > np.log1p(0.02)
    alarm[:, 1:] = (found.pvalue < 0.002) & slower
    return alarm


def two_nights(seen: Seen) -> Flags:
    """Two nights running above median + 2.5 scaled MAD of the last 20 nights, and by 2 %."""
    alarm = np.zeros(seen.log_s.shape, dtype=np.bool_)
    for night in range(6, seen.log_s.shape[1]):
        before = seen.log_s[:, max(0, night - 20) : night]
        by = seen.log_s[:, night] - np.median(before, axis=1)
        mad = stats.median_abs_deviation(before, axis=1, scale="normal")
        alarm[:, night] = by > np.maximum(np.log1p(0.02), 2.5 * mad)
    alarm[:, 1:] &= alarm[:, :-1]
    return alarm
