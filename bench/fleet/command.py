"""`python -m bench fleet`: its options and its exit code."""

from __future__ import annotations

from typing import Annotated

import typer

from bench.cli.application import Results, show
from bench.errors import UserError


def fleet(
    results: Results, as_json: Annotated[bool, typer.Option("--json", help="Everything, as JSON.")] = False
) -> None:
    """Which units of a fleet are slow, by how much, in what and where; and which are missing.

    Nodes that there should be are listed in expected.txt in a folder of results.

    Exit code 1: a unit is slow (by 5.3 % at least) or a node (3 %), is missing, or fails a case that most
    others pass. 2: the input is bad. 3: there were too few units of a kind to judge. 0: none of these.
    """
    from bench.fleet import report
    from bench.fleet.judge import judge
    from bench.fleet.observed import read

    observed = read(results)
    if not observed.units:
        given = ", ".join(map(str, results))
        raise UserError(f"{given}: all rows are imported, so they belong to no unit of a fleet")
    judged = judge(observed)
    if as_json:
        typer.echo(report.as_json(judged))
    else:
        show(report.lines(judged))
    raise typer.Exit(report.exit_code(judged))
