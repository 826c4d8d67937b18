"""How one visit is sampled: settle, then sample until the interval of its median is narrow.

Arithmetic over a function that returns the next sample: every rule is tested without a clock or a device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from bench.sampling.protocol import Protocol
from bench.sampling.publish import Stop, VisitSamples, effective_count, interval, median_of, trend

Sample = Callable[[], tuple[float, float]]
"""The next sample: (seconds per launch, seconds it took)."""

LEAST_WORTH = 20
"""Independent samples that a visit must be worth before it stops, or half of what it has if that is less.

Quiet samples are worth as many as they are. Where each launch remembers the last for 20 ms, 0.15 s are worth
four, which look like more: stopped then, intervals cover the truth in 88 % of such runs, so in 97 %.
"""
CHANCE_SPAN = 3.3
"""Standard errors that the medians of three windows span by chance at most, 95 times in 100."""


def settle(
    sample: Sample,
    settings: Protocol,
    most_s: float,
    now: Callable[[], float],
    light: Callable[[], bool] | None = None,
    clock_hz: Callable[[], float | None] | None = None,
) -> bool:
    """Run until successive windows agree; False if `most_s` of wall time went by first.

    They agree if their medians span little beyond what chance makes of them, show no trend, and the clock
    (`clock_hz`, None where unknown) is not lower after the last of them than after the first. `light` says
    whether the device is far from its limits: then one short window is enough. Nothing of this is published.
    Neither a clock that reads 0 nor a wall clock that stands still hangs it.
    """
    begin = now()
    timed_s = 0.0
    # In a short visit the windows are shorter, or they would not fit and it could never count as settled.
    window_s = min(settings.settle_window_s, most_s / (settings.settle_windows + 1))

    def window(length_s: float) -> list[float] | None:
        """Samples that took this long together; None if the time is over, or does not pass."""
        nonlocal timed_s
        samples_s: list[float] = []
        before_s = timed_s
        while timed_s - before_s < length_s:
            per_launch, took = sample()
            samples_s.append(per_launch)
            timed_s += took
            stands_still = len(samples_s) >= settings.most_samples and timed_s <= before_s
            if stands_still or max(now() - begin, timed_s) >= most_s:
                return None
        return samples_s

    if light is not None and settings.light_window_s is not None:
        if window(settings.light_window_s) is None:
            return False
        if light():
            return True
    windows: list[list[float]] = []
    clocks: list[float | None] = []
    while (newest := window(window_s)) is not None:
        windows = [*windows, newest][-settings.settle_windows :]
        clocks = [*clocks, clock_hz() if clock_hz else None][-settings.settle_windows :]
        if len(windows) < settings.settle_windows:
            continue
        medians = [median_of(values) for values in windows]
        level = median_of(medians)
        chance = CHANCE_SPAN * max(map(_standard_error, windows))
        steady = max(medians) - min(medians) <= settings.settle_span * level + chance
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
    light: Callable[[], bool] | None = None,
    clock_hz: Callable[[], float | None] | None = None,
) -> VisitSamples:
    """One visit: settle, then sample until its interval is narrow enough or `budget_s` of wall time is spent.

    `now` is the wall clock, which budgets are kept by; precision is judged by the samples' own time. `step_s`
    is the clock's resolution divided by the launches of a sample. At least `least_samples` are taken unless
    the budget is spent twice over; `least_timed_s` can only raise the protocol's.
    `light` and `clock_hz` tell `settle` of the device.
    """
    least_timed_s = max(least_timed_s, settings.least_timed_s)
    begin = now()
    most_s = min(settings.settle_most_s, settings.settle_share * budget_s)
    settled = settle(sample, settings, most_s, now, light, clock_hz)
    settle_s = now() - begin
    taken: list[float] = []
    timed_s = 0.0
    check_at = settings.least_samples
    while True:
        per_launch, took = sample()
        taken.append(per_launch)
        timed_s += took
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
            return VisitSamples(tuple(taken), settled, settle_s, stop, step_s)


def _standard_error(window: Sequence[float]) -> float:
    """Standard error of the window's median, by the middle half of its values: stragglers do not count."""
    low, high = np.percentile(window, (25, 75))
    return float(1.2533 * (high - low) / 1.34898 / len(window) ** 0.5)
