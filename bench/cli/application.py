"""Shared parts of the command lines: exit codes of errors, and options that many commands have."""

from __future__ import annotations

import atexit
import os
import sys
import traceback
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from bench.cli.terminal import lose_no_run_for_a_letter, wrapped
from bench.errors import BUG, UserError

DeviceOption = Annotated[
    str,
    typer.Option("--bench-device", help="cpu, cuda or cuda:N; default: what is here."),
]
WallTimeOption = Annotated[str | None, typer.Option(metavar="SECONDS", help="Wall time, as for pytest.")]
PrecisionOption = Annotated[
    str | None, typer.Option(metavar="SHARE", help="Half-width that is narrow enough, as for pytest: 1%.")
]
ResultsOption = Annotated[Path | None, typer.Option(help="Folder of results; default: results/.")]
Results = Annotated[list[Path], typer.Argument(metavar="RESULT...", help="Parquet files, or folders.")]


def run_process(app: Callable[[], object]) -> None:
    """Run a command line as a whole process, which ends as soon as Python has cleaned up.

    C++ would then destroy Arrow's threads, which pandas starts for some operations on text. One of them that
    has not ended by then aborts the process, whatever its exit code (apache/arrow#34314).
    """
    code = 1
    lose_no_run_for_a_letter()

    def leave() -> None:
        with suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)

    atexit.register(leave)  # what is registered first is called last
    try:
        app()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        raise


class Commands(TyperGroup):
    """Commands that end with a sentence and exit code 2 for a UserError, a traceback and 70 for a bug."""

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run the command line; typer itself ends it for misspelt options, Ctrl-C and a closed pipe."""
        try:
            return super().main(*args, **extra)
        except UserError as error:
            typer.echo(f"error: {error}", err=True)
            sys.exit(2)
        except Exception:
            traceback.print_exc()
            typer.echo(BUG, err=True)
            sys.exit(os.EX_SOFTWARE)  # 70: no command documents it


def left_out(sentence: str) -> None:
    """Say that a result file cannot be read; it does not hide the others."""
    typer.echo(f"left out: {sentence}", err=True)


def show(lines: Iterable[str]) -> None:
    """Print lines as they come, as the terminal can show them."""
    for line in lines:
        for part in wrapped(line):
            typer.echo(part)


def remark(sentence: str) -> None:
    """Say something on stderr, apart from the output."""
    typer.echo(sentence, err=True)
