"""A stand-in for the module pynvml: one GPU whose readings a test sets, and counters that it lets run."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any

DOUBLE, UNSIGNED_INT, UNSIGNED_LONG_LONG = 0, 1, 3
"""NVML_VALUE_TYPE_*."""


class NVMLError(Exception):
    """As pynvml raises them: with a number."""


NOT_SUPPORTED = 3


@dataclass
class Clock:
    """What CudaTelemetry takes of the module `time`; a test moves it."""

    now_s: float = 1000.0

    def perf_counter(self) -> float:
        return self.now_s


READINGS = {
    "nvmlDeviceGetMemoryBusWidth": "bus_bit",
    "nvmlDeviceGetSerial": "serial",
    "nvmlDeviceGetTotalEnergyConsumption": "energy_mj",
    "nvmlDeviceGetPowerUsage": "usage_mw",
    "nvmlDeviceGetEnforcedPowerLimit": "limit_mw",
    "nvmlDeviceGetPowerManagementDefaultLimit": "default_limit_mw",
    "nvmlDeviceGetMarginTemperature": "margin",
    "nvmlDeviceGetCurrentClocksEventReasons": "bits",
    "nvmlDeviceGetPersistenceMode": "persistence",
    "nvmlDeviceGetEccMode": "ecc",
    "nvmlDeviceGetMigMode": "mig",
    "nvmlDeviceGetCudaComputeCapability": "capability",
    "nvmlDeviceGetCurrPcieLinkGeneration": "pcie_generation",
    "nvmlDeviceGetCurrPcieLinkWidth": "pcie_width",
    "nvmlDeviceGetGpuMaxPcieLinkGeneration": "pcie_generation_most",
}
"""Functions that take a GPU alone, and the reading that each gives."""


@dataclass
class FakeNvml:
    """The functions of pynvml that CudaTelemetry calls. A reading that is None is not supported."""

    uuid: str = "GPU-5ba8"
    mig_uuid: str | None = None
    driver: str | bytes | None = "580.95.05"
    initialised: bool = True
    """Whether there is an NVML to initialise."""
    sm_mhz: int | None = 1980
    memory_mhz: int | None = 2619
    bus_bit: int | None = 5120
    serial: str | None = "1650522001234"
    energy_mj: int | None = 5_000_000
    usage_mw: int | None = 333_000
    """Power as nvmlDeviceGetPowerUsage tells it."""
    limit_mw: int | None = 700_000
    default_limit_mw: int | None = 700_000
    margin: int | None = 40
    """Degrees until it slows itself down; the threshold is the same, told as a temperature."""
    slowdown: int | None = 92
    temperature: int | None = 61
    bits: int | None = 0
    pids: list[int] | None = field(default_factory=lambda: [os.getpid()])
    persistence: int | None = 1
    ecc: list[int] | None = field(default_factory=lambda: [1, 0])
    mig: list[int] | None = field(default_factory=lambda: [0, 1])
    capability: tuple[int, int] | None = (9, 0)
    pcie_generation: int | None = 5
    pcie_width: int | None = 16
    pcie_generation_most: int | None = 5
    fields: dict[int, tuple[int, float]] = field(default_factory=dict)
    """Field -> (value type, value); others are answered with an error each."""
    lost: bool = False
    """Whether the GPU fell off the bus: every question raises."""

    NVML_SUCCESS = 0
    NVML_CLOCK_SM = 1
    NVML_CLOCK_MEM = 2
    NVML_TEMPERATURE_GPU = 0
    NVML_TEMPERATURE_THRESHOLD_SLOWDOWN = 1
    NVMLError = NVMLError

    opened: int = 0

    def run(self, held_ns: dict[int, int], energy_mj: int = 0) -> None:
        """Let counters advance."""
        for number, more in held_ns.items():
            kind, value = self.fields[number]
            self.fields[number] = (kind, value + more)
        if self.energy_mj is not None:
            self.energy_mj += energy_mj

    def counters(self, *numbers: int, at: int = 10**15) -> None:
        """Limit counters that this GPU has, each somewhere in its life."""
        self.fields |= {number: (UNSIGNED_LONG_LONG, at + number) for number in numbers}

    # ---- what pynvml has

    def nvmlInit(self) -> None:
        if not self.initialised:
            raise NVMLError("NVML Shared Library Not Found")
        self.opened += 1

    def nvmlShutdown(self) -> None:
        if not self.opened:
            raise NVMLError("Uninitialized")
        self.opened -= 1

    def nvmlSystemGetDriverVersion(self) -> str | bytes:
        if not self.opened:
            raise NVMLError("Uninitialized")
        return self._answer("driver")

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        if uuid not in (self.uuid, self.mig_uuid):
            raise NVMLError("Not Found")
        return uuid

    def nvmlDeviceGetDeviceHandleFromMigDeviceHandle(self, handle: str) -> str:
        assert handle == self.mig_uuid
        return self.uuid

    def nvmlDeviceGetClockInfo(self, gpu: str, which: int) -> int:
        return self._answer({1: "sm_mhz", 2: "memory_mhz"}[which], gpu)

    nvmlDeviceGetMaxClockInfo = nvmlDeviceGetClockInfo

    def nvmlDeviceGetTemperatureThreshold(self, gpu: str, which: int) -> int:
        assert which == self.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN
        return self._answer("slowdown", gpu)

    def nvmlDeviceGetTemperature(self, gpu: str, sensor: int) -> int:
        assert sensor == self.NVML_TEMPERATURE_GPU
        return self._answer("temperature", gpu)

    def nvmlDeviceGetComputeRunningProcesses(self, gpu: str) -> list[Any]:
        return [SimpleNamespace(pid=pid) for pid in self._answer("pids", gpu)]

    def nvmlDeviceGetFieldValues(self, gpu: str, numbers: list[int]) -> list[Any]:
        fields = self._answer("fields", gpu)
        members = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
        found = []
        for number in numbers:
            kind, value = fields.get(number, (UNSIGNED_LONG_LONG, 0))
            # As in a union, the members of other types hold rubbish.
            union = {name: -1 for name in members} | ({members[kind]: value} if kind < len(members) else {})
            wrong = 0 if number in fields else NOT_SUPPORTED
            one = {"fieldId": number, "nvmlReturn": wrong, "valueType": kind}
            found.append(SimpleNamespace(**one, value=SimpleNamespace(**union)))
        return found

    def __getattr__(self, name: str) -> Any:
        if name not in READINGS:
            raise AttributeError(name)
        return partial(self._answer, READINGS[name])

    def _answer(self, reading: str, gpu: str | None = None) -> Any:
        assert gpu in (None, self.uuid), "asked about a device that is not the GPU"
        value = getattr(self, reading)
        if value is None or (self.lost and gpu is not None):
            raise NVMLError("Not Supported")
        return value
