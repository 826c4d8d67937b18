"""The tables that commands print: as wide as they need to be, no cell cut off."""

from __future__ import annotations

from io import StringIO

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

WIDTH = 400
"""Wide enough for any row: the table takes what it needs, and a flag cut off would be a flag not shown."""


def table(*names: str) -> Table:
    """An empty table with these columns; `>name` is one of numbers, flush right."""
    shown = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in names:
        right = name.startswith(">")
        shown.add_column(name.removeprefix(">"), justify="right" if right else "left", no_wrap=True)
    return shown


def lines_of(shown: Table) -> list[str]:
    """The table as it is printed; none for one without rows."""
    if not shown.row_count:
        return []
    out = StringIO()
    Console(file=out, width=WIDTH, highlight=False).print(shown)
    return [line.rstrip() for line in out.getvalue().splitlines()]
