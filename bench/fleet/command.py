"""`python -m bench fleet`: its options and its exit code."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bench.cli.application import Results, show
from bench.errors import UserError


def fleet(
    results: Results,
    expected: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The nodes there should be; default: expected.txt beside results."),
    ] = None,
    expect: Annotated[
        bool, typer.Option("--expect", help="Also what the units reach of datasheets and published rates.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Everything, as JSON.")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="For the summary of a CI job.")] = False,
) -> None:
    """Which units of a fleet are slow, by how much, in what, why and where; and which are missing.

    Exit code 1: a unit or node is slow by more than 3 %, is missing, or fails a case that most others pass.
    2: the input is bad. 3: there were too few units of a kind to judge. 0: none of these.
    """
    from bench.fleet.report import as_json as json_text
    from bench.fleet.report import judged, lines

    if as_json and markdown:
        raise UserError("--json and --markdown are two forms of the report: give one of them")
    told = judged(results, expected, expect)
    if as_json:
        typer.echo(json_text(told))
    else:
        show(lines(told, markdown))
    raise typer.Exit(told.exit_code)
