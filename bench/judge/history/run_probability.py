"""How likely chance alone would have kept a row so far out for so many nights.

One night says little: a series is some 5 % slower on one night in twenty with nothing changed, far more often
than any bell curve has it. So chance is counted: how far out, in standard deviations, the nights of all rows
were lately on which nothing happened.

Of two to five nights running: how often one night is as far out as the least of them, to the power of the
nights. Of four to seven together: how often so many nights drawn from those counts have such a sum, where no
night is worth more than CAP. The rarest of the eight is taken, TRIES times as likely for having looked
several times, and twice that for the two sides.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import special

from bench.judge.history.rolling import Nights
from bench.judge.history.series import Flags, Floats

RUNNING = (2, 3, 4, 5)
"""Nights running that must each be far out."""
SUMMED = (4, 5, 6, 7)
"""Nights that must be so together."""
LOOK_BACK = max(SUMMED)
CAP = 1.5
"""Standard deviations that one night is worth in a sum at most: an odd night is no evidence of a step. (By
studies.months: 3 finds a third of the +3 % steps less, 2 finds as many.)"""
TRIES = 5.0
"""The looks overlap: eight are worth about five."""
ODD_REACH = 10.0
"""How far odd nights reach, in standard deviations."""
ASSUMED = 500.0
"""Nights that the prior counts for, in addition to those observed."""
KEPT = 0.95
"""What a counted night still counts for one night later: some twenty nights are remembered."""
RAREST = 1e-4
"""No night is held to be rarer than this."""
STEP = 0.1
"""Standard deviations of a bin."""
REACH = 150
"""Bins on either side of the middle one."""


class Streak(NamedTuple):
    """The last nights that chance explains least, [rows]."""

    p: Floats
    """Chance of such nights, on either side."""
    length: Nights
    """How many, tonight included; 0 where there are too few to tell."""


class Chance:
    """How far out the nights of one kind of rows are with nothing changed.

    Before there are counts, a bell curve is assumed of which `odd` of the nights are slower by anything up to
    ODD_REACH.
    """

    def __init__(self, odd: float) -> None:
        edges = (np.arange(-REACH, REACH + 2) - 0.5) * STEP
        bell = np.diff(special.ndtr(edges))
        slow = np.diff(np.clip(edges / ODD_REACH, 0, 1))
        self._assumed: Floats = ASSUMED * ((1 - odd) * bell + odd * slow)
        self._counted: Floats = np.zeros_like(self._assumed)

    def count(self, scores: Floats) -> None:
        """Nights on which nothing happened: their scores, slower positive; NaN for none."""
        known = scores[~np.isnan(scores)]
        self._counted = KEPT * self._counted + np.bincount(_bins(known), minlength=2 * REACH + 1)

    def run(self, scores: Floats, slower: Flags, enough: Flags | None = None) -> Streak:
        """The rarest streak of the last nights' scores [rows, LOOK_BACK], newest last, on each row's side.

        `enough` [rows, LOOK_BACK] says of the last 1, 2, ... nights whether they moved far enough to be
        looked at; None: all are.
        """
        enough = np.ones(scores.shape, dtype=np.bool_) if enough is None else enough
        least = np.ones(len(scores))
        length: Nights = np.zeros(len(scores), dtype=np.int64)
        density = self._assumed + self._counted
        density = density / density.sum()
        for rows, sign in ((slower, 1), (~slower, -1)):
            if not rows.any():
                continue
            out = sign * scores[rows]
            best, of = _rarest(out, density[::sign], enough[rows])
            least[rows], length[rows] = np.minimum(2 * TRIES * best, 1.0), of
        return Streak(least, length)


def _rarest(out: Floats, density: Floats, enough: Flags) -> tuple[Floats, Nights]:
    """The least chance of the last nights, and of how many; `out` is positive on the side looked at."""
    best = np.ones(len(out))
    length: Nights = np.zeros(len(out), dtype=np.int64)
    share = np.maximum(np.cumsum(density[::-1])[::-1], RAREST)
    cap = round(CAP / STEP)
    capped = density[REACH - cap : REACH + cap + 1].copy()
    capped[0] += density[: REACH - cap].sum()
    capped[-1] += density[REACH + cap + 1 :].sum()
    places = np.where(np.isnan(out), 0, _bins(np.nan_to_num(out)))
    sums = capped
    for nights in range(2, LOOK_BACK + 1):
        sums = np.convolve(sums, capped)
        last = places[:, -nights:]
        p = np.ones(len(out))
        if nights in RUNNING:
            p = share[last.min(axis=1)] ** nights
        if nights in SUMMED:
            together = np.clip(last - REACH, -cap, cap).sum(axis=1) + nights * cap
            p = np.minimum(p, np.cumsum(sums[::-1])[::-1][together])
        better = enough[:, nights - 1] & ~np.isnan(out[:, -nights:]).any(axis=1) & (p < best)
        best[better], length[better] = p[better], nights
    return best, length


def _bins(out: Floats) -> Nights:
    """Bins of scores; the middle one, number REACH, is about 0."""
    places: Nights = np.clip(np.rint(out / STEP), -REACH, REACH).astype(np.int64) + REACH
    return places
