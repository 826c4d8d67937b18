"""`python -m bench nightly`: its options, its files and its exit code."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bench.cli.application import DeviceOption, ResultsOption, WallTimeOption
from bench.device.detect import detect
from bench.environment.dependencies import AFTERWARDS, demand, refuse_if_missing
from bench.errors import UserError, write_text

Baseline = Annotated[
    Path | None, typer.Option(metavar="DIR", help="More nights of before, as results/ holds them.")
]
Sweeps = Annotated[list[str] | None, typer.Option(metavar="NAME", help="Only this sweep; repeatable.")]
Suite = Annotated[
    str | None, typer.Option(metavar="NAME", help="As for pytest. Default: core, unless sweeps are named.")
]
Resume = Annotated[bool, typer.Option("--bench-resume", help="Go on with a night that was cut short.")]
Summary = Annotated[Path | None, typer.Option(metavar="FILE", help="The page, also as this Markdown file.")]


def nightly(
    bench_results: ResultsOption = None,
    baseline: Baseline = None,
    bench_device: DeviceOption = "auto",
    bench_sweep: Sweeps = None,
    bench_suite: Suite = None,
    bench_budget: WallTimeOption = None,
    bench_resume: Resume = False,
    summary: Summary = None,
) -> None:
    """One night: measure this machine, compare with the nights before, say what changed.

    Exit code 0: nothing got slower, or nothing was compared yet, for which the page says how many nights are
    missing. 1: something got slower, or no longer works. 2: nothing could be compared, the machine is not
    fit, or the input is bad. 3: the run broke.
    """
    from bench.cli.whole_run import measure
    from bench.nightly.night import night
    from bench.nightly.report import nightly_lines
    from bench.runner.options import Options
    from bench.runner.run import RESULTS
    from bench.sweep.suites import CORE

    refuse_if_missing(without=AFTERWARDS)
    demand("nightly", "ruptures")
    if baseline is not None and not baseline.is_dir():
        raise UserError(
            f"--baseline {baseline}: no such folder; give one that holds result files, or leave it out"
        )
    options = Options(
        device=bench_device,
        sweeps=bench_sweep or (),
        suite=bench_suite or (None if bench_sweep else CORE),
        budget=bench_budget,
        results=(bench_results or RESULTS).absolute(),
        resume=bench_resume,
    )
    tonight = night(detect(bench_device), baseline, options, measure)
    page = "\n".join(nightly_lines(tonight))
    typer.echo(f"\n{page}")
    if summary is not None:
        write_text(summary, page)
    raise typer.Exit(tonight.exit_code)
