"""Completion in a shell: what can stand for an operator, a sweep or a device, and the script that asks.

Typer answers a shell's questions, which come in environment variables, but its own scripts need a program on
the PATH; the scripts here define `roofbench`, a function that runs `python -m bench` of this checkout.
"""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

import kernels
from bench.cli.application import COMPLETE
from bench.device.datasheet import BY_CAPABILITY, FILES
from bench.environment.dependencies import ROOT
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


def completion(
    shell: Annotated[Literal["bash", "zsh"], typer.Argument(help="The shell that is to read it.")],
) -> None:
    """Print what defines `roofbench`, with completion: eval "$(python -m bench completion bash)"."""
    script = (Path(__file__).parent / "templates" / f"completion.{shell}").read_text("utf-8")
    words = {"@ROOT@": str(ROOT), "@PYTHON@": sys.executable, "@COMPLETE@": COMPLETE}
    for word, value in words.items():
        script = script.replace(word, shlex.quote(value))
    typer.echo(script, nl=False)
