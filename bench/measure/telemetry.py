"""The state of the machine while a case was timed: read before and after, never inside."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pynvml

CLOCK_EVENTS = {
    0x004: "software power cap",
    0x008: "hardware slowdown",
    0x010: "sync boost",
    0x020: "software thermal slowdown",
    0x040: "hardware thermal slowdown",
    0x080: "hardware power brake",
    0x100: "display clock setting",
}
"""NVML's clock event bits that hold a clock back (idle and application settings are left out)."""


class CpuTelemetry:
    """Pressure and steal of the processors over a window, and how fast a fixed kernel runs at its ends.

    A CPU's clock under wide vector instructions moves with heat, power and neighbours, and no counter of
    it can be read in a virtual machine. The sentinel shows it: the same small work, again and again.
    """

    launches = 20

    def __init__(self, sentinel: Callable[[], object]) -> None:
        """`sentinel` is a launch of about 0.1 ms that uses what the cases use, from a warm cache."""
        self._sentinel = sentinel
        self._begin: tuple[float, float | None, float | None] | None = None
        self._before_s = 0.0

    def start(self) -> None:
        """Begin a window."""
        self._before_s = self._sentinel_s()
        self._begin = (time.perf_counter(), _pressure_s(), _steal_s())

    def stop(self) -> dict[str, Any]:
        """Columns of the row for the window since `start`."""
        assert self._begin is not None
        began, pressure, steal = self._begin
        wall = max(time.perf_counter() - began, 1e-9)
        facts: dict[str, Any] = {}
        now = _pressure_s()
        if pressure is not None and now is not None:
            facts["pressure"] = (now - pressure) / wall
        stolen = _steal_s()
        if steal is not None and stolen is not None:
            facts["steal"] = (stolen - steal) / wall / (os.cpu_count() or 1)
        facts["sentinel_before_s"], facts["sentinel_after_s"] = self._before_s, self._sentinel_s()
        return facts

    def _sentinel_s(self) -> float:
        """Median seconds of the sentinel."""
        times = []
        for _ in range(self.launches):
            begin = time.perf_counter()
            self._sentinel()
            times.append(time.perf_counter() - begin)
        return statistics.median(times)


def _pressure_s() -> float | None:
    """Seconds in which some task waited for a processor, since boot; None where the kernel does not say."""
    try:
        line = Path("/proc/pressure/cpu").read_text().splitlines()[0]
        return int(line.rsplit("total=", 1)[1]) * 1e-6
    except (OSError, IndexError, ValueError):
        return None


def _steal_s() -> float | None:
    """Processor seconds taken by the hypervisor, since boot."""
    try:
        fields = Path("/proc/stat").read_text().splitlines()[0].split()
        return int(fields[8]) / os.sysconf("SC_CLK_TCK")
    except (OSError, IndexError, ValueError):
        return None


class CudaTelemetry:
    """Clocks, power and temperature of one GPU through NVML, read when the window ends.

    A GPU that NVML does not know (or a driver without it) leaves the columns null.
    """

    def __init__(self, uuid: str) -> None:
        """`uuid` as the driver prints it, `GPU-...`."""
        try:
            pynvml.nvmlInit()
            self._gpu = pynvml.nvmlDeviceGetHandleByUUID(uuid)
        except pynvml.NVMLError:
            self._gpu = None

    def start(self) -> None:
        """Begin a window. Nothing to remember: the last state under load is what is read."""

    def stop(self) -> dict[str, Any]:
        """Columns of the row, read now, while the device is still as the last launch left it."""
        facts: dict[str, Any] = {}
        if self._gpu is None:
            return facts
        nvml: Any = pynvml
        reads: dict[str, Callable[[Any], float | str]] = {
            "sm_clock_hz": lambda gpu: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM) * 1e6,
            "memory_clock_hz": lambda gpu: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_MEM) * 1e6,
            "power_w": lambda gpu: nvml.nvmlDeviceGetPowerUsage(gpu) * 1e-3,
            "temperature_c": lambda gpu: float(nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU)),
            "limit_reasons": lambda gpu: limit_names(nvml.nvmlDeviceGetCurrentClocksEventReasons(gpu)),
        }
        for name, read in reads.items():
            try:
                facts[name] = read(self._gpu)
            except pynvml.NVMLError:
                continue  # this GPU does not report it: the column stays null
        return facts


def limit_names(bits: int) -> str:
    """Names of the set bits, joined; empty when nothing holds the clock back."""
    return ", ".join(name for bit, name in CLOCK_EVENTS.items() if bits & bit)
