"""Commands that import a file of other people's times: `python -m bench import csv FILE`, one a format."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

import kernels
from bench.cli.application import ResultsOption, remark
from bench.errors import UserError
from bench.interop.file_format import described, recognised


def command(name: str) -> Callable[..., None]:
    """The command that imports a file of this format; of an empty name: a CSV with our columns."""

    def import_file(
        file: Annotated[Path, typer.Argument(metavar="FILE", help="As results/README.md describes it.")],
        map_columns: Annotated[
            list[str] | None,
            typer.Option(
                "--map",
                metavar="COLUMN=VALUE",
                help="Our column, or a unit, by a column of theirs or a value: ms=time_ms, dtype=float16; "
                "or a YAML file. Repeatable.",
            ),
        ] = None,
        bench_results: ResultsOption = None,
    ) -> None:
        from bench.interop.import_file import imported
        from bench.runner.run import RESULTS

        results, maps = bench_results or RESULTS, map_columns or []
        try:
            devices, remarks = imported(file, results, kernels.names(), kernels.problem, name, maps)
        except UserError as error:
            if not name and not maps and (like := recognised(file)):
                words = f"python -m bench import {like} {file}"
                raise UserError(f"{file}: looks like a file of {like}: {words}") from error
            raise
        if all(device.path.exists() for device in devices):
            raise UserError(f"{file}: already imported as {devices[0].path}")
        for device in devices:  # the files that are missing after an interrupted import
            typer.echo(device if device.save() else f"{device.path}: already there")
        typer.echo(f"now: python -m plots {' '.join(str(device.path) for device in devices)}")
        for sentence in remarks:
            remark(sentence)

    whose = f"A file of {described(name).title}." if name else "Anybody's own numbers from a CSV file."
    import_file.__doc__ = f"{whose} Nothing is written unless every line is right."
    return import_file
