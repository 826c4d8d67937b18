"""Check of CUDA graphs: a launch is captured and replayed, and a failed capture harms no later launch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any

from bench.device.detect import Device
from bench.doctor import requests
from bench.doctor.finding import Finding, failed, passed
from bench.runner.rows import SEED
from bench.runner.supervisor import WorkerSupervisor
from bench.worker.fault import Fault

GRACE_S = 60.0
CAPTURE_REMEDY = "Update the driver or torch: without graphs, times hold the gaps that the host leaves."
AFTER_REMEDY = (
    "Do not measure with this torch: rows after a failed capture may be wrong. Report the JSON file."
)


def findings(device: Device, parent: Mapping[str, Any]) -> Iterator[Finding]:
    """The findings on graphs of a GPU."""
    with closing(WorkerSupervisor(device, SEED, GRACE_S)) as supervisor:
        yield from captured(supervisor)


def captured(supervisor: WorkerSupervisor) -> Iterator[Finding]:
    """Measure a launch that can be captured, one that cannot, and the first again."""
    problem = Fault(dtype="float32", length=1 << 20)
    before, _ = requests.measured(supervisor, "good", problem)
    name, where = "capture", f"clock {before.get('clock')}, {before.get('kernels') or 'kernels not named'}"
    if before["status"] != "ok":
        yield failed(
            name, f"A captured launch's row is {requests.outcome(before)}.", CAPTURE_REMEDY, row=before
        )
        return
    if before["clock"] != "graph":
        yield failed(name, f"A plain launch was not captured: {where}.", CAPTURE_REMEDY, row=before)
        return
    yield passed(name, f"A launch was captured and replayed: {where}.", row=before)

    refused, _ = requests.measured(supervisor, "uncapturable", problem)
    after, _ = requests.measured(supervisor, "good", problem)
    name = "failed capture"
    numbers: dict[str, Any] = {"refused": refused, "after": after}
    seen = f"A launch that cannot be captured gave {requests.outcome(refused)} (clock {refused.get('clock')})"
    if refused.get("clock") == "graph" and refused["status"] == "ok":
        yield failed(
            name, "A launch that queries its stream was captured all the same.", CAPTURE_REMEDY, **numbers
        )
    elif after["status"] != "ok" or after["clock"] != "graph":
        after_it = f"the next request gave {requests.outcome(after)} (clock {after.get('clock')})"
        yield failed(name, f"{seen}; {after_it}.", AFTER_REMEDY, **numbers)
    else:
        yield passed(name, f"{seen}; the next request was right, by graph.", **numbers)
