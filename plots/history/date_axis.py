"""Positions of nights on an axis of dates: at their time, but never two at the same place."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator
from matplotlib.ticker import FixedFormatter, FixedLocator

APART = 0.006
"""Least distance of two nights, as a share of the axis: about the width of a marker."""
CROWDED = 0.5
"""The same as a share of the mean distance, so that a year of nights is not spread at all."""
MARGIN = 0.02
"""Room before the first night and behind the last, as a share of the axis."""


EPOCH = pd.Timestamp(0, tz="UTC")


@dataclass(frozen=True)
class Calendar:
    """Places of nights on the x axis."""

    x: npt.NDArray[np.float64]
    """[nights] days since 1970 UTC, rising; a night too close to the one before stands later than it was."""
    spread: int
    """The number of nights that are not drawn at their own time."""
    together: bool
    """Whether all began at one time, so that the axis is no more than their order."""

    @property
    def limits(self) -> tuple[float, float]:
        """Ends of the axis, in days."""
        room = MARGIN * (float(self.x[-1] - self.x[0]) or 1.0)
        return float(self.x[0]) - room, float(self.x[-1]) + room

    def share(self, x: float) -> float:
        """How far along the axis a place is, 0 to 1."""
        low, high = self.limits
        return (x - low) / (high - low)

    def ticks(self, most: int) -> tuple[list[float], list[str], str]:
        """(places, labels, what all labels have in common) of at most about `most` ticks."""
        if self.together:
            began = moment(self.x[0])
            return [float(self.x[0])], [f"{began:%H:%M}"], f"{began:%Y-%m-%d}"
        low, high = float(self.x[0]), float(self.x[-1])
        locator = AutoDateLocator(minticks=max(most // 2, 2), maxticks=max(most, 3))  # type: ignore[no-untyped-call]
        candidates = locator.tick_values(moment(low), moment(high))  # type: ignore[no-untyped-call]
        inside = [float(tick) for tick in candidates if low <= tick <= high] or [low]
        at = [moment(tick) for tick in inside]
        years = sorted({f"{moment(end):%Y}" for end in (low, high)})
        if all((tick.hour, tick.minute) == (0, 0) for tick in at):
            return inside, [f"{tick.day} {tick:%b}" for tick in at], " to ".join(years)
        if math.floor(low) == math.floor(high):
            return inside, [f"{tick:%H:%M}" for tick in at], f"{at[0]:%Y-%m-%d}"
        return inside, [f"{tick.day} {tick:%b}\n{tick:%H:%M}" for tick in at], " to ".join(years)

    def label(self, axes: Axes, width_in: float) -> None:
        """Limits, ticks and name of an x axis `width_in` inches wide."""
        places, labels, common = self.ticks(int(width_in / 0.6))
        axes.set_xlim(*self.limits)
        axes.xaxis.set_major_locator(FixedLocator(places))
        axes.xaxis.set_major_formatter(FixedFormatter(labels))
        order = "order of the runs, all of one time" if self.together and len(self.x) > 1 else "night, UTC"
        axes.set_xlabel(order + (f" ({common})" if common else ""))

    def remark(self) -> str:
        """A sentence for the caption if nights are not drawn at their time; else empty."""
        if self.together or not self.spread:
            return ""
        who = "1 night stands" if self.spread == 1 else f"{self.spread} nights stand"
        return f"{who} a little later than measured, so as not to cover the one before."


def moment(x: float) -> datetime:
    """The time at a place of the axis, UTC."""
    # Days are rounded to microseconds: 5 o'clock must not be a moment before it.
    return datetime.fromtimestamp(round(86400 * x, 3), UTC)


def calendar(utc: Sequence[str]) -> Calendar:
    """Places of nights that began at these times (ISO 8601, at least one, in time order)."""
    began = pd.to_datetime(list(utc), format="ISO8601", utc=True)
    at = np.asarray((began - EPOCH) / pd.Timedelta(days=1), dtype=np.float64)
    span = float(at[-1] - at[0])
    least = min(APART, CROWDED / len(at)) * span or 1.0
    order = np.arange(len(at)) * least
    x = np.maximum.accumulate(at - order) + order
    # A second is too little to be seen, and as much as rounding a day may cost.
    return Calendar(x, int(np.sum(x - at > 1 / 86400)), span == 0.0)
