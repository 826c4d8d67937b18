"""`python -m plots report`, `history`, `fleet`, `accept`, `buy`, `site`: pages for a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bench.cli.application import left_out, remark
from bench.cli.terminal import stages
from bench.environment.dependencies import ROOT, demand
from bench.errors import UserError, write_text
from bench.format import count_text
from bench.store import parquet
from bench.sweep.load import SWEEPS
from plots.cli.arguments import (
    COMPARED,
    CalibrateBy,
    EveryRun,
    Results,
    figures,
    first_named,
    load_runs,
    newest,
    output,
    page_file,
    writing,
)


def report(
    results: Results,
    to: Annotated[
        Path | None,
        output(
            "FILE",
            "The page's file, which ends in .html, or an existing folder; if left out, "
            "figures/<device>/<run>/report.html, of several runs figures/compared/report.html.",
        ),
    ] = None,
    calibrate_by: CalibrateBy = None,
    every_run: EveryRun = False,
) -> None:
    """One page about a run, for any browser, offline; of several runs one page with them side by side.

    It shows what the machine reaches, the verdicts on the guides' rules, every case with its prediction, the
    experiments' charts, and what was not measured and why.
    """
    demand("report", "jinja2", "vl-convert-python")
    from bench.cli.claims import judged_rows
    from plots.base.vega import begin_library
    from plots.report import nights, units
    from plots.report import page as report_page
    from plots.report.section import Results

    begin_library()
    files = results if every_run else [file for path in results for file in newest(path)]
    with stages() as say:
        say("reading results")
        runs = load_runs(files, calibrate_by, one_unit=True)
    if (first := first_named(results, [run.device for run in runs])) != runs[0].device:
        runs.sort(key=lambda run: run.device != first)
    of = COMPARED if len(runs) > 1 else f"{runs[0].device}/{runs[0].name}"
    file = page_file(to, figures() / of / "report.html")
    sweeps = parquet.read_sweeps(files)
    with stages() as say:
        say(f"judging {count_text(sum(run.measured for run in runs), 'time')}")
        remarks: list[str] = []
        judged = judged_rows(runs, sweeps, remarks.append)
        say(f"writing {file}")
        given = Results(results, runs, sweeps, judged, remark)
        more = [part for of in (nights, units) if (part := of.section(given)) is not None]
        page = report_page.html(runs, sweeps, judged, is_ours, more)
    for sentence in remarks:
        remark(sentence)
    write_text(file, page)
    typer.echo(f"{file} ({len(page) / 1e6:.1f} MB)")


def history(
    results: Results,
    to: Annotated[
        Path | None, output("DIR", "Folder for <device>/index.html; figures/history if left out.")
    ] = None,
    since: Annotated[
        str | None, typer.Option("--since", metavar="DATE", help="Show nights from this date on (UTC).")
    ] = None,
    last: Annotated[
        int | None, typer.Option("--last", metavar="N", help="Show at most the last N nights.")
    ] = None,
    match: Annotated[
        str, typer.Option("--match", metavar="TEXT", help="Draw the series with this in sweep or name.")
    ] = "",
) -> None:
    """A page for each device over its nights: what changed, what moved, and figures with their bands.

    Every night given is used to judge; --since and --last choose which of them are shown. Of more than eight
    units of one kind only those get a page that have an open step; `fleet` shows all of them on one page.
    """
    demand("history", "jinja2", "ruptures")
    from bench.judge.history.load import histories
    from plots.history import page as history_page
    from plots.history.figures import matching
    from plots.history.view import moment_of

    moment = moment_of(since) if since is not None else None
    if last is not None and last < 1:
        raise UserError(f"--last {last}: at least 1 night has to be shown")
    shown = history_page.shown(histories(results, left_out), moment, last, remark)
    for device in (device for device in shown if device.has_page):
        folder = (to or figures() / "history") / device.folder
        with writing("pages"):
            drawn = history_page.save(device.view, folder, match)
        if match and not matching(device.view, match):
            remark(f"--match {match}: no series of {device.folder} has this in sweep or name")
        still = sum(step.kind != "machine" for step in device.view.open_steps())
        nights = count_text(len(device.view.nights), "night")
        typer.echo(f"{folder / 'index.html'}: {nights}, open steps: {still}, figures: {drawn}")
    index = (to or figures() / "history") / "index.html"
    write_text(index, history_page.index_html(shown))
    typer.echo(index)


def fleet(
    results: Results,
    to: Annotated[Path | None, output("DIR", "Folder for fleet.html; figures/fleet if left out.")] = None,
    expected: Annotated[
        Path | None,
        typer.Option(
            "--expected",
            metavar="FILE",
            help="Nodes that there should be, one a line, optionally with its number of units; expected.txt "
            "in the folder of the results if left out.",
        ),
    ] = None,
) -> None:
    """One page about many units of a kind: which are slow, in what, by how much, why, and since when.

    It also says which units are MISSING, how units differ by node, slot and tag, and what a synchronous job
    loses by them. `python -m bench fleet RESULT...` prints the verdicts alone.
    """
    demand("fleet", "jinja2", "ruptures", "vl-convert-python")
    from bench.fleet.report import judged
    from plots.fleet import page as fleet_page

    judged_fleet = judged(results, expected, expect=False)
    page = fleet_page.html(judged_fleet)
    file = (to or figures() / "fleet") / "fleet.html"
    write_text(file, page)
    typer.echo(f"{file}: {count_text(len(judged_fleet.fleet.units), 'unit')} ({len(page) / 1e6:.1f} MB)")


def accept(
    results: Results,
    to: Annotated[
        Path | None, output("FILE", "The page's file; figures/<device>/<run>/accept.html if left out.")
    ] = None,
    baseline: Annotated[
        list[Path] | None, typer.Option(metavar="DIR", help="More earlier runs to compare with; repeatable.")
    ] = None,
) -> None:
    """One page about one unit: is it as fast as its kind should be, and by what evidence.

    `python -m bench accept` measures it, and prints the verdicts alone.
    """
    demand("accept", "jinja2")
    from bench.accept.command import judge_files
    from plots.accept import page as accept_page

    judged = judge_files(results, baseline or [])
    row = judged[0].row
    file = page_file(to, figures() / row.device / row.run_id / "accept.html")
    page = accept_page.html(judged)
    write_text(file, page)
    typer.echo(f"{file}: {count_text(len(judged), 'kind')} of work ({len(page) / 1e3:.0f} kB)")


def buy(
    results: Results,
    to: Annotated[Path | None, output("FILE", "The page; figures/buy.html if left out.")] = None,
    price: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=USD", help="What a device costs; USD/h: for an hour of it. Repeatable."),
    ] = None,
) -> None:
    """What devices gain over the first one: measured and promised speed-ups, for each joule and each dollar.

    `python -m bench compare RESULT... --across device` prints the same speed-ups.
    """
    demand("buy", "jinja2")
    from bench.cli.across import Across
    from plots.buy import page as buy_page

    with stages() as say:
        say("reading results")
        across = Across.read(results, left_out)
        page = buy_page.html(across, buy_page.prices(price or [], list(across.sheets)))
    file = page_file(to, figures() / "buy.html")
    write_text(file, page)
    typer.echo(f"{file}: {count_text(len(across.sheets), 'device')} ({len(page) / 1e3:.0f} kB)")


def site(
    results: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[RESULT...]",
            help="Parquet files, or folders of them. If left out: what `make public` fetched, or else the "
            "committed samples of it, and committed runs on a CPU.",
        ),
    ] = None,
    to: Annotated[Path, output("DIR", "Folder, emptied of an earlier site.")] = Path("site"),
    verdicts: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Verdicts on imported runs that `bench claims --json` wrote."),
    ] = None,
) -> None:
    """All devices, rules and operators as a site: static pages for any browser, offline."""
    demand("site", "jinja2", "ruptures", "vl-convert-python")
    from time import monotonic

    from bench.cli.claims import from_json
    from plots.base.vega import begin_library
    from plots.website import build

    begun = monotonic()
    begin_library()
    reference = ROOT / "results" / "reference"
    imported = ROOT / "results" / "imported"
    whole = bool(results) or any(imported.rglob("*.parquet"))
    public = [imported] if whole else [reference / "public", reference / "engines"]
    files = results or [*public, reference / "core", reference / "steps"]
    with stages() as say:
        say("reading results")
        runs = load_runs(files, None, one_unit=True)
        given = build.Given(
            runs,
            parquet.read_sweeps(files),
            from_json(verdicts) if verdicts else (),
            ROOT / "docs" / "simulated_fleet",
            max((reference / "tour").rglob("*.parquet")),
            whole,
            is_ours,
        )
        with writing("the site"):
            size = build.write(given, to, say)
    pages = len(list(to.rglob("*.html")))
    typer.echo(
        f"{to / 'index.html'}: {count_text(pages, 'page')}, {size / 1e6:.1f} MB, {monotonic() - begun:.0f} s"
    )


def is_ours(sweep: str) -> bool:
    """Whether this checkout has the sweep of this name."""
    return (SWEEPS / f"{sweep}.yaml").is_file()
