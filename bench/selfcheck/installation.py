"""Checks of the driver, the datasheet, others on the device, and of packages in this process and a worker.

Imports no torch: a wheel that the driver is too old for may refuse to be imported.
"""

from __future__ import annotations

import ctypes
import runpy
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pynvml

from bench.device.cuda_driver import LIBRARY, CudaError, newest_cuda
from bench.device.detect import Device
from bench.device.health import fitness
from bench.device.nvml import NvmlGpu
from bench.environment.dependencies import AFTERWARDS, Requirement, missing, pip_install
from bench.runner.supervisor import WorkerSupervisor
from bench.runner.worker_process import WorkerDied
from bench.selfcheck.finding import Finding, failed, passed, warned

LEAST_DRIVER = {11: "450.80", 12: "525.60", 13: "580.65"}
"""CUDA's major version -> first driver that runs all of its minor versions (CUDA release notes, Table 2)."""
REMEDIES = {
    "foreign processes": "Wait for them or stop them (nvidia-smi lists them): they disturb every row.",
    "mig": "Measure a whole GPU, or turn MIG off (nvidia-smi -mig 0) if the machine is yours.",
    "power limit": "Keep it, and compare only with rows of the same limit: every row records it.",
    "persistence": "Turn it on (nvidia-smi -pm 1), or expect a slower start of each worker.",
    "temperature": "Let the GPU cool down, and look at its fans and its neighbours.",
    "clocks": "Look at nvidia-smi -q -d PERFORMANCE: an idle GPU is slowed by a fault of power or cooling.",
    "load": "Stop what else runs on this machine, or expect wide intervals and flags on the rows.",
    "quota": "Give the container whole processors: a quota stops them in the middle of a launch.",
}
"""Kind of bench.device.health.Unfit -> its remedy."""


EXTRAS = ("cublaslt", "opponents")
"""Groups of optional packages in pyproject.toml that runs on a GPU use."""
COSTS = {
    "flash-attn-4": "every case of flash-4 is unsupported",
    "liger-kernel": "every case of liger is unsupported",
    "nvmath-python": "every case of cublaslt and its tiles is unsupported (a run says how many)",
    "quack-kernels": "every case of quack is unsupported",
}
"""Optional package -> what a run lacks without it."""


def driver(device: Device, parent: Mapping[str, Any]) -> Iterator[Finding]:
    """The findings on the driver and the datasheet of a GPU, and on a device's neighbours.

    They come before any worker is started, when every process on the GPU is somebody else's.
    """
    if parent["unusable_gpu"]:
        yield failed(
            "GPU",
            f"A CUDA driver is installed and gives no GPU: {parent['unusable_gpu']}.",
            "Repair the driver (nvidia-smi must list the GPU), or ask for the CPU: --bench-device cpu.",
        )
    if device.kind == "cuda":
        yield compatible(torch_built_for(), driver_cuda(), device.driver)
        yield datasheet(device)
    yield from neighbours(device)


def torch_built_for() -> Mapping[str, Any]:
    """torch/version.py of the torch that would be imported; empty if there is none."""
    spec = find_spec("torch")
    if spec is None or not spec.origin:
        return {}
    return runpy.run_path(str(Path(spec.origin).with_name("version.py")))


def driver_cuda(libcuda: str = LIBRARY) -> int:
    """Newest CUDA that the driver supports, in the form of cuDriverGetVersion (13000: 13.0); 0 if unknown."""
    try:
        return newest_cuda(ctypes.CDLL(libcuda))
    except (OSError, CudaError):
        return 0


def compatible(torch: Mapping[str, Any], speaks: int, version: str) -> Finding:
    """Whether this torch can run on a driver that speaks CUDA `speaks`; `version` is the driver's own."""
    name = "driver"
    numbers: dict[str, Any] = {"driver_cuda": speaks, "driver": version, "torch": torch.get("__version__")}
    wheel = str(torch.get("cuda") or "")
    numbers["wheel_cuda"] = wheel
    here, major = f"{speaks // 1000}.{speaks % 1000 // 10}", int(wheel.partition(".")[0] or 0)
    if not torch:
        sentence, remedy = "torch is not installed.", "Install it: make setup."
    elif not wheel:
        sentence = f"torch {torch['__version__']} was built without CUDA, and there is a GPU."
        remedy = "Install a torch wheel built for CUDA."
    elif not speaks:
        sentence = "The driver library does not say which CUDA it speaks."
        remedy = "Reinstall the driver (nvidia-smi must list the GPU)."
    elif speaks // 1000 < major:
        known = major in LEAST_DRIVER
        least = f"{LEAST_DRIVER[major]} or later" if known else f"one that speaks CUDA {major}"
        sentence = f"torch was built for CUDA {wheel}; driver {version} speaks CUDA {here} at most."
        remedy = f"Update the driver to {least}, or install a torch wheel built for CUDA {here} or older."
    else:
        sentence = f"Driver {version} speaks CUDA {here}; torch was built for CUDA {wheel}."
        return passed(name, sentence, **numbers)
    return failed(name, sentence, remedy, **numbers)


def datasheet(device: Device) -> Finding:
    """Whether a file of bench/device/datasheets describes the GPU."""
    sheet, name = device.datasheet, "datasheet"
    assert sheet is not None, "a GPU has a datasheet, if only a derived one"
    numbers: dict[str, Any] = {"sm_count": device.sm_count, "memory_byte": device.memory_byte}
    numbers["l2_byte"] = device.cache_byte
    if not device.derived:
        path = f"bench/device/datasheets/{sheet.slug}.yaml"
        sentence = f"{device.name} with {device.sm_count} SMs is described by {path}."
        return passed(name, sentence, **numbers)
    sentence = f"No file of bench/device/datasheets describes {device.name} with {device.sm_count} SMs"
    remedy = (
        f"Write bench/device/datasheets/{device.slug}.yaml after its neighbours, "
        "with a source for each number."
    )
    if not sheet.rates:
        sentence += ", so its peaks are unknown and its roofs are measured ones only."
    else:
        sentence += "; its peaks follow from the driver's clocks and may be some 8 % high."
    return warned(name, sentence, remedy, **numbers)


def neighbours(device: Device, nvml: Any = pynvml, root: Path = Path("/")) -> Iterator[Finding]:
    """The reasons of bench/device/health.py against measuring now; `nvml` and `root` as for `fitness`."""
    against = fitness(device, nvml, root)
    if device.kind == "cuda" and NvmlGpu(device.uuid, nvml).processes() is None:
        sentence = f"{device}: NVML does not say who else uses it."
        remedy = (
            "Let the container see NVML (--gpus all, or the utility capability), or be sure of it yourself."
        )
        yield warned("neighbours", sentence, remedy)
        return
    for unfit in against:
        finding = failed if unfit.refuses else warned
        yield finding(unfit.kind, f"{device}: {unfit.sentence}.", REMEDIES[unfit.kind])
    if not against:
        yield passed("neighbours", "Nothing else uses the device or holds it back.")


# ---- packages, and the worker that finds them


def packages(device: Device, parent: Mapping[str, Any]) -> Iterator[Finding]:
    """The findings on the worker, on its versions, and on the packages that pyproject.toml names."""
    lacking = missing()
    yield required(lacking)
    try:
        with closing(WorkerSupervisor(device)) as supervisor:
            supervisor.started()
            yield worker(supervisor.hello, supervisor.starting_s)
            yield agreement(supervisor.hello, parent)
    except WorkerDied as death:
        tried = "torch" if device.kind == "cpu" else "torch; torch.zeros(1, device='cuda')"
        remedy = f'Mend this first, which must end without an error: {sys.executable} -c "import {tried}"'
        yield failed("worker", f"No worker starts: {death}.", remedy, str(death))
    if device.kind == "cuda":
        yield from optional([requirement for requirement in missing(EXTRAS) if requirement not in lacking])


def required(lacking: Sequence[Requirement]) -> Finding:
    """Whether every package that measuring needs is there; those of other commands are named beside it."""
    listed = ", ".join(requirement.lack for requirement in lacking)
    names = list(map(str, lacking))
    remedy = f"Install with: {pip_install(names)}"
    if not lacking:
        return passed("packages", "Every package that roofbench needs is there.")
    if all(requirement.name in AFTERWARDS for requirement in lacking):
        sentence = f"Measuring has every package it needs. Drawing, importing or predicting lacks {listed}."
        return passed("packages", f"{sentence} {remedy}", lacking=names)
    return failed("packages", f"Missing or too old: {listed}.", remedy, lacking=names)


def optional(lacking: Sequence[Requirement]) -> Iterator[Finding]:
    """What a run lacks without each missing optional package of EXTRAS in pyproject.toml."""
    if not lacking:
        yield passed("optional packages", f"Those of {', '.join(EXTRAS)} are there as well.")
    for requirement in lacking:
        cost = COSTS.get(requirement.name, "what needs it is left out, row by row")
        remedy = f"Install with: {pip_install([str(requirement)])}"
        yield warned("optional packages", f"{requirement} is not there: {cost}.", remedy)


def worker(hello: Mapping[str, Any], starting_s: float) -> Finding:
    """The finding that a worker answered, with its versions."""
    versions = {name: str(hello.get(name) or "none") for name in ("python", "torch", "triton", "libraries")}
    sentence = "A worker starts in {:.1f} s: Python {python}, torch {torch}, Triton {triton}; {libraries}."
    return passed("worker", sentence.format(starting_s, **versions), starting_s=starting_s, versions=versions)


def agreement(hello: Mapping[str, Any], parent: Mapping[str, Any]) -> Finding:
    """Whether the worker uses the packages that the parent sees."""
    names = ("python", "torch", "triton")
    differ = {name: (parent[name], hello[name]) for name in names if parent[name] != hello[name]}
    if not differ:
        return passed("same packages", "The parent and its worker see the same Python, torch and Triton.")
    listed = "; ".join(f"{name} {ours or 'none'} and {its or 'none'}" for name, (ours, its) in differ.items())
    return failed(
        "same packages",
        f"The parent and its worker see different packages: {listed}.",
        "Keep one of them: look at PYTHONPATH and at packages installed for the user beside the environment.",
        differ=differ,
    )
