"""The worker of one device, seen from a run: started at the first request, replaced when it dies.

It is also replaced when it says itself that it can no longer be trusted (`renew`, bench/worker). A
row whose status is `error` is no reason: most errors are raised by Python and leave the device as it was.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from bench.device.detect import Device
from bench.runner.limits import ROOF_TIMED_S, UNLIMITED_S
from bench.runner.merge_visits import SEED
from bench.runner.worker_process import Worker, WorkerDied
from bench.sampling.protocol import Protocol
from bench.spec import Problem, is_custom
from bench.sweep.load import Case
from bench.worker.visit import Visit, VisitResult

START_DEADLINE_S = 120.0
GRACE_S = {"cpu": 120.0, "cuda": 600.0}
"""Beyond its sampling time a visit may build, compile and tune for this long before it counts as hung."""


CAPTURES_TRIED = 3
"""Problems that an implementation may fail to have captured before it is timed by the stream at once."""


def request_for(do: str, implementation: str, problem: Problem, **more: Any) -> dict[str, Any]:
    """A request about an implementation at a problem."""
    what = {"operator": problem.operator, "implementation": implementation}
    if kernel := kernel_of(implementation, problem):
        what["kernel"] = kernel
    return {"do": do, **what, "parameters": problem.parameters(), **more}


def kernel_of(implementation: str, problem: Problem) -> str:
    """FILE:FUNCTION of a custom kernel; empty for an implementation of ours."""
    return problem.implementation(implementation).kernel if is_custom(implementation) else ""


def visit_to(
    case: Case,
    protocol: Protocol,
    sampling_s: float,
    threads: int | None,
    first: bool,
    launch_s: float = UNLIMITED_S,
    data: str = "uniform",
) -> Visit:
    """One visit of the case; `first` if its result has yet to be checked. No launch may last over `launch_s`.

    Its inputs are of such `data`; a ceiling's are as ever.
    """
    return Visit(
        case.problem.operator,
        case.implementation,
        case.problem.parameters(),
        case.cache,
        sampling_s,
        launch_s,
        ROOF_TIMED_S if case.role == "roof" else 0.0,
        protocol.visits,
        threads,
        first,
        case.divided,
        kernel_of(case.implementation, case.problem),
        data=data if case.role == "measurement" else "uniform",
    )


class WorkerSupervisor:
    """Answers one request at a time. A worker's death over one is an answer too; the next gets a new one."""

    def __init__(self, device: Device, grace_s: float | None = None, **how: Any) -> None:
        """`grace_s` replaces GRACE_S; `how`: `root` and `interprets` of its Worker."""
        self.device, self._how = device, how
        self.grace_s = GRACE_S[device.kind] if grace_s is None else grace_s
        self.starting_s = 0.0
        """Wall seconds spent starting workers."""
        self._start_s = 0.0
        """Wall seconds that the last start took."""
        self.hello: dict[str, Any] = {}
        """What the worker said when it started: versions."""
        self.renewed: Counter[str] = Counter()
        """Why workers that were alive had to be replaced, and how often."""
        self._uncaptured: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
        """(operator, implementation) -> the parameters that could not be captured."""
        self._captured: set[tuple[str, str]] = set()
        """(operator, implementation) of which something was captured: the others are tried, too."""
        self._stuck: dict[str, dict[str, list[str]]] = {}
        """Operator -> kernel -> how its launches got stuck: what new workers pass over."""
        self._worker: Worker | None = None
        self._ready: Worker | None = None
        """The last worker that said hello."""

    def visit(self, visit: Visit) -> VisitResult:
        """What came of the visit; if the worker died over it, how.

        What cannot be captured is visited once more, by a new worker and the stream clock.
        """
        what = (visit.operator, visit.implementation)
        failed = self._uncaptured.get(what, [])
        hopeless = len(failed) >= CAPTURES_TRIED and what not in self._captured
        by_stream = replace(visit, clock="stream")
        if visit.parameters in failed or hopeless:
            visit = by_stream
        result = self._result(visit.to_json(), visit.budget_s)
        if result.status == "ok" and result.clock == "graph":
            self._captured.add(what)
        if result.uncaptured:
            self._uncaptured[what] = [*failed, visit.parameters]
            result = self._result(by_stream.to_json(), visit.budget_s)
        return result

    def check(self, implementation: str, problem: Problem, quick: bool = False, **how: bool) -> VisitResult:
        """Whether an implementation is right at one problem, untimed.

        `quick`: in its first configuration that compiles; `guarded`: beside memory that it must not write to;
        `ranges`: with inputs beyond [-1, 1], too.
        """
        return self._result(request_for("check", implementation, problem, quick=quick, **how), 0.0)

    def _result(self, request: dict[str, Any], sampling_s: float) -> VisitResult:
        """The result, or that of a new worker where a kernel got stuck that had not before."""
        known = self._stuck.setdefault(request["operator"], {})
        while True:
            answer = self.ask(request | ({"stuck": known} if known else {}), sampling_s)
            result = VisitResult.from_json(answer)
            if not result.stuck:
                return result
            known.setdefault(result.stuck, []).append(result.reason)
            if len(known[result.stuck]) > 1:  # there was no other to be tried
                return result

    def ask(self, request: dict[str, Any], sampling_s: float = 0.0) -> dict[str, Any]:
        """The worker's answer, or columns `status` and `reason` that say how it died."""
        try:
            answer = self.started().ask(request, 3 * sampling_s + self.grace_s)
        except WorkerDied as death:
            self.close()
            return {"status": death.status, "reason": str(death)}
        if cause := answer.pop("renew", ""):
            self.renewed[cause] += 1
            self.close()
        return answer

    def examples(self, operator: str) -> list[dict[str, Any]]:
        """Parameters of the operator's examples. WorkerDied if it tells none."""
        answer = self.ask({"do": "examples", "operator": operator})
        if "examples" not in answer:
            raise WorkerDied(answer["status"], f"{operator}: {answer['reason']}")
        return list(answer["examples"])

    def started(self) -> Worker:
        """The worker that is there; WorkerDied if none starts."""
        begin = time.perf_counter()
        worker = self.begin()
        if worker is not self._ready:
            try:
                self.hello = worker.ask({"do": "hello"}, START_DEADLINE_S)
            finally:
                self._start_s = time.perf_counter() - begin
                self.starting_s += self._start_s
            self._ready = worker
        return worker

    @property
    def restart_s(self) -> float:
        """Wall seconds that pass before the next request is answered, by the last start; 0 with a worker."""
        return self._start_s if self._worker is None else 0.0

    def begin(self) -> Worker:
        """The worker that is there, or a new one that may not be ready yet, so that several start at once."""
        if self._worker is None:
            device, threads = self.device, self.threads("all")
            uuid = device.uuid or None
            self._worker = Worker(device.kind, device.cache_byte, SEED, uuid, threads, **self._how)
        return self._worker

    def threads(self, setting: str) -> int | None:
        """Threads that compute where `all` or `one` is requested; None leaves them alone, on a GPU."""
        if self.device.kind != "cpu":
            return None
        return 1 if setting == "one" else self.device.sm_count

    def close(self) -> None:
        """End the worker, if there is one."""
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.close()

    def kill(self) -> None:
        """Kill the worker, from another thread than the one that asks it, which gets that it crashed."""
        if self._worker is not None:
            self._worker.kill()
