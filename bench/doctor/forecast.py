"""How many cases a full run would measure here, and how long it would take."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import kernels
from bench.device.detect import Device
from bench.doctor.finding import Finding, checked, failed, guarded
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


def foretold(expected: Forecast) -> Finding:
    """In words."""
    numbers = asdict(expected)
    if not expected.runnable:
        return failed("forecast", f"None of {expected.cases} cases can run here.", SWEEPS_REMEDY, **numbers)
    within = "without a budget" if expected.budget_s is None else f"within {duration_text(expected.budget_s)}"
    sentence = (
        f"pytest bench/ --benchmark: {expected.planned} of the {expected.runnable} cases that can run here "
        f"(of {expected.cases}), {within}; about {duration_text(expected.seconds)}."
    )
    return checked("forecast", expected.seconds <= LONG_S, sentence, REMEDY, **numbers)
