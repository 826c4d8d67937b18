"""What a row usually takes: the median and the spread of its last nights, for thousands of rows at once.

Every usable night goes into a ring. Which of them a night is compared with is a question of dates: none from
before `since` (another segment, an accepted step), none from `until` on (a change that is being looked at, so
that it cannot become what it is measured by), and of the rest the last twenty.

The spread of twenty nights, and of six all the more, is itself a guess: half of the rows look calmer than
they are, and those would raise most alarms. So each spread is drawn towards what is usual among the rows, as
if six more nights of a usual row had been seen.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import stats

from bench.judge.history.series import Flags, Floats

Nights = npt.NDArray[np.int64]

WINDOW = 20
"""Nights that make the median and the spread, at most."""
HELD = 14
"""Nights that a change can be looked at before it ends one way or another (monitor.py): seven until it
is raised, seven until it is accepted."""
LEAST = 6
"""Earlier nights from which on a night is judged."""
YOUNG = 3
"""Earlier nights from which on there is a median at all: it tells what a class and the machine did."""
USUAL = 6.0
"""How many nights the usual spread counts for, in addition to a row's own."""
MAD_TO_SIGMA = 1.4826
NEVER = np.iinfo(np.int64).max
WEEKS = 12
"""Nights of each weekday that are remembered."""
LEAST_WEEKS = 5
"""Nights of a weekday from which on it counts."""
RARE, COMMON = 1e-4, 1e-2
"""Chance below which the weekdays of a row differ, and below which they go on to: odd nights end nothing."""
LATELY = 3
"""The last nights of each weekday, which must still differ by half of what is expected."""
DAYS = 7


class UsualTimes(NamedTuple):
    """What each row usually takes, [rows]; NaN where fewer than YOUNG nights tell."""

    centre: Floats
    """Median, ln."""
    sigma: Floats
    """Standard deviation of a night, ln, from the MAD."""
    nights: Nights
    """How many nights these are from."""


class Window:
    """The last nights of some rows."""

    def __init__(self, rows: int) -> None:
        slots = WINDOW + HELD
        self._values: Floats = np.full((rows, slots), np.nan)
        self._nights: Nights = np.full((rows, slots), -1, dtype=np.int64)
        self.since: Nights = np.zeros(rows, dtype=np.int64)
        self.until: Nights = np.full(rows, NEVER, dtype=np.int64)

    def usual(self) -> UsualTimes:
        """The usual times over the nights between `since` and `until`."""
        there = ~np.isnan(self._values)
        there &= (self._nights >= self.since[:, None]) & (self._nights < self.until[:, None])
        there &= np.cumsum(there[:, ::-1], axis=1)[:, ::-1] <= WINDOW
        values = np.where(there, self._values, np.nan)
        count: Nights = there.sum(axis=1)
        centre = row_median(values)
        mad = row_median(np.abs(values - centre[:, None]))
        own = MAD_TO_SIGMA * mad * (1 + 1 / np.maximum(count, 1))  # a MAD about its own median is too small
        spreads = own[count >= (LEAST if (count >= LEAST).any() else YOUNG)]
        typical = float(np.median(spreads)) if spreads.size else 0.0
        sigma = np.sqrt((count * own**2 + USUAL * typical**2) / (count + USUAL))
        known = count >= YOUNG
        return UsualTimes(np.where(known, centre, np.nan), np.where(known, sigma, np.nan), count)

    def beyond(self, row: int, level: float) -> float:
        """Share of the row's nights that count now on which it was `level` (ln; < 0: below) from its median,
        or farther out on that side: how often it was there by itself. NaN if no night counts.
        """
        nights = self._nights[row]
        there = ~np.isnan(self._values[row]) & (nights >= self.since[row]) & (nights < self.until[row])
        values = self._values[row][there][-WINDOW:]
        return float(np.mean((values - np.median(values)) / level >= 1)) if len(values) else float("nan")

    def push(self, values: Floats, night: int) -> None:
        """This night's values, [rows]; a row with NaN keeps its ring as it is."""
        rows = ~np.isnan(values)
        append(self._values, rows, values[rows])
        append(self._nights, rows, night)

    def forget(self, rows: npt.ArrayLike, since: int) -> None:
        """These rows' nights from `since` on never count again."""
        chosen = np.asarray(rows, dtype=np.int64)
        self._values[chosen] = np.where(self._nights[chosen] >= since, np.nan, self._values[chosen])

    def let_go(self, rows: npt.ArrayLike) -> None:
        """These rows' nights that were held out count from now on, and no earlier ones."""
        chosen = np.asarray(rows, dtype=np.int64)
        self.since[chosen], self.until[chosen] = self.until[chosen], NEVER

    def restart(self, night: int) -> None:
        """Nothing from before this night counts any more."""
        self.since[:] = night
        self.until[:] = NEVER


def row_median(values: Floats) -> Floats:
    """[rows] median of each row's numbers that are not NaN; NaN where all are."""
    ordered = np.sort(values, axis=1)  # NaN comes last
    count = (~np.isnan(values)).sum(axis=1)
    rows = np.arange(len(values))
    lower = np.maximum((count - 1) // 2, 0)
    upper = np.minimum(count // 2, values.shape[1] - 1)
    return np.where(count > 0, (ordered[rows, lower] + ordered[rows, upper]) / 2, np.nan)


def append(rings: npt.NDArray[Any], rows: Flags, newest: npt.ArrayLike) -> None:
    """Put the newest values of these rows last in their rings; the oldest are dropped."""
    rings[rows, :-1] = rings[rows, 1:]
    rings[rows, -1] = newest


class Weekdays:
    """What the day of the week does to each row: a machine may be busier on some days than on others.

    A row's departures from its rolling median are kept by weekday. Whether the weekdays differ is tested on
    their ranks (the test of Kruskal and Wallis, and each weekday against the others), so that neither odd
    nights nor two speeds pass for a week. Where chance does not explain it, a weekday's median is what is
    expected of it; everywhere else nothing is.
    """

    def __init__(self, rows: int) -> None:
        self._departed: Floats = np.full((rows, DAYS, WEEKS), np.nan)
        self.expected: Floats = np.zeros((rows, DAYS))
        """[rows, days] what each weekday adds to the usual level, ln; 0 where nothing is known of it."""

    def push(self, night: int, day: int, departed: Floats) -> None:
        """This night's departures from the usual level, [rows], ln; NaN where there is none."""
        known = ~np.isnan(departed)
        append(self._departed[:, day], known, departed[known])
        if night % DAYS == 0:
            self._learn()

    def _learn(self) -> None:
        """What the weekdays do to each row, asked anew."""
        counts = (~np.isnan(self._departed)).sum(axis=2) >= LEAST_WEEKS
        departed = np.where(counts[:, :, None], self._departed, np.nan)
        rows = np.flatnonzero(counts.sum(axis=1) > 1)
        bar = np.where(self.expected[rows].any(axis=1), COMMON, RARE)
        self.expected[:] = 0
        differ, share = _differ(departed[rows], bar)
        rows, departed = rows[differ], departed[rows[differ]]
        expected = share[differ, None] * _by_day(departed)
        lately = (expected * _by_day(departed[:, :, -LATELY:])).sum(axis=1)
        holds = lately > (expected**2).sum(axis=1) / 2
        self.expected[rows[holds]] = expected[holds]


def _by_day(departed: Floats) -> Floats:
    """[rows, days] median of each weekday, less the median weekday's; 0 where there is none."""
    medians = row_median(departed.reshape(len(departed) * DAYS, departed.shape[2])).reshape(-1, DAYS)
    return np.nan_to_num(medians - row_median(medians)[:, None])


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
