"""What the day of the week does to each row: a machine may be busier on some days than on others.

A row's departures from its rolling median are kept by weekday. Whether the weekdays differ is asked of their
ranks (the test of Kruskal and Wallis, and each weekday against the others), so that neither odd nights nor
two speeds pass for a week. Where chance does not explain it, a weekday's median is what is expected of it;
everywhere else nothing is.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from datetime import datetime

import numpy as np
from scipy import stats

from bench.judge.history.series import Flags, Floats, Night

WEEKS = 12
"""Nights of each weekday that are remembered."""
LEAST_WEEKS = 5
"""Nights of a weekday from which on it counts."""
RARE = 1e-4
"""Chance below which the weekdays of a row differ ..."""
KEPT = 1e-2
"""... and below which they go on to: an odd night on a rare weekday must not end that."""
LATELY = 3
"""The last nights of each weekday, which must still differ by half of what is expected."""
DAYS = 7


def weekdays(nights: Sequence[Night]) -> list[int]:
    """The weekday on which each night began, in UTC; Monday is 0."""
    return [datetime.fromisoformat(night.utc).weekday() for night in nights]


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
        nights = (~np.isnan(self._departed)).sum(axis=2)
        rows = np.flatnonzero((nights >= LEAST_WEEKS).sum(axis=1) > 1)
        departed = np.where(nights[rows, :, None] >= LEAST_WEEKS, self._departed[rows], np.nan)
        known = self.expected[rows].any(axis=1)
        self.expected[:] = 0
        differ, shrunk = _differ(departed, np.where(known, KEPT, RARE))
        departed = departed[differ]
        expected = shrunk[differ, None] * _by_day(departed)
        lately = (expected * _by_day(departed[:, :, -LATELY:])).sum(axis=1)
        holds = lately > (expected**2).sum(axis=1) / 2
        self.expected[rows[differ][holds]] = expected[holds]


def _by_day(departed: Floats) -> Floats:
    """[rows, days] median of each weekday, less that of the weekdays; 0 where there is none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of weekdays without a night
        medians = np.nanmedian(departed, axis=2)
        return np.nan_to_num(medians - np.nanmedian(medians, axis=1, keepdims=True))


def _differ(departed: Floats, rare: Floats) -> tuple[Flags, Floats]:
    """[rows] whether their weekdays differ, and the share of the differences that is not chance."""
    known = ~np.isnan(departed)
    nights = known.sum(axis=2)
    total, freedom = nights.sum(axis=1, keepdims=True), (nights > 0).sum(axis=1) - 1
    last = np.where(known, departed, np.inf)  # what is unknown ranks behind all that is known
    ranks = stats.rankdata(last.reshape(len(last), DAYS * WEEKS), axis=1).reshape(last.shape)
    off = np.where(known, ranks - (total[:, :, None] + 1) / 2, 0.0).sum(axis=2)
    spread = 12 / (total * (total + 1)) * off**2 / np.maximum(nights, 1)
    together, alone = spread.sum(axis=1), (spread / (1 - nights / total)).max(axis=1, initial=0.0)
    p = np.minimum(stats.chi2.sf(together, freedom), DAYS * stats.chi2.sf(alone, 1))
    with np.errstate(divide="ignore"):
        return p < rare, np.fmax(1 - freedom / together, 0.0)
