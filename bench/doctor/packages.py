"""Check of packages: the worker starts as in a run, and its versions are compared with the parent's."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any

from bench.device.detect import Device
from bench.doctor.finding import Finding, failed, passed, warned
from bench.environment.dependencies import Requirement, missing, pip_install
from bench.runner.rows import SEED
from bench.runner.supervisor import WorkerSupervisor
from bench.runner.worker_process import WorkerDied

EXTRAS = ("cublaslt", "opponents")
"""Groups of optional packages in pyproject.toml that runs on a GPU use."""
COSTS = {
    "flash-attn-4": "every case of flash-4 is unsupported",
    "liger-kernel": "every case of liger is unsupported",
    "nvmath-python": "every case of cublaslt and its tiles is unsupported (a run says how many)",
    "quack-kernels": "every case of quack is unsupported",
}
"""Optional package -> what a run lacks without it."""


def findings(device: Device, parent: Mapping[str, Any]) -> Iterator[Finding]:
    """The findings on the worker, on its versions, and on the packages that pyproject.toml names."""
    lacking = missing()
    yield required(lacking)
    try:
        with closing(WorkerSupervisor(device, SEED)) as supervisor:
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
    """Whether every package that roofbench needs is there."""
    if not lacking:
        return passed("packages", "Every package that roofbench needs is there.")
    listed = ", ".join(requirement.lack for requirement in lacking)
    remedy = f"Install with: {pip_install(map(str, lacking))}"
    return failed("packages", f"Missing or too old: {listed}.", remedy, lacking=list(map(str, lacking)))


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
