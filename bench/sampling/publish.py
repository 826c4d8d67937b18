"""What a row says of its visits: the median, its interval, and whether it converged.

Samples may be neither normal nor independent, and visits differ by more than their samples tell. How often
the intervals cover the truth is simulated in studies/interval_coverage.py.

scipy.special is imported where it is used, and scipy.stats not at all: to import it takes longer than most
commands, and than all of a worker's own modules.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from bench.sampling.protocol import Protocol

Floats = npt.NDArray[np.float64]
Stop = Literal["converged", "budget", "samples", "visits"]
MODERATED, PRIOR_FREEDOM = 3, 4
"""From so many visits on their own scatter is moderated by that of the run's other cases, which counts as so
many degrees of freedom (Smyth, Stat. Appl. Genet. Mol. Biol. 3, 2004): three visits may agree by chance."""


class MedianSpread(NamedTuple):
    """What the medians of a case differ by, 95 times in 100: natural logarithms."""

    visits: float
    """Spread from one visit of a run to another."""
    runs: float
    """Spread from one run to another, beyond that."""
    deviation: float = 0.0
    """Standard deviation of a visit from the level of its case, robust against rare visits that are far off;
    0 where it is not known. Several visits say by themselves whether one of them is."""

    def over(self, visits: int) -> MedianSpread:
        """The spread of the median over so many visits of a run, relative to that of all its visits.

        One visit may be a whole step from the usual level (a clock with two states), not only 1 / sqrt(2) of
        it, and two visits may both be in the rarer state.
        """
        return self._replace(visits=self.visits / math.sqrt(max(1, visits - 1)))

    @property
    def half(self) -> float:
        """Both together: natural logarithm."""
        return math.hypot(self.visits, self.runs)

    def widen(self, median_s: float, low_s: float, high_s: float) -> tuple[float, float]:
        """(low, high): an interval with the noise of this spread.

        What its own samples tell and what visits differ by are not added up: visits differ by what their
        samples scatter, too, and several visits' own interval holds what they differ by. The wider counts.
        """
        down = math.hypot(max(math.log(median_s / low_s), self.visits), self.runs)
        up = math.hypot(max(math.log(high_s / median_s), self.visits), self.runs)
        return median_s * math.exp(-down), median_s * math.exp(up)


@dataclass(frozen=True)
class VisitSamples:
    """Samples and outcome of one visit to a case."""

    samples_s: tuple[float, ...]
    """Every sample, seconds per launch, in time order; none is ever thrown away."""
    settled: bool
    """Whether it had settled before the first of them."""
    settle_s: float
    """Wall seconds of settling."""
    stop: Stop
    step_s: float
    """The clock's step divided by the launches of a sample."""


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
    noise: MedianSpread | None = None
    """What the interval holds of the noise between visits, those published taken together, and between runs;
    None: nothing."""

    def columns(self) -> dict[str, Any]:
        """Columns of a row; an interval that too few samples leave unknown is null, not infinite."""
        known = math.isfinite(self.high_s)
        return {
            "median_s": self.median_s,
            "low_s": self.low_s if known else None,
            "high_s": self.high_s if known else None,
            "stop": self.stop,
            "noise_visits": self.noise.visits if known and self.noise else None,
            "noise_runs": self.noise.runs if known and self.noise else None,
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
        return median_of(values), 0.0, math.inf
    blocks_s = [median_of(block) for block in np.array_split(values, settings.blocks)]
    least = max(step_s, settings.floor * median_of(values))
    return median_interval(values, effective_count(values), blocks_s, least, settings.confidence)


def publish(
    visits: Sequence[VisitSamples],
    settings: Protocol,
    spread: MedianSpread | None = None,
    outvoted: bool = False,
) -> Published:
    """What the row of a case says of its visits, at least one, in the order they were made.

    Published are the last `keep` visits, and those before them from the first that was at their level: what
    came earlier may have been settling, what left the level and came back is a second state. The median is
    that of all their samples together. Its interval is `interval` for one visit; for several, Student's t is
    over their medians. It has converged if that is narrow enough and the last `keep` visits agree.

    `spread` is what the run knows of the machine (bench/judge/noise.py). It widens the interval further; it
    moves no median and undoes no convergence. `outvoted`: earlier visits, not among these, were elsewhere.
    """
    each_s = [median_of(visit.samples_s) for visit in visits]
    level_s = median_of(each_s[-settings.keep :])
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
        worth, values = sum(effective_count(part) for part in parts), np.concatenate(parts)
        least = max(step_s, settings.floor * median_of(values))
        median, low, high = median_interval(values, worth, each_s[first:], least, settings.confidence)

    last_s = each_s[-settings.keep :]
    stop: Stop = "converged"
    if len(visits) < settings.visits:
        stop = "budget"
    elif max(last_s) - min(last_s) > near_s:
        stop = "visits"
    else:
        stop = _stop(max(high - median, median - low), median, settings, taken[-1].stop)

    noise = None
    if spread is not None and low > 0:
        # Visits that agree after others did not may all be in the rarer of two states.
        outvoted = outvoted or first > 0
        noise = spread.over(1 if outvoted else len(taken))
        if spread.deviation and not outvoted and len(taken) >= MODERATED:
            half = _moderated(each_s, spread.deviation, settings.confidence)
            noise = noise._replace(visits=half)
            low, high = _of_order(values, worth, least, settings.confidence)
        low, high = noise.widen(median, low, high)
    return Published(median, low, high, stop, kept, noise)


def _moderated(each_s: Sequence[float], deviation: float, confidence: float) -> float:
    """Half of the interval of these visits' level, natural logarithm: by their scatter and other cases'."""
    own = len(each_s) - 1
    freedom = PRIOR_FREEDOM + own
    variance = (PRIOR_FREEDOM * deviation**2 + own * float(np.var(np.log(each_s), ddof=1))) / freedom
    return student(freedom, confidence) * math.sqrt(variance / len(each_s))


def publish_ceiling(
    visits: Sequence[VisitSamples],
    settings: Protocol,
    spread: MedianSpread | None = None,
    outvoted: bool = False,
) -> Published:
    """What the row of a ceiling says: its interval spans those of its visits, each taken alone.

    It is visited at the run's ends, however often others are. Of two visits Student's t would make an
    interval nine times as wide as they are apart; and a roof is what was reached at either end, not the mean.
    `spread` and `outvoted` as `publish` takes them.
    """
    settings = replace(settings, visits=1)
    together = publish(visits, settings)
    median_s = together.median_s
    alone = [publish([visits[index]], settings) for index in together.kept]
    low_s, high_s = min(each.low_s for each in alone), max(each.high_s for each in alone)
    stop = _stop(max(high_s - median_s, median_s - low_s), median_s, settings, alone[-1].stop)
    noise = None
    if spread is not None and low_s > 0:
        noise = spread.over(1 if outvoted or together.kept[0] else len(alone))
        low_s, high_s = noise.widen(median_s, low_s, high_s)
    return replace(together, low_s=low_s, high_s=high_s, stop=stop, noise=noise)


def _stop(half_s: float, median_s: float, settings: Protocol, last: Stop) -> Stop:
    """`converged` where half the interval is narrow; else why the last visit ended, or that visits differ."""
    if half_s <= settings.half_width * median_s:
        return "converged"
    return "visits" if last == "converged" else last


# ---- the interval of a median


def median_of(values: npt.ArrayLike) -> float:
    """As np.median, which takes ten times as long: a year of a fleet has millions of parts. At least one."""
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    return float((ordered[(ordered.size - 1) // 2] + ordered[ordered.size // 2]) / 2)


@cache
def _rank(count: int, confidence: float) -> int:
    """1-based rank r such that [x_r, x_(n+1-r)] covers the median with at least this confidence; 0: none."""
    from scipy import special

    return int(np.searchsorted(special.bdtr(np.arange(count // 2 + 1), count, 0.5), (1 - confidence) / 2))


def student(freedom: float, confidence: float) -> float:
    """Standard errors either side of a mean that hold it with this confidence; `freedom`: degrees of it."""
    from scipy import special

    return float(special.stdtrit(freedom, 0.5 + confidence / 2))


def average_ranks(values: Floats) -> Floats:
    """The place of each value in order, from 1; equal values share the mean of theirs."""
    _, at, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks: Floats = (np.cumsum(counts) - (counts - 1) / 2)[at]
    return ranks


def effective_count(values: Floats) -> float:
    """How many independent samples these, in time order, are worth.

    Their number over the integrated autocorrelation time of their ranks (a straggler counts no more than its
    place), summed up over pairs of lags for as long as a pair is positive (Geyer 1992).
    """
    count = len(values)
    ranks = average_ranks(values) - (count + 1) / 2
    power = np.abs(np.fft.rfft(ranks, 2 * count)) ** 2
    covariance = np.fft.irfft(power)[:count]
    if covariance[0] <= 0:  # all alike
        return float(count)
    pairs = (covariance[: count // 2 * 2] / covariance[0]).reshape(-1, 2).sum(axis=1)
    negative = np.flatnonzero(pairs <= 0)
    last = int(negative[0]) if len(negative) else len(pairs)
    return count / max(1.0, 2 * float(pairs[:last].sum()) - 1)


def median_interval(
    values: Floats, worth: float, parts: Sequence[float], least: float, confidence: float
) -> tuple[float, float, float]:
    """(median, low, high) in the unit of `values`: the widest of three intervals of the median.

    Order statistics (distribution-free) of as many independent values as these are `worth`; Student's t over
    the medians of their `parts`, at least two, in time order (right when values drift together); `least`
    either side. 0 and infinite where there are too few values to say.
    """
    median = median_of(values)
    low, high = _of_order(values, worth, least, confidence)
    if not math.isfinite(high):
        return median, low, high
    middle = float(np.mean(parts))
    spread = student(len(parts) - 1, confidence) * float(np.std(parts, ddof=1)) / len(parts) ** 0.5
    # Student's interval is symmetric, times are not: downwards it ends at the quickest that was seen.
    quickest = max(middle - spread, float(np.min(values)))
    return median, min(low, quickest), max(high, middle + spread)


def _of_order(values: Floats, worth: float, least: float, confidence: float) -> tuple[float, float]:
    """(low, high) of the median by order statistics, `least` either side at least; 0 and infinite without."""
    ordered = np.sort(values)
    median = median_of(ordered)
    count = int(worth)
    rank = _rank(count, confidence)
    if rank < 1:
        return 0.0, math.inf
    rank = int(rank * (len(values) + 1) / (count + 1))
    return min(float(ordered[rank - 1]), median - least), max(float(ordered[-rank]), median + least)


def trend(windows: Sequence[Sequence[float]]) -> float:
    """Change of the level from the first of these windows to the last; 0 if chance explains it.

    A straight line through the medians of a fifth of a window each; chance explains two standard errors.
    """
    parts = [median_of(part) for window in windows for part in np.array_split(window, 5) if len(part)]
    count = len(parts)
    if count < 5:
        return 0.0
    place, level = np.arange(count) - (count - 1) / 2, np.asarray(parts) - np.mean(parts)
    slope = float(place @ level / (place @ place))
    left = level - slope * place
    if slope**2 * (place @ place) <= 4 * (left @ left) / (count - 2):
        return 0.0
    return slope * count / len(windows) * (len(windows) - 1)
