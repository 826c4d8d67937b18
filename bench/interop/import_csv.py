"""Import of times from a CSV file. Every mistake is found before anything is written.

Cells may be separated by commas, semicolons or tabs, with any line ends, with or without a byte order mark;
numbers have a decimal point.

Columns of the file (results/README.md has an example):

    device operator implementation dtype             which case, on what; the device as its driver calls it
    seconds | microseconds                           its time
    the operator's parameters                        m, n, k, layout ...; empty where an operator has none
    low_s high_s                                     the ends of its 95 % interval, seconds
    sweep role cache threads device_kind configuration    as the columns of a result of that name
    source note library date driver                  who measured it, with what, and when
"""

from __future__ import annotations

import csv
import hashlib
import io
import math
import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, cast, get_args

from pydantic import ValidationError

from bench.device.datasheet import Datasheet, datasheets, slug_of
from bench.errors import UserError, meant, unknown
from bench.interop.imported_rows import FOLDER, Imported, declared, device_columns, foreign_row, source_text
from bench.spec import DeviceKind, Problem, parameters_text
from bench.store.schema import Measurement
from bench.sweep.grammar import Cache, Role, worded
from bench.sweep.load import Find

NEEDED = ("device", "operator", "implementation", "dtype")
TIMES: Mapping[str, float] = {"seconds": 1.0, "microseconds": 1e-6}
"""Column of the time -> seconds of its unit."""
MORE = (
    *("low_s", "high_s", "sweep", "role", "cache", "threads", "device_kind", "configuration"),
    *("source", "note", "library", "date", "driver"),
)
SWEEP = "imported/csv"
DELIMITERS = ",;\t"
_WHOLE = re.compile(r"[-+]?\d+")
_NAME = re.compile(r"[A-Za-z0-9_.+-]+(/[A-Za-z0-9_.+-]+)*")


def imported(
    file: Path, results: Path, operators: Collection[str], find: Find
) -> tuple[list[Imported], list[str]]:
    """(each device's rows with their file below `results`, remarks for the user).

    The run's name is a hash of the file, so that importing it again is noticed. UserError names the line.
    """
    try:
        data = file.read_bytes()
    except OSError as error:
        raise UserError(f"{file}: cannot be read: {error.strerror}") from error
    names, body = lines(file, data)
    _check_columns(file, names, {name: find(name) for name in operators})
    reader = _Reader(
        f"csv-{hashlib.sha256(data).hexdigest()[:12]}",
        operators,
        find,
        {name: sheet for sheet in datasheets() for name in sheet.match},
    )
    by_device: dict[str, list[Measurement]] = defaultdict(list)
    seen: dict[tuple[str, str], int] = {}
    for line in body:
        row = reader.row(line)
        by_device[row.device].append(row)
        if (other := by_device[row.device][0].device_name) != row.device_name:
            raise line.refuse(f"{row.device_name!r} was {other!r} further up; write one device one way")
        first = seen.setdefault((row.device, row.case), line.number)
        if first != line.number:
            raise line.refuse(f"is the case of line {first} again; one line a case")
    if not by_device:
        raise UserError(f"{file}: has no line below its first")
    remarks = [
        f"{rows[0].device_name}: no file in bench/device/datasheets has this name: "
        "SMs, cache and peaks are unknown"
        for rows in by_device.values()
        if rows[0].device_kind == "cuda" and rows[0].device_name not in reader.sheets
    ]
    folder = results / FOLDER
    return [
        Imported(folder / device / f"{reader.run_id}.parquet", rows, declared(rows, find))
        for device, rows in by_device.items()
    ], remarks


def _check_columns(file: Path, names: list[str], problems: Mapping[str, type[Problem]]) -> None:
    """UserError if a needed column is missing, or a column has an unknown name."""
    parameters = {name for problem in problems.values() for name in problem.model_fields}
    possible = dict.fromkeys([*NEEDED, *TIMES, *MORE, *sorted(parameters)])
    for name in names:
        if name not in possible:
            raise UserError(f"{file}:1: {unknown('column', name, 'such a file', possible)}")
    if lacking := [name for name in NEEDED if name not in names]:
        raise UserError(f"{file}:1: lacks the column {lacking[0]}; every file has {', '.join(NEEDED)}")
    if len(TIMES.keys() & set(names)) != 1:
        raise UserError(f"{file}:1: one column is the time, {' or '.join(TIMES)}")


@dataclass(frozen=True)
class _Reader:
    """Makes rows of lines; holds what does not change from line to line."""

    run_id: str
    operators: Collection[str]
    find: Find
    sheets: Mapping[str, Datasheet]
    """Datasheets by the names that drivers give."""

    def row(self, line: Line) -> Measurement:
        """The row of a line; UserError if anything in the line is wrong."""
        problem, name = self._problem(line), line.needed("implementation")
        try:
            problem.implementation(name)
        except LookupError as error:
            raise line.refuse(str(error.args[0])) from error
        device, sheet = line.needed("device"), self.sheets.get(line.needed("device"))
        if not slug_of(device):
            raise line.refuse(f"device {device!r} has no letter or digit")
        kind = _kind(line, problem, name, sheet)
        if missing := problem.missing(name, kind, sheet.capability if sheet else None):
            raise line.refuse(missing)
        low_s, median_s, high_s = _times(line)
        cells = line.cells.get
        who = cells("source", line.file.name)
        return foreign_row(
            {
                **problem.facts(name),
                **device_columns(device, kind, sheet),
                **{"parameters": parameters_text(problem.parameters()), "sweep": _sweep(line)},
                **{"role": line.chosen("role", get_args(Role), "measurement")},
                **{"run_id": self.run_id, "protocol": f"{who}, imported"},
                # Most tools repeat a launch, so its data is in cache unless the file says otherwise.
                **{"cache": line.chosen("cache", get_args(Cache), "warm")},
                **{"median_s": median_s, "low_s": low_s, "high_s": high_s},
                "source": source_text(who, f"{line.file.name} ({self.run_id})", cells("note", "")),
                **{"libraries": cells("library", ""), "driver": cells("driver", "")},
                **{"configuration": cells("configuration", ""), "utc": line.day("date")},
                "threads": line.count("threads", 1),
            }
        )

    def _problem(self, line: Line) -> Problem:
        operator = line.needed("operator")
        if operator not in self.operators:
            raise line.refuse(unknown("operator", operator, "roofbench", self.operators))
        return _problem(line, self.find(operator))


def _problem(line: Line, kind: type[Problem]) -> Problem:
    """The problem of the line's parameters."""
    given = {name: value(line.cells[name]) for name in kind.model_fields if name in line.cells}
    fixed = {*NEEDED, *TIMES, *MORE}
    if other := [name for name in line.cells if name not in fixed and name not in kind.model_fields]:
        raise line.refuse(unknown("parameter", other[0], kind.operator, kind.model_fields))
    try:
        return kind(**cast("dict[str, Any]", given))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = str(first["loc"][0]) if first["loc"] else kind.operator
        if first["type"] == "missing":
            raise line.refuse(f"{kind.operator} needs {name}") from error
        raise line.refuse(worded(first, name)) from error


def _kind(line: Line, problem: Problem, implementation: str, sheet: Datasheet | None) -> DeviceKind:
    """CPU or GPU: as the line says, else a GPU if it has a datasheet, else what the implementation needs."""
    runs_on = problem.implementation(implementation).devices
    stated = line.cells.get("device_kind")
    if stated is None and sheet is None and len(runs_on) > 1:
        raise line.refuse(
            f"{implementation} runs on {' and '.join(runs_on)}, and bench/device/datasheets knows no "
            f"{line.cells['device']!r}: say which it is in a column device_kind"
        )
    if stated is None:
        return "cuda" if sheet else runs_on[0]
    line.chosen("device_kind", get_args(DeviceKind), stated)
    if sheet is not None and stated != "cuda":
        raise line.refuse(f"device_kind is {stated}, but {sheet.name} is a GPU: leave it empty or give cuda")
    return cast("DeviceKind", stated)


def _times(line: Line) -> tuple[float | None, float, float | None]:
    """(low, median, high), seconds; the ends are None where no interval is given."""
    ((column, unit_s),) = [(name, unit) for name, unit in TIMES.items() if name in line.cells] or [("", 0.0)]
    median_s = line.seconds(column, unit_s) if column else None
    if median_s is None:
        raise line.refuse("has no time")
    low_s, high_s = line.seconds("low_s"), line.seconds("high_s")
    if (low_s is None) != (high_s is None):
        raise line.refuse("an interval has two ends: give low_s and high_s, or neither")
    if low_s is not None and high_s is not None and not low_s <= median_s <= high_s:
        raise line.refuse(f"low_s {low_s:g} and high_s {high_s:g} do not enclose the time, {median_s:g} s")
    return low_s, median_s, high_s


def _sweep(line: Line) -> str:
    name = line.cells.get("sweep", SWEEP)
    if not _NAME.fullmatch(name) or ".." in name.split("/"):
        raise line.refuse(f"sweep {name!r}: a name is letters, digits and _ . + -, with / between folders")
    return name


# ---- the file's lines and cells


@dataclass(frozen=True)
class Line:
    """One line of the file; `cells`: a column's name -> its cell, without the empty ones."""

    file: Path
    number: int
    cells: dict[str, str]

    def refuse(self, says: str) -> UserError:
        """The error that this line is wrong, with file and line."""
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
        """The cell, which must be one of `possible`; `default` if it is empty."""
        cell = self.cells.get(column, default)
        if cell not in possible:
            raise self.refuse(
                f"{column} cannot be {cell!r}{meant(cell, possible)}; it is one of {', '.join(possible)}"
            )
        return cell

    def day(self, column: str) -> str:
        """A date, or date and time, in ISO 8601; empty if the cell is empty."""
        cell = self.cells.get(column)
        if cell is None:
            return ""
        try:
            return datetime.fromisoformat(cell).isoformat()
        except ValueError:
            raise self.refuse(f"{column} must be a date like 2026-11-21, not {cell!r}") from None


def value(cell: str) -> int | float | bool | str:
    """A cell as the value of a parameter: a whole number, a number, true or false, or text."""
    if _WHOLE.fullmatch(cell):
        return int(cell)
    if cell.lower() in ("true", "false"):
        return cell.lower() == "true"
    try:
        return float(cell)
    except ValueError:
        return cell


def lines(file: Path, data: bytes) -> tuple[list[str], Iterator[Line]]:
    """(names of the columns, every line that is not empty). UserError if the file has no such form."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{file}: is not text in UTF-8 (byte {error.start})") from error
    head = next((line for line in text.splitlines() if line.strip()), "")
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=max(DELIMITERS, key=head.count), strict=True)
    body = _split(file, reader)
    number, columns = next(body, (1, []))
    names = [name.strip() for name in columns]
    twice = [name for place, name in enumerate(names) if name in names[:place]]
    if not any(names):
        raise UserError(f"{file}: is empty; its first line names the columns")
    if "" in names:
        raise UserError(f"{file}:{number}: column {names.index('') + 1} has no name")
    if twice:
        raise UserError(f"{file}:{number}: the column {twice[0]} is there twice")
    return names, _lines(file, names, body)


def _lines(file: Path, names: list[str], body: Iterator[tuple[int, list[str]]]) -> Iterator[Line]:
    for number, cells in body:
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
