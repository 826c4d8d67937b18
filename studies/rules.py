"""When rules to compete with ours would raise an alarm: each a function of many series to nights of alarm.

Published practice, written anew from its description; only slower is an alarm. Values are ln(median seconds).
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import stats

from bench.judge.history.detector import FLOOR, ODD
from bench.judge.history.monitor import Watch

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]


class Seen(NamedTuple):
    """What the rules are given."""

    log_s: Floats
    """[series, nights] ln median seconds; no gaps."""
    samples: Floats
    """[series, nights, samples] ln seconds of the samples."""
    half: Floats
    """[series, nights] half of the 95 % interval of the median, ln."""


Rule = Callable[[Seen], Flags]
"""[series, nights] on which of them an alarm stands."""


def previous(seen: Seen) -> Flags:
    """More than 5 % above the previous run."""
    alarm = np.zeros(seen.log_s.shape, dtype=np.bool_)
    alarm[:, 1:] = np.diff(seen.log_s, axis=1) > np.log1p(0.05)
    return alarm


def rank_test(seen: Seen, least: float = 0.0) -> Flags:
    """Mann and Whitney on the samples of two nights running, p < .002, and slower by more than `least`."""
    alarm = np.zeros(seen.log_s.shape, dtype=np.bool_)
    found = stats.mannwhitneyu(seen.samples[:, 1:], seen.samples[:, :-1], axis=2, method="asymptotic")
    slower = np.diff(np.median(seen.samples, axis=2), axis=1) > np.log1p(least)
    alarm[:, 1:] = (found.pvalue < 0.002) & slower
    return alarm


def rank_test_and_effect(seen: Seen) -> Flags:
    """The same, and slower by more than 2 %."""
    return rank_test(seen, 0.02)


def three_sigma(seen: Seen) -> Flags:
    """Above mean + 3 standard deviations of the last 30 nights."""
    alarm = np.zeros(seen.log_s.shape, dtype=np.bool_)
    for night in range(6, seen.log_s.shape[1]):
        before = seen.log_s[:, max(0, night - 30) : night]
        alarm[:, night] = seen.log_s[:, night] > before.mean(axis=1) + 3 * before.std(axis=1, ddof=1)
    return alarm


def beyond(seen: Seen, mads: float) -> Flags:
    """Above the median of the last 20 nights by so many scaled MADs and by 2 %."""
    alarm = np.zeros(seen.log_s.shape, dtype=np.bool_)
    for night in range(6, seen.log_s.shape[1]):
        before = seen.log_s[:, max(0, night - 20) : night]
        by = seen.log_s[:, night] - np.median(before, axis=1)
        mad = stats.median_abs_deviation(before, axis=1, scale="normal")
        alarm[:, night] = by > np.maximum(np.log1p(0.02), mads * mad)
    return alarm


def four_mads(seen: Seen) -> Flags:
    """Above median + 4 MAD of the last 20, and 2 %."""
    return beyond(seen, 4.0)


def two_nights(seen: Seen) -> Flags:
    """Two nights running above median + 2.5 MAD of the last 20, and 2 %."""
    alarm = beyond(seen, 2.5)
    alarm[:, 1:] &= alarm[:, :-1]
    alarm[:, 0] = False
    return alarm


def has_asv() -> bool:
    """Whether airspeed velocity is installed; it is no dependency."""
    return importlib.util.find_spec("asv") is not None


def asv_steps(seen: Seen) -> Flags:
    """asv's step detector on each night's past: its newest level is above its best by more than 2 %."""
    from asv.step_detect import detect_regressions, detect_steps

    alarm = np.zeros(seen.log_s.shape, dtype=np.bool_)
    for row, values in enumerate(np.exp(seen.log_s - seen.log_s[:, :1]).tolist()):
        for night in range(6, len(values)):
            _, _, found = detect_regressions(detect_steps(values[: night + 1]), 0.02)
            alarm[row, night] = bool(found)
    return alarm


def ours_alone(seen: Seen) -> Flags:
    """Our rule for a single series, whatever the others do."""
    rows, nights = seen.log_s.shape
    watch = Watch(rows, [night % 7 for night in range(nights)], FLOOR, ODD)
    alarm = np.zeros(seen.log_s.shape, dtype=np.bool_)
    for night in range(nights):
        watch.look(night, seen.log_s[:, night], seen.half[:, night])
        for found in watch.candidates(np.ones(rows, dtype=np.bool_), rate=1.0):
            watch.raise_(night, found)
        for one in watch.end(night):
            watch.release([one.candidate.row], one, one.ending == "accepted")
            alarm[one.candidate.row, night] = one.raised == night
        for row, one in watch.open.items():
            alarm[row, night] = one.effect > 0
    return alarm
