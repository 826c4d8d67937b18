"""`python -m plots report`, `site`: pages for a browser."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bench.cli.application import Results, remark
from bench.cli.terminal import stages
from bench.environment.dependencies import ROOT, demand
from bench.errors import UserError, write_text
from bench.format import count_text
from bench.processes import byte_count, in_processes
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
        shown = page.joined(_devices(results, _parts(results, say), say))
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
        results = results or [*public, reference / "core"]
        parts = _parts(results, say)
        with writing("the site"):
            index.begin(to)
            devices = _devices(results, parts, say, partial(index.write_device, to))
            size, count = index.write(devices, to)
    typer.echo(f"{to / 'index.html'}: {count_text(count, 'page')}, {size / 1e6:.1f} MB")


def _parts(results: Sequence[Path], say: Callable[[str], object]) -> tuple[list[list[Path]], int]:
    """`by_device` of the newest files."""
    say("reading results")
    return by_device(file for path in results for file in newest(path))


def _devices(
    results: Sequence[Path],
    files: tuple[list[list[Path]], int],
    say: Callable[[str], object],
    then: Callable[[Shown], Shown] | None = None,
) -> Iterator[Shown]:
    """What these files hold of each device, with the verdicts on it; by default for a page of all.

    With `then` each has a page of its own, which that writes, and what it gives is kept. A device that cannot
    be read is left out; UserError if none can.
    """
    from plots.report import page

    parts, timed = files
    one_page = None if len(parts) == 1 else page.without_rows
    of_part = partial(_of_part, results, 0 if then else timed, then or one_page)
    made = {}
    for place, done in in_processes(of_part, parts, byte_count):
        made[place] = done
        say(f"{len(made)} of {count_text(len(parts), 'device')} read and judged")
    for place in range(len(parts)):
        shown, remarks, refusal = made[place]
        for sentence in remarks:
            remark(sentence)
        yield from shown
    if refusal is not None and not any(shown for shown, _, _ in made.values()):
        raise refusal


def _of_part(
    results: Sequence[Path], timed: int, then: Callable[[Shown], Shown] | None, files: Sequence[Path]
) -> tuple[list[Shown], list[str], UserError | None]:
    """(what there is of each device of these files, remarks, why there is nothing)."""
    from bench.cli.claims import judged_rows
    from plots.report import page

    remarks: list[str] = []
    try:
        runs = load_runs(files, one_unit=True, untimed=True, say=remarks.append)
        judged = judged_rows(runs, remarks.append)
    except UserError as refusal:
        return [], [*remarks, f"left out: {refusal}"], refusal
    shown = []
    for device in dict.fromkeys(run.device for run in runs):
        of_device = [run for run in runs if run.device == device]
        verdicts = [each for each in judged if each.device == device]
        found = page.of_runs(results, of_device, verdicts, timed)
        shown.append(found if then is None else then(found))
    return shown, remarks, None
