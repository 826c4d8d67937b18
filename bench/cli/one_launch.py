"""`python -m bench one CASE`: one launch in steady state; `profile CASE`: that launch under a profiler."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

import kernels
from bench.case_name import row_name
from bench.cli.application import DeviceOption
from bench.cli.completion import implementations
from bench.cli.run_command import KernelOption, cases_of
from bench.errors import UserError
from bench.format import seconds_text
from bench.spec import is_custom, parameter_words
from bench.worker.lifeline import die_with

if TYPE_CHECKING:
    from bench.store.schema import Measurement

Words = Annotated[
    list[str],
    typer.Argument(metavar="CASE|OPERATOR...", help="A case's name, or OPERATOR NAME=VALUE... as of run."),
]
NCU = ("ncu", "--set", "full", "--profile-from-start", "off", "--clock-control", "none")
"""Nsight Compute, for what lies between cudaProfilerStart and cudaProfilerStop.

It would lock the GPU's clock, which no borrower of a GPU may do and no timed launch of ours has.
"""
NSYS = ("nsys", "profile", "--capture-range", "cudaProfilerApi", "--capture-range-end", "stop")
"""Nsight Systems, for the same."""


def one(
    words: Words,
    implementation: Annotated[
        str, typer.Option(metavar="NAME", help="Of OPERATOR...", autocompletion=implementations)
    ] = "",
    kernel: KernelOption = None,
    cache: Annotated[
        str, typer.Option(metavar="cold|warm", help="Where the launch finds its data.")
    ] = "cold",
    bench_device: DeviceOption = "auto",
) -> None:
    """Build a case, warm it up and launch it once, all in this process: for a profiler or a debugger.

    Exit code 2: bad input, or the case cannot run here.
    """
    from bench.cli.ab_cases import named
    from bench.device.detect import detect
    from bench.runner.rows import SEED
    from bench.runner.supervisor import request_for

    device = detect(bench_device)
    if len(words) > 1 or words[0] in kernels.names():
        more = {"implementation": implementation, "kernel": kernel or [], "cache": cache}
        cases = cases_of("one", words, device, **more)
    else:
        cases = named(words, device.sm_count)
    case = cases[0]
    if len(cases) > 1:
        raise UserError(f"one {words[0]}: {len(cases)} cases are asked for ({case.name} ...); give one")
    if reason := case.missing(device.kind, device.capability):
        raise UserError(f"one {case.name}: {reason}")
    if device.uuid:
        os.environ["CUDA_VISIBLE_DEVICES"] = device.uuid  # before torch is imported
    import torch

    from bench.worker.__main__ import answer, make_bench

    bench = make_bench(device.kind, device.cache_byte, SEED, device.uuid or None)
    with torch.no_grad():
        facts = answer(bench, request_for("one", case.implementation, case.problem, cache=case.cache))
    if facts["status"] != "ok":
        raise UserError(f"one {case.name}: {facts['status']}: {facts['reason']}")
    typer.echo(f"{case.name}: launched once, {seconds_text(facts['wall_s'])} by the wall clock")


def profile(words: Words) -> None:
    """`one` with these words and options under Nsight Compute, or Nsight Systems where that is not installed.

    Exit code 2: neither is; else that of the profiler.
    """
    profiler = next((tool for tool in (NCU, NSYS) if shutil.which(tool[0])), None)
    if profiler is None:
        raise UserError("profile: neither ncu (Nsight Compute) nor nsys (Nsight Systems) is on the PATH")
    command = [*profiler, "-o", _report(" ".join(words)), sys.executable, "-m", "bench", "one", *words]
    typer.echo(shlex.join(command))
    raise typer.Exit(subprocess.run(command, preexec_fn=partial(die_with, os.getpid())).returncode)


def ncu_command(row: Measurement, here: bool) -> str:
    """The command by which Nsight Compute sees one launch of the row's case, and of it the row's kernels."""
    parts = [part.partition(" grid ") for part in (row.kernels or "").split("; ")]
    only = "|".join(dict.fromkeys(name for name, grid, _ in parts if grid and name != "?"))
    named = ["--kernel-name-base", "mangled", "--kernel-name", f"regex:^({only})$"] if only else []
    command = ["python", "-m", "bench", "one", *words_of(row, here)]
    return shlex.join([*NCU, *named, "-o", _report(row_name(row)), *command])


def _report(name: str) -> str:
    return re.sub(r"[^\w.+=-]+", "-", name)


def words_of(row: Measurement, here: bool) -> list[str]:
    """The words by which `one` finds the row's case; `here`: its sweep is a file of this checkout."""
    if here:
        return [row_name(row)]
    which = ["--implementation", row.implementation]
    if is_custom(row.implementation):
        which = ["--kernel", f"{row.configuration.rpartition(' ')[0]}:{row.implementation.partition(':')[2]}"]
    given = parameter_words(json.loads(row.parameters))
    return [row.operator, *given, *which, *(["--cache", "warm"] if row.cache == "warm" else [])]
