"""Commands that import public sources: `python -m bench import neusight FOLDER`, one for each description."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import kernels
from bench.cli.application import Results, ResultsOption, left_out, remark, show
from bench.cli.table import table_lines
from bench.errors import UserError, unknown
from bench.format import duration_text
from bench.interop.imported_problems import with_imported
from bench.interop.source_file import NothingRead, described, names

if TYPE_CHECKING:
    from bench.interop.import_source import SourceOutcome

Folder = Annotated[
    Path | None,
    typer.Argument(
        metavar="FOLDER",
        help="A clone of the source's repository, or its files alone. Default, if a package has them: that.",
    ),
]


def command(name: str) -> Callable[..., None]:
    """The command that imports the source of this name."""

    def import_source(
        folder: Folder = None,
        bench_results: ResultsOption = None,
        table: Annotated[
            str,
            typer.Option(metavar="OPERATOR", help="Its rows alone. Default: all, of aiconfigurator gemm."),
        ] = "",
        sample: Annotated[
            Path | None,
            typer.Option(metavar="DIR", help="A few hundred rows a GPU, always the same, go below DIR."),
        ] = None,
    ) -> None:
        show(_lines(name, folder, bench_results, table, sample))

    import_source.__doc__ = f"Public timings, described in bench/interop/sources/{name}.yaml."
    return import_source


def import_all(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="A folder that holds one of each source's name.")
    ],
    bench_results: ResultsOption = None,
    fetch: Annotated[
        bool,
        typer.Option("--clone", help="First clone what is not there, of each repository only its files."),
    ] = False,
) -> None:
    """Every source that is in FOLDER/NAME; those that are not there, or there already, are named.

    Exit code 1: nothing could be read of one that is there, or that should have been cloned.
    """
    from bench.interop.cloning import clone

    nothing_read = False
    for name in names():
        source = described(name)
        try:
            place = folder / name
            if fetch and not source.installed and not place.is_dir():
                clone(source, place)
            show(_lines(name, None if source.installed and not place.is_dir() else place, bench_results))
        except UserError as refusal:
            nothing_read |= isinstance(refusal, NothingRead)
            remark(f"{name}: left out: {refusal}")
    if nothing_read:
        raise typer.Exit(1)


def agreement(results: Results) -> None:
    """How far sources agree that timed the same work on the same device: the ratio of their times."""
    from bench.judge.achieved import agreements
    from bench.judge.frame import read

    lines = [
        (
            *(f"{each.operator}, {each.width}", each.device, each.first, each.second, str(each.cases)),
            *(f"{each.median:.2f}", f"{each.low:.2f} to {each.high:.2f}"),
        )
        for each in agreements(read(results, left_out))
    ]
    if not lines:
        raise UserError("agreement: no two sources of these results timed the same work on the same device")
    names = ("operator", "device", "first", "second", ">cases", ">second / first", ">80 % of them")
    show(table_lines(names, lines))


def list_sources(wanted: bool) -> None:
    """Print every source with where it is to be had, and end."""
    if not wanted:
        return
    lines = []
    for name in names():
        source = described(name)
        where = f"{source.who}; {source.licence}; {source.repository} {source.commit[:10]}"
        lines.append((name, ", ".join(source.operators), where))
    show(table_lines(("source", "operators", "who, licence, repository and commit"), lines))
    raise typer.Exit


def _lines(
    name: str, folder: Path | None, results: Path | None, operator: str = "", sample: Path | None = None
) -> Iterator[str]:
    """Import one source; what came of it, by device and operator, and what was set aside."""
    from bench.interop.cloning import installed
    from bench.interop.import_source import UNDESCRIBED, imported
    from bench.runner.run import RESULTS

    begun = time.monotonic()
    source = described(name)
    if operator not in ("", *source.operators):
        raise UserError(unknown("table", operator, name, source.operators))
    if sample and not source.samples:
        raise UserError(f"{name}: how a sample of it is drawn is not described")
    if folder is None and source.installed:
        source, folder = installed(source)
    if folder is None:
        raise UserError(f"{name}: give the folder of a clone of {source.repository}")
    outcome = imported(
        *(source, folder, sample or results or RESULTS, with_imported(kernels.problem)),
        *(operator or source.usual, sample is not None),
    )
    rows: Counter[tuple[str, str]] = Counter()
    paths: list[Path] = []
    is_new = False
    for each in outcome.rows:  # one device's after the other: all of a source are hundreds of thousands
        is_new |= each.save()
        paths.append(each.path)
        rows.update((row.device_name, row.operator) for row in each.rows)
    if not paths:
        expected = any(what.operator or what.reason == UNDESCRIBED for what in outcome.aside)
        told = f"{folder}: every line is set aside: {'; '.join(_aside(outcome)) or 'there is none'}"
        raise NothingRead(told) if expected else UserError(told)
    if not is_new:
        raise UserError(f"{folder}: already imported as {paths[0]} and {len(paths) - 1} more files")
    aside: Counter[tuple[str, str]] = Counter()
    for what, count in outcome.aside.items():
        aside[what.device, what.operator] += count
    lines = [(*key, str(rows[key]), str(aside[key] or "")) for key in sorted(rows.keys() | aside.keys())]
    yield from table_lines(("device", "operator", ">rows", ">set aside"), lines)
    yield from _aside(outcome)
    yield f"{name}: {rows.total()} rows of {len(paths)} files in {duration_text(time.monotonic() - begun)}"
    for sentence in outcome.remarks:
        remark(sentence)


def _aside(outcome: SourceOutcome) -> Iterator[str]:
    """Each reason with its number of lines."""
    reasons: Counter[tuple[str, str]] = Counter()
    for what, count in outcome.aside.items():
        reasons[what.operator, what.reason] += count
    for (operator, reason), count in reasons.most_common():
        yield f"set aside {count}: {operator + ': ' if operator else ''}{reason}"
