"""Import of times from one file of one's own or of a tool (bench/interop/file_format.py).

Every mistake is reported before anything is written.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, ValidationError

from bench.device.datasheet import Datasheet, find_datasheet, gpu_named, near_gpus, slug_of
from bench.errors import UserError, suggestion
from bench.interop.file_format import UNITS, Format, cells_of, content, described, lines_of, value
from bench.interop.import_source import Aside, ImportedTiming, SourceImport, SourceOutcome
from bench.interop.imported_rows import POSSIBLE, above, problem_from, source_text, times_possible, wrong
from bench.interop.readers import as_numbers
from bench.interop.source_file import LINE, Source, Table, Timing
from bench.spec import DeviceKind, Problem, Unknown
from bench.sweep.grammar import Cache, Role
from bench.sweep.load import SWEEP_NAME, Find

if TYPE_CHECKING:
    import pandas as pd

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


Number = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class ImportedLine(BaseModel, extra="allow"):
    """The cells of a line that are not empty; extra ones are the operator's parameters: dtype, m, layout."""

    __pydantic_extra__: dict[str, Annotated[Any, BeforeValidator(value)]] = Field(init=False)

    device: Annotated[str, AfterValidator(_named)]
    """The device's name by its driver."""
    operator: str
    implementation: str
    time: Number
    unit: str
    low_s: Number | None = None
    high_s: Number | None = None
    """The ends of the time's 95 % interval."""
    sweep: Annotated[str, AfterValidator(_sweep)] = "imported/csv"
    role: Role = "measurement"
    cache: Cache = "warm"
    """Most tools repeat a launch, so its data is in cache unless the file says otherwise."""
    threads: Annotated[int, Field(ge=1)] = 1
    device_kind: DeviceKind | None = None
    source: str = ""
    """The author of the measurement; if empty, the file's name."""
    note: str = ""
    library: str = ""
    driver: str = ""

    def seconds(self, problem: Problem) -> float:
        """The time of one launch. UserError for another unit, or if it is outside its interval."""
        if self.unit not in UNITS:
            raise UserError(f"unit {self.unit!r} is none of {', '.join(UNITS)}: give one by --map unit=...")
        _, of, count = UNITS[self.unit]
        # Divided: a power of ten is exact as a float, its inverse is not.
        amount = self.time / count if of == "second" else getattr(problem, of) / (self.time * count)
        if (self.low_s is None) != (self.high_s is None):
            raise UserError("an interval has two ends: give low_s and high_s, or neither")
        if self.low_s and self.high_s and not self.low_s <= amount <= self.high_s:
            ends = f"low_s {self.low_s:g} and high_s {self.high_s:g}"
            raise UserError(f"{ends} do not enclose the time, {amount:g} s")
        return float(amount)


UNKNOWN = Timing(by="wall", statistic="median", cache="warm")
UNSAID = dict.fromkeys(("timed_by", "statistic", "clocks", "time_includes"))
"""Columns of a row that `UNKNOWN` would fill and no file says."""


def imported(
    file: Path,
    results: Path,
    operators: Collection[str],
    find: Find,
    name: str = "",
    maps: Sequence[str] = (),
) -> SourceOutcome:
    """The rows of a file, to be saved below `results`, and what was set aside.

    `name` is that of a described format, `maps` what `--map` says. The run's name is a hash of the file and
    of these, so that importing it again is noticed. UserError names the line.
    """
    digest = hashlib.sha256(content(file) + " ".join(maps).encode()).hexdigest()[:12]
    source = Source(
        **{"name": name or "csv", "who": file.name, "commit": digest, "timing": UNKNOWN},
        **{"repository": "", "licence": "", "paths": (), "tables": ()},
    )
    parameters = sorted({name for operator in operators for name in find(operator).model_fields})
    made = _FileImport(source, find, ours=[*ImportedLine.model_fields, *UNITS, *parameters])
    made.add_file(described(name, maps), file, {}, Path(file.name))
    return made.gathered(results)


@dataclass
class _FileImport(SourceImport):
    """One file, whose lines say each for itself what a source's description says of all lines of a table.

    It is a source that is known by a hash of its content. A line with a mistake is refused.
    """

    ours: Collection[str] = ()
    """Every column that a line may have."""
    seen: dict[tuple[object, ...], tuple[int, ImportedTiming]] = field(default_factory=dict)
    """Case -> its first line."""
    names: dict[str, str] = field(default_factory=dict)
    """Device -> how its name is written, which is as in its first line."""

    def cells(self, table: Table, path: Path) -> pd.DataFrame:
        """The lines with their numbers; of our CSV cells stay as they are, since parameters want them so."""
        import pandas as pd

        if table.reader.kind != "csv":
            frame = super().cells(table, path)
            return frame.assign(**{LINE: range(1, len(frame) + 1)})
        names, lines = cells_of(path)
        frame = pd.DataFrame([cells for _, cells in lines], columns=names, dtype=object)
        for name in names if table.model_fields_set else ():
            frame[name] = as_numbers(frame[name].where(frame[name] != ""))
        return frame.assign(**{LINE: [number for number, _ in lines]})

    def lines(
        self, table: Table, frame: pd.DataFrame, path: Path, aside: Counter[Aside]
    ) -> Iterator[tuple[ImportedTiming, float, str]]:
        """The case and seconds of each line; UserError names the line that is wrong."""
        assert isinstance(table, Format)
        for line, given in lines_of(path, frame, table, self.ours):
            try:
                timed, seconds, question = self._timed(ImportedLine.model_validate(given), table.title)
                if question:
                    aside[Aside(timed.device, timed.problem.operator, question)] += 1
                    continue
                name = self.names.setdefault(slug_of(timed.device), timed.device)
                timed, columns = timed._replace(device=name), dict(timed.columns)
                case = name, timed.problem, timed.implementation, columns["sweep"], columns["cache"]
                first, timed = self.seen.setdefault(case, (line, timed))
                if first != line and not table.title:
                    raise UserError(f"is the case of line {first} again; one line a case")
            except ValidationError as error:
                raise UserError(f"{path}:{line}: {wrong(error, 'a line')}") from error
            except (UserError, Unknown) as error:
                raise UserError(f"{path}:{line}: {error}") from error
            yield timed, seconds, ""

    def run_id(self, timed: ImportedTiming) -> str:
        """The name of the file's run, on whatever device."""
        return f"{self.source.name}-{self.source.commit}"

    def _timed(self, line: ImportedLine, is_tool: str) -> tuple[ImportedTiming, float, str]:
        """(a line's case, its seconds, the question that these raise if no device can be so quick).

        UserError or Unknown if its parameters, implementation and device do not fit. A tool whose files are
        described may name implementations that are not ours.
        """
        problem = problem_from(self.find(line.operator), line.model_extra or {})
        if isinstance(problem, str):
            raise UserError(problem)
        sheet = find_datasheet(line.device)
        ours = [each.name for each in problem.implementations]
        if is_tool and line.implementation not in ours:
            kind, name = _kind(line, ("cpu", "cuda"), sheet), re.sub(r"[^\w.+-]+", "-", line.implementation)
        else:
            name = line.implementation
            kind = _kind(line, problem.implementation(name).devices, sheet)
            if missing := problem.missing(name, kind, sheet.capability if sheet else None):
                raise UserError(missing)
        seconds = line.seconds(problem)
        times, what = max(times_possible(problem, seconds, sheet, line.cache), default=(0.0, ""))
        question = f"{above(what)}: {_meant(line.unit, times)}" if times > POSSIBLE else ""
        who = line.source or self.source.who
        origin = f"{self.source.who} ({self.source.name}-{self.source.commit})"
        columns = {
            **line.model_dump(include={"sweep", "role", "cache", "threads", "low_s", "high_s", "driver"}),
            **{"device_kind": kind, "protocol": f"{who}, imported"},
            **{"source": source_text(who, origin, line.note), **UNSAID},
        }
        timing = ImportedTiming(line.device, problem, name, UNKNOWN, line.library, tuple(columns.items()))
        return timing, seconds, question


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
