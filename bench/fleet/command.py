"""`python -m bench fleet`: its options and its exit code."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bench.cli.application import Results, remark, show
from bench.environment.dependencies import demand
from bench.errors import UserError

NO_FLEET = "docs/fleet.md says how a fleet is measured; `python -m bench compare A B` compares two runs"


def fleet(
    results: Results,
    expected: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Nodes there should be; default: expected.txt in their folder."),
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
    demand("fleet", "ruptures")
    from bench.fleet.report import as_json as json_text
    from bench.fleet.report import judged, lines

    if as_json and markdown:
        raise UserError("--json and --markdown are two forms of the report: give one of them")
    fleet_report = judged(results, expected, expect)
    if not fleet_report.fleet.units:
        raise UserError(
            f"{', '.join(map(str, results))}: all rows are imported, so they belong to no unit of a fleet"
        )
    if as_json:
        typer.echo(json_text(fleet_report))
    else:
        show(lines(fleet_report, markdown))
        if not fleet_report.fit.judged:
            remark(NO_FLEET)
    raise typer.Exit(fleet_report.exit_code)
