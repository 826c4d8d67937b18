"""Requests that the doctor's groups send to a worker, and the outcome that an answer reports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bench.runner.supervisor import WorkerSupervisor, check_request, measure_request
from bench.sampling.protocol import protocol
from bench.spec import Problem
from bench.sweep.load import Case

SAMPLING_S = 0.4
"""Seconds of sampling in a visit of the doctor: enough to tell a sound time from an unsound one."""


def check(implementation: str, problem: Problem) -> dict[str, Any]:
    """Request to check an implementation at one problem, with its first candidate that compiles."""
    return check_request(implementation, problem, quick=True)


def measured(
    supervisor: WorkerSupervisor, implementation: str, problem: Problem
) -> tuple[dict[str, Any], int]:
    """(row without its samples, their number) of one visit on a GPU, data warm."""
    case = Case("doctor", implementation, problem, "warm", series="", role="measurement")
    request = measure_request(case, protocol("cuda"), None, SAMPLING_S, None, first=True)
    row = supervisor.answer(request, SAMPLING_S)
    return row, len(row.pop("samples_s", []))


def outcome(answer: Mapping[str, Any]) -> str:
    """The status of a row with its reason: `error: AcceleratorError: ...`."""
    return f"{answer['status']}: {answer['reason']}" if answer.get("reason") else str(answer["status"])
