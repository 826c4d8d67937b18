"""What standard output can show: how wide it is, and one line that changes."""

from __future__ import annotations

import io
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager


def lose_no_run_for_a_letter() -> None:
    """Print `?` for a letter that the encoding of the output does not have, instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # None where a process has no output
            stream.reconfigure(errors="replace")


def columns() -> int | None:
    """Columns of the terminal, by COLUMNS if that is set; None for a file or pipe."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def wrapped(line: str, most: int | None = None) -> list[str]:
    """The line in parts that the terminal can show, and none wider than `most`; broken between words only.

    A row of a Markdown table stays whole: it is to be pasted elsewhere.
    """
    width = min((width for width in (columns(), most) if width is not None), default=None)
    if width is None or len(line) <= width or line.startswith("|"):
        return [line]
    indent = " " * (len(line) - len(line.lstrip()) + 2)
    whole = line.replace(" %", "\0%")  # a number stays with its sign
    parts = textwrap.wrap(
        whole, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
    return [part.replace("\0", " ") for part in parts]


CLEARED = "\r\x1b[K"
"""What a terminal takes as an order to clear the line."""


class Live:
    """The progress of a run: one line that changes, or without a terminal a line for each visit."""

    def __init__(self, write: Callable[[str], object], live: bool) -> None:
        """`write` takes text for standard output; without `live` every line stays."""
        self._write, self._live = write, live

    def line(self, line: str) -> None:
        """Write a line that stays, as the terminal can show it, in place of the one that changes."""
        for part in wrapped(line):
            self._write(f"{CLEARED if self._live else ''}{part}\n")

    def progress(self, line: str) -> None:
        """Write a line that the next one replaces."""
        self._write(f"{CLEARED}{line[: (columns() or len(line) + 1) - 1]}" if self._live else f"{line}\n")


@contextmanager
def stages() -> Iterator[Callable[[str], None]]:
    """Takes what is being done and shows it on a terminal: a line of standard error, gone at the end."""
    from rich.console import Console

    with Console(stderr=True).status("") as status:
        yield status.update
