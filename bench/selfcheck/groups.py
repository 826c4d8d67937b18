"""The doctor's groups of checks; each runs in a process of its own that is killed at its deadline.

The process of a group runs this module. It answers each request with the next finding:

    {"group": MODULE:FUNCTION, "device": "cpu" or "cuda", "parent": {...}}  -> {"end": false}, imported
    {"do": "next"}                                                          -> a finding, or {"end": true}

Worker starts it, so it has the environment that the worker of a run has, and the parent outlives whatever
happens there. Findings made before a hang or a crash have been sent by then.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pkgutil import resolve_name
from typing import Any

from bench.device.detect import Device, detect
from bench.runner.worker_process import Worker, WorkerDied
from bench.selfcheck.finding import Finding, failed, guarded
from bench.spec import DeviceKind
from bench.worker.lifeline import answers_only, die_with

BROKEN = (
    "Read the traceback in the file that --json writes; if it blames no package, it is a bug of roofbench."
)
CORES_A_LANE = 4
"""Groups that time nothing run side by side, one for each four cores: they compile and start processes."""


@dataclass(frozen=True)
class CheckGroup:
    """Checks that belong together."""

    function: str
    """`MODULE:NAME` of the function of (device, parent) that yields the findings."""
    title: str
    deadline_s: float
    kinds: tuple[DeviceKind, ...] = ("cpu", "cuda")
    quick: bool = False
    """Whether --quick runs it: it takes seconds at most, and nothing else runs meanwhile."""
    times: bool = False
    """Whether it times something, so that nothing else may run meanwhile."""

    @property
    def name(self) -> str:
        """The name of the function without its module."""
        return self.function.rpartition(":")[2]


GPU: tuple[DeviceKind, ...] = ("cuda",)
GROUPS = (
    # The neighbours first: every process that the doctor starts afterwards is one more.
    CheckGroup("bench.selfcheck.installation:driver", "driver, device and neighbours", 20, quick=True),
    CheckGroup("bench.selfcheck.installation:packages", "process and packages", 60, quick=True),
    CheckGroup("bench.selfcheck.operators:forecast", "forecast of a full run", 30),
    CheckGroup("bench.selfcheck.operators:operators", "every operator, implementation and data type", 60),
    CheckGroup("bench.selfcheck.rows:survival", "survival of faults", 60),
    CheckGroup("bench.selfcheck.tuner:tuner", "the tuner", 40, GPU),
    CheckGroup("bench.selfcheck.rows:capture", "CUDA graphs", 40, GPU),
    CheckGroup("bench.selfcheck.clocks:clocks", "our clock", 30, times=True),
    CheckGroup("bench.selfcheck.telemetry:telemetry", "NVML under load", 30, GPU, times=True),
    CheckGroup("bench.selfcheck.clocks:agreement", "two anchors by every clock", 40, times=True),
    CheckGroup("bench.selfcheck.rows:steadiness", "steadiness over ten seconds, and rates", 100, times=True),
)


def applicable(kind: DeviceKind, quick: bool) -> list[CheckGroup]:
    """The groups that apply to a device of this kind."""
    return [group for group in GROUPS if kind in group.kinds and (group.quick or not quick)]


@dataclass(frozen=True)
class GroupOutcome:
    """The findings of one group, in order, and the wall seconds it took."""

    group: CheckGroup
    findings: list[Finding]
    seconds: float

    def json(self) -> dict[str, Any]:
        """The outcome for the JSON file."""
        findings = [finding.json() for finding in self.findings]
        named = {"name": self.group.name, "title": self.group.title}
        return named | {"seconds": self.seconds, "findings": findings}


def starts_a_worker(findings: Iterable[Finding]) -> bool:
    """Whether no finding says that workers do not start."""
    return not any(finding.name == "worker" and finding.level == "FAIL" for finding in findings)


def process(device: Device) -> Worker:
    """A process for one group, with the environment of a worker on this device."""
    return Worker(device.kind, device.cache_byte, 0, device.uuid or None, module="bench.selfcheck.groups")


class Examination:
    """Runs groups on one device, each in a process of its own."""

    def __init__(
        self,
        device: Device,
        parent: Mapping[str, Any],
        start: Callable[[Device], Worker] = process,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """`parent` holds the facts of the process that a person started, see `report.parent_facts`."""
        self._device, self._parent, self._start, self._now = device, dict(parent), start, now
        self._running: set[Worker] = set()

    def outcomes(self, groups: list[CheckGroup]) -> Iterator[GroupOutcome]:
        """The outcomes: of quick groups, of those that run side by side, then of those that time something.

        If no worker starts, the rest is left out: every other group would fail for the same reason.
        """
        for group in groups:
            if group.quick:
                outcome = self.outcome(group)
                yield outcome
                if not starts_a_worker(outcome.findings):
                    return
        lanes = max(1, (os.cpu_count() or 1) // CORES_A_LANE)
        together = [group for group in groups if not (group.quick or group.times)]
        timing = [group for group in groups if group.times and not group.quick]
        # A process dies with the thread that started it, so both pools live to the end.
        with ThreadPoolExecutor(lanes) as pool, ThreadPoolExecutor(max(1, len(timing))) as ahead:
            try:
                # Those that time something import what they need while nothing is timed yet.
                processes = [(group, ahead.submit(self.begun, group)) for group in timing]
                yield from pool.map(self.outcome, together)
                for group, begun in processes:
                    yield self.outcome(group, begun.result())
            except BaseException:  # interrupted: the pools would wait for what is running
                for running in (pool, ahead):
                    running.shutdown(wait=False, cancel_futures=True)
                for child in list(self._running):
                    child.kill()
                raise

    def begun(self, group: CheckGroup) -> Worker:
        """A process that has imported the group; if it could not, its first answer says so."""
        child = self._start(self._device)
        self._running.add(child)
        request = {"group": group.function, "device": self._device.kind, "parent": self._parent}
        with contextlib.suppress(WorkerDied):
            child.ask(request, group.deadline_s)
        return child

    def outcome(self, group: CheckGroup, begun: Worker | None = None) -> GroupOutcome:
        """Run one group, in the process `begun` if there is one."""
        began = self._now()
        findings = list(self.findings(group, begun))
        return GroupOutcome(group, findings, self._now() - began)

    def findings(self, group: CheckGroup, begun: Worker | None = None) -> Iterator[Finding]:
        """The findings as they come. A hang or a crash of the process is one more, a failure."""
        began = last = self._now()
        child = begun or self.begun(group)
        try:
            until = began + group.deadline_s
            while "level" in (answer := child.ask({"do": "next"}, max(0.0, until - self._now()))):
                here, finding = self._now(), Finding(**answer)
                yield replace(finding, seconds=finding.seconds or here - last)
                last = here
        except WorkerDied as death:
            yield replace(self._unfinished(group, death), seconds=self._now() - last)
        finally:
            self._running.discard(child)
            child.close()

    def _unfinished(self, group: CheckGroup, death: WorkerDied) -> Finding:
        if death.status == "timeout":
            sentence = f"This group hung and was killed after {group.deadline_s:.0f} s."
            remedy = "Look at the last words in the JSON file, and at the kernel's log (dmesg, Xid lines)."
        else:
            sentence = f"This group's process died: {death}."
            remedy = "Look for memory that ran out, and at the kernel's log (dmesg, Xid lines of the GPU)."
        return failed("unfinished", sentence, remedy, error=str(death))


# ---- in the process of a group


def findings(request: dict[str, Any]) -> Iterator[Finding]:
    """The findings of a group; an exception, also in its import, becomes a finding."""

    def look() -> Iterator[Finding]:
        yield from resolve_name(request["group"])(detect(request["device"]), request["parent"])

    return guarded("unfinished", BROKEN, look)


def main() -> None:
    """Answer requests until the input ends."""
    answers = answers_only()
    die_with(json.loads(sys.argv[1])["parent"])
    results: Iterator[Finding] = iter(())
    for line in sys.stdin:
        request = json.loads(line)
        answer: dict[str, Any] = {"end": False}
        if "group" in request:
            results = findings(request)
            with contextlib.suppress(Exception):  # raised again, and then a finding
                resolve_name(request["group"])
        else:
            finding = next(results, None)
            answer = {"end": True} if finding is None else finding.json()
        answers.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
