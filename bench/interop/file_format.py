"""Files of somebody else's times: a CSV with our columns, or what a tool writes, line by line.

A form is described in bench/interop/formats/NAME.yaml in the words of a source's table
(bench/interop/source_file.py). Instead of `rows`, since what is timed differs from line to line, it has

    values     our column -> a column of theirs; or a value, as in the description of a source

and `--map` says in the same words what is left open. A time may be in the column `time`, its unit in `unit`.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field

from bench.device.datasheet import read_model
from bench.errors import UserError, meant, quoted
from bench.interop.expressions import plain, values_of
from bench.interop.source_file import DEVICE, LINE, Reader, Table, Value

if TYPE_CHECKING:
    import pandas as pd

FORMATS = Path(__file__).with_name("formats")
NEEDED = ("device", "operator", "implementation", "dtype")
UNITS: Mapping[str, tuple[str, str, float]] = {
    "nanoseconds": ("ns|nsecs?|nanoseconds?", "second", 1e9),
    "microseconds": ("us|µs|μs|usecs?|microseconds?", "second", 1e6),
    "milliseconds": ("ms|msecs?|milliseconds?", "second", 1e3),
    "seconds": ("s|secs?|seconds?", "second", 1.0),
    "TFLOP/s": ("tflops?(/s|_per_s|/sec)?", "flop", 1e12),
    "GFLOP/s": ("gflops?(/s|_per_s|/sec)?", "flop", 1e9),
    "TB/s": ("t(b|bytes)(/s|ps|_per_s|/sec)", "byte", 1e12),
    "GB/s": ("g(b|bytes)(/s|ps|_per_s|/sec)", "byte", 1e9),
}
"""Our column of a time or rate -> how others write its unit, of what it is, and how many are one of that.

Of what is the same, the same number in the next unit is a thousand times as slow.
"""
TIMES = (*UNITS, "time")


def column_of(name: str) -> str:
    """Our column of a time or rate for somebody else's name of it, as `time_ms`; else the name itself."""
    last = re.sub(
        r"(time|latency|runtime|duration|elapsed|kernel|gpu|mean|median|avg)[ _]?|[()\[\]]",
        "",
        name.strip().lower(),
    )
    return next((ours for ours, unit in UNITS.items() if re.fullmatch(unit[0], last)), name.strip())


def value(cell: Any) -> Any:
    """A cell as the value of a parameter: a whole number, a number, true or false, or text."""
    if not isinstance(cell, str):
        return plain(cell)
    for number in (int, float):
        try:
            return number(cell)
        except ValueError:
            pass
    return cell.lower() == "true" if cell.lower() in ("true", "false") else cell


class Format(Table):
    """How the files of a tool are read; of the CSV with our columns everything is as usual."""

    title: str = ""
    """What writes such files."""
    reader: Reader = Reader(kind="csv")
    values: dict[str, Value] = Field(default_factory=dict)
    complete: ClassVar[bool] = False


def formats() -> list[str]:
    """The tools whose files are described."""
    return sorted(path.stem for path in FORMATS.glob("*.yaml"))


def described(name: str, maps: Sequence[str] = ()) -> Format:
    """The format of this name (empty: our CSV) with what `--map` adds: COLUMN=VALUE each.

    UserError for what is not of that form.
    """
    form = read_model(FORMATS / f"{name}.yaml", Format) if name else Format()
    values = dict(form.values)
    for each in maps:
        column, is_value, text = each.partition("=")
        if not is_value:
            whole = "for more, describe the file in bench/interop/formats"
            raise UserError(f"--map {each}: give COLUMN=VALUE, as ms=time_ms or dtype=float16; {whole}")
        if column_of(column) in UNITS:  # this one is the time, whatever else there is
            values = {name: value for name, value in values.items() if name not in TIMES}
        values[column_of(column)] = text
    return form.model_copy(update={"values": values}) if maps else form


def lines_of(
    file: Path, frame: pd.DataFrame, form: Format, ours: Collection[str]
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Each line and its number, by our columns; `ours` are all that there are.

    UserError for columns that are none. Of a tool's file, and beside `--map`, others are passed over.
    """
    theirs = frame.columns.difference([LINE, DEVICE], sort=False)
    columns = {}
    for column, of in form.values.items():
        is_theirs = isinstance(of, str) and of in theirs
        columns[column] = frame[of] if is_theirs else values_of(frame, of, file)
    possible = dict.fromkeys([*NEEDED, *ours])
    if not form.title:
        timed = any(name in TIMES for name in columns)
        for each in theirs:
            name = column_of(each)
            if not form.values or (name in possible and not (timed and name in TIMES)):
                columns.setdefault(name, frame[each])
    if mistake := _mistake(list(columns), possible, frame[theirs]):
        raise UserError(f"{file}:1: {mistake}")
    unit = next((name for name in columns if name in UNITS), "")
    cells = {"time" if name == unit else name: column.tolist() for name, column in columns.items()}
    for place, line in enumerate(frame[LINE]):
        given = {
            name: plain(of[place])
            for name, of in cells.items()
            if of[place] is not None and of[place] == of[place] and of[place] != ""
        }
        yield line, given | {"unit": unit or column_of(str(given.get("unit")))}


def content(file: Path) -> bytes:
    """The bytes of a file; UserError if it cannot be read."""
    try:
        return file.read_bytes()
    except OSError as error:
        raise UserError(f"{file}: cannot be read: {error.strerror}") from error


def cells_of(file: Path) -> tuple[list[str], list[tuple[int, list[str]]]]:
    """(the names of a CSV file's columns, each line that is not empty: its number, cells without blanks).

    Separated by commas, semicolons or tabs, with any line ends, with or without a byte order mark. UserError
    for what is no such table.
    """
    try:
        text = content(file).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{file}: is not text in UTF-8 (byte {error.start})") from error
    delimiter = max(",;\t", key="".join(text.lstrip().splitlines()[:1]).count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        records = [(reader.line_num, [cell.strip() for cell in cells]) for cells in reader]
    except csv.Error as error:
        raise UserError(f"{file}:{reader.line_num}: {error}") from error
    records = [record for record in records if any(record[1])]
    if not records:
        raise UserError(f"{file}: is empty; its first line names the columns")
    (first, names), *lines = records
    if "" in names or len({*names}) < len(names):
        raise UserError(f"{file}:{first}: each column needs a name of its own, not {', '.join(names)}")
    for number, cells in lines:
        if len(cells) != len(names):
            raise UserError(f"{file}:{number}: has {len(cells)} cells; the first line names {len(names)}")
    return names, lines


def _mistake(names: Sequence[str], possible: Collection[str], theirs: pd.DataFrame) -> str:
    """What is wrong with these as our columns; empty if nothing is. `theirs`: the lines of the file."""
    for name in names:
        if name not in possible:
            hint = "what results/README.md lists; --map OURS=THEIRS reads other headings"
            has = f"it has {', '.join(NEEDED)}, a time or a rate, the operator's parameters and {hint}"
            return f"such a file has no column {quoted(name)}{meant(name, possible)}; {has}"
    timed = [name for name in names if name in TIMES]
    if lacking := [name for name in NEEDED if name not in names] + ["microseconds"] * (not timed):
        words = " ".join(f"--map {name}=..." for name in lacking)
        first = theirs.head(1).to_dict("list")
        there = ", ".join(
            " ".join([str(name), *(quoted(plain(cell)) for cell in first[name])]) for name in first
        )
        return f"does not say {', '.join(lacking)}: give {words}, a column or a value; there is {there}"
    sound = len(timed) == 1 and (timed == ["time"]) == ("unit" in names)
    return "" if sound else f"one column is the time or a rate: {', '.join(UNITS)}; or time, beside unit"
