"""The tables that commands print: whole, whatever the width of the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from io import StringIO

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from bench.cli.terminal import columns, wrapped

WIDTH = 10_000
"""Wider than any row: the table takes what it needs, and a flag cut off would be a flag not shown."""


def table_lines(names: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table with these columns and rows; none without rows. `>name`: one flush right.

    A column of nothing is left out. In a terminal too narrow for the table, row by row.
    """
    if not rows:
        return []
    told = [place for place, cells in enumerate(zip(*rows, strict=True)) if place == 0 or any(cells)]
    names, rows = [names[place] for place in told], [[cells[place] for place in told] for cells in rows]
    shown = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 0, 0, 1))
    for name in names:
        right = name.startswith(">")
        shown.add_column(name.removeprefix(">"), justify="right" if right else "left", no_wrap=True)
    for cells in rows:
        shown.add_row(*map(Text, cells))
    out = StringIO()
    Console(file=out, width=WIDTH, highlight=False).print(shown)
    lines = [line.rstrip() for line in out.getvalue().splitlines()]
    edge = columns()
    return lines if edge is None or max(map(len, lines)) <= edge else list(_row_by_row(names, rows))


def _row_by_row(names: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Each row as a paragraph: its first cell, then `name value` of the others."""
    for first, *others in rows:
        yield from wrapped(first) if first else ()
        named = zip((name.removeprefix(">") for name in names[1:]), others, strict=True)
        yield from wrapped("  " + "; ".join(f"{name} {text}".strip() for name, text in named if text))


def markdown_lines(names: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """The same as a table of Markdown."""
    yield f"| {' | '.join(name.removeprefix('>') for name in names)} |"
    yield f"|{'|'.join('---:' if name.startswith('>') else '---' for name in names)}|"
    for cells in rows:
        plain = (" ".join(cell.replace("|", "\\|").split()) for cell in cells)
        yield f"| {' | '.join(plain)} |"
