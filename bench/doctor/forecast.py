"""How many cases a full run would measure here, and how long it would take."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import kernels
from bench.device.detect import Device
from bench.doctor.finding import Finding, failed, guarded, passed, warned
from bench.format import duration_text
from bench.runner.run import Options, Run

LONG_S = 2 * 3600.0
REMEDY = "Give it a budget, which chooses an even spread of every sweep: --bench-budget 600."
SWEEPS_REMEDY = "Look at python -m bench list: no case of the sweeps can run on this device."


@dataclass(frozen=True)
class Forecast:
    """What `pytest bench/ --benchmark` would do on a device, without any other option."""

    cases: int
    """Of all sweeps."""
    runnable: int
    """Of these, that the device can run."""
    planned: int
    """Visits that there is room for."""
    seconds: float
    budget_s: float | None


def findings(device: Device, parent: Mapping[str, Any]) -> Iterator[Finding]:
    """One line."""
    return guarded("forecast", SWEEPS_REMEDY, lambda: iter([foretold(forecast(device.kind))]))


def forecast(device: str) -> Forecast:
    """As the run itself plans, before it has measured anything."""
    run = Run(Options(device), kernels.problem, opens=False)
    names = list(run.cases)
    order = run.order(names)
    run.plan(names[index] for index in order)
    session = run.sessions[0]
    expected = session.planner.forecast(0.0)
    planned = expected.planned.cases + expected.ceilings.cases
    return Forecast(len(names), len(order), planned, expected.seconds, session.budget_s)


def foretold(found: Forecast) -> Finding:
    """In words."""
    numbers: dict[str, Any] = {"cases": found.cases, "runnable": found.runnable, "planned": found.planned}
    numbers |= {"seconds": found.seconds, "budget_s": found.budget_s}
    if not found.runnable:
        return failed("forecast", f"None of {found.cases} cases can run here.", SWEEPS_REMEDY, **numbers)
    within = "without a budget" if found.budget_s is None else f"within {duration_text(found.budget_s)}"
    sentence = (
        f"pytest bench/ --benchmark: {found.planned} of the {found.runnable} cases that can run here "
        f"(of {found.cases}), {within}; about {duration_text(found.seconds)}."
    )
    if found.seconds > LONG_S:
        return warned("forecast", sentence, REMEDY, **numbers)
    return passed("forecast", sentence, **numbers)
