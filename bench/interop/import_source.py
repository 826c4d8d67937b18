"""Import of a public source by its description (bench/interop/source_file.py): files in, rows out.

Every line of every file that the description knows ends as a row or is set aside with its reason and counted.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from statistics import median
from string import Formatter
from typing import TYPE_CHECKING, Any, NamedTuple

from bench.device.datasheet import Datasheet, find_datasheet, slug_of
from bench.errors import UserError, quoted
from bench.interop.imported_rows import (
    FOLDER,
    Imported,
    device_columns,
    foreign_row,
    problem_from,
    source_text,
    without_datasheet,
)
from bench.interop.readers import AnotherForm, read
from bench.interop.source_file import UNIT_S, Entry, Source, Table, Timing
from bench.spec import Problem, parameters_text
from bench.store.schema import Measurement
from bench.sweep.load import Find

if TYPE_CHECKING:
    import pandas as pd

ABOVE = 1.05
"""A rate above so much of the datasheet's peak is no rate of this problem on this device."""


class Aside(NamedTuple):
    """Lines of one operator on one device that are no rows, and why."""

    device: str
    operator: str
    reason: str


class Timed(NamedTuple):
    """A case and how it was timed."""

    device: str
    problem: Problem
    implementation: str
    timing: Timing
    libraries: str


@dataclass
class Outcome:
    """What came of a source's files."""

    rows: list[Imported] = field(default_factory=list)
    aside: Counter[Aside] = field(default_factory=Counter)
    remarks: list[str] = field(default_factory=list)
    """Files that are left out, and devices without a datasheet."""


def imported(source: Source, folder: Path, results: Path, find: Find) -> Outcome:
    """The rows of a source's files below `folder`, by device and way of timing, to be saved below `results`.

    UserError if there is no file of this source, or none can be read.
    """
    return _Import(source, find).outcome(folder, results)


@dataclass
class _Import:
    source: Source
    find: Find
    outcomes: Outcome = field(default_factory=Outcome)
    times: dict[Timed, list[float]] = field(default_factory=lambda: defaultdict(list))
    kernels: dict[Timed, str] = field(default_factory=dict)
    files: dict[Timed, dict[str, None]] = field(default_factory=lambda: defaultdict(dict))

    def outcome(self, folder: Path, results: Path) -> Outcome:
        """See `imported`."""
        were_read: set[Path] = set()
        another: dict[Path, AnotherForm] = {}
        for table, path, named in self._files(folder):
            try:
                self._read(table, path, named, str(path.relative_to(folder)))
                were_read.add(path)
            except AnotherForm as refusal:
                if table.reader.kind != "documents":  # most documents hold no times
                    another.setdefault(path, refusal)
            except UserError as refusal:
                self.outcomes.remarks.append(f"left out {refusal}")
        self.outcomes.remarks += [f"left out {why}" for path, why in another.items() if path not in were_read]
        if not were_read:
            reasons = "".join(f"; {remark}" for remark in self.outcomes.remarks[:1])
            raise UserError(
                f"{folder}: holds no file of {self.source.name} that could be read{reasons}; "
                f"its files are those of {self.source.repository} below {', '.join(self.source.paths)}"
            )
        self._gather(results)
        return self.outcomes

    def _files(self, folder: Path) -> Iterator[tuple[Table, Path, dict[str, str]]]:
        """Each file of a table: its path below the folder is matched with `__` for `/` and without .gz."""
        if not folder.is_dir():
            raise UserError(f"{folder}: is no folder; give a clone of {self.source.repository}")
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            flat = "__".join(path.relative_to(folder).parts).removesuffix(".gz")
            for table in self.source.tables:
                if found := re.search(rf"(?:^|__)(?:{table.files})$", flat):
                    yield table, path, {k: v for k, v in found.groupdict().items() if v is not None}

    def _read(self, table: Table, path: Path, named: dict[str, str], where: str) -> None:
        frame = read(path, table.reader)
        if missing := [name for name in table.needed if name not in frame.columns]:
            raise AnotherForm(
                f"{path}: lacks the column {missing[0]}; it has {', '.join(map(str, frame.columns))}"
            )
        strange = [name for name in frame.columns if name not in table.known]
        if table.columns and strange and table.reader.kind != "documents":
            raise AnotherForm(
                f"{path}: has the column {quoted(strange[0])}, which is not in {self.source.name}.yaml"
            )
        frame = frame.assign(**{name: math.nan for name in table.known if name not in frame.columns}, **named)
        frame = self._derived(table, frame, path)
        device = _text(_column(frame, table.device, path)).map(
            lambda name: self.source.devices.get(name, name)
        )
        libraries = _text(_column(frame, table.libraries, path))
        aside: Counter[Aside] = Counter()
        lines: list[tuple[Timed, float, str]] = []
        taken = frame.index != frame.index  # nothing yet
        for reason, condition in table.left_out.items():
            out = _where(frame, condition, path) & ~taken
            aside += _counted(device[out], reason)
            taken |= out
        rest, used = ~taken, taken
        for entry in table.rows:
            chosen = rest & _where(frame, entry.where, path)
            used = used | chosen
            if chosen.any():
                lines += self._entry(
                    table, entry, frame[chosen], device[chosen], libraries[chosen], path, aside
                )
        # Only now is it certain that the file is as described.
        self.outcomes.aside += aside + _counted(device[~used], "no rows are described for such a line")
        for timed, seconds, kernels in lines:
            self.times[timed].append(seconds)
            self.files[timed][where] = None
            if kernels:
                self.kernels[timed] = kernels

    def _derived(self, table: Table, frame: pd.DataFrame, path: Path) -> pd.DataFrame:
        """The frame with the lines and columns that the description adds."""
        if melt := table.melt:
            melted = [name for name in frame.columns if re.fullmatch(melt.columns, str(name))]
            others = [name for name in frame.columns if name not in melted]
            frame = frame.melt(others, melted, melt.name, melt.value).dropna(subset=[melt.value])
            frame = frame.reset_index(drop=True)
        for name, pattern in table.extract.items():
            parts = frame[name].astype(str).str.extract(pattern)
            for column in parts:
                frame[column] = _numbers(parts[column])
        for name, lookup in table.lookup.items():
            frame[name] = frame[lookup.of].map(lookup.values)
        for name, expression in table.let.items():
            frame[name] = _evaluated(frame, expression, path)
        return frame

    def _entry(
        self,
        table: Table,
        entry: Entry,
        frame: pd.DataFrame,
        device: pd.Series,
        libraries: pd.Series,
        path: Path,
        aside: Counter[Aside],
    ) -> Iterator[tuple[Timed, float, str]]:
        """The case, seconds and kernels of each line; those that are none are added to `aside`."""
        names = list(entry.parameters)
        parameters = [_column(frame, value, path).tolist() for value in entry.parameters.values()]
        seconds = _times(_column(frame, entry.time, path)) * UNIT_S[entry.unit]
        fewer = _where(frame, entry.fewer_flop, path) if entry.fewer_flop else seconds != seconds
        timing = table.timing or self.source.timing
        implementations, kernels = (
            _text(_column(frame, value, path)) for value in (entry.implementation, entry.kernels)
        )
        columns = (device, implementations, libraries, kernels, seconds, fewer)
        kind = self.find(entry.operator)
        problem_of = cache(lambda values: problem_from(kind, dict(zip(names, values, strict=True))))
        lines = zip(*(column.tolist() for column in columns), zip(*parameters, strict=True), strict=True)
        for name, implementation, library, kernel, second, is_fewer, values in lines:
            problem = problem_of(tuple(map(_plain, values)))
            if isinstance(problem, str):
                aside[Aside(name, entry.operator, problem)] += 1
            elif reason := _implausible(problem, second, _sheet(name), timing, is_fewer):
                aside[Aside(name, entry.operator, reason)] += 1
            else:
                yield Timed(name, problem, implementation, timing, library), second, kernel

    def _gather(self, results: Path) -> None:
        """Make rows of the times; of a case's several times the median counts."""
        facts = cache(_facts)
        whose: dict[tuple[str, Timing], list[Measurement]] = defaultdict(list)
        shortest: dict[tuple[str, Timing], float] = {}
        for timed, seconds in self.times.items():
            if "launch" in timed.timing.includes and timed.problem.arithmetic != "unbounded":
                key = timed.device, timed.timing
                shortest[key] = min(shortest.get(key, timed.timing.overhead_s), median(seconds))
        for timed, seconds in self.times.items():
            key = timed.device, timed.timing
            whose[key].append(
                self._row(timed, seconds, shortest.get(key), facts(timed.problem, timed.implementation))
            )
            if len(seconds) > 1:
                again = Aside(
                    timed.device, timed.problem.operator, "repeats a case: the median of its times counts"
                )
                self.outcomes.aside[again] += len(seconds) - 1
        for (device, _), rows in whose.items():
            path = results / FOLDER / slug_of(device) / f"{rows[0].run_id}.parquet"
            self.outcomes.rows.append(Imported(path, rows, {}))
        self.outcomes.remarks += without_datasheet(device for device, _ in whose)

    def _row(
        self, timed: Timed, seconds: list[float], overhead_s: float | None, facts: dict[str, Any]
    ) -> Measurement:
        source, timing, problem = self.source, timed.timing, timed.problem
        run_id = f"{source.name}-{source.commit[:7]}-{source.timings[timing]}"
        return foreign_row(
            {
                **facts,
                **device_columns(timed.device, "cuda", _sheet(timed.device)),
                "median_s": median(seconds),
                "clock_start_s": None if problem.arithmetic == "unbounded" else overhead_s,
                "run_id": run_id,
                "protocol": f"{source.who}, imported",
                "source": source_text(
                    source.who,
                    " and ".join(self.files[timed]),
                    f"{source.repository} {source.commit[:7]}",
                    source.licence,
                ),
                "libraries": timed.libraries,
                "sweep": f"imported/{source.name}/{problem.operator}",
                **{
                    "cache": timing.cache,
                    "fill": timing.fill,
                    "timed_by": timing.by,
                    "statistic": timing.statistic,
                },
                **{"clocks": timing.clocks, "time_includes": ", ".join(timing.includes)},
                "kernels": self.kernels.get(timed),
            }
        )


def _facts(problem: Problem, implementation: str) -> dict[str, Any]:
    """The columns of a problem, which is timed on many devices."""
    return problem.facts(implementation) | {"parameters": parameters_text(problem.parameters())}


@cache
def _sheet(device: str) -> Datasheet | None:
    return find_datasheet(device)


def _implausible(
    problem: Problem, seconds: float, sheet: Datasheet | None, timing: Timing, fewer: bool
) -> str:
    """Why this cannot be the time of this problem on this device; empty if it can."""
    if not (math.isfinite(seconds) and seconds > 0):
        return "no time above zero"
    if sheet is None:
        return ""
    bandwidth, peak = sheet.bandwidth_byte_per_s, sheet.peak_flop_per_s(problem.arithmetic, problem.dtype)
    # What the last-level cache holds of warm data need not come from memory.
    from_memory = problem.byte - (sheet.l2_byte if timing.cache == "warm" else 0)
    if bandwidth and from_memory > ABOVE * bandwidth * seconds:
        return f"faster than {ABOVE:.0%} of the datasheet's bandwidth"
    if peak and not fewer and problem.flop > ABOVE * peak * seconds:
        return f"faster than {ABOVE:.0%} of the datasheet's peak in {problem.dtype}"
    return ""


def _counted(devices: pd.Series, reason: str) -> Counter[Aside]:
    """Lines of no operator, by device."""
    return Counter({Aside(name, "", reason): count for name, count in Counter(devices.tolist()).items()})


# ---- values and expressions


def _column(frame: pd.DataFrame, value: Any, path: Path) -> pd.Series:
    """A value for each line: that of the expression, the text with the line's columns, or the constant."""
    import pandas as pd

    if isinstance(value, str) and value.startswith("="):
        value = _evaluated(frame, value[1:], path)
        if isinstance(value, pd.Series):
            return value
    elif isinstance(value, str) and "{" in value:
        names = [name for _, name, *_ in Formatter().parse(value) if name]
        try:
            lines = zip(*(frame[name].tolist() for name in names), strict=True)
            # What is not known of a line leaves its whole text empty.
            texts = [
                "" if _lacks(line) else value.format(**dict(zip(names, line, strict=True))) for line in lines
            ]
        except (KeyError, ValueError) as error:  # no such column, or no number
            raise UserError(f"{path}: {quoted(value)} cannot be written: {error}") from error
        return pd.Series(texts, index=frame.index, dtype=object)
    return pd.Series([value] * len(frame), index=frame.index, dtype=object)


def _lacks(cells: tuple[Any, ...]) -> bool:
    return any(cell is None or cell != cell for cell in cells)


def _where(frame: pd.DataFrame, condition: str, path: Path) -> pd.Series:
    column = _column(frame, f"={condition}" if condition else True, path)
    return column.fillna(value=False).astype(bool)


def _evaluated(frame: pd.DataFrame, expression: str, path: Path) -> Any:
    try:
        return frame.eval(expression, engine="python")
    except Exception as error:  # pandas lets every error of an expression through
        raise UserError(f"{path}: {quoted(expression)} cannot be computed: {error}") from error


def _text(column: pd.Series) -> pd.Series:
    return column.fillna("").astype(str)


def _numbers(column: pd.Series) -> pd.Series:
    """The column as numbers if every cell is one."""
    import pandas as pd

    numbers = pd.to_numeric(column, errors="coerce")
    return numbers if numbers.notna().eq(column.notna()).all() else column


def _times(column: pd.Series) -> pd.Series:
    """The column as numbers; NaN, which is no time, where a cell says in words why there is none."""
    import pandas as pd

    return pd.to_numeric(column, errors="coerce").astype(float)


def _plain(value: Any) -> Any:
    """A cell as a parameter: whole numbers are int, whatever their column's type."""
    value = value.item() if hasattr(value, "item") else value
    return int(value) if isinstance(value, float) and value.is_integer() else value
