"""How far the numbers can be trusted: `python -m studies coverage`, `prediction`, `published_repeats` ..."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bench.cli.application import Commands, left_out, remark, run_process, show
from bench.errors import UserError, unknown

app = typer.Typer(
    cls=Commands, add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False, help=__doc__
)


@app.command()
def coverage(
    repetitions: Annotated[int, typer.Option(help="Simulated runs for each kind of kernel.")] = 120,
) -> None:
    """How often our intervals cover the truth: simulated, a minute on one core.

    `error` is the distance from a launch's true time, its median and its 95th percentile. `either`: the
    interval covers the truth, or a flag is raised. Truth is defined in studies/interval_coverage.py.
    """
    from studies.interval_coverage import SEED, coverage_lines, scores

    if repetitions < 1:
        raise UserError(f"--repetitions {repetitions}: give a whole number, 1 or more")
    for line in coverage_lines(scores(repetitions, SEED), repetitions, SEED):
        typer.echo(line)


@app.command()
def prediction(
    results: Annotated[
        list[Path],
        typer.Argument(metavar="RESULT...", help="Of many GPUs, such as results/imported."),
    ],
    unseen: Annotated[
        bool, typer.Option("--unseen", help="Each GPU by the timings of all others alone.")
    ] = False,
    operator: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Only this. Repeatable.")] = None,
    each: Annotated[bool, typer.Option("--each", help="A line for each GPU and source.")] = False,
) -> None:
    """How far predictions are off on public timings. Rows used for calibration are never scored.

    By a few timings of a GPU or (--unseen) by none: mean |predicted / measured - 1| in percent, averaged over
    GPUs and sources, and the share of times inside the 90 % interval. Beside it are the datasheet's roofline;
    the model with the one factor taken off by which it is off on a GPU; and the twin, the same cases on that
    other GPU which fits best in hindsight, with its factor known. Half an hour on one core for all operators.
    """
    from bench.judge.timings import read_pool
    from studies.operator_prediction import score_lines, scored

    pool = read_pool(results, left_out)
    known = sorted(pool.rows["operator"].unique())
    for name in operator or ():
        if name not in known:
            raise UserError(f"--operator: {unknown('operator', name, 'these results', known)}")
    show(score_lines(list(scored(pool, operator or known, unseen, remark)), each))


@app.command()
def peers(
    file: Annotated[Path, typer.Argument(help="Keeps each turn: what was interrupted goes on.")],
    minutes: Annotated[float, typer.Option(help="Of all turns together.")] = 20.0,
    rounds: Annotated[int, typer.Option(help="Turns of each tool.")] = 5,
    device: Annotated[str, typer.Option("--bench-device", help="cpu, cuda or cuda:N.")] = "auto",
) -> None:
    """The same ten launches by our runs and by other harnesses at equal wall time: how well each repeats."""
    from bench.device.detect import detect
    from studies import peers

    of = detect(device)
    tools = 1 + len(peers.OTHERS) + (len(peers.ON_GPU) if of.kind == "cuda" else 0)
    seconds = round(60 * minutes / (max(rounds, 1) * tools), 1)
    for line in peers.peers_lines(peers.turns(file, of, seconds, rounds)):
        typer.echo(line)  # whole: a table in Markdown


@app.command()
def rooms(
    picture: Annotated[Path, typer.Argument(metavar="[SVG]")] = Path("docs/figures/rooms.svg"),
) -> None:
    """Draw which folder of bench/, kernels/ and plots/ imports which: the picture of docs/architecture.md."""
    from studies.rooms import draw

    draw(picture)


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
