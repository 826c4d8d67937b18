"""The noise of a machine by what limits a row: between two visits to a case, and between two runs.

Estimated from the steps of a run's repeated cases (bench/sampling/publish.py). Two runs may differ by more
than two visits of one run do (another day, another neighbour). Ceilings are the libraries' kernels and none
of ours: where two runs have the same libraries and driver, what their ceilings differ by is the machine's
doing.

Rows that run at memory's speed and all others are kept apart: on a machine whose cores have two clocks 9 %
apart, memory has one speed.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from bench.sampling.publish import LEAST_STEPS, Step, estimate, steps

if TYPE_CHECKING:
    from bench.store.schema import Measurement

Bound = Literal["memory", "core"]
"""Whose speed a row's time follows: memory's, or that of the cores (and of whatever else is not memory)."""


class CaseStep(NamedTuple):
    """What the median of one case did by itself, and whose speed its time follows."""

    bound: Bound
    step: Step


@dataclass(frozen=True)
class Noise:
    """What a case's median moves by, 95 times in 100: |natural logarithm|. None: too little to tell from."""

    memory: float | None = None
    core: float | None = None
    count: int = 0
    """Steps that were seen."""

    def of(self, bound: Bound) -> float | None:
        """The noise of cases that are bound so."""
        return self.memory if bound == "memory" else self.core

    @classmethod
    def seen(cls, every: Iterable[CaseStep]) -> Noise:
        """Estimate from the steps of cases with the same bound, if these are enough; else the largest of any.

        None if all together are fewer than LEAST_STEPS.
        """
        seen = list(every)

        def by(bound: Bound) -> float | None:
            alike = [case.step for case in seen if case.bound == bound]
            if len(alike) >= LEAST_STEPS:
                return estimate(alike)
            return max(case.step.by for case in seen) if len(seen) >= LEAST_STEPS else None

        return cls(by("memory"), by("core"), len(seen))


def between_visits(rows: Iterable[Measurement]) -> list[float]:
    """|ln(median of a visit / median of the visit before)| of each but the first visit to a case.

    `rows` are those of one case in one run: older files hold the visits to a ceiling as rows of their own.
    """
    in_order = sorted(rows, key=lambda row: row.visit)
    return steps([median_s for row in in_order for median_s in visit_medians_s(row)])


def visit_medians_s(row: Measurement) -> list[float]:
    """Median seconds of each visit to a case, in time order; first those that later ones outvoted.

    They are not published, but the machine did run at that speed. Visits that were disturbed stay out.
    """
    outvoted = [
        float(median_s)
        for why, median_s in zip(row.set_aside or (), row.set_aside_s or (), strict=False)
        if why == "earlier" and median_s > 0
    ]
    return [*outvoted, *(statistics.median(part.tolist()) for part in row.visit_samples_s)]


def visit_count(row: Measurement) -> int:
    """Visits whose samples the row publishes; 1 if it does not say."""
    return max(1, len(row.visit_samples or ()))


def state_s(row: Measurement) -> float | None:
    """Seconds of the fixed kernel beside the row, mean of before and after: the machine's speed then (CPU).

    None where it is not known.
    """
    before_s, after_s = row.sentinel_before_s, row.sentinel_after_s
    if before_s is None or after_s is None or not before_s + after_s > 0:  # NaN in a DataFrame
        return None
    return (before_s + after_s) / 2
