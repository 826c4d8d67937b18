"""`python -m plots report`, `site`: pages for a browser."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bench.cli.application import Results, remark
from bench.cli.terminal import stages
from bench.environment.dependencies import ROOT, demand
from bench.errors import write_text
from bench.format import count_text
from plots.cli.arguments import COMPARED, figures, newest_runs, output, writing

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
        shown = _read(results, say)
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
        shown = _read(results or [*public, reference / "core"], say)
        with writing("the site"):
            size, count = index.write(shown, to, say)
    typer.echo(f"{to / 'index.html'}: {count_text(count, 'page')}, {size / 1e6:.1f} MB")


def _read(results: Sequence[Path], say: Callable[[str], object]) -> Shown:
    """What these files hold, with the verdicts on it."""
    from bench.cli.claims import judged_rows
    from plots.report.section import Results as Shown

    runs, sweeps = newest_runs(results, say, untimed=True)
    say(f"judging {count_text(sum(run.measured for run in runs), 'time')}")
    return Shown(results, runs, sweeps, judged_rows(runs, sweeps, remark))
