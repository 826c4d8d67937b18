"""A visit at the border of the worker's process: what the parent asks for, and what comes back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from bench.store.schema import FIELDS


@dataclass(frozen=True)
class Visit:
    """One visit to a case, as it is asked for."""

    operator: str
    implementation: str
    parameters: Mapping[str, Any]
    """The problem's, by name."""
    cache: str
    """cold | warm."""
    budget_s: float
    """Wall seconds of settling and sampling."""
    launch_s: float
    """Longest launch; a case whose launch takes longer is skipped."""
    least_timed_s: float = 0.0
    """Timed work before sampling may stop, if that is more than the protocol's."""
    visits: int = 1
    """Visits that the case is to have, by which the protocol is chosen."""
    threads: int | None = None
    """Threads that compute; None leaves them alone."""
    first: bool = True
    """Whether the result has yet to be checked: the case is then probed and checked before it is timed."""
    divided: bool = False
    """Whether the time is divided into classes of work afterwards; on a GPU on the first visit only."""
    kernel: str = ""
    """FILE:FUNCTION of a custom kernel; empty for an implementation of ours."""
    clock: str | None = None
    """Name of the clock; None: the usual one."""
    data: str = "uniform"
    """One of ASKED_DATA: of what the inputs are."""

    def to_json(self) -> dict[str, Any]:
        """The request to the worker, or to one of an earlier commit, which `ab` runs: it has a regime."""
        said = {each.name: getattr(self, each.name) for each in fields(self)}
        kept = {name: value for name, value in said.items() if value or name not in ("kernel", "clock")}
        return {"do": "measure", "regime": "sustained", **kept}

    @classmethod
    def from_json(cls, request: Mapping[str, Any]) -> Visit:
        """The visit that a request asks for."""
        return cls(**{each.name: request[each.name] for each in fields(cls) if each.name in request})


@dataclass
class VisitResult:
    """What came of a visit, or of an untimed check: columns of its row, and what became of the worker."""

    status: str = "ok"
    reason: str = ""
    seed: int | None = None
    fill: str | None = None
    clock: str | None = None
    configuration: str | None = None
    tuning_s: float | None = None
    passed_over: str | None = None
    peak_byte: int | None = None
    relative_error: float | None = None
    tolerance: float | None = None
    ring_slots: int | None = None
    ring_byte: int | None = None
    flushed: bool | None = None
    median_s: float | None = None
    low_s: float | None = None
    high_s: float | None = None
    samples_s: Sequence[float] | None = None
    launches: int | None = None
    stop: str | None = None
    settled: bool | None = None
    settle_s: float | None = None
    step_s: float | None = None
    clock_start_s: float | None = None
    late_samples: int | None = None
    enqueue_s: float | None = None
    kernels: str | None = None
    setup_s: float | None = None
    check_s: float | None = None
    measure_s: float | None = None
    more: dict[str, Any] = field(default_factory=dict)
    """Further columns: the device's state meanwhile (telemetry), and the time by class of work."""
    renew: str = ""
    """Why this process can no longer be trusted; empty if it can."""
    uncaptured: bool = False
    """Whether the clock could not capture the launches: a new process may time them by the stream."""
    stuck: str = ""
    """The kernel whose launch does not end or broke the device; empty if none did."""

    def columns(self) -> dict[str, Any]:
        """The columns of its row that are known."""
        names = (each.name for each in fields(self) if each.name not in (*OF_WORKER, "more"))
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None} | self.more

    def to_json(self) -> dict[str, Any]:
        """The worker's answer."""
        return self.columns() | {name: getattr(self, name) for name in OF_WORKER if getattr(self, name)}

    @classmethod
    def from_json(cls, answer: Mapping[str, Any]) -> VisitResult:
        """The result in an answer, without what is neither field nor column, as of an earlier commit."""
        own = {each.name for each in fields(cls)} - {"more"}
        more = {name: value for name, value in answer.items() if name in FIELDS and name not in own}
        return cls(**{name: value for name, value in answer.items() if name in own}, more=more)


OF_WORKER = ("renew", "uncaptured", "stuck")
"""Fields that are about the worker, and no columns."""
