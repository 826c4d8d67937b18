"""Shared parts of the command lines: exit codes of errors, and options that many commands have."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.completion import get_completion_inspect_parameters
from typer.core import TyperGroup

from bench.cli.terminal import coloured, wrapped
from bench.errors import BUG, UserError

COMPLETE = "_ROOFBENCH_COMPLETE"
"""The environment variable by which a shell asks for completions: see bench/cli/completion.py."""
DeviceOption = Annotated[
    str,
    typer.Option(
        "--bench-device",
        help="cpu, cuda or cuda:N; default: what is here.",
        autocompletion=lambda: ["auto", "cpu", "cuda"],
    ),
]
ResultsOption = Annotated[Path | None, typer.Option(help="Folder of results; default: results/.")]
Results = Annotated[list[Path], typer.Argument(metavar="RESULT...", help="Parquet files, or folders.")]


@contextmanager
def command_line() -> Iterator[None]:
    """End the process with a sentence and exit code 2 for a UserError, with a traceback and 70 for a bug."""
    try:
        yield
    except UserError as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(2)
    except Exception:
        traceback.print_exc()
        typer.echo(BUG, err=True)
        sys.exit(os.EX_SOFTWARE)  # 70: no command documents it


class Commands(TyperGroup):
    """Commands that end as `command_line` does."""

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run the command line; typer itself ends it for misspelt options, Ctrl-C and a closed pipe."""
        if COMPLETE in os.environ:
            get_completion_inspect_parameters()  # it is what makes typer know the shells
        with command_line():
            return super().main(*args, **extra | {"complete_var": COMPLETE})


def left_out(sentence: str) -> None:
    """Say that a result file cannot be read; it does not hide the others."""
    typer.echo(f"left out: {sentence}", err=True)


def show(lines: Iterable[str]) -> None:
    """Print lines as they come, as the terminal can show them."""
    for line in lines:
        for part in wrapped(line):
            typer.echo(coloured(part))


def remark(sentence: str) -> None:
    """Say something beside the output."""
    typer.echo(sentence, err=True)
