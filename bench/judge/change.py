"""The one test of "has it changed?": a ratio of times, its interval and p-value, and one rule for many cases.

`compare`, `ab`, `nightly`, `fleet` and `accept` differ in what they know of the noise, from which the
standard error comes. What counts as a change is decided here: for one case by `Change.verdict`, for many, of
which some would stand out by chance, by their `adjusted` p-values.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Verdict = Literal["SLOWER", "FASTER", "SAME", "UNDECIDED"]
"""What is said of a case with two times; UNDECIDED: the interval says how much may be hidden."""

LEVEL = 0.05
"""Chance of being called changed with nothing changed, for a case that is judged alone."""
Z = 1.959963984540054
"""Standard errors on either side of a normal estimate that make its 95 % interval."""


@dataclass(frozen=True)
class Change:
    """How many times as long something takes as before, with an interval and a p-value. All ends are ln."""

    log: float
    """ln(seconds after / seconds before); > 0 is slower."""
    down: float
    """How far below `log` the interval begins; 95 % unless the maker of it says another confidence ..."""
    up: float
    """... and how far above it ends."""
    p: float
    """Probability that equal ones differ by so much, in either direction."""

    @property
    def ratio(self) -> float:
        """Seconds after / seconds before."""
        return math.exp(self.log)

    @property
    def low(self) -> float:
        """The lower end of the ratio."""
        return math.exp(self.log - self.down)

    @property
    def high(self) -> float:
        """The upper end of the ratio."""
        return math.exp(self.log + self.up)

    def verdict(self, least: float, same: float, level: float = LEVEL) -> Verdict:
        """SLOWER or FASTER by `least` or more beyond chance; SAME if all of the interval is within `same`.

        Both are ln of a ratio. `level` is the p-value from which on chance explains it.
        """
        if abs(self.log) >= least and self.p < level:
            return "SLOWER" if self.log > 0 else "FASTER"
        return "SAME" if max(self.down - self.log, self.up + self.log) < same else "UNDECIDED"


def chance(log: npt.ArrayLike, error: npt.ArrayLike, freedom: float | Floats = math.inf) -> Floats:
    """Two-sided p-values of effects (ln) by their standard errors; Student's t if `freedom` is finite."""
    from scipy import stats  # slow to import, and few commands judge anything

    size = np.abs(np.asarray(log, dtype=np.float64))
    with np.errstate(divide="ignore", invalid="ignore"):
        errors = np.where(size == 0, 0.0, size / np.asarray(error, dtype=np.float64))
    return np.asarray(2 * stats.t.sf(errors, freedom))


def adjusted(p: npt.ArrayLike) -> Floats:
    """p-values adjusted for how many they are (Benjamini and Hochberg 1995); 1 where there is none (NaN)."""
    from scipy import stats

    each = np.asarray(p, dtype=np.float64)
    known = ~np.isnan(each)
    result = np.ones_like(each)
    if known.any():
        result[known] = stats.false_discovery_control(each[known])
    return result


def among_all(changes: Sequence[Change]) -> list[Change]:
    """Each with its p-value adjusted for how many they are: what stands out among them is no chance."""
    each = adjusted([change.p for change in changes]) if changes else ()
    return [replace(change, p=float(p)) for change, p in zip(changes, each, strict=True)]
