"""Checks of packages, driver, datasheet, others on the device, and of the worker that a run would start.

Imports no torch: a wheel that the driver is too old for may refuse to be imported.
"""

from __future__ import annotations

import ctypes
import runpy
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pynvml

from bench.device.cuda_driver import LIBRARY, CudaError, newest_cuda
from bench.device.detect import Device
from bench.device.health import fitness
from bench.device.nvml import NvmlGpu
from bench.doctor.finding import Finding, failed, passed, warned
from bench.environment.dependencies import EVERYTHING, missing, pip_install
from bench.runner.supervisor import WorkerSupervisor
from bench.runner.worker_process import WorkerDied

LEAST_DRIVER = {11: "450.80 or later", 12: "525.60 or later", 13: "580.65 or later"}
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
NVML_REMEDY = "Let the container see NVML (--gpus all, or the utility capability), or be sure of it yourself."


def driver(device: Device) -> Iterator[Finding]:
    """The findings on the driver and the datasheet of a GPU, and on a device's neighbours."""
    if device.kind == "cuda":
        yield compatible(torch_built_for(), driver_cuda(), device.driver)
        yield datasheet(device)
    yield from neighbours(device)


def torch_built_for() -> Mapping[str, Any]:
    """torch/version.py of the torch that would be imported."""
    spec = find_spec("torch")
    assert spec is not None and spec.origin, "the command begins only if it is there"
    return runpy.run_path(str(Path(spec.origin).with_name("version.py")))


def driver_cuda(libcuda: str = LIBRARY) -> int:
    """Newest CUDA that the driver supports, in the form of cuDriverGetVersion (13000: 13.0); 0 if unknown."""
    try:
        return newest_cuda(ctypes.CDLL(libcuda))
    except (OSError, CudaError):
        return 0


def compatible(torch: Mapping[str, Any], speaks: int, driver_version: str) -> Finding:
    """Whether this torch can run on a driver that speaks CUDA `speaks`."""
    wheel = str(torch.get("cuda") or "")
    here, major = f"{speaks // 1000}.{speaks % 1000 // 10}", int(wheel.partition(".")[0] or 0)
    if not wheel:
        sentence = f"torch {torch['__version__']} was built without CUDA, and there is a GPU."
        return failed("driver", sentence, "Install a torch wheel built for CUDA.")
    if not speaks:
        sentence = "The driver library does not say which CUDA it speaks."
        return failed("driver", sentence, "Reinstall the driver (nvidia-smi must list the GPU).")
    if speaks // 1000 < major:
        least = LEAST_DRIVER.get(major, f"one that speaks CUDA {major}")
        sentence = f"torch was built for CUDA {wheel}; driver {driver_version} speaks CUDA {here} at most."
        remedy = f"Update the driver to {least}, or install a torch wheel built for CUDA {here} or older."
        return failed("driver", sentence, remedy)
    sentence = f"Driver {driver_version} speaks CUDA {here}; torch was built for CUDA {wheel}."
    return passed("driver", sentence)


def datasheet(device: Device) -> Finding:
    """Whether a file of bench/device/datasheets describes the GPU."""
    sheet = device.datasheet
    assert sheet is not None, "a GPU has a datasheet, if only a derived one"
    if not device.derived:
        path = f"bench/device/datasheets/{sheet.slug}.yaml"
        return passed("datasheet", f"{device.name} with {device.sm_count} SMs is described by {path}.")
    peaks = "follow from the driver's clocks and may be some 8 % high" if sheet.rates else "are unknown"
    sentence = f"No file describes {device.name} with {device.sm_count} SMs; its peaks {peaks}."
    return warned("datasheet", sentence, "Write it: copy a file of bench/device/datasheets.")


def neighbours(device: Device, nvml: Any = pynvml, root: Path = Path("/")) -> Iterator[Finding]:
    """The reasons of bench/device/health.py against measuring now; `nvml` and `root` as for `fitness`."""
    against = fitness(device, nvml, root)
    if device.kind == "cuda" and NvmlGpu(device.uuid, nvml).processes() is None:
        yield warned("neighbours", f"{device}: NVML does not say who else uses it.", NVML_REMEDY)
        return
    for unfit in against:
        finding = failed if unfit.refuses else warned
        yield finding(unfit.kind, f"{device}: {unfit.sentence}.", REMEDIES[unfit.kind])
    if not against:
        yield passed("neighbours", "Nothing else uses the device or holds it back.")


def packages(device: Device) -> Iterator[Finding]:
    """The findings on the packages that only drawing, importing or predicting needs, and on the worker.

    Without those that measuring needs the command does not begin.
    """
    sentence = "Measuring has every package it needs."
    if lacking := missing((EVERYTHING,)):
        listed = ", ".join(requirement.lack for requirement in lacking)
        sentence += f" Drawing, importing or predicting lacks {listed}. Install with: "
        sentence += pip_install(map(str, lacking))
    yield passed("packages", sentence)
    try:
        with closing(WorkerSupervisor(device)) as supervisor:
            supervisor.started()
            versions = {name: version or "none" for name, version in supervisor.hello.items()}
            sentence = (
                "A worker starts in {:.1f} s: Python {python}, torch {torch}, Triton {triton}; {libraries}."
            )
            yield passed("worker", sentence.format(supervisor.starting_s, **versions))
    except WorkerDied as death:
        tried = "torch" if device.kind == "cpu" else "torch; torch.zeros(1, device='cuda')"
        remedy = f'Mend this first, which must end without an error: {sys.executable} -c "import {tried}"'
        yield failed("worker", f"No worker starts, so nothing else is checked: {death}.", remedy)
