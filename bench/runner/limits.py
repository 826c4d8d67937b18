"""Limits of a run: its budget and precision, what a device cannot run, and how long one launch may take."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from bench.device.detect import Device
from bench.errors import UserError
from bench.spec import DeviceKind
from bench.sweep.load import Case
from bench.sweep.suites import Suite

BUDGET_S: Mapping[DeviceKind, float] = {"cpu": 120.0, "cuda": 600.0}
"""Default budget of a run without a suite, wall seconds."""
PRECISION = 0.01
"""Half-width of the interval within a run, as a share of the median, with which a case has enough visits."""
ROOF_TIMED_S = 0.36
"""Least seconds for which a roof is timed: it is the best rate that was sustained."""
LAUNCH_SHARE = 1 / 600
"""Largest share of the run's budget that one launch may take: 0.2 s of 120 s."""
SHORT_RUNS_SHARE, SHORT_RUNS_MOST_S = 1 / 100, 0.2
"""The same of short runs, which have few cases, and the most seconds that this allows."""


def budget_s(given: str | None, kind: DeviceKind, suite: Suite | None = None) -> float | None:
    """Wall seconds that --bench-budget gives, None for no limit; UserError if it is no positive number.

    Without one those of the suite, or BUDGET_S.
    """
    if given is None:
        return BUDGET_S[kind] if suite is None else suite.limit_s(kind)
    seconds = _number(given)
    if not seconds > 0:
        raise UserError(f"--bench-budget {given}: give seconds, more than 0, or inf for no limit")
    return None if math.isinf(seconds) else seconds


def precision(given: str | None) -> float:
    """The share of a median that --bench-precision gives, `1%` or `0.01`; UserError if it is none."""
    if given is None:
        return PRECISION
    number, percent = given.removesuffix("%"), given.endswith("%")
    share = _number(number) / (100 if percent else 1)
    if not 0 < share < 1:
        raise UserError(f"--bench-precision {given}: give a share of the time, more than 0 and below 1: 1%")
    return share


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def launch_limit_s(budget: float | None) -> float:
    """Seconds that one launch may take in a run of this budget, in seconds."""
    if budget is None:
        return 20.0
    return max(budget * LAUNCH_SHARE, min(budget * SHORT_RUNS_SHARE, SHORT_RUNS_MOST_S))


def impossible(case: Case, device: Device) -> dict[str, Any] | None:
    """Status and reason of a case that the device cannot run however much time there is; None if it can."""
    if reason := case.missing(device.kind, device.capability):
        return {"status": "unsupported", "reason": reason}
    if case.problem.byte > device.memory_byte:
        need, have = case.problem.byte / 1e9, device.memory_byte / 1e9
        return {"status": "skipped", "reason": f"needs {need:.0f} GB; {device} has {have:.0f} GB"}
    return None
