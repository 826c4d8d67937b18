"""`python -m plots report`, `site`: pages for a browser."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bench.cli.application import Results, left_out, remark
from bench.cli.terminal import stages
from bench.environment.dependencies import ROOT, demand
from bench.errors import UserError, write_text
from bench.format import count_text
from bench.store.parquet import read_sweeps, tables
from plots.cli.arguments import COMPARED, by_device, figures, load_runs, newest, output, writing

if TYPE_CHECKING:
    from plots.report.section import Results as Shown


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
) -> None:
    """One page about these results, for any browser, offline, with a section for each thing that they show.

    A run: what the machine reaches, whether that is as fast as other devices of its model, the verdicts on
    the guides' rules, every case with its prediction, the experiments, and what was not measured and why.
    Several devices: what each gains over the first. Several nights: what changed. Several units of a kind:
    which are slow. Of a folder the newest run of each device is shown in detail.
    """
    demand("report", "jinja2", "ruptures")
    from plots.report import page

    with stages() as say:
        shown = page.joined(_devices(results, say, on_one=True))
        runs = shown.runs
        of = COMPARED if len(runs) > 1 else f"{runs[0].device}/{runs[0].name}"
        file = to or figures() / of / "report.html"
        file = file / "report.html" if file.is_dir() else file
        say(f"writing {file}")
        text = page.html(shown)
    write_text(file, text)
    typer.echo(f"{file} ({len(text) / 1e6:.1f} MB)")


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
) -> None:
    """A report of each device, and one of all together, which links to them: speed-ups and rules."""
    demand("site", "jinja2", "ruptures")
    from plots.report import index

    reference, imported = ROOT / "results" / "reference", ROOT / "results" / "imported"
    whole = any(imported.rglob("*.parquet"))
    public = [imported] if whole else [reference / "public", reference / "engines"]
    with stages() as say:
        devices = _devices(results or [*public, reference / "core"], say, on_one=False)
        with writing("the site"):
            size, count = index.write(devices, to)
    typer.echo(f"{to / 'index.html'}: {count_text(count, 'page')}, {size / 1e6:.1f} MB")


def _devices(results: Sequence[Path], say: Callable[[str], object], on_one: bool) -> Iterator[Shown]:
    """What these files hold of each device, with the verdicts on it; `on_one`: for one page.

    One device after the other: the rows of all public ones would fill the memory. A device that cannot be
    read is left out; UserError if none can.
    """
    say("reading results")
    files = [file for path in results for file in newest(path)]
    every = (of["median_s"] for _, of in tables(files, lambda _: None, ["median_s"]))
    timed = sum(len(seconds) - seconds.null_count for seconds in every) if on_one else 0
    refusal, any_read = None, False
    for part in by_device(files):
        try:
            shown = _of_part(results, part, timed, say)
        except UserError as error:
            refusal = error
            left_out(str(error))
            continue
        any_read = True
        yield from shown
    if refusal is not None and not any_read:
        raise refusal


def _of_part(
    results: Sequence[Path], files: Sequence[Path], timed: int, say: Callable[[str], object]
) -> list[Shown]:
    from bench.cli.claims import judged_rows
    from plots.report import page

    runs, sweeps = load_runs(files, one_unit=True, untimed=True), read_sweeps(files)
    say(f"judging {', '.join(dict.fromkeys(run.device for run in runs))}")
    judged = [each for _, of_group in judged_rows(runs, sweeps, remark) for each in of_group]
    shown = []
    for device in dict.fromkeys(run.device for run in runs):
        of_device = [run for run in runs if run.device == device]
        verdicts = [each for each in judged if each.device == device]
        shown.append(page.of_runs(results, of_device, sweeps, verdicts, timed))
    return shown
