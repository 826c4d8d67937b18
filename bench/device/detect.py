"""Detects the device of this machine.

`detect` asks the CUDA driver itself, so it needs no torch and creates no context; a CPU is read from
/proc, /sys and its control group. AMD GPUs are not looked for (their datasheet serves plots of rows
measured elsewhere).
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import re
import socket
import uuid
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from bench.device.control_groups import ROOT, cpu_quota, memory_limit_byte, text_of
from bench.device.cuda_driver import LIBRARY, CudaError, call, newest_cuda
from bench.device.datasheet import HBM_BUS_BIT, Datasheet, find_datasheet, slug_of, usual_rates
from bench.errors import UserError, meant
from bench.spec import DeviceKind


@dataclass(frozen=True)
class Device:
    """One device as this process may use it. Bytes, and hertz in the datasheet."""

    kind: DeviceKind
    index: int | None
    """Number of the GPU among those visible, as in `cuda:1`; None for a CPU."""
    name: str
    """The name that its driver, or the kernel for a CPU, gives it."""
    slug: str
    """The name in lower case, fit for a folder; tells apart what the name alone does not."""
    id: str
    """Short hash of the GPU's UUID, or of the host's name for a CPU."""
    uuid: str
    """Identity of the GPU as NVML writes it and CUDA_VISIBLE_DEVICES takes it; empty for a CPU.

    `GPU-...` of a whole GPU, `MIG-...` of a slice of one (MIG User Guide, "CUDA Device Enumeration").
    """
    sm_count: int
    """Streaming multiprocessors; physical cores this process may use on a CPU."""
    cache_byte: int
    """L2 of a GPU; the last-level caches that serve a CPU's cores, together. 0: unknown."""
    memory_byte: int
    """Memory of the GPU; what this process may use of the host's for a CPU."""
    capability: tuple[int, int] | None
    """CUDA compute capability."""
    driver: str
    """Version of the GPU driver; the kernel's release for a CPU."""
    datasheet: Datasheet | None
    """Published or derived peaks. None for a CPU, which has none: its ceilings are measured."""
    host: str = ""
    """Name of the machine; empty for a device that is not here."""
    pci_bus: str = ""
    """PCI address of the GPU as Linux writes it, `0000:1b:00.0`; empty for a CPU, and where it is unknown."""
    serial: str = ""
    """Serial number of the GPU's board; empty where it tells none."""
    boot: str = ""
    """Hash of the kernel's boot id, which is new whenever the machine starts; empty if unknown."""

    @property
    def derived(self) -> bool:
        """Whether its datasheet comes from its driver's clocks because no device file describes it."""
        return self.datasheet is not None and self.datasheet.derived

    def __str__(self) -> str:
        """The device for messages: `cuda:0 (NVIDIA H200)`, `cpu`."""
        return "cpu" if self.index is None else f"cuda:{self.index} ({self.name})"


def detect(wanted: str = "auto", libcuda: str = LIBRARY, root: Path = ROOT) -> Device:
    """The device named `cpu`, `cuda` or `cuda:N`; `auto`: the first CUDA GPU, else the CPU.

    UserError says what was asked for and what there is. `libcuda` is the driver library to ask, `root`
    is where proc and sys are.
    It calls cuInit: a process that forked itself afterwards could not use CUDA, so workers are spawned.
    """
    if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", wanted):
        gpus, _ = _gpus(libcuda)
        raise UserError(
            f"--bench-device {wanted}{meant(wanted, ('auto', 'cpu', 'cuda'))}: "
            f"give auto, cpu, cuda or cuda:N; {_there_is(gpus)}"
        )
    if wanted == "cpu":
        return _cpu(root)
    gpus, why = _gpus(libcuda)
    if wanted == "auto" and not gpus:
        return _cpu(root)
    index = int(wanted.partition(":")[2] or 0)
    if not gpus:
        raise UserError(f"--bench-device {wanted}: this machine has no CUDA GPU{why}; {_there_is(gpus)}")
    if index >= len(gpus):
        raise UserError(f"--bench-device {wanted}: there is no such GPU; {_there_is(gpus)}")
    return _cuda_device(gpus[index])


def unusable_gpu(libcuda: str = LIBRARY) -> str:
    """Why an installed CUDA driver offers no GPU, as a clause; empty if it offers one or none is installed.

    Where `auto` chose the CPU because a driver failed, the run has to say so.
    """
    gpus, why = _gpus(libcuda)
    return "" if gpus else why.strip(" ()")


# ---- GPUs


def _gpus(libcuda: str) -> tuple[list[Device], str]:
    """The GPUs that CUDA_VISIBLE_DEVICES leaves; if none, why, as ` (...)`, empty if there is no driver."""
    try:
        driver = ctypes.CDLL(libcuda)
    except OSError:
        return [], ""
    try:
        call(driver, "cuInit", 0)
        count = ctypes.c_int()
        call(driver, "cuDeviceGetCount", ctypes.byref(count))
        return [_gpu(driver, index) for index in range(count.value)], ""
    except CudaError as error:
        return [], f" ({error})"


def _there_is(gpus: list[Device]) -> str:
    return "there is " + ", ".join(["cpu", *map(str, gpus)])


def _gpu(driver: ctypes.CDLL, index: int) -> Device:
    """A GPU as the CUDA driver describes it, without a datasheet."""
    device, memory, version = ctypes.c_int(), ctypes.c_size_t(), newest_cuda(driver)
    name, pci_bus = ctypes.create_string_buffer(256), ctypes.create_string_buffer(32)
    call(driver, "cuDeviceGet", ctypes.byref(device), index)
    call(driver, "cuDeviceGetName", name, len(name), device)
    call(driver, "cuDeviceTotalMem_v2", ctypes.byref(memory), device)
    with suppress(CudaError):  # a slice has that of its GPU; without it a GPU is measured all the same
        call(driver, "cuDeviceGetPCIBusId", pci_bus, len(pci_bus), device)

    def attribute(number: int) -> int:
        value = ctypes.c_int()
        call(driver, "cuDeviceGetAttribute", ctypes.byref(value), number, device)
        return value.value

    # Of a slice it is the compute instance's number (CUDA driver API reference); only NVML tells slices.
    number = (ctypes.c_ubyte * 16)()
    call(driver, "cuDeviceGetUuid_v2", ctypes.byref(number), device)
    text, identity = name.value.decode(errors="replace"), f"GPU-{uuid.UUID(bytes=bytes(number))}"
    return Device(
        kind="cuda",
        index=index,
        name=text,
        slug=slug_of(text),
        id=short_hash(identity),
        uuid=identity,
        sm_count=attribute(16),  # numbers of enum CUdevice_attribute in cuda.h
        cache_byte=attribute(38),
        memory_byte=memory.value,
        capability=(attribute(75), attribute(76)),
        driver=f"CUDA {version // 1000}.{version % 1000 // 10}",
        datasheet=None,
        host=socket.gethostname(),
        pci_bus=pci_bus.value.decode(errors="replace").lower(),
        boot=_boot(ROOT),
    )


def _cuda_device(gpu: Device) -> Device:
    """The GPU with its datasheet and what NVML adds."""
    from bench.device.nvml import NvmlGpu  # a machine without a GPU does not load the binding

    nvml = NvmlGpu(gpu.uuid)
    identity = nvml.identity or gpu.uuid
    sheet, slug = find_datasheet(gpu.name, gpu.memory_byte), gpu.slug
    assert gpu.capability is not None
    if sheet is None or sheet.sm_count != gpu.sm_count:  # another card, or a part of one, under a known name
        clock_hz, memory_hz, bus_bit = nvml.max_sm_clock_hz(), nvml.max_memory_clock_hz(), nvml.bus_bit()
        sheet = Datasheet(
            name=gpu.name,
            match=(gpu.name,),
            capability=gpu.capability,
            sm_count=gpu.sm_count,
            boost_clock_hz=clock_hz,
            # No driver reports the tensor clock: a Hopper's tensor peaks come out up to 8 % high.
            tensor_clock_hz=clock_hz,
            # Every GPU memory is double data rate as the driver counts its clock.
            bandwidth_byte_per_s=2 * memory_hz * bus_bit / 8 if memory_hz and bus_bit else None,
            l2_byte=gpu.cache_byte,
            memory_byte=gpu.memory_byte,
            memory_type=("HBM" if bus_bit >= HBM_BUS_BIT else "GDDR") if bus_bit else None,
            rates=usual_rates(gpu.name, gpu.capability),
            derived=True,
        )
        slug += f"-{gpu.sm_count}sm-{round(gpu.memory_byte / 2**30)}gib"
    version, serial = nvml.driver() or gpu.driver, nvml.serial()
    nvml.close()
    named = replace(gpu, slug=slug, id=short_hash(identity), uuid=identity, serial=serial)
    return replace(named, driver=version, datasheet=sheet)


# ---- the CPU


def _cpu(root: Path) -> Device:
    """This machine's CPU."""
    usable = usable_processors()
    cores = len({text_of(_cpu_folder(root, n) / "topology/thread_siblings_list") or str(n) for n in usable})
    quota = cpu_quota(root)
    cores = cores if quota is None else max(1, min(cores, int(quota)))
    memory_byte = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    model = re.search(r"^model name\s*:\s*(.+)$", text_of(root / "proc/cpuinfo"), re.MULTILINE)
    name = (model[1].strip() if model else "") or platform.machine() or "unknown CPU"
    return Device(
        kind="cpu",
        index=None,
        name=name,
        slug=f"cpu-{slug_of(re.sub(r'[(](R|TM)[)]|CPU|Processor|@.*', ' ', name))}-{cores}-core",
        id=short_hash(socket.gethostname()),
        uuid="",
        sm_count=cores,
        cache_byte=_last_level_byte(root, usable),
        memory_byte=min(memory_byte, memory_limit_byte(root) or memory_byte),
        capability=None,
        driver=platform.release(),
        datasheet=None,
        host=socket.gethostname(),
        boot=_boot(root),
    )


def usable_processors() -> list[int]:
    """Numbers of the processors that this process may run on."""
    everything = range(os.cpu_count() or 1)
    return sorted(os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else everything)


def _cpu_folder(root: Path, number: int) -> Path:
    return root / f"sys/devices/system/cpu/cpu{number}"


def _last_level_byte(root: Path, usable: list[int]) -> int:
    """Bytes of the outermost caches that these processors share, each counted once; 0 if unknown."""
    sizes_byte: dict[tuple[int, str], int] = {}
    for number in usable:
        for cache in _cpu_folder(root, number).glob("cache/index*"):
            size = re.fullmatch(r"(\d+)([KMG])", text_of(cache / "size"))
            level = text_of(cache / "level")
            if size and level.isdigit() and text_of(cache / "type") != "Instruction":
                shared = text_of(cache / "shared_cpu_list") or str(number)
                sizes_byte[int(level), shared] = int(size[1]) << {"K": 10, "M": 20, "G": 30}[size[2]]
    outermost = max((level for level, _ in sizes_byte), default=0)
    return sum(size for (level, _), size in sizes_byte.items() if level == outermost)


def _boot(root: Path) -> str:
    boot_id = text_of(root / "proc/sys/kernel/random/boot_id")
    return short_hash(boot_id) if boot_id else ""


def short_hash(text: str) -> str:
    """A short hash that stands in a result for a name that only has to be distinguishable from others."""
    return hashlib.sha256(text.encode()).hexdigest()[:12]
