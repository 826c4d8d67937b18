"""What standard output can show: how wide it is, in colour or not, and one line that changes."""

from __future__ import annotations

import os
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import typer

COLOURS = {
    "SUPPORTED": "green",
    "FASTER": "green",
    "CONTRADICTED": "red",
    "SLOWER": "red",
    "INVALID": "red",
    "UNDECIDED": "yellow",
    "warning:": "yellow",
}
"""Words that have a colour where a terminal has it; the word itself always says the same."""
_WORD = re.compile("|".join(rf"(?<!\w){word}(?!\w)" for word in COLOURS))


def columns() -> int | None:
    """Columns of the terminal, by COLUMNS if that is set; None for a file or pipe."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def coloured(line: str) -> str:
    """The line with its verdicts in colour; as it is without a terminal, or with NO_COLOR (no-color.org)."""
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return line
    return _WORD.sub(lambda word: typer.style(word[0], fg=COLOURS[word[0]]), line)


def wrapped(line: str, most: int | None = None) -> list[str]:
    """The line in parts that the terminal can show, and none wider than `most`; broken between words only.

    A row of a Markdown table stays whole: it is to be pasted elsewhere.
    """
    width = min((width for width in (columns(), most) if width is not None), default=None)
    if width is None or len(line) <= width or line.startswith("|"):
        return [line]
    indent = " " * (len(line) - len(line.lstrip()) + 2)
    return textwrap.wrap(
        line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


class Live:
    """The progress of a run: one line that changes, or without a terminal a line for each visit."""

    def __init__(self, write: Callable[[str], object], live: bool) -> None:
        """`write` takes text for standard output; without `live` every line stays."""
        self._write, self._live, self._is_open = write, live, False

    def line(self, line: str) -> None:
        """Write a line that stays."""
        self.end()
        self._write(coloured(line) + "\n")

    def progress(self, line: str) -> None:
        """Write a line that the next one replaces."""
        if not self._live:
            self._write(line + "\n")
            return
        self._write(f"\r\x1b[K{line[: (columns() or len(line) + 1) - 1]}")
        self._is_open = True

    def end(self) -> None:
        """Let the line that changes stand."""
        if self._is_open:
            self._write("\n")
        self._is_open = False


@contextmanager
def stages() -> Iterator[Callable[[str], None]]:
    """Takes what is being done and shows it on a terminal: a line of standard error, cleared at the end."""
    live = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"

    def say(text: str) -> None:
        if live:
            room = shutil.get_terminal_size().columns - 1
            typer.echo(f"\r\x1b[K{text[:room]}", nl=False, err=True)

    try:
        yield say
    finally:
        say("")
