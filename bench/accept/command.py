"""`python -m bench accept`: its options, what it reads and its exit code."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bench.cli.application import DeviceOption, ResultsOption, WallTimeOption, left_out, show
from bench.errors import UserError

if TYPE_CHECKING:
    from bench.accept.judge import JudgedKind

SUITE = "accept"
Given = Annotated[
    list[Path] | None, typer.Argument(metavar="[RESULT...]", help="Judge this run instead of measuring one.")
]


def accept(
    results: Given = None,
    bench_device: DeviceOption = "auto",
    bench_budget: WallTimeOption = None,
    bench_results: ResultsOption = None,
) -> None:
    """Is this device as fast as others of its model? Two minutes on a GPU: PASS, LOW or FAIL by kind of work.

    Compared with earlier runs on this kind of device, else with what others have measured on it.
    UNKNOWN: its rows are not fit to be judged, or too little is known. IMPLAUSIBLE: faster than it
    can be. Exit code 0: every kind of work that could be judged passed. 1: at least one is
    LOW, FAIL or IMPLAUSIBLE. 2: nothing could be judged, rows were not fit for it, or bad input.
    """
    from bench.accept.report import exit_code, lines

    paths = list(results or []) or _measured(bench_device, bench_budget, bench_results)
    judged = judge_files(paths, bench_results)
    typer.echo("")
    show(lines(judged))
    typer.echo(f"one page to look at: python -m plots report {' '.join(map(str, paths))}")
    raise typer.Exit(exit_code(judged))


def _measured(device: str, budget: str | None, results: Path | None) -> list[Path]:
    """The file of a run of the suite, made now. UserError if there is none."""
    from bench.cli.whole_run import measure
    from bench.runner.options import Options
    from bench.runner.run import RESULTS

    folder = (results or RESULTS).absolute()
    result = measure(Options(device=device, suite=SUITE, budget=budget, results=folder))
    if result.reason:
        raise UserError(f"accept: {result.reason}")
    return [result.path] if result.path is not None else []


def judge_files(paths: list[Path], results: Path | None = None) -> list[JudgedKind]:
    """Each kind of work of the one unit in these files, by all other results. UserError if of none."""
    from bench.accept.judge import judged
    from bench.accept.readings import read
    from bench.accept.usual import usual
    from bench.runner.run import RESULTS

    mine = read(paths, left_out)
    named = ", ".join(map(str, paths))
    if mine.empty:
        raise UserError(f"accept {named}: no row says what the device can do: no large copy, read or product")
    if mine["device_id"].nunique() > 1 or mine["run_id"].nunique() > 1:
        raise UserError(
            f"accept {named}: several runs or units; give one, or compare units by `python -m bench fleet`"
        )
    folders = [path for path in (RESULTS, results) if path is not None and path.exists()]
    earlier = read(dict.fromkeys(folders), left_out, ours=True)
    return judged(mine, earlier, usual())
