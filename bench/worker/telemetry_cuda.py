"""Telemetry of a GPU while a case is timed: NVML, read before and after, never in between.

NVML counts, in nanoseconds, how long each reason held the clock back (nvml.h calls them clock event reasons).
The difference over the window, divided by its length, is the share of the time in which the clock was held,
which a reading at the end would miss. Columns that the GPU, driver or binding lacks are null; an error of
NVML never breaks a row.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import pynvml

from bench.device.nvml import NvmlGpu, limit_names

HELD_BY_POLICY = {74: "held_power", 75: "held_thermal", 76: "held_sync"}
"""Field -> column: NVML_FI_DEV_PERF_POLICY_POWER, _THERMAL and _SYNC_BOOST.

nvml.h names 74 and 76 a second time, as NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_POWER_CAP and _SYNC_BOOST. DCGM
passes the counters on in fields whose names end in _NS, documented as nanoseconds.
"""
HELD_BY_REASON = ("held_thermal", "held_thermal", "held_hardware")
"""Columns of three fields in a row: NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN, _HW_THERM_SLOWDOWN and
_HW_POWER_BRAKE_SLOWDOWN. Which three depends on the driver, not on the binding: see `counter_fields`."""
POWER_INSTANT = 186
"""Field NVML_FI_DEV_POWER_INSTANT, milliwatts."""

LIGHT = 0.6
"""Share of the power limit below which the GPU is far from it."""
REFRESH_S = 1.0
"""Seconds by which a counter may lag: NVML refreshes at its own pace.

Energy is refreshed every 0.1 s or less, so over a window longer than this it is right to a tenth.
"""


class CudaTelemetry:
    """Clocks, power, limits and neighbours of one GPU over a window."""

    def __init__(self, uuid: str, nvml: Any = pynvml, clock: Any = time) -> None:
        """`uuid` as the driver prints it: `GPU-...`, or `MIG-...` for a slice, whose GPU is then read.

        `nvml` is the binding, `clock` has perf_counter as `time` has it. A GPU that NVML does not
        know, or a machine without NVML, is no error.
        """
        self._clock, self._gpu = clock, NvmlGpu(uuid, nvml)
        self._counters = counter_fields(self._gpu.driver())
        self._limit_w = self._gpu.power_limit_w()
        self._static = {
            "persistence": self._gpu.mode("nvmlDeviceGetPersistenceMode"),
            "ecc": self._gpu.mode("nvmlDeviceGetEccMode"),
            "mig": self._gpu.mig(),
            "power_limit_w": self._limit_w,
            "pcie_generation_most": self._gpu.ask("nvmlDeviceGetGpuMaxPcieLinkGeneration"),
        }
        # Newer GPUs return the mean of the last second, which does not show a kernel that has just begun
        # (nvml.h, nvmlDeviceGetPowerUsage: instantaneous on GA100 and older).
        capability = self._gpu.ask("nvmlDeviceGetCudaComputeCapability")
        self._usage_is_instant = capability is not None and tuple(capability) <= (8, 0)
        self._before: dict[str, Any] = {}
        self._began_s = 0.0
        self._energy_j: float | None = None
        self._held_ns: Mapping[int, float] = {}

    def start(self) -> None:
        """Begin a window."""
        self._before = {"sm_clock_before_hz": self.clock_hz(), "foreign_processes": self._foreign()}
        self._energy_j = self._gpu.scaled("nvmlDeviceGetTotalEnergyConsumption", 1e-3)
        self._held_ns = self._gpu.fields(self._counters)
        self._began_s = self._clock.perf_counter()

    def stop(self) -> dict[str, Any]:
        """Columns of the row, read while the device is still as the last launch left it."""
        # Values that change soonest are read first.
        facts: dict[str, Any] = {
            "sm_clock_hz": self.clock_hz(),
            "limit_reasons": self._limits(),
            "power_w": self._power_w(),
        }
        window_s = self._clock.perf_counter() - self._began_s
        energy_j = self._gpu.scaled("nvmlDeviceGetTotalEnergyConsumption", 1e-3)
        facts |= held_shares(self._held_ns, self._gpu.fields(self._counters), self._counters, window_s)
        if energy_j is not None and self._energy_j is not None:
            spent_j = energy_j - self._energy_j
            if spent_j > 0 and window_s >= REFRESH_S:
                facts["energy_j"] = spent_j
                facts["power_w"] = spent_j / window_s
        memory = self._gpu.nvml.NVML_CLOCK_MEM
        facts["memory_clock_hz"] = self._gpu.scaled("nvmlDeviceGetClockInfo", 1e6, memory)
        facts["temperature_c"] = self._gpu.temperature_c()
        # An idle link trains down to save power, so it is read after work.
        facts["pcie_generation"] = self._gpu.ask("nvmlDeviceGetCurrPcieLinkGeneration")
        facts["pcie_width"] = self._gpu.ask("nvmlDeviceGetCurrPcieLinkWidth")
        facts |= self._static | self._before
        seen = [n for n in (self._before.get("foreign_processes"), self._foreign()) if n is not None]
        facts["foreign_processes"] = max(seen, default=None)
        return {name: value for name, value in facts.items() if value is not None}

    def light(self) -> bool:
        """Whether power is far from its limit and nothing holds the clock back; False if unknown.

        Call it while the kernel runs or just after: an idle GPU is always light.
        """
        power_w, limit_w = self._power_w(), self._limit_w or 0.0
        return power_w is not None and power_w < LIGHT * limit_w and self._limits() == ""

    def clock_hz(self) -> float | None:
        """SM clock now, hertz; None if unknown."""
        return self._gpu.scaled("nvmlDeviceGetClockInfo", 1e6, self._gpu.nvml.NVML_CLOCK_SM)

    # ---- readings of NVML

    def _power_w(self) -> float | None:
        """Watts at this moment; None if only a mean over the last second is known."""
        now_mw = self._gpu.fields({POWER_INSTANT: "power_w"}).get(POWER_INSTANT)
        if now_mw is not None:
            return now_mw * 1e-3
        return self._gpu.scaled("nvmlDeviceGetPowerUsage", 1e-3) if self._usage_is_instant else None

    def _limits(self) -> str | None:
        """The reasons that hold the clock back now, in words; None if unknown."""
        bits = self._gpu.clock_event_bits()
        return None if bits is None else limit_names(bits)

    def _foreign(self) -> int | None:
        """Number of other processes with a context on this GPU; None if unknown.

        Processes are counted, not compared with our id: in a container NVML lists the host's ids, the
        container's, 0 for processes outside of it, or nothing, depending on the driver's version. We hold a
        context ourselves, so one of those listed is this process, and an empty list is no answer.
        """
        pids = self._gpu.processes()
        return len(pids) - 1 if pids else None


def counter_fields(driver: str) -> dict[int, str]:
    """Field -> column of every limit counter that a driver of this version (`580.82.07`) has.

    Those by reason were renumbered: 251 to 253 until CUDA 13.0, 269 to 271 from CUDA 13.0 Update 1 and driver
    580 TRD2 (580.82) on, where the old numbers mean power smoothing ("Known Issues" of NVIDIA's NVML
    reference). Drivers older than both answer that they have none; with an unknown version they are not read.
    """
    numbers = [int(part) for part in driver.split(".")[:2] if part.isdigit()]
    if len(numbers) < 2:
        return dict(HELD_BY_POLICY)
    first = 269 if tuple(numbers) >= (580, 82) else 251
    return HELD_BY_POLICY | dict(zip(range(first, first + 3), HELD_BY_REASON, strict=True))


def held_shares(
    before_ns: Mapping[int, float], after_ns: Mapping[int, float], columns: Mapping[int, str], window_s: float
) -> dict[str, float]:
    """Column -> share of the window in which this reason held the clock: 0 to 1.

    The largest of several counters of one column counts: 75 may include the counters by reason. A counter
    that stepped back or exceeds the window was reset or is no time, and is ignored.
    """
    shares: dict[str, float] = {}
    for field in before_ns.keys() & after_ns.keys():
        column = columns[field]
        held_s = (after_ns[field] - before_ns[field]) * 1e-9
        if 0 <= held_s <= window_s + REFRESH_S:
            share = min(1.0, held_s / max(window_s, 1e-9))
            shares[column] = max(shares.get(column, 0.0), share)
    return shares
