"""`python -m bench coverage`, `prediction`, `instruments`, `self`: our word held against something else."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import kernels
from bench.cli.application import DeviceOption, left_out, remark, show
from bench.device.detect import detect
from bench.environment.dependencies import refuse_if_missing
from bench.errors import UserError


def coverage(
    results: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[RESULT]...", help="Runs of one machine and commit."),
    ] = None,
    repetitions: Annotated[int, typer.Option(help="Simulated runs for each kind of kernel.")] = 120,
) -> None:
    """How often intervals cover the truth, ours beside other tools' rules: simulated, a minute on one core.

    With results, runs of one machine and one commit: how often the intervals of one cover the others, how
    many verdicts between them are false, and how many slowdowns are found that are written into a file.

    `error` is the distance from a launch's true time, its median and its 95th percentile. `either`: the
    interval covers the truth, or a flag is raised. Truth is defined in bench/validation/interval_coverage.py.
    """
    if results:
        from bench.judge.frame import read
        from bench.validation.repeated_runs import repeated_lines

        show(repeated_lines(read(results, left_out)))
        return
    from bench.validation.interval_coverage import SEED, coverage_lines, scores

    if repetitions < 1:
        raise UserError(f"--repetitions {repetitions}: give a whole number, 1 or more")
    for line in coverage_lines(scores(repetitions, SEED), repetitions, SEED):
        typer.echo(line)


def prediction(
    draws: Annotated[int, typer.Option(help="Random draws of the calibration shapes.")] = 5,
) -> None:
    """How far each level is off on public tables of nine GPUs and three engines: forty minutes on one core.

    Needs the package aiconfigurator-core. Shapes that calibrate are never scored.
    """
    from bench.validation.prediction import prediction_lines

    if draws < 1:
        raise UserError(f"--draws {draws}: give a whole number, 1 or more")
    for line in prediction_lines(draws, remark):
        typer.echo(line)


def instruments(bench_device: DeviceOption = "auto") -> None:
    """Our clocks beside independent ones: the same launches, in turns where they can share a process."""
    from rich.console import Console

    from bench.device.lock import device_lock
    from bench.runner.worker_process import device_environment
    from bench.validation.clock_agreement import WIDTH, compare_instruments

    refuse_if_missing()
    device = detect(bench_device)
    with device_lock(device.uuid, str(device), "comparing instruments") as unlocked:
        if unlocked:
            remark(unlocked)
        settings = {
            "kind": device.kind,
            "cache_byte": device.cache_byte,
            "uuid": device.uuid,
            "threads": device.sm_count if device.kind == "cpu" else 1,
            "name": str(device) if device.kind == "cuda" else f"{device.name}, {device.sm_count} cores",
        }
        environment = device_environment(device.kind, device.uuid or None)
        code = compare_instruments(settings, environment, Console(width=WIDTH))
    raise typer.Exit(code)


def self_measurement() -> None:
    """What the harness itself costs: listing, collecting 5,000 cases, memory, and the parent a visit."""
    from bench.validation.harness_overhead import commands_overhead, parent_overhead

    refuse_if_missing()
    for line in commands_overhead():
        typer.echo(line)
    for line in parent_overhead(kernels.problem):
        typer.echo(line)
