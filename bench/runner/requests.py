"""What the worker is asked, as it understands it (bench/worker), and what it need not be asked."""

from __future__ import annotations

from typing import Any

from bench.device.detect import Device
from bench.model.ceilings import Ceilings
from bench.model.roofline import calibrated, traffic
from bench.runner.schedule import launch_limit_s
from bench.sampling.protocol import Protocol
from bench.spec import Problem
from bench.sweep.load import Case

ROOF_TIMED_S = 0.36
"""A roof is what was kept up at best, so it is watched for at least this long."""


def check(implementation: str, problem: Problem, quick: bool) -> dict[str, Any]:
    """Whether an implementation is right at one problem; `quick`: its first configuration that compiles."""
    return {
        "do": "check",
        "operator": problem.operator,
        "implementation": implementation,
        "parameters": problem.parameters(),
        "quick": quick,
    }


def measure(
    case: Case,
    protocol: Protocol,
    budget_s: float | None,
    sampling_s: float,
    threads: int | None,
    first: bool,
) -> dict[str, Any]:
    """One visit of the case, of the run's `budget_s`; `first` if its result has yet to be checked."""
    is_roof = case.role == "roof"
    return {
        "do": "measure",
        "operator": case.problem.operator,
        "implementation": case.implementation,
        "parameters": case.problem.parameters(),
        "cache": case.cache,
        "threads": threads,
        "budget_s": sampling_s,
        "launch_s": 2 * launch_limit_s(budget_s),  # predictions are least times
        "least_timed_s": ROOF_TIMED_S if is_roof else 0.0,
        "visits": protocol.visits,
        "regime": protocol.regime,
        "first": first,
    }


def predicted_s(case: Case, device: Device, ceilings: Ceilings) -> float | None:
    """Calibrated least seconds of one launch; None where a ceiling is missing."""
    problem, name = case.problem, case.implementation
    moved, again = problem.byte_moved(name), problem.byte_again(name)
    byte, share = traffic(moved, again, problem.moved_written(name), device.cache_byte)
    roof = calibrated(problem.flop, float(byte), float(share), problem.arithmetic, problem.dtype, ceilings)
    return roof.seconds if roof else None


def impossible(case: Case, device: Device) -> dict[str, Any] | None:
    """Status and reason of a case that the device cannot run, whatever the time; None if it can."""
    if reason := case.missing(device.kind, device.capability):
        return {"status": "unsupported", "reason": reason}
    if case.problem.byte > device.memory_byte:
        need, have = case.problem.byte / 1e9, device.memory_byte / 1e9
        return {"status": "skipped", "reason": f"needs {need:.0f} GB; {device} has {have:.0f} GB"}
    return None
