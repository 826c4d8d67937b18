"""What one row's number may not be used for without a second look: flags, each with its one rule.

A flag never changes or hides a time. Rows that say why they have no time are not flagged.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.model.ceilings import Ceilings
from bench.model.roofline import calibrated, of_roof, row_traffic

if TYPE_CHECKING:
    from bench.store import Measurement

NOISY = 0.02
"""Largest half-width of the 95 % interval, as a share of the median."""
ABOVE_ROOF = 1.05
"""Largest share of the calibrated roof that measuring error explains."""
LAUNCH_BOUND = 1.1
"""Times the launch floor within which a row times the launch, not the work."""
CONTENDED = 0.05
"""Largest share of the time in which some task waited for a processor (Linux pressure stall)."""
CLOCK_MOVED = 0.05
"""Largest change of a fixed kernel's time from before to after, as a share: its own noise is below."""
STOLEN = 0.02
"""Largest share of processor time that a hypervisor may take."""


@dataclass(frozen=True)
class Flag:
    """A name, when it is raised, and what that means for the reader."""

    name: str
    rule: Callable[[Measurement, Ceilings], bool]
    means: str


def flags(row: Measurement, ceilings: Ceilings | None) -> list[str]:
    """Names of the flags that this row raises, in the order of FLAGS; none for a row without a time.

    `ceilings` are those of the row's run; None leaves out the flags that need them. A row of a
    DataFrame serves as well: what is missing there is NaN.
    """
    if row.status != "ok" or not _above(row.median_s, 0.0):
        return []
    return [flag.name for flag in FLAGS if flag.rule(row, ceilings or Ceilings())]


def _above(value: float | None, bar: float) -> bool:
    """Whether there is a value and it is beyond the bar; a missing one (None, NaN) is not."""
    return value is not None and bool(value > bar)


def _noisy(row: Measurement, _: Ceilings) -> bool:
    if row.median_s is None or row.low_s is None or row.high_s is None:
        return False
    return (row.high_s - row.low_s) / 2 > NOISY * row.median_s


def _unconverged(row: Measurement, _: Ceilings) -> bool:
    return isinstance(row.stop, str) and row.stop != "converged"


def _unsettled(row: Measurement, _: Ceilings) -> bool:
    # Not `is False`: a DataFrame holds numpy's own false, or NaN where nothing was said.
    return row.settled is not None and row.settled == False  # noqa: E712


def _above_roof(row: Measurement, ceilings: Ceilings) -> bool:
    if row.cache != "cold":  # from a warm cache, beating the memory roof is what is expected
        return False
    roof = calibrated(row.flop, *row_traffic(row), row.arithmetic, row.dtype, ceilings)
    return _above(of_roof(row.median_s, roof.bound_s if roof else None), ABOVE_ROOF)


def _launch_bound(row: Measurement, ceilings: Ceilings) -> bool:
    if ceilings.launch_s is None or row.median_s is None:
        return False
    return row.median_s <= LAUNCH_BOUND * ceilings.launch_s


def _contended(row: Measurement, _: Ceilings) -> bool:
    return _above(row.pressure, CONTENDED)


def _stolen(row: Measurement, _: Ceilings) -> bool:
    return _above(row.steal, STOLEN)


def _clock_moved(row: Measurement, _: Ceilings) -> bool:
    before, after = row.sentinel_before_s, row.sentinel_after_s
    if before is None or after is None:
        return False
    return abs(after - before) > CLOCK_MOVED * min(before, after)


def _limits(row: Measurement) -> set[str]:
    """What held the clock back, in NVML's words."""
    reasons = row.limit_reasons if isinstance(row.limit_reasons, str) else ""
    return {reason.strip() for reason in reasons.split(",") if reason.strip()}


def _throttled(row: Measurement, _: Ceilings) -> bool:
    return any("hardware" in reason or "thermal" in reason for reason in _limits(row))


def _power_capped(row: Measurement, _: Ceilings) -> bool:
    return _limits(row) == {"software power cap"}


FLAGS = (
    Flag("noisy", _noisy, "interval wider than 2 % either side of the median: shown, not compared"),
    Flag("unconverged", _unconverged, "sampling ran out of budget: the interval stands, no verdict on it"),
    Flag("unsettled", _unsettled, "window medians still drifted when sampling began: no baseline"),
    Flag("above_roof", _above_roof, "more than 105 % of the roof: the count, the cache or the roof is wrong"),
    Flag("launch_bound", _launch_bound, "within 1.1 x the launch floor: the launch was timed, not the work"),
    Flag("contended", _contended, "tasks waited for a processor over 5 % of the time (CPU): no baseline"),
    Flag("stolen", _stolen, "the hypervisor took over 2 % of the processors (CPU): no baseline"),
    Flag(
        "clock_moved",
        _clock_moved,
        "a fixed kernel took over 5 % more or less time afterwards (CPU)",
    ),
    Flag("throttled", _throttled, "heat or hardware held the clock back: no baseline"),
    Flag("power_capped", _power_capped, "the power limit alone held the clock: the card's sustained speed"),
)
"""Every flag there is."""
