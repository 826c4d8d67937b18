"""A stand-in for the module pynvml: one GPU whose readings a test sets, and counters that it lets run."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
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

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


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

    def __post_init__(self) -> None:
        self.asked: list[str] = []
        self.opened = 0

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
        return self._answer("driver", self.driver)  # type: ignore[no-any-return]

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        if uuid not in (self.uuid, self.mig_uuid):
            raise NVMLError("Not Found")
        return uuid

    def nvmlDeviceGetDeviceHandleFromMigDeviceHandle(self, handle: str) -> str:
        assert handle == self.mig_uuid
        return self.uuid

    def nvmlDeviceGetClockInfo(self, gpu: str, which: int) -> int:
        return self._answer("clock", {1: self.sm_mhz, 2: self.memory_mhz}[which], gpu)  # type: ignore[no-any-return]

    def nvmlDeviceGetMaxClockInfo(self, gpu: str, which: int) -> int:
        return self._answer("max clock", {1: self.sm_mhz, 2: self.memory_mhz}[which], gpu)  # type: ignore[no-any-return]

    def nvmlDeviceGetMemoryBusWidth(self, gpu: str) -> int:
        return self._answer("bus", self.bus_bit, gpu)  # type: ignore[no-any-return]

    def nvmlDeviceGetSerial(self, gpu: str) -> str:
        return self._answer("serial", self.serial, gpu)  # type: ignore[no-any-return]

    def nvmlDeviceGetTotalEnergyConsumption(self, gpu: str) -> int:
        return self._answer("energy", self.energy_mj, gpu)  # type: ignore[no-any-return]

    def nvmlDeviceGetPowerUsage(self, gpu: str) -> int:
        return self._answer("usage", self.usage_mw, gpu)  # type: ignore[no-any-return]

    def nvmlDeviceGetEnforcedPowerLimit(self, gpu: str) -> int:
        return self._answer("limit", self.limit_mw, gpu)  # type: ignore[no-any-return]

    def nvmlDeviceGetPowerManagementDefaultLimit(self, gpu: str) -> int:
        return self._answer("default limit", self.default_limit_mw, gpu)  # type: ignore[no-any-return]

    def nvmlDeviceGetMarginTemperature(self, gpu: str) -> int:
        return self._answer("margin", self.margin, gpu)  # type: ignore[no-any-return]

    def nvmlDeviceGetTemperatureThreshold(self, gpu: str, which: int) -> int:
        assert which == self.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN
        return self._answer("threshold", self.slowdown, gpu)  # type: ignore[no-any-return]

    def nvmlDeviceGetTemperature(self, gpu: str, sensor: int) -> int:
        assert sensor == self.NVML_TEMPERATURE_GPU
        return self._answer("temperature", self.temperature, gpu)  # type: ignore[no-any-return]

    def nvmlDeviceGetCurrentClocksEventReasons(self, gpu: str) -> int:
        return self._answer("events", self.bits, gpu)  # type: ignore[no-any-return]

    def nvmlDeviceGetComputeRunningProcesses(self, gpu: str) -> list[Any]:
        pids = self._answer("processes", self.pids, gpu)
        return [SimpleNamespace(pid=pid) for pid in pids]

    def nvmlDeviceGetPersistenceMode(self, gpu: str) -> int:
        return self._answer("persistence", self.persistence, gpu)  # type: ignore[no-any-return]

    def nvmlDeviceGetEccMode(self, gpu: str) -> list[int]:
        return self._answer("ecc", self.ecc, gpu)  # type: ignore[no-any-return]

    def nvmlDeviceGetMigMode(self, gpu: str) -> list[int]:
        return self._answer("mig", self.mig, gpu)  # type: ignore[no-any-return]

    def nvmlDeviceGetCudaComputeCapability(self, gpu: str) -> tuple[int, int]:
        return self._answer("capability", self.capability, gpu)  # type: ignore[no-any-return]

    def nvmlDeviceGetCurrPcieLinkGeneration(self, gpu: str) -> int:
        return self._answer("pcie generation", self.pcie_generation, gpu)  # type: ignore[no-any-return]

    def nvmlDeviceGetCurrPcieLinkWidth(self, gpu: str) -> int:
        return self._answer("pcie width", self.pcie_width, gpu)  # type: ignore[no-any-return]

    def nvmlDeviceGetGpuMaxPcieLinkGeneration(self, gpu: str) -> int:
        return self._answer("most pcie", self.pcie_generation_most, gpu)  # type: ignore[no-any-return]

    def nvmlDeviceGetFieldValues(self, gpu: str, numbers: list[int]) -> list[Any]:
        self._answer("fields", numbers, gpu)
        members = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
        found = []
        for number in numbers:
            kind, value = self.fields.get(number, (UNSIGNED_LONG_LONG, 0))
            # As in a union, the members of other types hold rubbish.
            union = {name: -1 for name in members} | ({members[kind]: value} if kind < len(members) else {})
            wrong = 0 if number in self.fields else NOT_SUPPORTED
            one = {"fieldId": number, "nvmlReturn": wrong, "valueType": kind}
            found.append(SimpleNamespace(**one, value=SimpleNamespace(**union)))
        return found

    def _answer(self, name: str, value: Any, gpu: str | None = None) -> Any:
        self.asked.append(name)
        assert gpu in (None, self.uuid), "asked about a device that is not the GPU"
        if value is None or (self.lost and gpu is not None):
            raise NVMLError("Not Supported")
        return value
