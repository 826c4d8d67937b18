"""Check of survival: an illegal address, a hang and a kill each give a row, and the next row is good."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

from bench.device.detect import Device
from bench.doctor import requests
from bench.doctor.finding import Finding, failed, passed
from bench.runner.rows import SEED
from bench.runner.supervisor import WorkerSupervisor
from bench.worker.fault import Fault

STATUSES = {"illegal": ("error", "crashed"), "hang": ("timeout",), "kill": ("crashed",)}
"""Statuses that the row of a fault may have: an illegal address is an error on a GPU, a crash on a CPU."""
NAMES = {"illegal": "illegal address", "hang": "hang", "kill": "kill"}
GRACE_S = 60.0
HANG_S = 2.0
"""Seconds after which a launch counts as hung: a sound one takes microseconds."""
REMEDY = "Do not run unattended: one bad kernel would spoil the rows after it. Report it with the JSON file."


def findings(device: Device, parent: Mapping[str, Any]) -> Iterator[Finding]:
    """One finding for each fault. Faults run side by side: starting new workers takes most of the time."""

    def outcome(fault: str) -> list[Finding]:
        with closing(WorkerSupervisor(device, SEED, GRACE_S)) as supervisor:
            return list(survived(supervisor, (fault,)))

    with ThreadPoolExecutor(len(STATUSES)) as pool:
        outcomes = [finding for outcomes in pool.map(outcome, STATUSES) for finding in outcomes]
    yield from {finding.name: finding for finding in outcomes}.values()


def survived(supervisor: WorkerSupervisor, faults: Iterable[str] = tuple(STATUSES)) -> Iterator[Finding]:
    """Provoke each of these faults and ask for a good result before and afterwards."""
    problem = Fault(dtype="float32", length=1024)
    good = requests.check("good", problem)
    first = supervisor.answer(good)
    if first["status"] != "ok":
        yield failed("good row", f"A sound kernel's row is {requests.outcome(first)}.", REMEDY, row=first)
        return
    for fault in faults:
        allowed = STATUSES[fault]
        supervisor.grace_s = HANG_S if fault == "hang" else GRACE_S
        row = supervisor.answer(requests.check(fault, problem))
        supervisor.grace_s = GRACE_S
        after = supervisor.answer(good)
        name = NAMES[fault]
        numbers: dict[str, Any] = {"row": row, "after": after}
        # An error has to name the fault: a kernel that did not compile would prove nothing.
        another = row["status"] == "error" and fault not in str(row.get("reason", ""))
        if row["status"] not in allowed or another:
            sentence = f"Its row should be {' or '.join(allowed)}, and is {requests.outcome(row)}."
            yield failed(name, sentence, REMEDY, **numbers)
        elif after["status"] != "ok":
            sentence = f"Its row is right, but a sound kernel's row after it is {requests.outcome(after)}."
            yield failed(name, sentence, REMEDY, **numbers)
        else:
            yield passed(name, f"Its row is {requests.outcome(row)}; the next is ok.", **numbers)
