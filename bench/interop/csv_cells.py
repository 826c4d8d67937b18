"""The cells of a CSV file, line by line, whichever spreadsheet wrote them; and what a cell means.

Commas, semicolons or tabs apart, with or without a byte order mark, any line ends; numbers with a point.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from bench.errors import UserError

DELIMITERS = ",;\t"
_WHOLE = re.compile(r"[-+]?\d+")


@dataclass(frozen=True)
class Line:
    """One line with values: a column's name -> its cell, without those that are empty."""

    file: Path
    number: int
    cells: dict[str, str]

    def refuse(self, says: str) -> UserError:
        """That this line is wrong, with file and line."""
        return UserError(f"{self.file}:{self.number}: {says}")

    def needed(self, column: str) -> str:
        """The cell of a column that must not be empty."""
        if column not in self.cells:
            raise self.refuse(f"{column} is empty")
        return self.cells[column]

    def seconds(self, column: str, scale: float = 1.0) -> float | None:
        """A time above zero, times `scale`; None if the cell is empty."""
        cell = self.cells.get(column)
        if cell is None:
            return None
        try:
            number = float(cell)
        except ValueError:
            raise self.refuse(f"{column} must be a number, with a point, not {cell!r}") from None
        if not (math.isfinite(number * scale) and number * scale > 0):
            raise self.refuse(f"{column} must be above zero, not {cell}")
        return number * scale

    def count(self, column: str, default: int) -> int:
        """A whole number above zero."""
        cell = self.cells.get(column, str(default))
        if not _WHOLE.fullmatch(cell) or int(cell) < 1:
            raise self.refuse(f"{column} must be a whole number above zero, not {cell!r}")
        return int(cell)

    def chosen(self, column: str, possible: Sequence[str], default: str) -> str:
        """One of the words that are possible; `default` if the cell is empty."""
        cell = self.cells.get(column, default)
        if cell not in possible:
            raise self.refuse(f"{column} is one of {', '.join(possible)}, not {cell!r}")
        return cell

    def day(self, column: str) -> str:
        """A date, or date and time, as ISO 8601 has it; empty if the cell is."""
        cell = self.cells.get(column)
        if cell is None:
            return ""
        try:
            return datetime.fromisoformat(cell).isoformat()
        except ValueError:
            raise self.refuse(f"{column} must be a date like 2026-11-21, not {cell!r}") from None


def value(cell: str) -> int | float | bool | str:
    """What a cell means as the value of a parameter: a whole number, a number, true or false, or text."""
    if _WHOLE.fullmatch(cell):
        return int(cell)
    if cell.lower() in ("true", "false"):
        return cell.lower() == "true"
    try:
        return float(cell)
    except ValueError:
        return cell


def lines(file: Path, data: bytes) -> tuple[list[str], Iterator[Line]]:
    """(names of the columns, every line that is not empty). UserError where it is no such file."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{file}: is not text in UTF-8 (byte {error.start})") from error
    head = next((line for line in text.splitlines() if line.strip()), "")
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=max(DELIMITERS, key=head.count), strict=True)
    found = _split(file, reader)
    number, columns = next(found, (1, []))
    names = [name.strip() for name in columns]
    twice = [name for place, name in enumerate(names) if name in names[:place]]
    if not any(names):
        raise UserError(f"{file}: is empty; its first line names the columns")
    if "" in names:
        raise UserError(f"{file}:{number}: column {names.index('') + 1} has no name")
    if twice:
        raise UserError(f"{file}:{number}: the column {twice[0]} is there twice")
    return names, _lines(file, names, found)


def _lines(file: Path, names: list[str], found: Iterator[tuple[int, list[str]]]) -> Iterator[Line]:
    for number, cells in found:
        if len(cells) != len(names):
            raise UserError(f"{file}:{number}: has {len(cells)} cells; the first line names {len(names)}")
        stripped = zip(names, (cell.strip() for cell in cells), strict=True)
        yield Line(file, number, {name: cell for name, cell in stripped if cell})


def _split(file: Path, reader: Iterator[list[str]]) -> Iterator[tuple[int, list[str]]]:
    """(number of the line, its cells), empty lines left out."""
    while True:
        try:
            cells = next(reader, None)
        except csv.Error as error:
            raise UserError(f"{file}:{reader.line_num}: {error}") from error  # type: ignore[attr-defined]
        if cells is None:
            return
        if any(cell.strip() for cell in cells):
            yield reader.line_num, cells  # type: ignore[attr-defined]
