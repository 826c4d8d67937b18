"""Import of times from a CSV file, a `Line` each. Every mistake is reported before anything is written.

Cells may be separated by commas, semicolons or tabs, with any line ends, with or without a byte order mark;
numbers have a decimal point. results/README.md has an example.
"""

from __future__ import annotations

import csv
import hashlib
import io
from collections import defaultdict
from collections.abc import Collection, Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, ValidationError, model_validator

from bench.device.datasheet import Datasheet, find_datasheet, slug_of
from bench.errors import UserError, suggestion, unknown
from bench.interop.imported_rows import (
    FOLDER,
    Imported,
    declared,
    device_columns,
    foreign_row,
    near_gpus,
    problem_from,
    source_text,
    without_datasheet,
    wrong,
)
from bench.spec import DeviceKind, Unknown, parameters_text
from bench.store.schema import Measurement
from bench.sweep.grammar import Cache, Role
from bench.sweep.load import SWEEP_NAME, Find

NEEDED = ("device", "operator", "implementation", "dtype")


def value(cell: str) -> int | float | bool | str:
    """A cell as the value of a parameter: a whole number, a number, true or false, or text."""
    for number in (int, float):
        try:
            return number(cell)
        except ValueError:
            pass
    return cell.lower() == "true" if cell.lower() in ("true", "false") else cell


def _named(device: str) -> str:
    if not slug_of(device):
        raise ValueError(f"device {device!r} has no letter or digit")
    return device


def _sweep(name: str) -> str:
    if not SWEEP_NAME.fullmatch(name) or ".." in name.split("/"):
        raise ValueError(f"sweep {name!r}: a name is letters, digits and _ . + -, with / between folders")
    return name


def _day(date: str) -> str:
    try:
        return datetime.fromisoformat(date).isoformat()
    except ValueError:
        raise ValueError(f"date must be a date like 2026-11-21, not {date!r}") from None


Time = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class CsvLine(BaseModel, extra="allow"):
    """The cells of a line that are not empty; extra ones are the operator's parameters: dtype, m, layout."""

    __pydantic_extra__: dict[str, Annotated[Any, BeforeValidator(value)]] = Field(init=False)

    device: Annotated[str, AfterValidator(_named)]
    """The device's name by its driver."""
    operator: str
    implementation: str
    seconds: Time | None = None
    microseconds: Time | None = None
    low_s: Time | None = None
    high_s: Time | None = None
    """The ends of the time's 95 % interval."""
    sweep: Annotated[str, AfterValidator(_sweep)] = "imported/csv"
    role: Role = "measurement"
    cache: Cache = "warm"
    """Most tools repeat a launch, so its data is in cache unless the file says otherwise."""
    threads: Annotated[int, Field(ge=1)] = 1
    device_kind: DeviceKind | None = None
    configuration: str = ""
    source: str = ""
    """The author of the measurement; if empty, the file's name."""
    note: str = ""
    library: str = ""
    date: Annotated[str, AfterValidator(_day)] = ""
    driver: str = ""

    @property
    def median_s(self) -> float:
        """The time, seconds; 0 if there is none."""
        return self.seconds or (self.microseconds or 0.0) * 1e-6

    @model_validator(mode="after")
    def _has_a_time_in_its_interval(self) -> CsvLine:
        low_s, time_s, high_s = self.low_s, self.median_s, self.high_s
        if not time_s:
            raise ValueError("has no time")
        if (low_s is None) != (high_s is None):
            raise ValueError("an interval has two ends: give low_s and high_s, or neither")
        if low_s and high_s and not low_s <= time_s <= high_s:
            raise ValueError(f"low_s {low_s:g} and high_s {high_s:g} do not enclose the time, {time_s:g} s")
        return self


def imported(
    file: Path, results: Path, operators: Collection[str], find: Find
) -> tuple[list[Imported], list[str]]:
    """(each device's rows with their file below `results`, remarks for the user).

    The run's name is a hash of the file, so that importing it again is noticed. UserError names the line.
    """
    data, records = _read(file)
    if not records:
        raise UserError(f"{file}: is empty; its first line names the columns")
    run_id = f"csv-{hashlib.sha256(data).hexdigest()[:12]}"
    (number, names), *lines = records
    parameters = sorted({name for operator in operators for name in find(operator).model_fields})
    if mistake := _mistake(names, parameters):
        raise UserError(f"{file}:{number}: {mistake}")
    by_device: dict[str, list[Measurement]] = defaultdict(list)
    seen: dict[tuple[str, str], int] = {}
    for number, cells in lines:
        try:
            if len(cells) != len(names):
                raise UserError(f"has {len(cells)} cells; the first line names {len(names)}")
            given = {name: cell for name, cell in zip(names, cells, strict=True) if cell}
            row = _row(CsvLine.model_validate(given), file.name, run_id, find)
            by_device[row.device].append(row)
            if (other := by_device[row.device][0].device_name) != row.device_name:
                raise UserError(f"{row.device_name!r} was {other!r} further up; write one device one way")
            if (first := seen.setdefault((row.device, row.case), number)) != number:
                raise UserError(f"is the case of line {first} again; one line a case")
        except ValidationError as error:
            raise UserError(f"{file}:{number}: {wrong(error, 'a line')}") from error
        except (UserError, Unknown) as error:
            raise UserError(f"{file}:{number}: {error}") from error
    if not by_device:
        raise UserError(f"{file}: has no line below its first")
    devices = [
        Imported(results / FOLDER / device / f"{run_id}.parquet", rows, declared(rows, find))
        for device, rows in by_device.items()
    ]
    firsts = [rows[0] for rows in by_device.values()]
    return devices, without_datasheet(row.device_name for row in firsts if row.device_kind == "cuda")


def _read(file: Path) -> tuple[bytes, list[tuple[int, list[str]]]]:
    """(the file, each of its records that is not empty: number of its last line, cells without blanks)."""
    try:
        data = file.read_bytes()
        text = data.decode("utf-8-sig")
    except OSError as error:
        raise UserError(f"{file}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{file}: is not text in UTF-8 (byte {error.start})") from error
    delimiter = max(",;\t", key="".join(text.lstrip().splitlines()[:1]).count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        records = [(reader.line_num, [cell.strip() for cell in cells]) for cells in reader]
    except csv.Error as error:
        raise UserError(f"{file}:{reader.line_num}: {error}") from error
    return data, [record for record in records if any(record[1])]


def _mistake(names: Sequence[str], parameters: Sequence[str]) -> str:
    """What is wrong with the names of the columns; empty if nothing is."""
    possible = dict.fromkeys([*NEEDED, *CsvLine.model_fields, *parameters])
    for place, name in enumerate(names):
        if not name:
            return f"column {place + 1} has no name"
        if name in names[:place]:
            return f"the column {name} is there twice"
        if name not in possible:
            return unknown("column", name, "such a file", possible)
    if lacking := [name for name in NEEDED if name not in names]:
        return f"lacks the column {lacking[0]}; every file has {', '.join(NEEDED)}"
    has_one_time = ("seconds" in names) != ("microseconds" in names)
    return "" if has_one_time else "one column is the time, seconds or microseconds"


def _row(line: CsvLine, file: str, run_id: str, find: Find) -> Measurement:
    """The row of a line; UserError or Unknown if its parameters, implementation and device do not fit."""
    problem = problem_from(find(line.operator), line.model_extra or {})
    if isinstance(problem, str):
        raise UserError(problem)
    sheet = find_datasheet(line.device)
    kind = _kind(line, problem.implementation(line.implementation).devices, sheet)
    if missing := problem.missing(line.implementation, kind, sheet.capability if sheet else None):
        raise UserError(missing)
    who = line.source or file
    return foreign_row(
        {
            **problem.facts(line.implementation),
            **device_columns(line.device, kind, sheet),
            **line.model_dump(include={"sweep", "role", "cache", "threads", "low_s", "high_s", "driver"}),
            **{"parameters": parameters_text(problem.parameters()), "configuration": line.configuration},
            **{"run_id": run_id, "protocol": f"{who}, imported", "median_s": line.median_s},
            **{"source": source_text(who, f"{file} ({run_id})", line.note)},
            **{"libraries": line.library, "utc": line.date},
        }
    )


def _kind(line: CsvLine, runs_on: Sequence[DeviceKind], sheet: Datasheet | None) -> DeviceKind:
    """CPU or GPU: as the line says, else a GPU if it has a datasheet, else what the implementation needs."""
    if sheet is not None and line.device_kind == "cpu":
        raise UserError(f"device_kind is cpu, but {sheet.name} is a GPU: leave it empty or give cuda")
    if line.device_kind or sheet:
        return line.device_kind or "cuda"
    if len(runs_on) > 1:
        raise UserError(
            f"{line.implementation} runs on {' and '.join(runs_on)}, and bench/device/datasheets knows no "
            f"{line.device!r}{suggestion(near_gpus(line.device))}: say which it is in a column device_kind"
        )
    return runs_on[0]
