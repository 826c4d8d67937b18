"""The history of a fleet's units: of the slow ones, and of those that got worse."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.fleet.fit import Slow
from bench.fleet.observed import Fleet
from bench.fleet.since import ENOUGH, Histories, Worse, since
from bench.format import change_text, count_text
from bench.judge.history.series import Floats
from plots.fleet.rows import Row, manner, percent

MOST_DRAWN = 24
"""Histories that are drawn."""


@dataclass(frozen=True)
class NightTrack:
    """The nights of a unit or a node, in the class in which it is slow or got worse."""

    title: str
    effect: Floats
    """[nights] ln of its time over the fleet's; of a node the median of its units."""
    worse: Worse | None


def of_slow(fleet: Fleet, past: Histories, slow: Slow) -> NightTrack | None:
    """The history of what is slow, where it is slowest; None without one."""
    ways = [(of, together) for of, together in slow.slow_in if together is not None]
    worst = (slow.klass, slow.together) if slow.together is not None else next(iter(ways), None)
    mine = [
        effect
        for series, effect in past.effect.items()
        if (series.of, series.together) == worst
        and fleet.units[series.unit].node == slow.node
        and slow.unit in (series.unit, None)
    ]
    if not mine or worst is None:
        return None
    effect = _median(np.array(mine))
    return NightTrack(f"{slow.name}: {worst[0]}, {manner(bool(worst[1]))}", effect, since(effect))


def since_text(past: Histories, track: NightTrack | None) -> str:
    """Since when: `2026-03-14`, or that it was so on its first night; empty if nights are too few."""
    if track is None or not past.can_tell:
        return ""
    if track.worse:
        return past.dates[track.worse.night]
    seen = np.flatnonzero(np.isfinite(track.effect))
    if len(seen) < ENOUGH:
        return f"unknown: {count_text(len(seen), 'night')}"
    return f"{past.dates[seen[0]]} or before"


def sentence(past: Histories) -> str:
    """How many nights there are, and whether they are enough."""
    nights = count_text(len(past.dates), "night")
    if past.can_tell:
        return f"{nights}, from {past.dates[0]} to {past.dates[-1]}."
    there = "There is" if len(past.dates) == 1 else "There are"
    return f"{there} {nights}; to say since when a unit is worse takes {ENOUGH}."


def moved(fleet: Fleet, past: Histories, named: set[str]) -> Iterator[tuple[dict[str, Any], NightTrack]]:
    """Units that nobody named, where they are worse than they were, the largest change first."""
    for series, worse in sorted(past.worse.items(), key=lambda pair: -pair[1].by):
        if series.unit not in named:
            name = fleet.units[series.unit].name
            of = f"{series.of}, {manner(series.together)}"
            by, began = change_text(math.exp(worse.by)), past.dates[worse.night]
            line = {"name": name, "of": of, "since": began, "by": by, "nights": worse.nights}
            yield line, NightTrack(f"{name}: {of}", past.effect[series], worse)


def drawn(past: Histories, tracks: Iterable[NightTrack | None]) -> list[NightTrack]:
    """The tracks to draw; none if nights are too few."""
    known = [track for track in tracks if track is not None]
    return known[:MOST_DRAWN] if past.can_tell else []


def rows(past: Histories, tracks: Sequence[NightTrack]) -> list[Row]:
    """A row for each track and night with a time; `since` is said in that of its first worse night."""
    made = []
    for track in tracks:
        for night, (date, effect) in enumerate(zip(past.dates, track.effect, strict=True)):
            if math.isfinite(effect):
                began = track.worse is not None and track.worse.night == night
                fact: Row = {"date": date, "night": date, "since": f"since {date}" if began else ""}
                fact |= {"percent": percent(effect), "text": change_text(math.exp(effect))}
                made.append({"panel": track.title, **fact})
    return made


def _median(effects: Floats) -> Floats:
    """[nights] of [units, nights]; NaN on nights without any."""
    seen = np.isfinite(effects).any(axis=0)
    medians: Floats = np.full(effects.shape[1], np.nan)
    medians[seen] = np.nanmedian(effects[:, seen], axis=0)
    return medians
