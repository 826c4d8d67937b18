"""What a row says of its visits: the median, its interval, and whether it converged.

How often the intervals cover the truth is simulated in bench/validation/interval_coverage.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from bench.sampling.median_interval import Floats, effective_count, median_interval
from bench.sampling.noise import reach
from bench.sampling.protocol import Protocol

Stop = Literal["converged", "budget", "samples", "visits"]


@dataclass(frozen=True)
class Visit:
    """What one look at a case found."""

    samples_s: tuple[float, ...]
    """Every sample, seconds per launch, in time order; none is ever thrown away."""
    settled: bool
    """Whether it had settled before the first of them; True where nothing was to settle (regime boost)."""
    settle_s: float
    """Wall seconds of settling."""
    stop: Stop
    step_s: float
    """The clock's step divided by the launches of a sample."""
    state_s: float | None = None
    """Seconds of a fixed piece of work beside the visit: the machine's speed then. None: not known."""


@dataclass(frozen=True)
class Published:
    """What a row says of its visits, seconds per launch."""

    median_s: float
    low_s: float
    high_s: float
    """Ends of the 95 % interval of the median; 0 and infinite where there is too little to tell."""
    stop: Stop
    kept: tuple[int, ...]
    """Indices of the visits whose samples are published; the others came earlier."""

    def columns(self) -> dict[str, Any]:
        """Columns of a row; an interval that too few samples leave unknown is null, not infinite."""
        known = math.isfinite(self.high_s)
        return {
            "median_s": self.median_s,
            "low_s": self.low_s if known else None,
            "high_s": self.high_s if known else None,
            "stop": self.stop,
        }


def interval(
    samples_s: Sequence[float], settings: Protocol, step_s: float = 0.0
) -> tuple[float, float, float]:
    """(median, low, high) in seconds of one visit's samples, in time order.

    The widest of three intervals of the median: order statistics of as many independent samples as these are
    worth; Student's t over the medians of consecutive blocks; the clock's step per launch, or the floor. The
    interval is infinite while there are too few samples to say.
    """
    values = np.asarray(samples_s, dtype=np.float64)
    if len(values) < 2 * settings.blocks:
        return float(np.median(values)), 0.0, math.inf
    blocks_s = [float(np.median(block)) for block in np.array_split(values, settings.blocks)]
    return _interval(values, effective_count(values), blocks_s, settings, step_s)


def _interval(
    values: Floats, worth: float, parts: Sequence[float], settings: Protocol, step_s: float
) -> tuple[float, float, float]:
    least = max(step_s, settings.floor * float(np.median(values)))
    return median_interval(values, worth, parts, least, settings.confidence)


def publish(
    visits: Sequence[Visit],
    settings: Protocol,
    typical_s: float | None = None,
    noise: float | None = None,
) -> Published:
    """What a row says of its visits, at least one, in the order they were made.

    Published are the last `keep` visits, and those before them from the first that was at their level: what
    came earlier may have been settling, what left the level and came back is a second state. The median is
    that of all their samples together. Its interval is `interval` for one visit; for several, Student's t is
    over their medians. It has converged if that is narrow enough and the last `keep` visits agree.

    What the rest of the run knows widens the interval further; it moves no median and undoes no convergence.
    `typical_s` is the run's median of `state_s`: the interval reaches the time that a case which follows that
    work would take at the usual speed. Where no visit knows its state, the interval takes in `noise`, that
    between visits to a case of this run (bench/sampling/noise.py).
    """
    each_s = [float(np.median(visit.samples_s)) for visit in visits]
    level_s = float(np.median(each_s[-settings.keep :]))
    near_s = settings.agree * level_s
    at_level = [abs(value_s - level_s) <= near_s for value_s in each_s]
    first = min(max(0, len(visits) - settings.keep), [*at_level, True].index(True))
    kept = tuple(range(first, len(visits)))
    taken = [visits[index] for index in kept]
    step_s = max(visit.step_s for visit in taken)
    if len(taken) == 1:
        median, low, high = interval(taken[0].samples_s, settings, step_s)
    else:
        parts = [np.asarray(visit.samples_s, dtype=np.float64) for visit in taken]
        worth = sum(effective_count(part) for part in parts)
        median, low, high = _interval(np.concatenate(parts), worth, each_s[first:], settings, step_s)

    last_s = each_s[-settings.keep :]
    stop: Stop = "converged"
    if len(visits) < settings.visits:
        stop = "budget"
    elif max(last_s) - min(last_s) > near_s:
        stop = "visits"
    else:
        stop = _stop(max(high - median, median - low), median, settings, taken[-1].stop)

    states = [visit.state_s for visit in taken if visit.state_s is not None]
    if states and typical_s is not None:
        as_usual = typical_s / float(np.median(states))
        low = min(low, median * as_usual * (1 - settings.state_error))
        high = max(high, median * as_usual * (1 + settings.state_error))
    elif noise is not None and low > 0 and math.isfinite(high):
        # A visit may be a whole step from the usual level (a clock with two states), not only 1 / sqrt(2).
        down, up = reach(median, low, high, noise / len(taken) ** 0.5)
        low, high = median * math.exp(-down), median * math.exp(up)
    return Published(median, low, high, stop, kept)


def publish_ceiling(visits: Sequence[Visit], settings: Protocol) -> Published:
    """What the row of a ceiling says: its interval spans those of its visits, each taken alone.

    It is visited at the run's ends, however often others are. Of two visits Student's t would make an
    interval nine times as wide as they are apart; and a roof is what was reached at either end, not the mean.
    """
    settings = replace(settings, visits=1)
    together = publish(visits, settings)
    alone = [publish([visits[index]], settings) for index in together.kept]
    low_s, high_s = min(each.low_s for each in alone), max(each.high_s for each in alone)
    half_s = max(high_s - together.median_s, together.median_s - low_s)
    stop = _stop(half_s, together.median_s, settings, alone[-1].stop)
    return replace(together, low_s=low_s, high_s=high_s, stop=stop)


def _stop(half_s: float, median_s: float, settings: Protocol, last: Stop) -> Stop:
    """`converged` where half the interval is narrow; else why the last visit ended, or that visits differ."""
    if half_s <= settings.half_width * median_s:
        return "converged"
    return "visits" if last == "converged" else last
