"""Completion in a shell: what can stand for an operator, a sweep, a suite or a GPU."""

from __future__ import annotations

import os

import kernels
from bench.device.datasheet import BY_CAPABILITY, FILES
from bench.sweep.load import every_sweep, sweep_name


def sweeps() -> list[str]:
    """The sweeps of this checkout, and their folders."""
    names = [sweep_name(path) for path in every_sweep()]
    return sorted({name.partition("/")[0] for name in names} | set(names))


def suites() -> list[str]:
    """The suites of sweeps/suites.yaml."""
    from bench.sweep import suites

    return list(suites.suites())


def gpus() -> list[str]:
    """The files of bench/device/datasheets, without their ending."""
    return sorted(path.stem for path in FILES.glob("*.yaml") if path.name != BY_CAPABILITY)


def implementations(incomplete: str) -> list[str]:
    """The implementations of the operator that the command line names, after those already in the list."""
    # As the option has no value yet, typer has parsed nothing: bash, zsh.
    words = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS", "")
    operator = next((word for word in words.split() if word in kernels.names()), "")
    if not operator:
        return []
    before, comma, _ = incomplete.rpartition(",")
    return [f"{before}{comma}{each.name}" for each in kernels.problem(operator).implementations]
