"""How far the readings of several instruments agree that timed the same launches in turns. Needs no torch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from scipy import stats


@dataclass(frozen=True)
class Ratio:
    """Median of ours / other over pairs of turns, with its 95 % interval by order statistics."""

    middle: float
    low: float
    high: float


@dataclass(frozen=True)
class ClockReadings:
    """One case: what each instrument read, ours first."""

    case: str
    median_s: dict[str, float]
    """Instrument -> median of its turns, seconds; NaN if it saw no launch."""
    ours_over: dict[str, Ratio | None]
    """Other instrument -> the ratio; None where it cannot be known."""


def ratio(ours: Sequence[float], other: Sequence[float]) -> Ratio | None:
    """The ratio of turns in the same round. None with fewer than 6 rounds, or if a turn saw nothing."""
    ratios = sorted(a / b if b > 0 else math.nan for a, b in zip(ours, other, strict=True))
    rank = int(stats.binom.ppf(0.025, len(ratios), 0.5))
    if rank < 1 or not all(map(math.isfinite, ratios)):
        return None
    return Ratio(median(ratios), ratios[rank - 1], ratios[-rank])


def comparison(case: str, turns_s: Mapping[str, Sequence[float]]) -> ClockReadings:
    """What the turns say; `turns_s` are the readings of each instrument, those of ours first.

    No ratio to an instrument that had another number of turns: its process came to an early end.
    """
    ours, *others = turns_s
    ratios = {
        name: ratio(turns_s[ours], turns_s[name]) if len(turns_s[name]) == len(turns_s[ours]) else None
        for name in others
    }
    return ClockReadings(case, {name: median(turns) for name, turns in turns_s.items()}, ratios)
