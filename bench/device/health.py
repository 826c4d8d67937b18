"""Health of a device before a run: what speaks against measuring it now.

Unattended runs ask this while the device is idle: any process on it is then somebody else's, and nothing that
holds its clock back comes from our load. A state that makes numbers less steady or of another kind (a lowered
power limit) is reported; one that makes them worthless refuses the run. An unknown fact is no fault.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pynvml

from bench.device.control_groups import cpu_quota
from bench.device.detect import Device, usable_processors
from bench.device.nvml import NvmlGpu, limit_names
from bench.device.other_processes import LEAST_S, OtherProcesses

HOT_C = 10.0
"""An idle GPU this near to its slowdown temperature will be slowed down under load."""
HOLDING = 0x008 | 0x020 | 0x040 | 0x080
"""Clock event bits that an idle GPU in good order does not show: hardware and heat."""
PASSING = ("foreign processes", "temperature", "clocks", "load")
"""Kinds of reasons that may be gone in an hour."""


@dataclass(frozen=True)
class Unfit:
    """One reason against measuring now."""

    kind: str
    """foreign processes | mig | power limit | persistence | temperature | clocks | load | quota"""
    sentence: str
    """A clause about the device, which it does not name."""
    refuses: bool = False
    """Whether an unattended run must not measure in this state."""

    def __str__(self) -> str:
        return self.sentence


def fitness(
    device: Device, nvml: Any = pynvml, root: Path = Path("/"), others: OtherProcesses | None = None
) -> list[Unfit]:
    """The reasons against measuring the device now; those that refuse come first.

    Of a GPU ask before a worker is started. `nvml` is the binding, `root` is where proc and sys are; `others`
    has been watching since at least LEAST_S, without it this waits so long. A CPU is never refused: every row
    records what its neighbours took.
    """
    against = _cpu(root, others) if device.kind == "cpu" else _gpu(NvmlGpu(device.uuid, nvml))
    return sorted(against, key=lambda unfit: not unfit.refuses)


def _gpu(gpu: NvmlGpu) -> Iterator[Unfit]:
    if there := gpu.processes():
        pids = ", ".join(str(pid or "one whose id is hidden") for pid in there)
        yield Unfit("foreign processes", f"in use by other processes ({pids})", refuses=True)
    if gpu.mig() == "on":
        yield Unfit("mig", "divided (MIG): its parts share what is measured", refuses=True)
    limit_w = gpu.power_limit_w()
    default_w = gpu.scaled("nvmlDeviceGetPowerManagementDefaultLimit", 1e-3)
    if limit_w is not None and default_w is not None and abs(limit_w - default_w) >= 1:
        yield Unfit("power limit", f"its power limit is {limit_w:.0f} W, its default {default_w:.0f} W")
    if gpu.mode("nvmlDeviceGetPersistenceMode") == "off":
        yield Unfit("persistence", "not in persistence mode: it starts anew for each worker")
    if (margin_c := _margin_c(gpu)) is not None and margin_c < HOT_C:
        yield Unfit("temperature", f"idle and {margin_c:.0f} °C from slowing down for heat")
    if why := limit_names((gpu.clock_event_bits() or 0) & HOLDING):
        yield Unfit("clocks", f"idle, and its clock is held back: {why}")


def _margin_c(gpu: NvmlGpu) -> float | None:
    """Degrees left until the GPU slows itself down; None if unknown."""
    margin_c = gpu.ask("nvmlDeviceGetMarginTemperature")
    if margin_c is not None:
        return float(margin_c)
    limit_c = gpu.ask("nvmlDeviceGetTemperatureThreshold", gpu.nvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN)
    at_c = gpu.temperature_c()
    return None if limit_c is None or at_c is None else float(limit_c) - at_c


def _cpu(root: Path, others: OtherProcesses | None) -> Iterator[Unfit]:
    if others is None:
        others = OtherProcesses(root)
        time.sleep(LEAST_S)
    if taken := others.busy():
        yield Unfit("load", f"busy ({taken})")
    quota = cpu_quota(root)
    allowed = len(usable_processors())
    if quota is not None and quota < allowed:
        yield Unfit("quota", f"under a quota: the time of {quota:g} of {allowed} processors")
