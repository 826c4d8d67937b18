"""The part of a device's history that is shown, and where its nights stand on an axis of dates.

All nights are judged; shown are the last of them. Each stands at its time, but no two at the same place.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator
from matplotlib.ticker import FixedFormatter, FixedLocator

from bench.errors import UserError
from bench.format import count_text
from bench.judge.history.detector import ConfirmedChange, JudgedHistory
from bench.judge.history.series import History, Night
from plots.base.style import NO_BREAK

Number = TypeVar("Number", np.float64, np.bool_)
NO_SEGMENT = ("commit",)
"""Facts that change from night to night and begin no segment."""
APART = 0.006
"""Least distance of two nights, as a share of the axis: about the width of a marker."""
CROWDED = 0.5
"""The same as a share of the mean distance, so that a year of nights is not spread at all."""
MARGIN = 0.02
"""Room before the first night and behind the last, as a share of the axis."""


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
    at = np.asarray((began - pd.Timestamp(0, tz="UTC")) / pd.Timedelta(days=1), dtype=np.float64)
    span = float(at[-1] - at[0])
    least = min(APART, CROWDED / len(at)) * span or 1.0
    order = np.arange(len(at)) * least
    x = np.maximum.accumulate(at - order) + order
    # A second is too little to be seen, and as much as rounding a day may cost.
    return Calendar(x, int(np.sum(x - at > 1 / 86400)), span == 0.0)


# ---- the nights shown


@dataclass(frozen=True)
class View:
    """A judged history, and from which of its nights on it is drawn and listed."""

    judged: JudgedHistory
    first: int
    """Index of the first night shown."""
    calendar: Calendar
    """Places of the nights shown."""
    labels: tuple[str, ...]
    """[series] the name of each."""

    @property
    def history(self) -> History:
        """The nights and times behind it, all of them."""
        return self.judged.history

    @property
    def nights(self) -> tuple[Night, ...]:
        """The nights shown."""
        return self.history.nights[self.first :]

    @property
    def facts(self) -> str:
        """Second line of every title: device, versions, commits, dates, how many nights."""
        night = self.nights[-1]
        facts = [self.history.device_name]
        facts += [f"unit {self.history.unit[:8]}"] if self.history.unit else []
        words = {"driver": "driver" if self.history.device_kind == "cuda" else "kernel"}
        words |= {"torch": "torch", "triton": "Triton", "power-limit": "power limit"}
        facts += [f"{word} {night.facts[name]}" for name, word in words.items() if night.facts.get(name)]
        commits = [night.commit for night in self.nights if night.commit]
        if commits:
            same = commits[0] == commits[-1]
            facts.append(f"commit {commits[0]}" if same else f"commits {commits[0]} to {commits[-1]}")
        first, last = self.nights[0].utc[:10], night.utc[:10]
        facts.append(first if first == last else f"{first} to {last}")
        facts.append(f"n = {count_text(len(self.nights), 'night')}")
        return " · ".join([facts[0], *(fact.replace(" ", NO_BREAK) for fact in facts[1:])])

    def shown(self, values: npt.NDArray[Number]) -> npt.NDArray[Number]:
        """The columns of a [..., nights] array that belong to the nights shown."""
        return values[..., self.first :]

    def boundaries(self) -> list[tuple[int, str]]:
        """(index among the nights shown, what changed) of each that begins another segment."""
        return [
            (i, changed(self.nights[i], NO_SEGMENT) or "another segment")
            for i in range(1, len(self.nights))
            if self.nights[i].segment != self.nights[i - 1].segment
        ]

    def open_steps(self) -> list[ConfirmedChange]:
        """The steps that stand open after the last night, the newest first."""
        return [step for step in reversed(self.judged.steps) if step.ended is None]


def view(
    judged: JudgedHistory, labels: Sequence[str], since: datetime | None, last: int | None
) -> View | None:
    """The nights since a moment, of these at most the last so many; None if there is none."""
    nights = judged.history.nights
    began = pd.to_datetime([night.utc for night in nights], format="ISO8601", utc=True)
    first = int((began < pd.Timestamp(since)).sum()) if since is not None else 0
    first = max(first, len(nights) - last if last is not None else 0)
    if first >= len(nights):
        return None
    return View(judged, first, calendar([night.utc for night in nights[first:]]), tuple(labels))


def moment_of(given: str) -> datetime:
    """`--since` as a moment, UTC where it names no other zone. UserError, one sentence, if it is none."""
    try:
        at = datetime.fromisoformat(given)
    except ValueError:
        raise UserError(
            f"--since {given}: no date; give one such as 2026-11-01 or 2026-11-01T04:30"
        ) from None
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def changed(night: Night, leaving_out: Collection[str] = ()) -> str:
    """What differs from the night before: `driver 550.1 -> 560.2`."""
    kept = [fact for fact in night.changed if fact.fact not in leaving_out]
    return ", ".join(f"{fact.fact} {fact.before} -> {fact.after}" for fact in kept)


def verdict(log: float) -> str:
    """SLOWER or FASTER, for an effect in ln seconds."""
    return "SLOWER" if log > 0 else "FASTER"


def state(step: ConfirmedChange | None) -> str:
    """The state of a step: open, recovered, accepted or segment ended; or that there was none."""
    if step is None:
        return "no alarm"
    return {None: "open", "segment": "segment ended"}.get(step.ending) or str(step.ending)
