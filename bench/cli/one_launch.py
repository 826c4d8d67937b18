"""`python -m bench run CASE --once`: one launch in steady state, and the command that profiles it."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Sequence

import typer

import kernels
from bench.cli.run_command import cases_of
from bench.errors import UserError
from bench.format import seconds_text

NCU = ("ncu", "--set", "full", "--profile-from-start", "off", "--clock-control", "none")
"""Nsight Compute, for what lies between cudaProfilerStart and cudaProfilerStop.

It would lock the GPU's clock, which no borrower of a GPU may do and no timed launch of ours has.
"""


def launch_once(
    words: Sequence[str], implementation: str, kernel: Sequence[str], cache: str, bench_device: str
) -> None:
    """Build a case, warm it up and launch it once, all in this process: for a profiler or a debugger.

    `words`: a case's name, or OPERATOR NAME=VALUE... It ends with the command that runs this under Nsight.
    UserError: bad input, or the case cannot run here.
    """
    from bench.cli.ab_cases import named
    from bench.device.detect import detect
    from bench.runner.merge_visits import SEED
    from bench.runner.supervisor import request_for

    device = detect(bench_device)
    if len(words) > 1 or words[0] in kernels.names():
        more = {"implementation": implementation, "kernel": kernel, "cache": cache}
        cases = cases_of("run", words, device, **more)
    else:
        cases = named(words, device.sm_count)
    case = cases[0]
    if len(cases) > 1:
        raise UserError(
            f"run --once {words[0]}: {len(cases)} cases are asked for ({case.name} ...); give one"
        )
    if reason := case.missing(device.kind, device.capability):
        raise UserError(f"run --once {case.name}: {reason}")
    if device.uuid:
        os.environ["CUDA_VISIBLE_DEVICES"] = device.uuid  # before torch is imported
    import torch

    from bench.worker.__main__ import answer, make_bench

    bench = make_bench(device.kind, device.cache_byte, SEED, device.uuid or None)
    with torch.no_grad():
        facts = answer(bench, request_for("one", case.implementation, case.problem, cache=case.cache))
    if facts["status"] != "ok":
        raise UserError(f"run --once {case.name}: {facts['status']}: {facts['reason']}")
    typer.echo(f"{case.name}: launched once, {seconds_text(facts['wall_s'])} by the wall clock")
    report = re.sub(r"[^\w.+=-]+", "-", case.name)
    command = [*NCU, "-o", report, "python", "-m", "bench", *sys.argv[1:]]
    typer.echo(f"under a profiler: {shlex.join(command)}")
