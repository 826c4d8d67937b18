"""The noise between visits: how far a case's median moves from one visit to the next while nothing changed.

The samples of one visit know the noise of that visit. They know nothing of what differs at the next: a clock
that has two states, pages that fell elsewhere, a neighbour's traffic. A run visits some of its cases several
times (the ceilings at least), and what those did is the best guess at what any other would do. A published
interval (bench/sampling/publish.py) and a comparison of two runs (bench/judge/compare.py) estimate and apply
it with the functions here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

QUANTILE = 0.95
LEAST_STEPS = 6
"""Of fewer steps the 95th percentile is a guess."""


class Step(NamedTuple):
    """What the median of one case did from one visit to the next."""

    by: float
    """|ln(median seconds then / median seconds before)|."""
    undisturbed: bool = True
    """Whether no neighbour, heat or quota is to blame."""


def steps(medians_s: Sequence[float]) -> list[float]:
    """|natural logarithm| of what each of these medians (seconds, above 0, in time order) is of the last."""
    return [abs(step) for step in np.diff(np.log(medians_s)).tolist()]


def estimate(seen: Iterable[Step]) -> float | None:
    """What 95 steps in 100 do not exceed, |ln|; None if no step was seen.

    Undisturbed steps alone count if there are enough of them: the others are larger. With fewer than 20 steps
    this is the largest.
    """
    every = list(seen)
    undisturbed = [step.by for step in every if step.undisturbed]
    counted = undisturbed if len(undisturbed) >= LEAST_STEPS else [step.by for step in every]
    return float(np.quantile(counted, QUANTILE, method="higher")) if counted else None


def reach(median_s: float, low_s: float, high_s: float, half: float) -> tuple[float, float]:
    """(down, up), |ln|: how far the truth may lie from the median; `half` is added as squares, |ln|."""
    return math.hypot(math.log(median_s / low_s), half), math.hypot(math.log(high_s / median_s), half)
