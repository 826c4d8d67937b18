"""Import of times from a file of somebody else's. Every mistake is reported before anything is written."""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, ValidationError

from bench.device.datasheet import Datasheet, find_datasheet, gpu_named, near_gpus, slug_of
from bench.errors import UserError, suggestion
from bench.format import count_text
from bench.interop.file_format import ASIDE, UNITS, described, frame_of, lines_of, value
from bench.interop.imported_rows import (
    FOLDER,
    POSSIBLE,
    Imported,
    declared,
    device_columns,
    foreign_row,
    problem_from,
    source_text,
    times_possible,
    without_datasheet,
    wrong,
)
from bench.spec import DeviceKind, Problem, Unknown, parameters_text
from bench.store.schema import Measurement
from bench.sweep.grammar import Cache, Role
from bench.sweep.load import SWEEP_NAME, Find

LIKELY = 0.01
"""Share of the datasheet's rate from which another unit is asked for; assumed."""


def _named(device: str) -> str:
    """A device's name as its driver has it, where a datasheet tells."""
    if not slug_of(device):
        raise ValueError(f"device {device!r} has no letter or digit")
    sheet = None if find_datasheet(device) else gpu_named(device)
    return sheet.match[0] if sheet else device


def _sweep(name: str) -> str:
    if not SWEEP_NAME.fullmatch(name) or ".." in name.split("/"):
        raise ValueError(f"sweep {name!r}: a name is letters, digits and _ . + -, with / between folders")
    return name


def _unit(name: str) -> str:
    if name not in UNITS:
        raise ValueError(f"unit {name!r} is none of {', '.join(UNITS)}: give one by --map unit=...")
    return name


def _day(date: str) -> str:
    try:
        return datetime.fromisoformat(date).isoformat()
    except ValueError:
        raise ValueError(f"date must be a date like 2026-11-21, not {date!r}") from None


Number = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class ImportedLine(BaseModel, extra="allow"):
    """The cells of a line that are not empty; extra ones are the operator's parameters: dtype, m, layout."""

    __pydantic_extra__: dict[str, Annotated[Any, BeforeValidator(value)]] = Field(init=False)

    device: Annotated[str, AfterValidator(_named)]
    """The device's name by its driver."""
    operator: str
    implementation: str
    time: Number
    unit: Annotated[str, AfterValidator(_unit)]
    low_s: Number | None = None
    high_s: Number | None = None
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

    def seconds(self, problem: Problem) -> float:
        """The time of one launch. UserError if it is outside its interval."""
        _, of, count = UNITS[self.unit]
        # Divided: a power of ten is exact as a float, its inverse is not.
        amount = self.time / count if of == "second" else getattr(problem, of) / (self.time * count)
        if (self.low_s is None) != (self.high_s is None):
            raise UserError("an interval has two ends: give low_s and high_s, or neither")
        if self.low_s and self.high_s and not self.low_s <= amount <= self.high_s:
            ends = f"low_s {self.low_s:g} and high_s {self.high_s:g}"
            raise UserError(f"{ends} do not enclose the time, {amount:g} s")
        return float(amount)


def imported(
    file: Path,
    results: Path,
    operators: Collection[str],
    find: Find,
    name: str = "",
    maps: Sequence[str] = (),
) -> tuple[list[Imported], list[str]]:
    """(each device's rows with their file below `results`, remarks for the user).

    `name` is that of a described format, `maps` what `--map` says. The run's name is a hash of the file and
    of these, so that importing it again is noticed. UserError names the line.
    """
    form = described(name, maps)
    data, frame = frame_of(file, form, name)
    run_id = f"{name or 'csv'}-{hashlib.sha256(data + ' '.join(maps).encode()).hexdigest()[:12]}"
    parameters = sorted({name for operator in operators for name in find(operator).model_fields})
    ours = [*ImportedLine.model_fields, *UNITS, *parameters]
    lines = lines_of(file, frame, form, name, ours)
    aside: dict[str, list[float]] = defaultdict(list)
    for reason in filter(None, frame[ASIDE]):
        aside[reason].append(0.0)
    rows: dict[str, dict[str, list[Measurement]]] = defaultdict(lambda: defaultdict(list))
    seen: dict[tuple[str, str], int] = {}
    devices: dict[str, str] = {}
    for line, given in lines:
        try:
            row, times, question = _row(ImportedLine.model_validate(given), file.name, run_id, find, name)
            if question:
                aside[question].append(times)
                continue
            if (other := devices.setdefault(row.device, row.device_name)) != row.device_name:
                raise UserError(f"{row.device_name!r} was {other!r} further up; write one device one way")
            if (first := seen.setdefault((row.device, row.case), line)) != line and not name:
                raise UserError(f"is the case of line {first} again; one line a case")
            rows[row.device][row.case].append(row)
        except ValidationError as error:
            raise UserError(f"{file}:{line}: {wrong(error, 'a line')}") from error
        except (UserError, Unknown) as error:
            raise UserError(f"{file}:{line}: {error}") from error
    reasons = [
        f"set aside {count_text(len(times), 'line')}: "
        + (f"up to {max(times):,.3g} times {reason}" if max(times) else reason)
        for reason, times in aside.items()
    ]
    if not rows:
        raise UserError(f"{file}: {'; '.join(reasons) or 'has no line below its first'}")
    made = []
    for device, cases in rows.items():  # of a case's several times the median counts
        kept = [replace(of[0], median_s=median(row.median_s or 0.0 for row in of)) for of in cases.values()]
        path = results / FOLDER / device / f"{run_id}.parquet"
        made.append(Imported(path, kept, declared(kept, find)))
    gpus = [each.rows[0].device_name for each in made if each.rows[0].device_kind == "cuda"]
    return made, [*reasons, *without_datasheet(gpus)]


def _row(
    line: ImportedLine, file: str, run_id: str, find: Find, foreign: str
) -> tuple[Measurement, float, str]:
    """(the row of a line; how many times as fast as possible, and the question that this raises, if so).

    UserError or Unknown if its parameters, implementation and device do not fit. A tool whose files are
    described may name implementations that are not ours.
    """
    problem = problem_from(find(line.operator), line.model_extra or {})
    if isinstance(problem, str):
        raise UserError(problem)
    sheet = find_datasheet(line.device)
    ours = [each.name for each in problem.implementations]
    if foreign and line.implementation not in ours:
        kind, name = _kind(line, ("cpu", "cuda"), sheet), re.sub(r"[^\w.+-]+", "-", line.implementation)
    else:
        name = line.implementation
        kind = _kind(line, problem.implementation(name).devices, sheet)
        if missing := problem.missing(name, kind, sheet.capability if sheet else None):
            raise UserError(missing)
    seconds = line.seconds(problem)
    times, what = max(times_possible(problem, seconds, sheet, line.cache), default=(0.0, ""))
    who = line.source or file
    row = foreign_row(
        {
            **problem.facts(name),
            **device_columns(line.device, kind, sheet),
            **line.model_dump(include={"sweep", "role", "cache", "threads", "low_s", "high_s", "driver"}),
            **{"parameters": parameters_text(problem.parameters()), "configuration": line.configuration},
            **{"run_id": run_id, "protocol": f"{who}, imported", "median_s": seconds},
            **{"source": source_text(who, f"{file} ({run_id})", line.note)},
            **{"libraries": line.library, "utc": line.date},
        }
    )
    return row, times, f"{what}: {_meant(line.unit, times)}" if times > POSSIBLE else ""


def _meant(unit: str, times: float) -> str:
    """`are these milliseconds?`: in which unit such a number would be possible, and no less than LIKELY."""
    alike = [name for name, (_, of, _) in UNITS.items() if of == UNITS[unit][1]]
    for power, other in enumerate(alike[alike.index(unit) + 1 :], 1):
        if LIKELY <= times / 1000**power <= POSSIBLE:
            return f"are these {other}?"
    return "is it another device, data type or size?"


def _kind(line: ImportedLine, runs_on: Sequence[DeviceKind], sheet: Datasheet | None) -> DeviceKind:
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
