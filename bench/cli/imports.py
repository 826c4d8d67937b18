"""Commands that import timings of others: `import neusight FOLDER` for each source, and `import csv FILE`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

import kernels
from bench.cli.application import ResultsOption, remark, show
from bench.cli.table import table_lines
from bench.errors import UserError, unknown
from bench.format import count_text
from bench.interop.file_format import described as described_format
from bench.interop.imported_problems import with_imported
from bench.interop.source_file import NothingRead, described, names
from bench.processes import byte_count, in_processes

if TYPE_CHECKING:
    from bench.interop.import_source import SourceOutcome

MOST_NAMED = 2
"""Files that are named with the command that draws them."""
Folder = Annotated[
    Path | None,
    typer.Argument(
        metavar="FOLDER",
        help="A clone of the source's repository, or its files alone. Default, if a package has them: that.",
    ),
]


def of_source(name: str) -> Callable[..., None]:
    """The command that imports the source of this name."""

    def import_source(
        folder: Folder = None,
        bench_results: ResultsOption = None,
        table: Annotated[
            str,
            typer.Option(metavar="OPERATOR", help="Its rows alone. Default: all, of aiconfigurator gemm."),
        ] = "",
    ) -> None:
        _of_source(name, folder, bench_results, table).show()

    import_source.__doc__ = f"Public timings, described in bench/interop/sources/{name}.yaml."
    return import_source


def of_file(name: str) -> Callable[..., None]:
    """The command that imports a file of this format; of an empty name: a CSV with our columns."""

    def import_file(
        file: Annotated[Path, typer.Argument(metavar="FILE", help="As results/README.md describes it.")],
        map_columns: Annotated[
            list[str] | None,
            typer.Option(
                "--map",
                metavar="COLUMN=VALUE",
                help="Our column, or a unit, by a column of theirs or a value: ms=time_ms, dtype=float16. "
                "Repeatable.",
            ),
        ] = None,
        bench_results: ResultsOption = None,
    ) -> None:
        from bench.interop.import_file import imported
        from bench.runner.run import RESULTS

        results, operators = bench_results or RESULTS, kernels.names()
        outcome = imported(file, results, operators, kernels.problem, name, map_columns or [])
        _saved(name or "csv", file, outcome).show()

    whose = f"A file of {described_format(name).title}." if name else "Anybody's own numbers from a CSV file."
    import_file.__doc__ = f"{whose} Nothing is written unless every line is right."
    return import_file


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
    """Every source that is in FOLDER/NAME, a line each; those that are not there, or are already, are named.

    imported/NAME.txt, beside the rows, says what was set aside of it, and why. Exit code 1: nothing could be
    read of one that is there, or that should have been cloned.
    """
    from bench.interop.imported_rows import FOLDER
    from bench.runner.run import RESULTS

    every, results = names(), bench_results or RESULTS
    total, any_read = 0, False
    refused: dict[str, UserError] = {}
    show([f"{count_text(len(every), 'source')} take several minutes"])
    do = partial(_import, folder, results, fetch)
    for number, done in in_processes(do, every, lambda name: byte_count([folder / name])):
        name = every[number]
        if isinstance(done, UserError):
            refused[name] = done
            continue
        (results / FOLDER / f"{name}.txt").write_text("\n".join([*done.details, *done.told, ""]), "utf-8")
        any_read, total = True, total + done.rows
        show(done.told[:1])
        for sentence in done.remarks:
            remark(sentence)
    for name, why in refused.items():
        remark(f"{name}: left out: {why}")
    nothing_read = any(isinstance(why, NothingRead) for why in refused.values())
    if not (any_read or nothing_read or any((folder / name).is_dir() for name in every)):
        raise UserError(f"{folder}: holds no folder of a source's name, such as {every[0]}")
    if total:
        reports = results / FOLDER
        show([f"{count_text(total, 'row')}; what was set aside, by device and reason: {reports}/*.txt"])
    if nothing_read:
        raise typer.Exit(1)


def _import(folder: Path, results: Path, fetch: bool, name: str) -> Saved | UserError:
    """What came of one of all sources."""
    from bench.interop.cloning import clone

    source, place = described(name), folder / name
    try:
        if fetch and not source.installed and (not place.is_dir() or (place / ".git").is_dir()):
            clone(source, place)  # or complete it
        return _of_source(name, None if source.installed and not place.is_dir() else place, results)
    except UserError as refusal:
        return refusal


def _of_source(name: str, folder: Path | None, results: Path | None, operator: str = "") -> Saved:
    """Import one source."""
    from bench.interop.cloning import installed
    from bench.interop.import_source import imported
    from bench.runner.run import RESULTS

    source = described(name)
    if operator not in ("", *source.operators):
        raise UserError(unknown("table", operator, name, source.operators))
    if folder is None and source.installed:
        source, folder = installed(source)
    if folder is None:
        raise UserError(f"{name}: give the folder of a clone of {source.repository}")
    find = with_imported(kernels.problem)
    return _saved(name, folder, imported(source, folder, results or RESULTS, find, operator or source.usual))


class Saved(NamedTuple):
    """What came of a source or a file."""

    details: list[str]
    """A table by device and operator, and what was set aside."""
    told: list[str]
    """The sentence on all, and the next command."""
    rows: int
    remarks: list[str]

    def show(self) -> None:
        """Print all of it."""
        for sentence in self.remarks:
            remark(sentence)
        show([*self.details, *self.told])


def _saved(name: str, place: Path, outcome: SourceOutcome) -> Saved:
    """Write the files, and say what came of it."""
    from bench.interop.import_source import UNDESCRIBED

    rows: Counter[tuple[str, str]] = Counter()
    paths: list[Path] = []
    is_new = False
    for each in outcome.rows:  # one device's after the other: all of a source are hundreds of thousands
        is_new |= each.save()
        paths.append(each.path)
        rows.update((row.device_name, row.operator) for row in each.rows)
    if not paths:
        expected = any(what.operator or what.reason == UNDESCRIBED for what in outcome.aside)
        why = f"{place}: {'; '.join(_aside(outcome)) or 'has no line below its first'}"
        raise NothingRead(why) if expected else UserError(why)
    if not is_new:
        more = f" and {count_text(len(paths) - 1, 'more file')}" if len(paths) > 1 else ""
        raise UserError(f"{place}: already imported as {paths[0]}{more}; delete that to import it anew")
    aside: Counter[tuple[str, str]] = Counter()
    for what, count in outcome.aside.items():
        aside[what.device, what.operator] += count
    keys = sorted(key for key in rows.keys() | aside.keys() if any(key))
    lines = [(*key, str(rows[key]), str(aside[key] or "")) for key in keys]
    details = [*table_lines(("device", "operator", ">rows", ">set aside"), lines), *_aside(outcome)]
    told = [f"{name}: {count_text(rows.total(), 'row')} in {count_text(len(paths), 'file')}"]
    if left := aside.total():
        told[0] += f"; {left:,} set aside"
    if len(paths) <= MOST_NAMED:
        told.append(f"now: python -m plots {' '.join(map(str, paths))}")
    return Saved(details, told, rows.total(), outcome.remarks)


def _aside(outcome: SourceOutcome) -> Iterator[str]:
    """Each reason with its number of lines."""
    reasons: Counter[tuple[str, str]] = Counter()
    for what, count in outcome.aside.items():
        reasons[what.operator, what.reason] += count
    for (operator, reason), count in reasons.most_common():
        yield f"set aside {count}: {operator + ': ' if operator else ''}{reason}"
