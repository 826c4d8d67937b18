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


def table(*names: str) -> Table:
    """An empty table with these columns; `>name` is one of numbers, flush right."""
    shown = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in names:
        right = name.startswith(">")
        shown.add_column(name.removeprefix(">"), justify="right" if right else "left", no_wrap=True)
    return shown


def table_lines(names: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """A table with these columns, as `table` takes them, and rows."""
    shown = table(*names)
    for cells in rows:
        shown.add_row(*cells)
    yield from lines_of(shown)


def markdown_lines(names: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """The same as a table of Markdown."""
    yield f"| {' | '.join(name.removeprefix('>') for name in names)} |"
    yield f"|{'|'.join('---:' if name.startswith('>') else '---' for name in names)}|"
    for cells in rows:
        plain = (" ".join(cell.replace("|", "\\|").split()) for cell in cells)
        yield f"| {' | '.join(plain)} |"


def lines_of(shown: Table) -> list[str]:
    """The table as it is printed; none for one without rows. In a terminal too narrow for it, row by row."""
    if not shown.row_count:
        return []
    out = StringIO()
    # A PCI address holds `:ab:`, which is an emoji's name.
    Console(file=out, width=WIDTH, highlight=False, emoji=False).print(shown)
    lines = [line.rstrip() for line in out.getvalue().splitlines()]
    edge = columns()
    return lines if edge is None or max(map(len, lines)) <= edge else list(_row_by_row(shown))


def _row_by_row(shown: Table) -> Iterator[str]:
    """Each row as a paragraph: its first cell, then `name value` of the others."""
    names = [str(column.header) for column in shown.columns]
    for cells in zip(*(column.cells for column in shown.columns), strict=True):
        texts = [Text.from_markup(str(cell), emoji=False).plain for cell in cells]
        yield from wrapped(texts[0]) if texts[0] else ()
        rest = [f"{name} {text}".strip() for name, text in zip(names[1:], texts[1:], strict=True) if text]
        yield from wrapped("  " + "; ".join(rest))
