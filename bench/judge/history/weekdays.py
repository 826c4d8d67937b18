"""What the day of the week does to each row: a machine may be busier on some days than on others.

A row's departures from its rolling median are kept by weekday. Whether the weekdays differ is tested on their
ranks (the test of Kruskal and Wallis, and each weekday against the others), so that neither odd nights nor
two speeds pass for a week. Where chance does not explain it, a weekday's median is what is expected of it;
everywhere else nothing is.
"""

from __future__ import annotations

import numpy as np
from scipy import stats

from bench.judge.history.rolling import row_median
from bench.judge.history.series import Flags, Floats

WEEKS = 12
"""Nights of each weekday that are remembered."""
LEAST_WEEKS = 5
"""Nights of a weekday from which on it counts."""
RARE, KEPT = 1e-4, 1e-2
"""Chance below which the weekdays of a row differ, and below which they go on to: odd nights end nothing."""
LATELY = 3
"""The last nights of each weekday, which must still differ by half of what is expected."""
DAYS = 7


class Weekdays:
    """Departures of some rows by weekday."""

    def __init__(self, rows: int) -> None:
        self._departed: Floats = np.full((rows, DAYS, WEEKS), np.nan)
        self.expected: Floats = np.zeros((rows, DAYS))
        """[rows, days] what each weekday adds to the usual level, ln; 0 where nothing is known of it."""

    def push(self, day: int, departed: Floats) -> None:
        """This night's departures from the usual level, [rows], ln; NaN where there is none."""
        known = ~np.isnan(departed)
        self._departed[known, day, :-1] = self._departed[known, day, 1:]
        self._departed[known, day, -1] = departed[known]

    def learn(self) -> None:
        """Ask of all rows anew what the weekdays do to them."""
        counts = (~np.isnan(self._departed)).sum(axis=2) >= LEAST_WEEKS
        departed = np.where(counts[:, :, None], self._departed, np.nan)
        rows = np.flatnonzero(counts.sum(axis=1) > 1)
        bar = np.where(self.expected[rows].any(axis=1), KEPT, RARE)
        self.expected[:] = 0
        differ, share = _differ(departed[rows], bar)
        rows, departed = rows[differ], departed[rows[differ]]
        expected = share[differ, None] * _by_day(departed)
        lately = (expected * _by_day(departed[:, :, -LATELY:])).sum(axis=1)
        holds = lately > (expected**2).sum(axis=1) / 2
        self.expected[rows[holds]] = expected[holds]


def _by_day(departed: Floats) -> Floats:
    """[rows, days] median of each weekday, less the median weekday's; 0 where there is none."""
    flat = departed.reshape(len(departed) * DAYS, departed.shape[2])
    medians = row_median(flat, (~np.isnan(flat)).sum(axis=1)).reshape(len(departed), DAYS)
    usual = row_median(medians, (~np.isnan(medians)).sum(axis=1))
    return np.nan_to_num(medians - usual[:, None])


def _differ(departed: Floats, bar: Floats) -> tuple[Flags, Floats]:
    """[rows] whether chance explains less than `bar`, and the share of the differences that is not chance."""
    known = ~np.isnan(departed)
    nights = known.sum(axis=2)
    total, freedom = nights.sum(axis=1, keepdims=True), (nights > 0).sum(axis=1) - 1
    last = np.where(known, departed, np.inf)  # what is unknown ranks behind all that is known
    ranks = stats.rankdata(last.reshape(len(last), DAYS * WEEKS), axis=1).reshape(last.shape)
    off = np.where(known, ranks - (total[:, :, None] + 1) / 2, 0.0).sum(axis=2)
    spread = 12 / (total * (total + 1)) * off**2 / np.maximum(nights, 1)
    together, alone = spread.sum(axis=1), (spread / (1 - nights / total)).max(axis=1, initial=0.0)
    p = np.minimum(stats.chi2.sf(together, freedom), DAYS * stats.chi2.sf(alone, 1))
    return p < bar, 1 - np.minimum(freedom / np.fmax(together, 1e-9), 1.0)
