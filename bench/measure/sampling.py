"""How a case is sampled, when that stops, and what the row then says.

A **visit** is one look at a case: settle, then sample until the interval of its median is narrow (`collect`).
A row publishes one visit or several, spread over the run (`publish`). Pure arithmetic over a function that
returns the next sample, so every rule is tested without a clock or a device; how often the intervals cover
the truth is simulated in coverage.py.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

import numpy as np

from bench.measure.median import Floats, effective_count, median_interval, trend

Stop = Literal["converged", "budget", "samples", "visits"]
Regime = Literal["sustained", "boost"]
Sample = Callable[[], tuple[float, float]]
"""The next sample: (seconds per launch, seconds it took)."""


@dataclass(frozen=True)
class Protocol:
    """Every setting that can change a published time. Rows of different protocols are not compared.

    The defaults are those of one visit to a case on a GPU; `protocol` makes the others.
    """

    version: str = "p2"
    regime: Regime = "sustained"
    """sustained: the device is kept loaded. boost: short bursts, each after a rest."""
    visits: int = 1
    """Visits asked for per case."""
    most_visits: int = 8
    """Where several are asked for and they do not agree, up to this many are made."""
    keep: int = 3
    """The last this many visits are published; what came before may have been settling."""
    agree: float = 0.01
    """Their medians span at most this share, or the row has not converged."""
    confidence: float = 0.95
    half_width: float = 0.01
    """Stop when the interval's half-width is this share of the median."""
    floor: float = 0.002
    """No interval is narrower than this share: batching alone moves a median with stragglers by as much."""
    blocks: int = 5
    """One visit's samples are also cut into this many blocks in time order; drift widens the interval."""
    least_samples: int = 12
    most_samples: int = 2000
    least_timed_s: float = 0.15
    """Timed work before a stop counts: long enough to see a neighbour, or another clock, come and go."""
    least_sample_s: float = 250e-6
    """Launches are batched until a sample lasts this long ..."""
    steps: float = 400
    """... and this many steps of the clock, so that its resolution is worth 0.25 %."""
    state_error: float = 0.01
    """The fixed work beside a visit tells the machine's speed no better than to this share."""
    settle_window_s: float = 0.25
    settle_windows: int = 3
    settle_span: float = 0.005
    """Settled when the medians of the last windows span at most this share ..."""
    settle_trend: float = 0.00075
    """... and show no trend worth more than this share from the first of them to the last."""
    settle_most_s: float = 5.0
    """Settling takes no longer than this ..."""
    settle_share: float = 0.75
    """... nor than this share of the visit's budget."""
    light_window_s: float | None = 0.1
    """One window of this length settles a device that the work leaves far from its limits; None: never."""
    burst_s: float = 0.02
    """Regime boost: samples of one burst together take no longer than this ..."""
    rest_s: float = 0.3
    """... and the device rests this long before each."""
    ring_factor: float = 2.5
    """A cold ring holds this many times the last-level cache."""
    most_slots: int = 4096
    """More slots than this are not built; the cache is then flushed before each turn of the ring."""

    @property
    def hash(self) -> str:
        """Twelve hexadecimal digits that change with any setting."""
        text = json.dumps(asdict(self), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]


SEVERAL = 3
"""Asked for as many visits as this, a row is meant for a record: it must be narrower."""


LEAST_WORTH = 20
"""Independent samples that a visit must be worth before it stops, or half of what it has if that is less.

Quiet samples are worth as many as they are. Where each launch remembers the last for 20 ms, 0.15 s are worth
four, which look like more: stopped then, intervals cover the truth in 88 % of such runs, so in 97 %.
"""


def protocol(kind: Literal["cpu", "cuda"], visits: int = 1, regime: Regime = "sustained") -> Protocol:
    """The settings for a kind of device, so many visits a case, and a regime."""
    most_visits = max(8, visits)
    if kind == "cpu":
        # Shared with an operating system and its neighbours, it scatters by a few percent from window to
        # window, settled or not (on two cores of a Xeon three windows of 20 ms span 2.6 % in the middle
        # case, twice that in a restless hour), and by one or two from visit to visit: half a percent is out
        # of reach, and by the bars of a GPU every row would be unsettled. Scatter is the interval's matter;
        # settling is a trend, so the trend is what must have ended.
        return Protocol(
            regime=regime,
            visits=visits,
            most_visits=most_visits,
            agree=0.03,
            least_timed_s=0.1,
            settle_window_s=0.02,
            settle_span=0.1,
            settle_trend=0.01,
            settle_most_s=3.0,
            settle_share=0.3,
            light_window_s=None,
        )
    if visits == 1:
        return Protocol(regime=regime, least_timed_s=0.15 if regime == "sustained" else 0.1)
    # Other cases keep the card loaded in between: a visit has only its own data and clock to get back to, and
    # a clock that still falls shows as visits that disagree.
    return Protocol(
        regime=regime,
        visits=visits,
        most_visits=most_visits,
        half_width=0.005 if visits >= SEVERAL else 0.01,
        least_timed_s=0.1,
        settle_window_s=0.035,
        settle_span=0.01,
        settle_trend=0.005,
        settle_most_s=0.5,
        light_window_s=None,
    )


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
    wander: float | None = None,
) -> Published:
    """What a row says of its visits, at least one, in the order they were made.

    Published are the last `keep` visits, and those before them from the first that was at their level: what
    came earlier may have been settling, what left the level and came back is a second state. The median is
    that of all their samples together. Its interval is `interval` for one visit; for several, Student's t is
    over their medians. It has converged if that is narrow enough and the last `keep` visits agree.

    What the rest of the run knows widens the interval further; it moves no median and undoes no convergence.
    `typical_s` is the run's median of `state_s`: the interval reaches the time that a case which follows that
    work would take at the usual speed. Where no visit knows its state, `wander` is the share by which
    the run's repeated cases differed from themselves, and the mean of several visits by the less.
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
    elif max(high - median, median - low) > settings.half_width * median:
        stop = "visits" if taken[-1].stop == "converged" else taken[-1].stop

    states = [visit.state_s for visit in taken if visit.state_s is not None]
    if states and typical_s is not None:
        as_usual = typical_s / float(np.median(states))
        low = min(low, median * as_usual * (1 - settings.state_error))
        high = max(high, median * as_usual * (1 + settings.state_error))
    elif wander is not None:
        reach = 1 + wander / len(taken) ** 0.5
        low, high = min(low, median / reach), max(high, median * reach)
    return Published(median, low, high, stop, kept)


WANDER_QUANTILE = 0.9
"""Of the repeated cases of a run, so many wander no further; one that met a neighbour does not count."""


def wander(cases: Iterable[Sequence[float]]) -> float | None:
    """The share by which a case differs from itself from visit to visit; None if none was visited twice.

    `cases` are the medians, in seconds, of the settled and undisturbed visits of one case each. A case's
    share is its slowest visit over its quickest. The run's is their 90th percentile or, if that is more, that
    of cases with three visits and more: two, at either end of a run, may find the same by chance.
    """
    medians_s = [one for one in cases if len(one) > 1 and min(one) > 0]
    shares = [max(one) / min(one) - 1 for one in medians_s]
    thrice = [share for one, share in zip(medians_s, shares, strict=True) if len(one) > 2]
    return max((float(np.quantile(some, WANDER_QUANTILE)) for some in (shares, thrice) if some), default=None)


def settle(
    sample: Sample,
    settings: Protocol,
    most_s: float,
    now: Callable[[], float],
    light: Callable[[], bool] | None = None,
    clock_hz: Callable[[], float | None] | None = None,
) -> bool:
    """Run until successive windows agree; False if `most_s` of wall time went by first.

    They agree if their medians span little, show no trend, and the clock (`clock_hz`, None where
    unknown) is not lower after the last of them than after the first. `light` says whether the device is far
    from its limits: then one short window is enough. Nothing of this is published. Neither a clock that
    reads 0 nor a wall clock that stands still hangs it.
    """
    begin = now()
    timed_s = 0.0

    def window(length_s: float) -> list[float] | None:
        """Samples that took this long together; None if the time is over, or does not pass."""
        nonlocal timed_s
        found: list[float] = []
        before_s = timed_s
        while timed_s - before_s < length_s:
            per_launch, took = sample()
            found.append(per_launch)
            timed_s += took
            stands_still = len(found) >= settings.most_samples and timed_s <= before_s
            if stands_still or max(now() - begin, timed_s) >= most_s:
                return None
        return found

    if light is not None and settings.light_window_s is not None:
        if window(settings.light_window_s) is None:
            return False
        if light():
            return True
    windows: list[list[float]] = []
    clocks: list[float | None] = []
    while (found := window(settings.settle_window_s)) is not None:
        windows = [*windows, found][-settings.settle_windows :]
        clocks = [*clocks, clock_hz() if clock_hz else None][-settings.settle_windows :]
        if len(windows) < settings.settle_windows:
            continue
        medians = [float(np.median(values)) for values in windows]
        level = float(np.median(medians))
        steady = max(medians) - min(medians) <= settings.settle_span * level
        falling = clocks[0] is not None and clocks[-1] is not None and clocks[-1] < clocks[0]
        if steady and not falling and abs(trend(windows)) <= settings.settle_trend * level:
            return True
    return False


def collect(
    sample: Sample,
    settings: Protocol,
    budget_s: float,
    now: Callable[[], float],
    step_s: float = 0.0,
    least_timed_s: float = 0.0,
    *,
    rest: Callable[[float], None] = time.sleep,
    light: Callable[[], bool] | None = None,
    clock_hz: Callable[[], float | None] | None = None,
) -> Visit:
    """One visit: settle, then sample until its interval is narrow enough or `budget_s` of wall time is spent.

    `now` is the wall clock, which budgets are kept by; precision is judged by the samples' own time. `step_s`
    is the clock's resolution divided by the launches of a sample. At least `least_samples` are taken unless
    the budget is spent twice over; `least_timed_s` can only raise the protocol's. `rest` lets the device rest
    for so many seconds before each burst (regime boost); `light` and `clock_hz` tell `settle` of the device.
    """
    least_timed_s = max(least_timed_s, settings.least_timed_s)
    boost = settings.regime == "boost"
    begin = now()
    settled = True
    if not boost:
        most_s = min(settings.settle_most_s, settings.settle_share * budget_s)
        settled = settle(sample, settings, most_s, now, light, clock_hz)
    settle_s = now() - begin
    taken: list[float] = []
    timed_s = 0.0
    burst_s, took = math.inf, 0.0
    check_at = settings.least_samples
    while True:
        if boost and burst_s + took > settings.burst_s:  # one more like the last would be too long
            rest(settings.rest_s)
            burst_s = 0.0
        per_launch, took = sample()
        taken.append(per_launch)
        timed_s += took
        burst_s += took
        stop: Stop | None = None
        if len(taken) >= check_at and timed_s >= least_timed_s:
            median, low, high = interval(taken, settings, step_s)
            narrow = max(high - median, median - low) <= settings.half_width * median
            if narrow and effective_count(np.asarray(taken)) >= min(LEAST_WORTH, len(taken) / 2):
                stop = "converged"
            check_at = max(len(taken) + 1, int(len(taken) * 1.1))  # each look costs a sort
        spent = now() - begin
        if stop is None and len(taken) >= settings.most_samples:
            stop = "samples"
        enough = len(taken) >= settings.least_samples or spent > 2 * budget_s
        if stop is None and spent >= budget_s and enough:
            stop = "budget"
        if stop is not None:
            return Visit(tuple(taken), settled, settle_s, stop, step_s)
