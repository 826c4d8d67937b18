"""One GPU as NVML describes it. A fact that the GPU, the driver or the binding lacks is None, no error."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
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

VALUE_KINDS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
"""Member of a field's union by its valueType, in the order of NVML_VALUE_TYPE_*."""


class NvmlGpu:
    """The facts of one GPU; all are None where there is no NVML, or NVML does not know the GPU."""

    def __init__(self, uuid: str, nvml: Any = None) -> None:
        """`uuid` as the driver prints it: `GPU-...`, or `MIG-...` for a slice, whose GPU is then asked about.

        `nvml` is the binding; None: pynvml.
        """
        self.nvml = nvml or pynvml
        self._gpu: Any = None
        self.identity = ""
        """The UUID as NVML writes it, which distinguishes GPUs from parts; empty if NVML knows neither."""
        self._find(uuid)

    def close(self) -> None:
        """Shut NVML down, where this object is not used until the process ends."""
        with suppress(self.nvml.NVMLError):  # it could not be initialised
            self.nvml.nvmlShutdown()

    def ask(self, function: str, *arguments: object) -> Any:
        """The answer about this GPU; None where the binding lacks the function, or the GPU the fact."""
        if self._gpu is None:
            return None
        try:
            return getattr(self.nvml, function)(self._gpu, *arguments)
        except (self.nvml.NVMLError, AttributeError):
            return None

    def scaled(self, function: str, unit: float, *arguments: object) -> float | None:
        """The answer times `unit`, in SI; None if there is no answer."""
        value = self.ask(function, *arguments)
        return None if value is None else value * unit

    def fields(self, numbers: Mapping[int, str]) -> dict[int, float]:
        """Field -> its value, for those that this GPU has."""
        values = {}
        for field in self.ask("nvmlDeviceGetFieldValues", list(numbers)) or []:
            if field.nvmlReturn == self.nvml.NVML_SUCCESS and 0 <= field.valueType < len(VALUE_KINDS):
                values[int(field.fieldId)] = float(getattr(field.value, VALUE_KINDS[field.valueType]))
        return values

    def driver(self) -> str:
        """Version of the driver; empty if unknown."""
        try:
            version = self.nvml.nvmlSystemGetDriverVersion()
        except (self.nvml.NVMLError, AttributeError):
            return ""
        return version.decode() if isinstance(version, bytes) else str(version)  # old bindings gave bytes

    def mode(self, function: str) -> str | None:
        """`on` or `off` of a mode; some are answered as [current, pending]."""
        answer = self.ask(function)
        if answer is None:
            return None
        return "on" if (answer[0] if isinstance(answer, (list, tuple)) else answer) else "off"

    def mig(self) -> str | None:
        """Whether the GPU is divided: MIG `on` or `off`."""
        return "on" if self.is_part else self.mode("nvmlDeviceGetMigMode")

    @property
    def is_part(self) -> bool:
        """Whether the identity is that of a part of the GPU (MIG)."""
        return self.identity.startswith("MIG-")

    def max_sm_clock_hz(self) -> float | None:
        """Highest SM clock, hertz: a part has no clock of its own."""
        return self.scaled("nvmlDeviceGetMaxClockInfo", 1e6, self.nvml.NVML_CLOCK_SM)

    def max_memory_clock_hz(self) -> float | None:
        """Highest memory clock, hertz; None for a part, which has a share of the GPU's memory."""
        clock = self.nvml.NVML_CLOCK_MEM
        return None if self.is_part else self.scaled("nvmlDeviceGetMaxClockInfo", 1e6, clock)

    def bus_bit(self) -> int | None:
        """Width of the memory's bus, bits; None for a part, which has a share of the GPU's memory."""
        return None if self.is_part else self.ask("nvmlDeviceGetMemoryBusWidth")

    def serial(self) -> str:
        """Serial number of the GPU's board; empty where NVML does not know it, as for most desktop cards."""
        return str(self.ask("nvmlDeviceGetSerial") or "")

    def power_limit_w(self) -> float | None:
        """The enforced power limit, watts."""
        return self.scaled("nvmlDeviceGetEnforcedPowerLimit", 1e-3)

    def temperature_c(self) -> float | None:
        """Temperature of the chip now, degrees Celsius."""
        degrees = self.ask("nvmlDeviceGetTemperature", self.nvml.NVML_TEMPERATURE_GPU)
        return None if degrees is None else float(degrees)

    def clock_event_bits(self) -> int | None:
        """Why the clock is what it is now: bits of CLOCK_EVENTS and others."""
        bits = self.ask("nvmlDeviceGetCurrentClocksEventReasons")
        if bits is None:  # by the name it had before driver 535
            bits = self.ask("nvmlDeviceGetCurrentClocksThrottleReasons")
        return None if bits is None else int(bits)

    def processes(self) -> list[int] | None:
        """Ids of the processes with a compute context; 0 stands for a process whose id is hidden.

        None if unknown. A process in two partitions is listed once.
        """
        running = self.ask("nvmlDeviceGetComputeRunningProcesses")
        if running is None:
            return None
        named = dict.fromkeys(process.pid for process in running if process.pid)
        return [*named, *(0 for process in running if not process.pid)]

    def _find(self, uuid: str) -> None:
        """Look the GPU up as a whole, then as a part: the driver's UUID may have the wrong prefix."""
        number = uuid.removeprefix("GPU-").removeprefix("MIG-")
        try:
            self.nvml.nvmlInit()
        except self.nvml.NVMLError:
            return
        for identity in (f"GPU-{number}", f"MIG-{number}"):
            with suppress(self.nvml.NVMLError, AttributeError):
                handle = self.nvml.nvmlDeviceGetHandleByUUID(identity)
                self.identity = identity
                if self.is_part:
                    handle = self.nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle)
                self._gpu = handle
                return


def limit_names(bits: int) -> str:
    """Names of the set bits, joined; empty when nothing holds the clock back."""
    return ", ".join(name for bit, name in CLOCK_EVENTS.items() if bits & bit)
