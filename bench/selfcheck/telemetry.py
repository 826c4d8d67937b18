"""Check of NVML under load: which of its facts are known, and whether its counters run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import Any

import pynvml

from bench.device.detect import Device
from bench.device.nvml import NvmlGpu
from bench.format import share_text
from bench.judge.flags import HELD
from bench.selfcheck.finding import Finding, checked, passed, warned
from bench.worker.telemetry_cuda import POWER_INSTANT, REFRESH_S, CudaTelemetry, counter_fields

LOAD_S = 1.5
"""Seconds under load, longer than NVML takes to refresh what it refreshes slowest."""
COLUMNS = {
    "sm_clock_hz": "rows cannot be distinguished by the clock they ran at",
    "limit_reasons": "a throttled row looks like any other",
    "power_w": "settling is never cut short, and rows have no power",
    "held_power": "throttling for power between the looks goes unseen",
    "held_thermal": "throttling for heat between the looks goes unseen",
    "memory_clock_hz": "a lowered memory clock goes unseen",
    "temperature_c": "rows have no temperature",
    "power_limit_w": "rows of other power limits are compared with these",
    "foreign_processes": "a neighbour on the GPU goes unseen",
}
"""Column of a row -> what a run lacks where NVML does not report it."""
REMEDY = "Nothing need be done to measure; a newer driver, or a host that lets NVML in, may tell them."
NONE_REMEDY = "Let the container see NVML (--gpus all, or the utility capability), or measure without it."


def telemetry(device: Device, parent: Mapping[str, Any]) -> Iterator[Finding]:
    """The findings on NVML while the GPU multiplies matrices."""
    import torch

    a, b = (torch.rand(4096, 4096, device="cuda").half() for _ in range(2))

    def load() -> None:
        for _ in range(20):
            torch.mm(a, b)
        torch.cuda.synchronize()

    yield from under_load(device.uuid, load)


def under_load(
    uuid: str, load: Callable[[], None], nvml: Any = pynvml, clock: Any = time
) -> Iterator[Finding]:
    """The findings on NVML while `load`, some milliseconds of work, is repeated.

    `nvml` is the binding, `clock` has perf_counter and sleep as `time` has them.
    """
    gpu = NvmlGpu(uuid, nvml)
    if not gpu.driver() or gpu.ask("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_SM) is None:
        sentence = "NVML does not answer about this GPU: rows lack clocks, power, limits and neighbours."
        yield warned("NVML", sentence, NONE_REMEDY)
        return
    counters = counter_fields(gpu.driver())
    telemetry = CudaTelemetry(uuid, nvml, clock)
    idle_hz, held_before = telemetry.clock_hz(), gpu.fields(counters)
    load()
    telemetry.start()
    began_s, energies = clock.perf_counter(), []
    while clock.perf_counter() - began_s < max(LOAD_S, REFRESH_S):
        load()
        energies.append((clock.perf_counter(), gpu.ask("nvmlDeviceGetTotalEnergyConsumption")))
    busy_hz, instant = telemetry.clock_hz(), gpu.fields({POWER_INSTANT: "power_w"})
    row = telemetry.stop()
    held = {f"{counters[number]} ({number})": value for number, value in gpu.fields(counters).items()}
    yield fields(row)
    yield counts(energies, held)
    advanced = {n: after - held_before.get(n, after) for n, after in gpu.fields(counters).items()}
    yield load_finding(row, idle_hz, busy_hz, advanced | instant)


def fields(row: Mapping[str, Any]) -> Finding:
    """Which columns of a row NVML fills."""
    there = [column for column in COLUMNS if column in row]
    missing = {column: cost for column, cost in COLUMNS.items() if column not in row}
    if not missing:
        return passed("NVML", f"NVML fills all {len(there)} columns that depend on it.", row=dict(row))
    listed = "; ".join(f"{column}: {cost}" for column, cost in missing.items())
    sentence = f"NVML fills {len(there)} of {len(COLUMNS)} columns. Missing: {listed}."
    return warned("NVML", sentence, REMEDY, row=dict(row), missing=list(missing))


def refresh_s(readings: Sequence[tuple[float, int | None]]) -> float | None:
    """Median seconds between changes of a counter, by (seconds, value or None); None with fewer than two."""
    known = [(at, value) for at, value in readings if value is not None]
    changed = [at for (_, before), (at, value) in pairwise(known) if value != before]
    steps = [later - earlier for earlier, later in pairwise(changed)]
    return median(steps) if steps else None


def counts(energies: list[tuple[float, int | None]], held: Mapping[str, float]) -> Finding:
    """Whether the energy counter runs, how often it is refreshed, and which limit counters there are.

    `energies` are the readings: (seconds, millijoules or None).
    """
    interval_s = refresh_s(energies)
    there = f"limit counters: {', '.join(held) or 'none'}"
    if interval_s is None:
        readings = sum(energy is not None for _, energy in energies)
        sentence = f"The energy counter stood still under load ({readings} looks); {there}."
        remedy = "Take power columns with caution: without it power is that of single moments."
        return warned("NVML counters", sentence, remedy, held=dict(held))
    sentence = f"The energy counter is refreshed about every {1e3 * interval_s:.0f} ms; {there}."
    numbers: dict[str, Any] = {"refresh_s": interval_s, "held": dict(held)}
    return checked("NVML counters", bool(held), sentence, REMEDY, **numbers)


def load_finding(
    row: Mapping[str, Any], idle_hz: float | None, busy_hz: float | None, numbers: Mapping[int, float]
) -> Finding:
    """Whether the clock went up under load and what held it back meanwhile."""
    shares = {name: value for name, value in row.items() if name.startswith("held_")}
    facts: dict[str, Any] = {"idle_hz": idle_hz, "busy_hz": busy_hz}
    facts["fields"] = {str(number): value for number, value in numbers.items()}
    clocks = f"{1e-6 * (idle_hz or 0):.0f} MHz idle, {1e-6 * (busy_hz or 0):.0f} MHz under load"
    held = ", ".join(f"{name} {share_text(share)}" for name, share in shares.items() if share > 0)
    sentence = f"SM clock {clocks}; held back: {held or 'not at all'}."
    good = shares.get("held_thermal", 0) <= HELD and shares.get("held_hardware", 0) <= HELD
    remedy = "Look at cooling and power supply: within two seconds of load neither should hold the clock."
    return checked("clock under load", good, sentence, remedy, **facts)
