"""`python -m plots draw`: figures of one run, and of several together."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from bench.cli.application import Results, remark
from bench.cli.terminal import stages
from bench.environment.dependencies import demand
from bench.errors import UserError
from plots.base.saving import save_in
from plots.cli.arguments import COMPARED, CalibrateBy, figures, load_runs, newest, output, writing
from plots.figures import generations
from plots.figures import rules as rules_by_gpu
from plots.figures.every_figure import pages


def draw(
    results: Results,
    to: Annotated[
        Path | None,
        output(
            "DIR",
            "Folder for the figures; figures/<device>/<run> if left out, of the checkout inside it. "
            "Several runs get <device>/<run> below it, each its own, and several devices compared/ for what "
            "they show together.",
        ),
    ] = None,
    calibrate_by: CalibrateBy = None,
) -> None:
    """Draw every figure of these results; several devices also together, side by side.

    Of a folder the newest run of each device is drawn. The first device named is the one that others are
    compared with.
    """
    with stages() as say:
        say("reading results")
        files = [file for path in results for file in newest(path)]
        runs = load_runs(files, calibrate_by, one_unit=True)
    for run in runs:
        alone = to is not None and len(runs) == 1
        folder = (to or figures()) if alone else (to or figures()) / run.device / run.name
        if not run.measured:
            remark(f"{run.device} {run.name}: no row has a time; nothing drawn")
            continue
        with writing("figures"), stages() as say:
            drawn = save_in(folder, pages(run), say)
        rows = f"{run.measured} of {len(run.rows)} rows measured"
        typer.echo(f"{folder}: {len(drawn) // 2} figures, PNG and SVG ({rows})")
    together = [run for run in runs if run.measured]
    if len({run.device for run in together}) > 1:
        folder = (to or figures()) / COMPARED
        apart: list[str] = []
        with writing("figures"), stages() as say:
            drawn = save_in(folder, generations.draw(together, together[0].device, apart.append), say)
        for sentence in apart:
            remark(sentence)
        typer.echo(f"{folder}: {len(drawn) // 2} figures of {len(together)} runs together, PNG and SVG")


def rules(
    verdicts: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="What `python -m bench claims ... --by rule --json` printed."),
    ],
    to: Annotated[Path | None, output("DIR", "Folder for figure and page; figures/ if left out.")] = None,
) -> None:
    """Draw which of the guides' rules GPUs support, contradict or leave undecided, with a page of evidence.

    The page is a table of every effect, its source and counts, which can be filtered by rule and by GPU.
    """
    demand("rules", "jinja2")
    from plots.report import matrix, page
    from plots.report.section import Section

    folder = to or figures()
    try:
        given = json.loads(verdicts.read_text())
        cells, about = rules_by_gpu.cells(given["rules"]), f"judged at commit {given['commit']}"
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise UserError(f"{verdicts}: not what `claims --by rule --json` prints ({error})") from error
    with writing("figures"), stages() as say:
        save_in(folder, (("rules", rules_by_gpu.draw(of, about)) for of in [cells]), say)
        table = Section(f"What GPUs say of the guides' rules, {about}", "rules", matrix.table(given["rules"]))
        (folder / "rules.html").write_text(page.of("roofbench: rules by GPUs", [table]), "utf-8")
    typer.echo(f"{folder}: rules, PNG, SVG and a page, rules.html")
