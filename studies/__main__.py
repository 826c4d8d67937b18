"""How far the numbers can be trusted: `python -m studies coverage`, `prediction`, `published_repeats` ..."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bench.cli.application import Commands, DeviceOption, left_out, remark, run_process, show
from bench.device.detect import detect
from bench.environment.dependencies import refuse_if_missing
from bench.errors import UserError, unknown

app = typer.Typer(
    cls=Commands, add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False, help=__doc__
)


@app.command()
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
    interval covers the truth, or a flag is raised. Truth is defined in studies/interval_coverage.py.
    """
    if results:
        from bench.judge.frame import read
        from studies.repeated_runs import repeated_lines

        show(repeated_lines(read(results, left_out)))
        return
    from studies.interval_coverage import SEED, coverage_lines, scores

    if repetitions < 1:
        raise UserError(f"--repetitions {repetitions}: give a whole number, 1 or more")
    for line in coverage_lines(scores(repetitions, SEED), repetitions, SEED):
        typer.echo(line)


@app.command()
def prediction(
    results: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[RESULT]...", help="Timings of many GPUs, such as results/imported."),
    ] = None,
    unseen: Annotated[
        bool, typer.Option("--unseen", help="With results: each GPU by the timings of all others alone.")
    ] = False,
    operator: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="With results: only this. Repeatable.")
    ] = None,
    each: Annotated[
        bool, typer.Option("--each", help="With results: a line for each GPU and source.")
    ] = False,
    draws: Annotated[int, typer.Option(help="Without results: random draws of the calibration shapes.")] = 5,
) -> None:
    """How far predictions are off on public timings. Rows used for calibration are never scored.

    With results, those of every operator, by a few timings of a GPU or (--unseen) by none, beside the
    datasheet's roofline and one factor: |predicted / measured - 1| in percent (mean, and of the model also
    the median and the 90th percentile), averaged over GPUs and sources, and the share of times inside the
    90 % interval. Ten minutes on one core for all operators.

    Without, each level on the matrix products of nine GPUs and three engines: forty minutes on one core,
    with the package aiconfigurator-core.
    """
    if results:
        from bench.judge.timings import read_pool
        from studies.operator_prediction import score_lines, scored

        pool = read_pool(results, left_out)
        known = sorted(pool.rows["operator"].unique())
        for name in operator or ():
            if name not in known:
                raise UserError(f"--operator: {unknown('operator', name, 'these results', known)}")
        show(score_lines(list(scored(pool, operator or known, unseen, remark)), each))
        return
    if unseen or operator or each:
        raise UserError(
            "--unseen, --operator and --each are about results: give them, such as results/imported"
        )
    from studies.prediction import prediction_lines

    if draws < 1:
        raise UserError(f"--draws {draws}: give a whole number, 1 or more")
    for line in prediction_lines(draws, remark):
        typer.echo(line)


@app.command("published_repeats")
def published_repeats(
    folder: Annotated[Path, typer.Argument(help="Clones of Vidur and LLMServingSim, so named.")],
) -> None:
    """How far published runs of the same launches on GPUs are apart; how often `compare` is wrong on them.

    Six minutes on one core.
    """
    from studies.published_repeats import repeats_lines

    show(repeats_lines(folder))


@app.command()
def instruments(bench_device: DeviceOption = "auto") -> None:
    """Our clocks against independent ones: the same launches, interleaved where they can share a process."""
    from rich.console import Console

    from bench.device.lock import device_lock
    from studies.instruments import WIDTH, compare_instruments

    refuse_if_missing()
    device = detect(bench_device)
    with device_lock(device.uuid, str(device), "comparing instruments") as unlocked:
        if unlocked:
            remark(unlocked)
        code = compare_instruments(device, Console(width=WIDTH))
    raise typer.Exit(code)


@app.command("self")
def self_measurement() -> None:
    """What the harness itself costs: listing, collecting 5,000 cases, memory, and the parent a visit."""
    refuse_if_missing()
    import kernels
    from studies.harness_overhead import commands_overhead, parent_overhead

    for line in commands_overhead():
        typer.echo(line)
    for line in parent_overhead(kernels.problem):
        typer.echo(line)


@app.command()
def rehearsal(
    gpu: Annotated[
        list[str] | None, typer.Argument(metavar="[GPU]...", help="Datasheets, such as h100_sxm5.")
    ] = None,
    suite: Annotated[str, typer.Option(help="Of sweeps/suites.yaml.")] = "tour",
    results: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Where simulated rows and screens stay.")
    ] = None,
) -> None:
    """A suite on GPUs that are not there, by the real parent and worker, in virtual time.

    Counts what was refused, left out (cases and ceilings), unsettled and suspect, the seconds of the budget,
    and the verdicts. Exit code 3 if a case was refused that the device can run, one failed, or a run took
    10 % more than its budget.
    """
    from studies.rehearsal import GPUS, rehearsal_lines, rehearse

    made = list(rehearse(gpu or GPUS, suite, results))
    show(rehearsal_lines(made))
    raise typer.Exit(3 if any(each.bugs for each in made) else 0)


if __name__ == "__main__":
    run_process(app)
