"""The state of a GPU while a case was timed: NVML, read before and after, never inside.

NVML's counters of what held the clock back (NVIDIA's header, nvml.h, calls them clock event reasons) run in
nanoseconds; their difference over the window, divided by it, is the share of the time in which the clock was
held. That sees what a look at the end misses. What a GPU, a driver or a binding does not tell leaves its
column null; no error of NVML's breaks a row.
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
"""Share of the power limit below which no limit is near."""
REFRESH_S = 1.0
"""Within this of its end, what a counter shows may belong to the time before: NVML refreshes at its own pace.

Energy is refreshed every 0.1 s or less, so over a longer window than this it is right to a tenth.
"""


class CudaTelemetry:
    """Clocks, power, limits and neighbours of one GPU over a window."""

    def __init__(self, uuid: str, nvml: Any = pynvml, clock: Any = time) -> None:
        """`uuid` as the driver prints it, `GPU-...` (or `MIG-...`: its GPU is then what is read).

        `nvml` is the binding, `clock` has perf_counter and sleep as `time` has them. A GPU that NVML does not
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
        }
        # Newer ones answer with the mean of the last second, which says nothing of a kernel just begun
        # (nvml.h, nvmlDeviceGetPowerUsage: instantaneous on GA100 and older).
        capability = self._gpu.ask("nvmlDeviceGetCudaComputeCapability")
        self._usage_is_instant = capability is not None and tuple(capability) <= (8, 0)
        self._before: dict[str, Any] = {}
        self._began_s = self._rested_s = 0.0
        self._energy_j: float | None = None
        self._held_ns: Mapping[int, float] = {}

    def start(self) -> None:
        """Begin a window."""
        self._before = {"sm_clock_before_hz": self.clock_hz(), "foreign_processes": self._foreign()}
        self._rested_s = 0.0
        self._energy_j = self._gpu.scaled("nvmlDeviceGetTotalEnergyConsumption", 1e-3)
        self._held_ns = self._gpu.fields(self._counters)
        self._began_s = self._clock.perf_counter()

    def rest(self, seconds: float) -> None:
        """Sleep; nothing holds an idle clock, so shares of the window leave this time out."""
        began_s = self._clock.perf_counter()
        self._clock.sleep(seconds)
        self._rested_s += self._clock.perf_counter() - began_s

    def stop(self) -> dict[str, Any]:
        """Columns of the row, read now, while the device is still as the last launch left it."""
        # What changes soonest is read first.
        facts: dict[str, Any] = {
            "sm_clock_hz": self.clock_hz(),
            "limit_reasons": self._limits(),
            "power_w": self._power_w(),
        }
        window_s = self._clock.perf_counter() - self._began_s
        energy_j = self._gpu.scaled("nvmlDeviceGetTotalEnergyConsumption", 1e-3)
        facts |= held_shares(
            self._held_ns, self._gpu.fields(self._counters), self._counters, window_s, self._rested_s
        )
        if energy_j is not None and self._energy_j is not None:
            spent_j = energy_j - self._energy_j
            if spent_j > 0 and window_s >= REFRESH_S:
                facts["energy_j"] = spent_j
                if not self._rested_s:
                    facts["power_w"] = spent_j / window_s
        facts["memory_clock_hz"] = self._gpu.scaled(
            "nvmlDeviceGetClockInfo", 1e6, self._gpu.nvml.NVML_CLOCK_MEM
        )
        facts["temperature_c"] = self._gpu.temperature_c()
        facts |= self._static | self._before
        seen = [n for n in (self._before.get("foreign_processes"), self._foreign()) if n is not None]
        facts["foreign_processes"] = max(seen, default=None)
        return {name: value for name, value in facts.items() if value is not None}

    def light(self) -> bool:
        """Whether power is far from its limit and nothing holds the clock; False where that is not known.

        To be asked while the kernel runs or just after: an idle GPU is always light.
        """
        power_w = self._power_w()
        if power_w is None or self._limit_w is None:
            return False
        return power_w < LIGHT * self._limit_w and self._limits() == ""

    def clock_hz(self) -> float | None:
        """SM clock now, hertz; None where it is not told."""
        return self._gpu.scaled("nvmlDeviceGetClockInfo", 1e6, self._gpu.nvml.NVML_CLOCK_SM)

    # ---- what NVML is asked

    def _power_w(self) -> float | None:
        """Watts at this moment; None where only a mean over the last second is told."""
        now_mw = self._gpu.fields({POWER_INSTANT: "power_w"}).get(POWER_INSTANT)
        if now_mw is not None:
            return now_mw * 1e-3
        return self._gpu.scaled("nvmlDeviceGetPowerUsage", 1e-3) if self._usage_is_instant else None

    def _limits(self) -> str | None:
        """What holds the clock back now, in words; None where that is not told."""
        bits = self._gpu.clock_event_bits()
        return None if bits is None else limit_names(bits)

    def _foreign(self) -> int | None:
        """Processes with a context on this GPU beside ours.

        They are counted, not compared with our number: in a container NVML tells the host's numbers, the
        container's, 0 for processes outside of it, or nobody at all, as the driver's version has it. We do
        hold a context, so one of those listed is this process; and a list without anybody is no answer.
        """
        found = self._gpu.processes()
        return len(found) - 1 if found else None


def counter_fields(driver: str) -> dict[int, str]:
    """Field -> column of every limit counter that a driver of this version (`580.82.07`) has.

    Those by reason were renumbered: 251 to 253 until CUDA 13.0, 269 to 271 from CUDA 13.0 Update 1 and driver
    580 TRD2 (580.82) on, where the old numbers mean power smoothing ("Known Issues" of NVIDIA's NVML
    reference). Drivers older than both answer that they have none; an unknown version is not asked for them.
    """
    numbers = [int(part) for part in driver.split(".")[:2] if part.isdigit()]
    if len(numbers) < 2:
        return dict(HELD_BY_POLICY)
    first = 269 if tuple(numbers) >= (580, 82) else 251
    return HELD_BY_POLICY | dict(zip(range(first, first + 3), HELD_BY_REASON, strict=True))


def held_shares(
    before_ns: Mapping[int, float],
    after_ns: Mapping[int, float],
    columns: Mapping[int, str],
    window_s: float,
    rested_s: float,
) -> dict[str, float]:
    """Column -> share of the window, its rests apart, in which this held the clock: 0 to 1.

    Of several counters of one column the largest: 75 may count what those by reason count again. A counter
    that stepped back, or ran on for longer than the window, was reset or is no time: it says nothing.
    """
    shares: dict[str, float] = {}
    for field, column in columns.items():
        if field not in before_ns or field not in after_ns:
            continue
        held_s = (after_ns[field] - before_ns[field]) * 1e-9
        if 0 <= held_s <= window_s + REFRESH_S:
            share = min(1.0, held_s / max(window_s - rested_s, 1e-9))
            shares[column] = max(shares.get(column, 0.0), share)
    return shares
