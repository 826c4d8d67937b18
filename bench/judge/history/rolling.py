"""What a row usually takes: the median and the spread of its last nights, for thousands of rows at once.

Every usable night goes into a ring. Which of them a night is compared with is a question of dates: none from
before `since` (another segment, an accepted step), none from `until` on (a change that is being looked at, so
that it cannot become what it is measured by), and of the rest the last twenty.

The spread of twenty nights, and of six all the more, is itself a guess: half of the rows look calmer than
they are, and those would raise most alarms. So each spread is drawn towards what is usual among the rows, as
if six more nights of a usual row had been seen.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bench.judge.history.series import Floats

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
        centre = row_median(values, count)
        mad = row_median(np.abs(values - centre[:, None]), count)
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
        self._values[rows, :-1] = self._values[rows, 1:]
        self._nights[rows, :-1] = self._nights[rows, 1:]
        self._values[rows, -1] = values[rows]
        self._nights[rows, -1] = night

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


def row_median(values: Floats, count: Nights) -> Floats:
    """[rows] median of each row's numbers, of which there are `count`; the rest is NaN. NaN where all is."""
    ordered = np.sort(values, axis=1)  # NaN comes last
    rows = np.arange(len(values))
    lower = np.maximum((count - 1) // 2, 0)
    upper = np.minimum(count // 2, values.shape[1] - 1)
    return np.where(count > 0, (ordered[rows, lower] + ordered[rows, upper]) / 2, np.nan)
