"""`python -m bench list` and `predict`: commands about sweeps, measured or not."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import kernels
from bench.cli.application import DeviceOption, left_out, show
from bench.device.detect import detect
from bench.environment.dependencies import demand
from bench.errors import UserError
from bench.sweep import load as sweep

Names = Annotated[list[str] | None, typer.Argument(help="Sweeps, folders of sweeps, YAML files.")]


def list_cases(
    sweeps: Names = None,
    bench_device: DeviceOption = "auto",
    cases: Annotated[bool, typer.Option("--cases", help="Every case, not only every sweep.")] = False,
    every: Annotated[
        bool, typer.Option("--all", help="Every sweep, not only every folder, where none is named.")
    ] = False,
    on: Annotated[
        str,
        typer.Option(
            metavar="GPU", help="The plan for a GPU that is not here: a file of bench/device/datasheets."
        ),
    ] = "",
    bench_budget: Annotated[
        str | None,
        typer.Option(metavar="SECONDS", help="The plan of a run: what it would visit in this time."),
    ] = None,
    suite: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="The plan of a suite: tour, core, fleet, accept, full (sweeps/suites.yaml)."
        ),
    ] = "",
) -> None:
    """The sweeps and their cases, with the least time that the device's datasheet allows; or a run's plan."""
    from bench.cli.list_cases import listing, of_datasheet, planned
    from bench.runner.cases import with_ceilings, without_idle_roofs
    from bench.runner.comparisons import cases_of_suite
    from bench.runner.forecast import Prices, budget_s
    from bench.sampling.protocol import protocol
    from bench.sweep.suites import load_suite

    if on:  # what predicts takes its time to import
        from bench.cli.predict import datasheet_named

        device = of_datasheet(datasheet_named(on))
    else:
        device = detect(bench_device)
    if suite and sweeps:
        raise UserError(f"--suite {suite} chooses among all sweeps: leave it out, or {', '.join(sweeps)}")
    of_suite = load_suite(suite, kernels.problem, device.sm_count) if suite else None
    loaded = of_suite.loaded if of_suite else _loaded(sweeps or [], device.sm_count)
    if not (on or suite or bench_budget is not None):
        show(listing(device, loaded, cases=cases, folders=not (sweeps or every or cases)))
        return
    budget = budget_s(bench_budget, device.kind, of_suite.suite if of_suite else None)
    visits = of_suite.suite.visits.of(device.kind) if of_suite else 1
    prices = Prices(device, protocol(device.kind, visits), budget)
    selected = [case for each in loaded for case in each.cases]
    if of_suite:
        selected = cases_of_suite(of_suite, prices)
    if sweeps:  # a run measures the ceilings that they need, too
        ceilings = [case for each in _loaded(["ceilings"], device.sm_count) for case in each.cases]
        selected = with_ceilings(selected, ceilings, device)
    else:
        selected = without_idle_roofs(selected)
    claims = {each.name: each.sweep.claims for each in loaded}
    show(planned(device, selected, claims, prices, named=cases))


def predict(
    operator: Annotated[
        str, typer.Argument(metavar="OPERATOR", help="A folder of kernels/, such as softmax.")
    ],
    given: Annotated[list[str], typer.Argument(metavar="NAME=VALUES...", help="Its parameters, as for run.")],
    on: Annotated[
        str, typer.Option(metavar="GPU", help="A file of bench/device/datasheets, or a GPU's name.")
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

    if not on:
        raise UserError("--on GPU is needed: whose launches are to be predicted, say b200")
    demand("predict", "scikit-learn")
    wanted = predicting.datasheet_named(on)
    cases = predicting.cases_of(operator, given, wanted)
    show(predicting.learned_lines(read_pool(results or [RESULTS], left_out), cases, wanted))


def _loaded(names: list[str], sm_count: int) -> list[sweep.Loaded]:
    """The sweeps of these names for a device of `sm_count` SMs; without names all of them."""
    paths = [path for name in names for path in sweep.select(name)]
    return sweep.load_all(paths or sweep.SWEEPS, kernels.problem, sm_count)
