"""The part of a device's history that is shown, its last nights; all nights are judged."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pandas as pd

from bench.errors import UserError
from bench.format import count_text
from bench.judge.history.detector import ConfirmedChange, JudgedHistory
from bench.judge.history.series import History, Night
from plots.base.style import NO_BREAK
from plots.history.date_axis import Calendar, calendar

Number = TypeVar("Number", np.float64, np.bool_)
NO_SEGMENT = ("commit",)
"""Facts that change from night to night and begin no segment."""


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


def since(given: str) -> datetime:
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
