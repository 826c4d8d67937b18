"""How far a machine's speed moves by itself: between two visits to a case, and between two runs.

The samples of one visit know the noise of that visit. They know nothing of what differs at the next: a clock
that has two states, pages that fell elsewhere, a neighbour's traffic. A run always visits some of its cases
several times (the ceilings at least), and what those did is the best guess at what any other would do.

Two runs may differ by more than two visits of one run do (another day, another neighbour). Ceilings are the
libraries' kernels and none of ours: where two runs have the same libraries and driver, what their ceilings
differ by is the machine's own doing.

Rows that run at memory's speed and all others are kept apart: on a machine whose cores have two clocks 9 %
apart, memory has one speed.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from bench.store.schema import Measurement

T = TypeVar("T")

Bound = Literal["memory", "core"]
"""Whose speed a row's time follows: memory's, or that of the cores (and of whatever else is not memory)."""

QUANTILE = 0.95
LEAST_MOVES = 6
"""Of fewer the 95th percentile is a guess."""


class Moved(NamedTuple):
    """What one case did by itself."""

    bound: Bound
    undisturbed: bool
    """Whether no neighbour, heat or quota is to blame."""
    by: float
    """|ln(median seconds then / median seconds before)|."""


@dataclass(frozen=True)
class Wander:
    """What a case's median moves by, 95 times in 100: |natural logarithm|. None: too little to tell from."""

    memory: float | None = None
    core: float | None = None
    count: int = 0
    """Movements that were seen."""

    def of(self, bound: Bound) -> float | None:
        """Of cases that are bound so."""
        return self.memory if bound == "memory" else self.core

    @classmethod
    def seen(cls, moves: Iterable[Moved]) -> Wander:
        """From the undisturbed cases with the same bound, if these are enough.

        If not, from all with that bound: the others move more. If these are too few as well, it is the most
        that was seen of any.
        """
        every = list(moves)

        def by(bound: Bound) -> float | None:
            alike = [one for one in every if one.bound == bound]
            for some in ([one.by for one in alike if one.undisturbed], [one.by for one in alike]):
                if len(some) >= LEAST_MOVES:
                    return float(np.quantile(some, QUANTILE, method="higher"))
            return max(one.by for one in every) if len(every) >= LEAST_MOVES else None

        return cls(by("memory"), by("core"), len(every))


def between_visits(rows: Iterable[Measurement]) -> list[float]:
    """|ln(median of a visit / median of the visit before)| of each but the first visit to a case.

    `rows` are those of one case in one run: older files hold the visits to a ceiling as rows of their own.
    """
    in_order = sorted(rows, key=lambda row: row.visit)
    medians_s = [median_s for row in in_order for median_s in visit_medians_s(row)]
    return [abs(step) for step in np.diff(np.log(medians_s)).tolist()]


def visit_medians_s(row: Measurement) -> list[float]:
    """Median seconds of each visit to a case, in time order; first those that later ones outvoted.

    They are not published, but the machine did run at that speed. Visits that were disturbed stay out.
    """
    outvoted = [
        float(median_s)
        for why, median_s in zip(_listed(row.set_aside), _listed(row.set_aside_s), strict=False)
        if why == "earlier" and median_s > 0
    ]
    return [*outvoted, *(statistics.median(part.tolist()) for part in visit_samples_s(row))]


def visit_samples_s(row: Measurement) -> list[npt.NDArray[np.float64]]:
    """The row's samples, seconds, cut into its visits; all in one if it does not say."""
    samples_s = np.asarray(_listed(row.samples_s), dtype=np.float64)
    counts = _listed(row.visit_samples)
    if not counts or sum(counts) != len(samples_s):
        return [samples_s] if len(samples_s) else []
    ends = itertools.accumulate(counts, initial=0)
    return [samples_s[begin:end] for begin, end in itertools.pairwise(ends) if end > begin]


def visit_count(row: Measurement) -> int:
    """Visits whose samples the row publishes; 1 if it does not say."""
    return max(1, len(_listed(row.visit_samples)))


def _listed(column: list[T] | None) -> list[T]:
    """A list column; empty where it is None."""
    return column or []
