"""`python -m bench first-minutes`: its options and its exit code."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bench.device.detect import detect
from bench.environment.dependencies import refuse_if_missing
from bench.errors import UserError


def first_minutes(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="BLOCK...", help="Which; all for every block. None: the plan."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Folder for result files, summary and logs; default: results/first-minutes."
        ),
    ] = None,
    minutes: Annotated[
        float | None, typer.Option(metavar="M", help="Fit these blocks into so many minutes.")
    ] = None,
) -> None:
    """The first minutes on a GPU: blocks of commands, each a question, one after the other; a table last.

    Exit code 0: every command did its work, whatever it found. 1: some failed or were stopped. On a CPU the
    same blocks are rehearsed.
    """
    from bench.first_minutes.blocks import blocks, chosen
    from bench.first_minutes.running import plan_lines, session
    from bench.runner.session import RESULTS

    refuse_if_missing()
    if minutes is not None and not minutes > 0:
        raise UserError(f"--minutes {minutes:g}: give a number of minutes, more than 0")
    device = detect()
    there = blocks()
    if not names:
        for line in plan_lines(there, str(device)):
            typer.echo(line)
        return
    outcomes = session(chosen(names, there), device, out or RESULTS / "first-minutes", minutes, typer.echo)
    raise typer.Exit(0 if all(outcome.is_fine for outcome in outcomes) else 1)
