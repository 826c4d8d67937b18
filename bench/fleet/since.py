"""Since when a unit is worse: its effect in each class night by night, and where its level changed.

A night's effect is how much longer a unit took than the fleet, in the mean of a class's cases. What the whole
fleet did that night, a driver's change for instance, is taken off every unit, so it is no unit's fault.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.stats import median_abs_deviation

from bench.fleet.observed import Class
from bench.judge.history.change_points import LEAST, change_points
from bench.judge.history.series import Floats

LEAST_UNITS = 4
"""Units that have to be timed in a case on a night; the median of fewer follows each of them."""
FLOOR = float(np.log1p(0.025))
"""A unit whose level rose by less is not called worse ..."""
STANDS_OUT = 5.0
"""... nor one whose level rose by less than this many standard errors ..."""
NIGHTS = 7
"""... nor one that has been so for fewer nights with a time.

Chosen in simulated quiet years with 5 % of the nights odd by 3 to 8 %: after three nights a page of 200 units
called four wrongly worse, since among 2000 series three odd nights running are no rarity; after seven, none.
"""


ENOUGH = NIGHTS + LEAST
"""Nights with a time that it takes to see a change at all."""


class Series(NamedTuple):
    """What is followed from night to night."""

    unit: str
    of: Class
    together: bool
    """Whether other GPUs of its node were timed at the same time."""


@dataclass(frozen=True)
class Worse:
    """A change for the worse that lasts."""

    night: int
    """Index of the first night of it."""
    by: float
    """ln(level of the last nights / level before it)."""
    nights: int
    """Nights with a time since then."""


@dataclass(frozen=True)
class Histories:
    """The nights of the units of one kind."""

    dates: Sequence[str]
    """Date of each night, 2026-03-14, in order; a night of no run is none."""
    effect: Mapping[Series, Floats]
    """[nights] ln of a unit's time over the fleet's; NaN where there is none."""
    worse: Mapping[Series, Worse]
    """The step of each series that is worse than it was; the others are missing."""

    @property
    def can_tell(self) -> bool:
        """Whether there are enough nights for a change of level to be seen at all."""
        return len(self.dates) >= ENOUGH


def histories(times: pd.DataFrame) -> Histories:
    """The histories in the times of one kind of unit (`Fleet.of_kind`)."""
    rows, dates = _by_night(times)
    effect = _effects(rows, len(dates))
    worse = {series: step for series, values in effect.items() if (step := since(values))}
    return Histories(dates, effect, worse)


def _by_night(times: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """The rows with their `night`, and the date of each night.

    A fleet is measured in one go or all day long, anywhere on Earth. So its days begin at the hour of the day
    (UTC) at which the longest pause ends; a night's date is that of its first row.
    """
    texts = times["utc"].astype("category")
    moments = pd.to_datetime(pd.Series(texts.cat.categories), format="ISO8601", utc=True)
    clock_s = np.sort((moments - moments.dt.floor("D")).dt.total_seconds().unique())
    pauses_s = np.diff(np.append(clock_s, clock_s[0] + 24 * 3600)) if len(clock_s) else clock_s
    begins = timedelta(seconds=float(clock_s[(np.argmax(pauses_s) + 1) % len(clock_s)]))
    day = (moments - begins).dt.floor("D")
    first = moments.groupby(day).min()
    nights = np.searchsorted(first.index, day)
    return times.assign(night=nights[texts.cat.codes]), [f"{moment:%Y-%m-%d}" for moment in first]


def _effects(rows: pd.DataFrame, nights: int) -> dict[Series, Floats]:
    """[nights] of each unit, class and manner: the mean over its cases, ln."""
    case = ["case", "together"]
    by = [*case, "unit", "night"]
    once = rows.groupby([*by, "class"], observed=True, sort=False)["log_s"].median().reset_index()
    usual = once.groupby([*case, "unit"], observed=True, sort=False)["log_s"].transform("median")
    # Held against each unit's own usual time, so that another set of units on a night is no change.
    moved = (once["log_s"] - usual).groupby([once[name] for name in (*case, "night")], observed=True)
    fleet = usual.groupby([once[name] for name in case], observed=True).transform("median")
    once["effect"] = once["log_s"] - moved.transform("median") - fleet
    once = once[moved.transform("size") >= LEAST_UNITS]
    means = once.groupby(["unit", "class", "together", "night"], observed=True, sort=False)["effect"].mean()
    logs: dict[Series, Floats] = {}
    for unit, of, together, night, effect in means.reset_index().itertuples(index=False, name=None):
        series = Series(unit, of, bool(together))
        logs.setdefault(series, np.full(nights, np.nan))[night] = effect
    return logs


def since(values: Floats) -> Worse | None:
    """The first change from which on every level is worse than the one before it; None if there is none.

    `values` [nights] is one series of `Histories.effect`.
    """
    seen = values[np.isfinite(values)]
    if len(seen) < ENOUGH or _rise(seen) < FLOOR:
        return None
    begins = change_points(values)
    levels = [level[np.isfinite(level)] for level in np.split(values, begins)]
    for at, begin in enumerate(begins):
        before, after = levels[at], levels[at + 1 :]
        lasts = min(map(np.median, after)) - np.median(before) > FLOOR
        nights = np.concatenate(after)
        if lasts and len(nights) >= NIGHTS and _stands_out(before, nights):
            return Worse(begin, float(np.median(after[-1]) - np.median(before)), len(nights))
    return None


def _rise(seen: Floats) -> float:
    """How far the last nights reach above the lowest there were; if hardly, nothing needs to be searched."""
    around = np.lib.stride_tricks.sliding_window_view(seen, LEAST)
    return float(np.max(seen[-NIGHTS:]) - np.min(np.median(around, axis=1)))


def _stands_out(before: Floats, after: Floats) -> bool:
    """Whether the nights after are above those before by more than the scatter of either explains."""
    # By the median distance from the median: single odd nights do not count.
    scatter = max(median_abs_deviation(level, scale="normal") for level in (before, after))
    error = scatter * np.hypot(1 / np.sqrt(len(before)), 1 / np.sqrt(len(after)))
    return bool(np.median(after) - np.median(before) > STANDS_OUT * error)
