"""Packages as the worker of a run sees them: started as runs start it, then compared with the parent."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from bench.attended import Attended
from bench.device import Device
from bench.doctor.finding import Finding, failed, passed, warned
from bench.measure.process import WorkerDied
from bench.row import SEED

PROJECT = Path(__file__).parents[2] / "pyproject.toml"
NOT_FOR_RUNS = ("dev", "public")
"""Optional groups of pyproject.toml that no run uses."""
COSTS = {
    "nvmath-python": "cublaslt and its tiles are unsupported (2,062 cases of the sweeps)",
}
"""Optional package -> what a run lacks without it."""


def findings(device: Device, parent: Mapping[str, Any]) -> Iterator[Finding]:
    """The worker, whether it is the parent's kin, and the packages that pyproject.toml names."""
    project = tomllib.loads(PROJECT.read_text())["project"]
    yield required(project["dependencies"], metadata.version)
    attended = Attended(device, SEED)
    try:
        attended.started()
        yield worker(attended.hello, attended.starting_s)
        yield agreement(attended.hello, parent)
    except WorkerDied as death:
        tried = "torch" if device.kind == "cpu" else "torch; torch.zeros(1, device='cuda')"
        remedy = f'Mend this first, which must end without an error: {sys.executable} -c "import {tried}"'
        yield failed("worker", f"No worker starts: {death}.", remedy, str(death))
    finally:
        attended.close()
    if device.kind == "cuda":
        yield from optional(project["optional-dependencies"], metadata.version)


def _install(what: str) -> str:
    return f"Install it into the Python that runs this: {sys.executable} -m pip install {what}"


def _unmet(wanted: Iterable[str], version: Callable[[str], str]) -> dict[str, str]:
    """Requirement -> what is there instead, of those that apply here and are not met."""
    unmet = {}
    for text in wanted:
        requirement = Requirement(text)
        if requirement.marker is not None and not requirement.marker.evaluate():
            continue
        try:
            there = version(requirement.name)
        except metadata.PackageNotFoundError:
            unmet[text.partition(";")[0]] = "not there"
            continue
        if not requirement.specifier.contains(there, prereleases=True):
            unmet[text.partition(";")[0]] = there
    return unmet


def required(dependencies: list[str], version: Callable[[str], str]) -> Finding:
    """Whether every package that roofbench needs is there; `version` is importlib.metadata's."""
    unmet = _unmet(dependencies, version)
    if not unmet:
        return passed("packages", f"All {len(dependencies)} packages that roofbench needs are there.")
    listed = ", ".join(f"{text} ({there})" for text, there in unmet.items())
    remedy = _install(" ".join(f"'{text}'" for text in unmet))
    return failed("packages", f"Missing or too old: {listed}.", remedy, unmet=unmet)


def optional(groups: Mapping[str, list[str]], version: Callable[[str], str]) -> Iterator[Finding]:
    """What is lost for want of each optional package, apart from those for developers."""
    wanted = [text for name, texts in groups.items() if name not in NOT_FOR_RUNS for text in texts]
    unmet = _unmet(wanted, version)
    if not unmet:
        yield passed("optional packages", f"There as well: {', '.join(wanted)}.")
    for text, there in unmet.items():
        cost = COSTS.get(Requirement(text).name, "what needs it is left out, row by row")
        yield warned("optional packages", f"{text} is {there}: {cost}.", _install(f"'{text}'"))


def worker(hello: Mapping[str, Any], starting_s: float) -> Finding:
    """A worker answered."""
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
