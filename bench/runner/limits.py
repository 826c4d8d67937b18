"""What a case may be for a run: within the device's reach, and short enough for the budget."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from bench.device.datasheet import find_datasheet
from bench.device.detect import Device
from bench.format import seconds_text
from bench.judge.flags import ABOVE_ROOF
from bench.model.ceilings import Ceilings, by_run
from bench.model.roofline import calibrated, datasheet_s, traffic
from bench.spec import DeviceKind
from bench.store.schema import Measurement
from bench.sweep.load import Case
from bench.worker.visit import VisitResult

PRECISION = 0.01
"""Half-width of the interval within a run, as a share of the median, with which a case has enough visits."""
ROOF_TIMED_S = 0.36
"""Least seconds for which a roof is timed: it is the best rate that was sustained."""
LAUNCH_SHARE = 1 / 600
"""Largest share of the run's budget that one launch may take: 0.2 s of 120 s."""
SHORT_RUNS_SHARE, SHORT_RUNS_MOST_S = 1 / 100, 0.2
"""The same of short runs, which have few cases, and the most seconds that this allows."""
FEW_CASES = 4
"""So many cases were asked for one by one: each may be as slow as the budget can hold."""
FIRST_VISIT_LAUNCHES: Mapping[DeviceKind, int] = {"cpu": 10, "cuda": 50}
"""About as many launches as a first visit makes of what is slow, a share of the ceilings' time among them. On
a GPU it is timed in turns of a ring, and queued another 20 times."""
UNLIMITED_S = 20.0
"""Seconds that one launch may take where there is no budget."""


def launch_limit_s(budget: float | None, kind: DeviceKind = "cpu", cases: int = 0) -> float:
    """Seconds that one launch may take in a run of this budget, in seconds, with so many measurements.

    0 cases: any number of them.
    """
    if budget is None:
        return UNLIMITED_S
    usual_s = max(budget * LAUNCH_SHARE, min(budget * SHORT_RUNS_SHARE, SHORT_RUNS_MOST_S))
    return max(usual_s, share_of_few_s(budget, cases) / FIRST_VISIT_LAUNCHES[kind])


def share_of_few_s(budget: float | None, cases: int) -> float:
    """Seconds of a budget that each of a few measurements may take; 0 of many, and without a budget."""
    return budget / cases if budget and 0 < cases <= FEW_CASES else 0.0


def impossible(case: Case, device: Device) -> dict[str, Any] | None:
    """Status and reason of a case that the device cannot run however much time there is; None if it can."""
    if reason := case.missing(device.kind, device.capability):
        return {"status": "unsupported", "reason": reason}
    if case.problem.byte > device.memory_byte:
        need, have = case.problem.byte / 1e9, device.memory_byte / 1e9
        return {"status": "skipped", "reason": f"needs {need:.0f} GB; {device} has {have:.0f} GB"}
    return None


def unless_too_quick(
    result: VisitResult, case: Case, device: Device, earlier: Iterable[Ceilings] = ()
) -> VisitResult:
    """The result, or `escaped` where no time can be as short: for what measures no ceilings itself.

    The datasheet says so, or, of a device that has none, the best of its `earlier` ceilings.
    """
    problem, cold = case.problem, case.cache == "cold"
    byte, written = memory_traffic(case, device) if cold else (0.0, 0.0)
    sheet, roof = find_datasheet(device.name), "datasheet's roof"
    least_s = datasheet_s(problem.flop, byte, problem.arithmetic, problem.dtype, sheet)
    if sheet is None:
        roof = "highest roof of its earlier runs"
        work = (problem.flop, byte, written, problem.arithmetic, problem.dtype)
        bounds = (calibrated(*work, each.quickest) for each in earlier)
        least_s = min((each.lower_bound_s for each in bounds if each), default=None)
    if not least_s or not result.median_s or ABOVE_ROOF * result.median_s >= least_s:
        return result
    took = f"{seconds_text(result.median_s)} is less than the {seconds_text(least_s)} of the {roof}"
    return replace(result, status="escaped", reason=f"no time for no work: {took}")


def earlier_ceilings(runs: Iterable[Iterable[Measurement]]) -> list[Ceilings]:
    """The cold ceilings, with all threads, of each of these runs of a device."""
    read = by_run(row for run in runs for row in run)
    return [each for each in read.values() if each.condition == "cold"]


def memory_traffic(case: Case, device: Device) -> tuple[float, float]:
    """(bytes of a launch that reach memory, the share of them that are written)."""
    problem, name = case.problem, case.implementation
    moved, again = problem.byte_moved(name), problem.byte_again(name)
    byte, share = traffic(moved, again, problem.moved_written(name), device.cache_byte)
    return float(byte), float(share)
