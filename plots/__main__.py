"""`python -m plots RESULT... [-o DIR]`: every figure of the files. `... report RESULT...`: one page of a run.

`... score RESULT...`: how far predictions are off. `... history RESULT...`: a page for each device on what
changed over its nights. `... fleet RESULT...`: one page about many units of one kind.
`... accept RESULT`: one about one unit. `... buy RESULT...`: one for who buys devices. `... site`: all of it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from bench.environment.dependencies import ROOT, RUNNING, refuse_if_missing

if __name__ == "__main__":
    refuse_if_missing(without=RUNNING)  # before the first import that could fail

import pandas as pd
import typer

from bench.cli.application import Commands, left_out, remark, run_process
from bench.cli.score import score_lines
from bench.cli.terminal import stages
from bench.device.datasheet import find_datasheet
from bench.errors import UserError, write_text
from bench.format import count_text
from bench.judge import score as judge
from bench.judge.achieved import achieved as achieved_of
from bench.judge.frame import DeviceRun, load, read
from bench.judge.timings import pool_of_runs, with_learned
from bench.store import parquet
from bench.sweep.load import SWEEPS
from plots.base import style, verdict_lines
from plots.base.page import Page
from plots.base.plot_spec import Section, sections
from plots.base.saving import save_all
from plots.figures import (
    accuracy,
    compared,
    distribution,
    duel,
    heatmap,
    memory,
    quantization,
    roofline,
    scorecard,
    shares,
    sweep,
    telemetry,
)
from plots.figures import achieved as achieved_figure
from plots.figures import caches as caches_figure

MANY = 300
"""Timed rows from which a run has a scorecard and a distribution: of fewer the sweeps show each."""
COMPARED = "compared"
"""Folder of the figures of several runs together."""
HISTORY, FLEET = "history", "fleet"
"""Folders of the history pages, and of a fleet's page."""


class _Drawing(Commands):
    """Commands of which `draw` is the default, unless the first word is another command or asks for help."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        if not args or args[0] not in (*self.commands, *self.get_help_option_names(ctx)):
            args = ["draw", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_Drawing,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    subcommand_metavar="[draw] RESULT... [-o DIR] | report RESULT... | score RESULT... | history RESULT... | "
    "fleet RESULT... | accept RESULT | buy RESULT... | site [RESULT...]",
    help="What result files mean: figures (draw, also without the word), one page about a run (report), how "
    "far predictions are off (score), what nights did (history), which of many units is slow (fleet), "
    "whether one unit is (accept), what devices gain for the money (buy), all of this as a site (site). From "
    "parquet alone; no GPU is needed. A file called as one of these words is given as ./draw, ./score ...",
)

Results = Annotated[
    list[Path], typer.Argument(metavar="RESULT...", help="Parquet files, or folders of them.")
]

CalibrateBy = Annotated[
    list[Path] | None,
    typer.Option(
        "--calibrated-by",
        metavar="RESULT",
        help="Runs whose ceilings and calibration stand in, for the same device, where a result has none of "
        "its own, as points of a published figure. Repeatable.",
    ),
]

Compared = Annotated[
    Path | None, typer.Option("-o", "--output", metavar="DIR", help="Folder; figures/compared if left out.")
]

EveryRun = Annotated[
    bool, typer.Option("--every-run", help="Of a folder every run, not only the newest of each device.")
]


@app.command()
def draw(
    results: Results,
    to: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="DIR",
            help="Folder for the figures; figures/<device>/<run> if left out, of the checkout inside it. "
            "Several runs get <device>/<run> below it, each its own, and compared/ for what they show "
            "together.",
        ),
    ] = None,
    calibrate_by: CalibrateBy = None,
    every_run: EveryRun = False,
) -> None:
    """Draw every figure of these results; several runs also together, their devices side by side.

    Of a folder the newest run of each device is drawn. The first device named is the one that others are
    compared with.
    """
    files = results if every_run else [file for path in results for file in newest(path)]
    with stages() as say:
        say("reading results")
        runs = _load(files, calibrate_by, one_unit=True)
    sweeps = parquet.read_sweeps(files)
    for run in runs:
        alone = to is not None and len(runs) == 1
        folder = (to or figures()) if alone else (to or figures()) / run.device / run.name
        if not run.measured:
            remark(f"{run.device} {run.name}: no row has a time; nothing drawn")
            continue
        with _writing("figures"), stages() as say:
            drawn = save(run, folder, sweeps[run.key], say)
        for missing in filter(None, (roofline.left_out(run), telemetry.missing(run))):
            remark(f"{run.device} {run.name}: {missing}")
        rows = f"{run.measured} of {len(run.rows)} rows measured"
        typer.echo(f"{folder}: {len(drawn) // 2} figures, PNG and SVG ({rows})")
    together = [run for run in runs if run.measured]
    if len(together) > 1:
        folder = (to or figures()) / COMPARED
        base = _first(files, [run.device for run in together])
        with style.look(), _writing("figures"), stages() as say:
            apart: list[str] = []
            pages_together = _said(compared.draw(together, base, apart.append), say, folder)
            drawn = save_all((folder / stem, page) for stem, page in pages_together)
        for sentence in apart:
            remark(sentence)
        typer.echo(f"{folder}: {len(drawn) // 2} figures of {len(together)} runs together, PNG and SVG")


@app.command()
def achieved(
    results: Results,
    to: Compared = None,
) -> None:
    """What every device achieves by class of work, from the oldest to the newest, with its datasheet."""
    runs = [run for run in load(results, find_datasheet, left_out) if run.measured]
    rates = achieved_of(runs)
    if len({each.device for each in rates}) < 2:
        raise UserError(
            "achieved: fewer than two of these devices have a datasheet and a time that says enough"
        )
    sheets = {run.device: run.datasheet for run in runs if run.datasheet is not None}
    sources = sorted({(run.rows[0].source or "measured here").partition(";")[0] for run in runs})
    with style.look(), _writing("figures"):
        folder = to or figures() / COMPARED
        pages = achieved_figure.draw(rates, sheets, sources)
        drawn = save_all((folder / stem, page) for stem, page in pages)
    typer.echo(f"{drawn[0]}: {len({each.device for each in rates})} devices")


@app.command()
def caches(
    results: Results,
    to: Compared = None,
) -> None:
    """Rates and latencies of the memory hierarchy over the footprint, every device in the same figure."""
    runs = [run for run in load(results, find_datasheet, left_out) if run.measured]
    points = caches_figure.curves(runs)
    if points.empty:
        raise UserError(
            f"caches: no device has warm copies, reads or latencies of {caches_figure.FEWEST} footprints"
        )
    with style.look(), _writing("figures"):
        page = caches_figure.draw(points, runs)
        drawn = save_all([((to or figures() / COMPARED) / "caches", page)])
    typer.echo(f"{drawn[0]}: {points['device'].nunique()} devices")


@app.command()
def report(
    results: Results,
    to: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help="The page's file, which ends in .html, or an existing folder; if left out, "
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
    from bench.cli.claims import judged_rows
    from plots.base.vega import begin_library
    from plots.report import page as report_page

    begin_library()
    files = results if every_run else [file for path in results for file in newest(path)]
    with stages() as say:
        say("reading results")
        runs = [replace(run, learns=False) for run in _load(files, calibrate_by, one_unit=True)]
    if (first := _first(results, [run.device for run in runs])) != runs[0].device:
        runs.sort(key=lambda run: run.device != first)
    several = len(runs) > 1
    folder = figures() / COMPARED if several else figures() / runs[0].device / runs[0].name
    file = _page_file(to, "report.html") if to else folder / "report.html"
    sweeps = parquet.read_sweeps(files)
    with stages() as say:
        say(f"judging {count_text(sum(run.measured for run in runs), 'time')}")
        remarks: list[str] = []
        judged = judged_rows(runs, sweeps, remarks.append)
        say(f"writing {file}")
        page = report_page.html(runs, sweeps, judged, _is_ours)
    for sentence in remarks:
        remark(sentence)
    write_text(file, page)
    typer.echo(f"{file} ({len(page) / 1e6:.1f} MB)")


@app.command()
def score(
    results: Results,
    to: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the scores here, too.")
    ] = None,
    most: Annotated[
        int, typer.Option("--worst", metavar="N", min=0, help="List the N cases farthest off.")
    ] = 5,
    calibrate_by: CalibrateBy = None,
) -> None:
    """How far predictions are from what was measured, by operator, device and level of the model.

    L0: the datasheet's roofline. L1: with ceilings of the same run. L2: with tiles, waves and caches. L3: as
    learned from timings, a GPU's own and those of others. A row each: n rows, mean, median and 90th
    percentile of |predicted / measured - 1| in percent, and the geometric mean of predicted / measured.
    """
    runs = _load(results, calibrate_by)
    known = pool_of_runs([*runs, *(read(calibrate_by) if calibrate_by else ())])
    card = judge.scorecard(pd.concat([with_learned(run, known) for run in runs], ignore_index=True))
    for line in score_lines(card, most):
        typer.echo(line)
    if to is not None:
        with _writing("scores"):
            scores = [errors.as_json() for errors in judge.scores(card)]
            to.write_text(json.dumps(scores, indent=1) + "\n", "utf-8")


@app.command()
def history(
    results: Results,
    to: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="DIR",
            help="Folder for <device>/index.html; figures/history if left out.",
        ),
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
    from bench.judge.history.load import histories
    from plots.history import series as history_series
    from plots.history import view
    from plots.history import write as history_pages
    from plots.history.page import index_html

    moment = view.since(since) if since is not None else None
    if last is not None and last < 1:
        raise UserError(f"--last {last}: at least 1 night has to be shown")
    shown = history_pages.shown(histories(results, left_out), moment, last, remark)
    for device in (device for device in shown if device.has_page):
        folder = (to or figures() / HISTORY) / device.folder
        with _writing("pages"):
            drawn = history_pages.save(device.view, folder, match)
        if match and not history_series.matching(device.view, match):
            remark(f"--match {match}: no series of {device.folder} has this in sweep or name")
        still = sum(step.kind != "machine" for step in device.view.open_steps())
        nights = count_text(len(device.view.nights), "night")
        typer.echo(f"{folder / 'index.html'}: {nights}, open steps: {still}, figures: {drawn}")
    with _writing("pages"):
        index = (to or figures() / HISTORY) / "index.html"
        index.parent.mkdir(parents=True, exist_ok=True)
        index.write_text(index_html(shown), "utf-8")
    typer.echo(index)


@app.command()
def fleet(
    results: Results,
    to: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", metavar="DIR", help="Folder for fleet.html; figures/fleet if left out."
        ),
    ] = None,
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
    from bench.fleet.report import judged
    from plots.fleet import page as fleet_page

    told = judged(results, expected, expect=False)
    page = fleet_page.html(told)
    file = (to or figures() / FLEET) / "fleet.html"
    write_text(file, page)
    typer.echo(f"{file}: {count_text(len(told.fleet.units), 'unit')} ({len(page) / 1e6:.1f} MB)")


@app.command()
def accept(
    results: Results,
    to: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help="The page's file; figures/<device>/<run>/accept.html if left out.",
        ),
    ] = None,
    baseline: Annotated[
        list[Path] | None,
        typer.Option(metavar="DIR", help="More earlier runs to compare with; repeatable."),
    ] = None,
) -> None:
    """One page about one unit: is it as fast as its kind should be, and by what evidence.

    `python -m bench accept` measures it, and prints the verdicts alone.
    """
    from bench.accept.command import judge_files
    from plots.accept import page as accept_page

    judged = judge_files(results, baseline or [])
    row = judged[0].row
    file = _page_file(to, "accept.html") if to else figures() / row.device / row.run_id / "accept.html"
    page = accept_page.html(judged)
    write_text(file, page)
    typer.echo(f"{file}: {count_text(len(judged), 'kind')} of work ({len(page) / 1e3:.0f} kB)")


@app.command()
def buy(
    results: Results,
    to: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE", help="The page; figures/buy.html if left out."),
    ] = None,
    price: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=USD", help="What a device costs; USD/h: for an hour of it. Repeatable."),
    ] = None,
) -> None:
    """What devices gain over the first one: work beside what was promised, for each joule and each dollar.

    `python -m bench compare RESULT... --across device` prints the same speed-ups.
    """
    from bench.cli.across import Across
    from plots.buy import page as buy_page

    with stages() as say:
        say("reading results")
        across = Across.read(results, left_out)
        page = buy_page.html(across, buy_page.prices(price or [], list(across.sheets)))
    file = _page_file(to, "buy.html") if to else figures() / "buy.html"
    write_text(file, page)
    typer.echo(f"{file}: {count_text(len(across.sheets), 'device')} ({len(page) / 1e3:.0f} kB)")


@app.command()
def site(
    results: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[RESULT...]",
            help="Parquet files, or folders of them. If left out: what `make public` fetched, or else the "
            "committed samples of it, and committed runs on a CPU.",
        ),
    ] = None,
    to: Annotated[
        Path, typer.Option("-o", "--output", metavar="DIR", help="Folder, emptied of an earlier site.")
    ] = Path("site"),
    verdicts: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Verdicts on imported runs that `bench claims --json` wrote."),
    ] = None,
) -> None:
    """All devices, rules and operators as a site: static pages for any browser, offline."""
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
        runs = [replace(run, learns=False) for run in _load(files, None, one_unit=True)]
        given = build.Given(
            runs,
            parquet.read_sweeps(files),
            from_json(verdicts) if verdicts else (),
            ROOT / "docs" / "simulated_fleet",
            max((reference / "tour").rglob("*.parquet")),
            whole,
            _is_ours,
        )
        with _writing("the site"):
            size = build.write(given, to, say)
    pages = len(list(to.rglob("*.html")))
    typer.echo(
        f"{to / 'index.html'}: {count_text(pages, 'page')}, {size / 1e6:.1f} MB, {monotonic() - begun:.0f} s"
    )


def _page_file(to: Path, name: str) -> Path:
    """The page's file: in a folder the one of this name; a browser knows a page by the ending."""
    if to.is_dir():
        return to / name
    return to if to.suffix.lower() in (".html", ".htm") else to.with_name(f"{to.name}.html")


def _is_ours(sweep: str) -> bool:
    """Whether this checkout has the sweep of this name."""
    return (SWEEPS / f"{sweep}.yaml").is_file()


def figures() -> Path:
    """Where figures go by default: `figures` of the checkout inside it, of the current folder elsewhere."""
    inside = Path.cwd().is_relative_to(ROOT)
    return Path(os.path.relpath(ROOT / "figures") if inside else "figures")


def newest(path: Path) -> list[Path]:
    """A file itself; of a folder the newest run, or pack, of each folder below it, and every imported table.

    The committed runs in a folder `reference` are left out where there are others beside it.
    """
    if not path.is_dir():
        return [path]
    files = sorted(path.rglob("*.parquet"))
    others = [file for file in files if "reference" not in file.relative_to(path).parts]
    last: dict[tuple[Path, str], Path] = {}
    for file in others or files:
        # Run ids begin with their time, packs with their month.
        is_run = re.match(r"[0-9]{8}T|[0-9]{4}-[0-9]{2}\b", file.stem) is not None
        last[file.parent, "" if is_run else file.stem] = file
    return list(last.values()) or [path]


@contextmanager
def _writing(what: str) -> Iterator[None]:
    """UserError if a file of this block cannot be written."""
    try:
        yield
    except OSError as error:
        raise UserError(f"{error.filename}: {what} cannot be written here: {error.strerror}") from error


def _load(
    results: Sequence[Path], calibrate_by: Sequence[Path] | None, one_unit: bool = False
) -> list[DeviceRun]:
    runs = load(results, find_datasheet, left_out, calibrate_by or (), remark if one_unit else None)
    for run in runs:
        if run.calibrating:
            remark(f"{run.device} {run.name}: calibrated by run {run.calibrating.run_id}")
    return runs


def _first(results: Sequence[Path], devices: Sequence[str]) -> str:
    """The one of these devices that was named first; `load` puts them in alphabetical order."""
    if len(set(devices)) > 1:
        for path in results:
            try:
                return next(run.device for run in read([path]) if run.device in devices)
            except (UserError, StopIteration):
                continue  # left out already, or without a time
    return devices[0]


def save(run: DeviceRun, folder: Path, sweeps: parquet.Sweeps, say: Callable[[str], object]) -> list[Path]:
    """Write every figure of a run below a folder; their paths, PNG and SVG in turn.

    `sweeps` is what the run's sweeps declared (`bench.store.parquet.read_sweeps`); `say` gets each name.
    """
    with style.look():
        return save_all((folder / stem, page) for stem, page in _said(pages(run, sweeps), say, folder))


def _said(
    drawn: Iterable[tuple[str, Page]], say: Callable[[str], object], folder: Path
) -> Iterator[tuple[str, Page]]:
    """The same, each reported to `say` as it is drawn."""
    for number, (stem, page) in enumerate(drawn, 1):
        say(f"{folder}: figure {number}, {stem}")
        yield stem, page


def pages(run: DeviceRun, sweeps: parquet.Sweeps) -> Iterator[tuple[str, Page]]:
    """(path without ending, page) of every figure: the run as a whole, the duels, then the sweeps by name."""
    yield from _whole(run)
    yield from sweep_pages(run, sweeps)


def _whole(run: DeviceRun) -> Iterator[tuple[str, Page]]:
    """The pages of the run as a whole, and the duels."""
    for name, page in roofline.draw(run):
        yield f"roofline-{name}", page
    if run.measured >= MANY:
        yield from scorecard.draw(run.frame)
        yield from distribution.draw(run.frame)
    yield from telemetry.draw(run)
    for name, page in duel.draw(run):
        yield f"duel-{name.replace(':', '-')}", page


def sweep_pages(run: DeviceRun, sweeps: parquet.Sweeps) -> Iterator[tuple[str, Page]]:
    """The pages of the sweeps by name."""
    once = run.frame[run.frame["visit"] == 0]
    decided = verdict_lines.by_sweep(verdict_lines.verdicts(run, sweeps))
    for path, rows in once.groupby("sweep", sort=True):
        wanted = sections(rows, sweeps.get(str(path), {}))
        wanted = [replace(section, decided=decided.get(str(path), ())) for section in wanted]
        for i, section in enumerate(wanted):
            which = f"-{i + 1}" if len(wanted) > 1 else ""
            for drawn, leaves in _drawings(run, rows, section):
                for number, page in enumerate(leaves, 1):
                    leaf = f"-{number}" if number > 1 else ""
                    yield f"{path}{which}-{drawn}{leaf}", page


def _drawings(run: DeviceRun, rows: pd.DataFrame, section: Section) -> Iterator[tuple[str, Iterator[Page]]]:
    """(name, pages) of each figure of a section."""
    if section.kind == "quantization":
        yield "quantization", quantization.draw(run, rows, section)
    elif section.kind == "accuracy":
        yield "accuracy", accuracy.draw(run, rows, section)
    elif section.kind == "shares":
        yield "shares", shares.draw(run, rows, section)
    elif section.kind == "memory":
        yield "memory", memory.draw(run, rows, section)
    elif section.kind == "heatmap":
        yield "heatmap", heatmap.draw(run, rows, section)
    else:
        for quantity in sweep.quantities(rows, section):
            yield quantity, sweep.draw(run, rows, section, quantity)


if __name__ == "__main__":
    run_process(lambda: app(prog_name="python -m plots"))
