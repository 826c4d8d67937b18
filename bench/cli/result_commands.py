"""Commands about result files: `python -m bench table`, `compare`, `claims` and `explain`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, get_args

import typer

import kernels
from bench.cli.application import Results, left_out, remark, show
from bench.errors import UserError


def every_case(
    results: Results,
    by: Annotated[
        str | None,
        typer.Option(metavar="implementation", help="A line a size, a column an implementation, ratios."),
    ] = None,
    role: Annotated[
        str | None,
        typer.Option(metavar="ceiling", help="The run's ceilings with intervals, and its calibrations."),
    ] = None,
) -> None:
    """Every case of each run: time, 95 % interval, rate, share of the roof, what bounds it, flags."""
    from bench.cli.findings import fit_sentence
    from bench.cli.result_tables import case_table, ceilings_lines, implementation_lines
    from bench.device.datasheet import find_datasheet
    from bench.judge.read_runs import read

    for option, given, known in (("--by", by, "implementation"), ("--role", role, "ceiling")):
        if given not in (None, known):
            raise UserError(f"{option} {given}: the table is {option} {known}, or of every case without it")
    if by and role:
        raise UserError("--by implementation compares cases, and --role ceiling lists no cases: give one")
    runs = read(results, left_out)
    if by:
        show(implementation_lines(runs))
    elif role:
        show(ceilings_lines(runs))
    else:
        for run in runs:
            with_sheet = replace(run, datasheet=find_datasheet(run.device_name))
            show([f"{run.device} {run.name}", *filter(None, [fit_sentence(run)]), *case_table(with_sheet)])


def compare(
    results: Annotated[list[Path], typer.Argument(metavar="A B...", help="Parquet files, or folders.")],
    across: Annotated[
        list[str] | None, typer.Option(metavar="FACT", help="What may differ: device, driver ... Repeatable.")
    ] = None,
    all_cases: Annotated[
        bool, typer.Option("--all", help="Every case and fact, not only those that changed.")
    ] = False,
) -> None:
    """Two runs, case by case: SLOWER, FASTER, SAME, UNDECIDED, INVALID, NOT COMPARABLE, NEW, GONE.

    What each of several devices gains over the first one is on a page: `python -m plots report RESULT...`

    Exit code 1: a case, an operator or the machine is SLOWER, whatever else there is. 2: some row is INVALID,
    or the input is bad. 3: nothing was decided. 0: none of these.
    """
    from bench.cli.compare import comparison_lines, next_lines
    from bench.judge.comparability import waved
    from bench.judge.compare import compare as compared
    from bench.judge.read_runs import read

    waved(across or [])  # refuses what is no fact
    if len(results) != 2:
        raise UserError(
            f"compare: give two results, A and B, not {len(results)}; `python -m plots report RESULT...` "
            "shows what each of several devices gains"
        )
    before, after = (read([result], left_out) for result in results)
    comparison = compared(before, after, across or [])
    show(comparison_lines(comparison, all_cases))
    show(() if all_cases else next_lines(comparison))
    raise typer.Exit(comparison.exit_code)


def claims(
    results: Results,
    rule: Annotated[
        int | None, typer.Option(metavar="N", help="Only claims that speak to this rule.")
    ] = None,
    all_claims: Annotated[
        bool, typer.Option("--all", help="Every claim, those too that nothing decides, with the reason.")
    ] = False,
    by: Annotated[
        str,
        typer.Option(metavar="claim|rule|experiment", help="A table in Markdown, the devices side by side."),
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="As JSON, with every number.")] = False,
) -> None:
    """What the documents claim, judged by rows: SUPPORTED, PARTLY, CONTRADICTED, UNDECIDED ..."""
    from bench.cli import claims as verdicts

    tables: dict[str, verdicts.By] = {name: name for name in get_args(verdicts.By)}
    if by and by not in tables:
        raise UserError(f"--by {by}: the table is by {', '.join(tables)}")
    if as_json and by not in ("", "rule"):
        raise UserError(f"--json lists claims, or rules with --by rule; --by {by} is a table")
    verdicts.chosen([], rule)  # refuses what is no rule before judging, which takes long
    judged = verdicts.chosen(verdicts.verdicts(results, kernels.problem, left_out, remark), rule)
    if as_json:
        typer.echo(verdicts.as_json(judged, by))
    elif by:
        show(verdicts.report_lines(judged, verdicts.table_lines(judged, tables[by], rule), rule))
    else:
        show(verdicts.report_lines(judged, verdicts.decided_lines(judged, all_claims), rule))
        show(verdicts.next_lines(judged, results))


def explain(
    case: Annotated[str, typer.Argument(metavar="CASE", help="The name of a case, as commands print it.")],
    result: Annotated[Path, typer.Argument(metavar="RESULT", help="A parquet file, or a folder of them.")],
) -> None:
    """One case: what it is, what was predicted and why, what was measured, and how to measure it again."""
    from bench.cli.explain import explanation

    show(explanation(case, result))
