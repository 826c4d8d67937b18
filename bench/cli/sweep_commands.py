"""`python -m bench list` and `predict`: commands about sweeps, measured or not."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import kernels
from bench.cli.application import DeviceOption, left_out, show
from bench.device.datasheet import cuda_gpu_named
from bench.device.detect import detect
from bench.environment.dependencies import demand
from bench.errors import UserError
from bench.sweep import load as sweep

Names = Annotated[list[str] | None, typer.Argument(help="Sweeps, folders of sweeps, YAML files.")]


def list_cases(
    sweeps: Names = None,
    bench_device: DeviceOption = "auto",
    cases: Annotated[bool, typer.Option("--cases", help="Every case, not only every sweep.")] = False,
    on: Annotated[
        str,
        typer.Option(metavar="GPU", help="The plan for a GPU that is not here, by any name: h100_sxm5."),
    ] = "",
    suite: Annotated[
        str,
        typer.Option(metavar="NAME", help="The plan of a suite: tour, core, ... (sweeps/suites.yaml)."),
    ] = "",
) -> None:
    """The sweeps and their cases, with the least time that the device's datasheet allows; or a run's plan."""
    from bench.cli.list_cases import listing, of_datasheet, planned
    from bench.runner.cases import chosen_cases

    device = of_datasheet(cuda_gpu_named(on, "--on")) if on else detect(bench_device)
    if suite and sweeps:
        raise UserError(f"--suite {suite} chooses among all sweeps: leave it out, or {', '.join(sweeps)}")
    if on or suite:
        chosen = chosen_cases(suite or None, sweeps or (), (), device, kernels.problem)
        show(planned(device, chosen.cases, chosen.claims, named=cases))
        return
    paths = [path for name in sweeps or () for path in sweep.select(name)]
    loaded = sweep.load_all(paths or sweep.SWEEPS, kernels.problem, device.sm_count)
    show(listing(device, loaded, named=cases))


def predict(
    operator: Annotated[
        str, typer.Argument(metavar="OPERATOR", help="A folder of kernels/, such as softmax.")
    ],
    given: Annotated[
        list[str] | None, typer.Argument(metavar="NAME=VALUES...", help="Its parameters, as for run.")
    ] = None,
    on: Annotated[
        str, typer.Option(metavar="GPU", help="A file of bench/device/datasheets, or any name of the GPU.")
    ] = "",
    results: Annotated[
        list[Path] | None,
        typer.Option(
            "--from", metavar="RESULT", help="Timings to learn from; default: results/. Repeatable."
        ),
    ] = None,
) -> None:
    """What an operator's launches would take on any GPU, with a 90 % interval, and how far off that was.

    `predict softmax rows=4096 length=1024..65536 --on b200` learns from the timings of all GPUs among the
    results. `list --on` has the least times by a datasheet.
    """
    from bench.cli import predict as predicting
    from bench.judge.timings import read_pool
    from bench.runner.run import RESULTS

    if not on or not given:
        raise UserError(f"predict {operator}: give an operator, sizes and a GPU: gemm m=n=k=4096 --on b200")
    demand("predict", "scikit-learn")
    wanted = cuda_gpu_named(on, "--on")
    cases = predicting.cases_of(operator, given, wanted)
    show(predicting.learned_lines(read_pool(results or [RESULTS], left_out), cases, wanted))
