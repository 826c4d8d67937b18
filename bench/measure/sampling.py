"""When to stop: samples until the interval of the published median is narrow, or the budget is spent.

Pure arithmetic over a function that returns the next sample, so every rule is tested without a clock.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import Literal

import numpy as np
from scipy import stats

Stop = Literal["converged", "budget", "samples"]


@dataclass(frozen=True)
class Protocol:
    """Every setting that can change a published time. Rows of different protocols are not compared."""

    version: str = "p1"
    confidence: float = 0.95
    half_width: float = 0.01
    """Stop when the interval's half-width is this share of the median."""
    floor: float = 0.001
    """No interval is narrower than this share: batching alone moves a median with stragglers by ~0.25 %."""
    blocks: int = 5
    """Samples are also cut into this many blocks in time order; slow drift widens the interval."""
    least_samples: int = 12
    most_samples: int = 2000
    least_timed_s: float = 0.1
    """Timed work before a stop counts: long enough to see a neighbour come and go."""
    least_sample_s: float = 250e-6
    """Launches are batched until a sample lasts this long ..."""
    steps: float = 400
    """... and this many steps of the clock, so that its resolution is worth 0.25 %."""
    settle_window_s: float = 0.02
    settle_windows: int = 3
    settle_span: float = 0.01
    """Settled when the medians of the last windows span at most this share."""
    settle_share: float = 0.3
    """Share of the case's budget that settling may take."""
    ring_factor: float = 2.5
    """A cold ring holds this many times the last-level cache."""
    most_slots: int = 4096
    """More slots than this are not built; the cache is then flushed before each turn of the ring."""

    @property
    def hash(self) -> str:
        """Twelve hexadecimal digits that change with any setting."""
        text = json.dumps(asdict(self), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]


CPU = Protocol(settle_span=0.03)
"""A CPU shared with an operating system scatters by a few percent from window to window, settled or not."""
CUDA = Protocol(settle_window_s=0.1)
"""A GPU's clock takes longer to settle under load."""


@dataclass(frozen=True)
class Samples:
    """What sampling found, seconds per launch."""

    samples_s: tuple[float, ...]
    median_s: float
    low_s: float
    high_s: float
    stop: Stop
    settled: bool


@cache
def _rank(count: int, confidence: float) -> int:
    """1-based rank r such that [x_r, x_(n+1-r)] covers the median with at least this confidence; 0: none."""
    return int(stats.binom.ppf((1 - confidence) / 2, count, 0.5))


def interval(
    samples_s: Sequence[float], protocol: Protocol, step_s: float = 0.0
) -> tuple[float, float, float]:
    """(median, low, high) in seconds: the widest of three intervals of the median.

    Order statistics (distribution-free, right for independent samples); Student's t over the medians of
    consecutive blocks (right when samples drift together); the clock's step per launch and a floor.
    The interval is infinite while there are too few samples to say.
    """
    values = np.asarray(samples_s, dtype=np.float64)
    median = float(np.median(values))
    rank = _rank(len(values), protocol.confidence)
    if rank < 1 or len(values) < 2 * protocol.blocks:
        return median, 0.0, float("inf")
    ordered = np.sort(values)
    low, high = float(ordered[rank - 1]), float(ordered[-rank])
    medians = [float(np.median(block)) for block in np.array_split(values, protocol.blocks)]
    t = float(stats.t.ppf(0.5 + protocol.confidence / 2, protocol.blocks - 1))
    spread = t * float(np.std(medians, ddof=1)) / protocol.blocks**0.5
    least = max(step_s, protocol.floor * median)
    # Student's interval is symmetric, times are not: downwards it ends at the quickest that was seen.
    slowest, quickest = median + spread, max(median - spread, float(ordered[0]))
    return median, min(low, quickest, median - least), max(high, slowest, median + least)


def settle(
    sample: Callable[[], tuple[float, float]], protocol: Protocol, most_s: float, now: Callable[[], float]
) -> bool:
    """Run until the medians of successive windows agree; False if `most_s` of wall time went by first.

    `sample` returns (seconds per launch, seconds it took). Nothing of this is published. At most
    `most_samples` are taken: a clock that reads 0 must not hang the run.
    """
    begin = now()
    medians: list[float] = []
    taken = 0
    while now() - begin < most_s and taken < protocol.most_samples:
        window: list[float] = []
        window_s = 0.0
        while window_s < protocol.settle_window_s:
            per_launch, took = sample()
            window.append(per_launch)
            window_s += took
            taken += 1
            if now() - begin >= most_s or taken >= protocol.most_samples:
                return False
        medians.append(float(np.median(window)))
        last = medians[-protocol.settle_windows :]
        agree = max(last) - min(last) <= protocol.settle_span * float(np.median(last))
        if agree and len(last) == protocol.settle_windows:
            return True
    return False


def collect(
    sample: Callable[[], tuple[float, float]],
    protocol: Protocol,
    budget_s: float,
    now: Callable[[], float],
    step_s: float = 0.0,
    least_timed_s: float = 0.0,
) -> Samples:
    """Settle, then sample until the interval is narrow enough or `budget_s` of wall time is spent.

    `sample` returns (seconds per launch, seconds it took); `now` is the wall clock; `step_s` is the
    clock's resolution divided by the launches of a sample. At least `least_samples` are taken unless
    the budget is spent twice over; `least_timed_s` can only raise the protocol's.
    """
    least_timed_s = max(least_timed_s, protocol.least_timed_s)
    begin = now()
    settled = settle(sample, protocol, protocol.settle_share * budget_s, now)
    taken: list[float] = []
    timed = 0.0
    check_at = protocol.least_samples
    while True:
        per_launch, took = sample()
        taken.append(per_launch)
        timed += took
        stop: Stop | None = None
        if len(taken) >= check_at and timed >= least_timed_s:
            median, low, high = interval(taken, protocol, step_s)
            if max(high - median, median - low) <= protocol.half_width * median:
                stop = "converged"
            check_at = max(len(taken) + 1, int(len(taken) * 1.1))  # each look costs a sort
        spent = now() - begin
        if stop is None and len(taken) >= protocol.most_samples:
            stop = "samples"
        enough = len(taken) >= protocol.least_samples or spent > 2 * budget_s
        if stop is None and spent >= budget_s and enough:
            stop = "budget"
        if stop is not None:
            median, low, high = interval(taken, protocol, step_s)
            return Samples(tuple(taken), median, low, high, stop, settled)
