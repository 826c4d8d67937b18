"""Forecast of a full run: how many cases it would measure here, and how long it would take."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import kernels
from bench.device.detect import Device
from bench.doctor.finding import Finding, checked, failed, guarded
from bench.format import duration_text
from bench.runner.run import Options, Run
from bench.sweep.suites import TOUR

LONG_S = 2 * 3600.0
REMEDY = "Give it a budget: --bench-budget 600."
SWEEPS_REMEDY = "Look at python -m bench list: no case of the sweeps can run on this device."


def findings(device: Device, parent: Mapping[str, Any]) -> Iterator[Finding]:
    """The forecast as one finding."""
    return guarded("forecast", SWEEPS_REMEDY, lambda: iter([forecast_finding(forecast(device.kind))]))


def forecast(device: str) -> dict[str, Any]:
    """The plan of `pytest bench/ --benchmark` as the run itself makes it before its first measurement.

    Keys: `cases` of the suite that it takes, those of them `runnable` on the device, `planned` cases for
    which there is room, wall `seconds`, and `budget_s` (None: no limit).
    """
    run = Run(Options(device, suite=TOUR), kernels.problem, opens=False)
    names = list(run.cases)
    order = run.order(names)
    run.plan(names[index] for index in order)
    session = run.sessions[0]
    expected = session.planner.forecast(0.0)
    return {
        "cases": len(names),
        "runnable": len(order),
        "planned": expected.planned.cases + expected.ceilings.cases,
        "seconds": expected.seconds,
        "budget_s": session.budget_s,
    }


def forecast_finding(numbers: Mapping[str, Any]) -> Finding:
    """The finding for what `forecast` returned."""
    if not numbers["runnable"]:
        return failed("forecast", f"None of {numbers['cases']} cases can run here.", SWEEPS_REMEDY, **numbers)
    seconds, budget_s = numbers["seconds"], numbers["budget_s"]
    within = "without a budget" if budget_s is None else f"within {duration_text(budget_s)}"
    sentence = (
        f"pytest bench/ --benchmark, the {TOUR}: {numbers['planned']} of the {numbers['runnable']} cases "
        f"that can run here (of {numbers['cases']}), {within}; about {duration_text(seconds)}."
    )
    return checked("forecast", seconds <= LONG_S, sentence, REMEDY, **numbers)
