"""Import of a public source by its description (bench/interop/source_file.py): files in, rows out.

Every line of every file that the description knows ends as a row or is set aside with its reason and counted.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from statistics import median
from textwrap import shorten
from typing import TYPE_CHECKING, Any, NamedTuple

from bench.device.datasheet import Datasheet, find_datasheet, slug_of
from bench.environment.dependencies import demand
from bench.errors import UserError, quoted
from bench.interop import imported_rows
from bench.interop.expressions import as_numbers_or_nan, as_text, derived, holds, plain, values_of
from bench.interop.readers import AnotherForm, read
from bench.interop.source_file import DEVICE, IN_A_SECOND, LINE, Entry, NothingRead, Source, Table, Timing
from bench.spec import Problem, parameters_text
from bench.store.schema import Measurement
from bench.sweep.load import Find, load_all, select

if TYPE_CHECKING:
    import pandas as pd

UNDESCRIBED = "no rows are described for such a line"


class Aside(NamedTuple):
    """Lines of one operator on one device that are no rows, and why."""

    device: str
    operator: str
    reason: str


class ImportedTiming(NamedTuple):
    """A case and how it was timed."""

    device: str
    problem: Problem
    implementation: str
    timing: Timing
    libraries: str
    columns: tuple[tuple[str, Any], ...] = ()
    """`Entry.result` with its values."""

    @property
    def run(self) -> str:
        """The run's name; empty if the description gives none."""
        named = dict(self.columns).get("run_id")
        return f"{named}-{slug_of(self.device)}" if named else ""


@dataclass
class SourceOutcome:
    """What came of a source's files."""

    rows: Iterable[imported_rows.Imported] = ()
    """File by file, made on demand, once: all together may not fit in memory."""
    aside: Counter[Aside] = field(default_factory=Counter)
    remarks: list[str] = field(default_factory=list)
    """Files that are left out, and devices without a datasheet."""


def imported(source: Source, folder: Path, results: Path, find: Find, operator: str = "") -> SourceOutcome:
    """The rows of a source's files below `folder`, by device and way of timing, to be saved below `results`.

    `operator`: of this one alone. UserError if there is no such folder, NothingRead if it holds no file of
    this source that can be read.
    """
    return SourceImport(source, find, operator).outcome(folder, results)


def calibration_shapes(sweeps: Iterable[str], find: Find) -> dict[str, str]:
    """The cases of these sweeps, as `parameters` texts -> their sweep. UserError if a sweep is unreadable."""
    loaded = (entry for name in sweeps for entry in load_all(select(name), find, sm_count=1))
    return {
        parameters_text(case.problem.parameters()): entry.name for entry in loaded for case in entry.cases
    }


@dataclass
class SourceImport:
    """Files of a source on their way to rows."""

    source: Source
    find: Find
    operator: str = ""
    outcomes: SourceOutcome = field(default_factory=SourceOutcome)
    times: dict[ImportedTiming, list[float]] = field(default_factory=lambda: defaultdict(list))
    kernels: dict[ImportedTiming, str] = field(default_factory=dict)
    files: dict[ImportedTiming | str, dict[str, None]] = field(default_factory=lambda: defaultdict(dict))
    """Case, or run that has a name -> where its times are from."""
    facts: Callable[[Problem, str], dict[str, Any]] = field(default_factory=lambda: cache(_facts))

    @cached_property
    def calibration(self) -> dict[str, str]:
        """See `calibration_shapes`."""
        return calibration_shapes(self.source.calibrates, self.find)

    def outcome(self, folder: Path, results: Path) -> SourceOutcome:
        """See `imported`."""
        if any(table.reader.kind == "workbook" for table in self.source.tables):
            demand(f"import {self.source.name}", "openpyxl")
        were_read: set[Path] = set()
        another: dict[Path, AnotherForm] = {}
        for table, path, named in self._files(folder):
            try:
                self.add_file(table, path, named, path.relative_to(folder))
                were_read.add(path)
            except AnotherForm as refusal:
                if table.reader.kind != "documents":  # most documents hold no times
                    another.setdefault(path, refusal)
            except UserError as refusal:
                self.outcomes.remarks.append(f"left out {refusal}")
        self.outcomes.remarks += [f"left out {why}" for path, why in another.items() if path not in were_read]
        if not were_read:
            reasons = "".join(f"; {remark}" for remark in self.outcomes.remarks[:1])
            raise NothingRead(
                f"{folder}: holds no file of {self.source.name} that could be read{reasons}; "
                f"its files are those of {self.source.repository} below {', '.join(self.source.paths)}"
            )
        return self.gathered(results)

    def _files(self, folder: Path) -> Iterator[tuple[Table, Path, dict[str, str]]]:
        """Each file of a table, with the named groups of its path."""
        if not folder.is_dir():
            raise UserError(f"{folder}: is no folder; give a clone of {self.source.repository}")
        matches = 0
        newest: dict[tuple[int, str], tuple[list[int], Path, dict[str, str]]] = {}
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            for number, table in enumerate(self.source.tables):
                if self.operator not in ("", *(entry.operator for entry in table.rows)):
                    continue
                if match := table.match(path.relative_to(folder)):
                    named = {k: v for k, v in match.groupdict().items() if v is not None}
                    version = named.get("newest", "")
                    alike = match.string.replace(f"__{version}__", "__") if version else str(path)
                    this = [int(part) for part in re.findall("[0-9]+", version)], path, named
                    matches += 1
                    newest[number, alike] = max(newest.get((number, alike), this), this)
        if matches > len(newest):
            self.outcomes.remarks.append(f"left out {matches - len(newest)} files that have newer versions")
        for (number, _), (_, path, named) in newest.items():
            yield self.source.tables[number], path, named

    def add_file(self, table: Table, path: Path, named: dict[str, str], place: Path) -> None:
        """Add the times of a file and what is set aside of it; `named` are further columns.

        UserError, and nothing is added, if the file is not as described.
        """
        frame = derived(table, self.frame(table, path).assign(**named), path)
        names = as_text(values_of(frame, table.device, path))
        frame[DEVICE] = names.map(lambda name: self.source.devices.get(name, name))
        aside: Counter[Aside] = Counter()
        for reason, condition in table.left_out.items():
            out = holds(frame, condition, path)
            aside += _counted(frame[out], reason)
            frame = frame[~out]
        lines = list(self.lines(table, frame, path, aside))
        # Only now is it certain that the file is as described.
        self.outcomes.aside += aside
        for timed, seconds, kernels in lines:
            self.times[timed].append(seconds)
            self.files[timed.run or timed][str(place)] = None
            if kernels:
                self.kernels[timed] = kernels

    def frame(self, table: Table, path: Path) -> pd.DataFrame:
        """The columns that a file has, and empty ones for those that it need not have."""
        frame = self.cells(table, path)
        has = [str(name) for name in frame.columns if name != LINE]
        lacking = [name for name in table.needed if name not in has]
        if table.melt and not any(re.fullmatch(table.melt.columns, name) for name in has):
            lacking.append(f"like {table.melt.columns}")
        if lacking:
            columns = shorten(", ".join(has), 300, placeholder=" ...")
            raise AnotherForm(f"{path}: lacks the column {lacking[0]}; it has {columns}")
        strange = [name for name in has if name not in table.known]
        if strange and table.complete:
            raise AnotherForm(
                f"{path}: has the column {quoted(strange[0])}, which is not in {self.source.name}.yaml"
            )
        return frame.assign(**{name: math.nan for name in table.known if name not in has})

    def cells(self, table: Table, path: Path) -> pd.DataFrame:
        """The lines of a file as its reader gives them."""
        return read(path, table.reader)

    def lines(
        self, table: Table, frame: pd.DataFrame, path: Path, aside: Counter[Aside]
    ) -> Iterator[tuple[ImportedTiming, float, str]]:
        """The case, seconds and kernels of each line; those that are none are added to `aside`."""
        cache_byte = frame[DEVICE].map(lambda name: sheet.l2_byte if (sheet := find_datasheet(name)) else 0)
        frame = frame.assign(release=self.source.commit, l2_byte=cache_byte)
        used = frame.index != frame.index  # none yet
        for entry in table.rows:
            chosen = holds(frame, entry.where, path)
            used = used | chosen
            if chosen.any() and self.operator in ("", entry.operator):
                yield from self._entry(table, entry, frame[chosen], path, aside)
        aside += _counted(frame[~used], UNDESCRIBED)

    def _entry(
        self, table: Table, entry: Entry, frame: pd.DataFrame, path: Path, aside: Counter[Aside]
    ) -> Iterator[tuple[ImportedTiming, float, str]]:
        names = list(entry.parameters)
        values = [
            values_of(frame, value, path) for value in (*entry.parameters.values(), *entry.result.values())
        ]
        # Divided: a power of ten is exact as a float, its inverse is not.
        seconds = as_numbers_or_nan(values_of(frame, entry.time, path)) / IN_A_SECOND[entry.unit]
        fewer = holds(frame, entry.fewer_flop, path) if entry.fewer_flop else seconds != seconds
        timing = table.timing or self.source.timing
        texts = (entry.implementation, table.libraries, entry.kernels)
        described = (as_text(values_of(frame, value, path)) for value in texts)
        columns = (frame[DEVICE], *described, seconds, fewer, *values)
        kind = self.find(entry.operator)
        problem_of = cache(
            lambda values: imported_rows.problem_from(kind, dict(zip(names, values, strict=True)))
        )
        result_of = cache(lambda values: tuple(zip(entry.result, values, strict=True)))
        lines = zip(*(column.tolist() for column in columns), strict=True)
        for name, implementation, library, kernel, second, is_fewer, *cells in lines:
            given = tuple(map(plain, cells))
            problem = problem_of(given[: len(names)])
            if isinstance(problem, str):
                aside[Aside(name, entry.operator, problem)] += 1
            elif not (name and implementation):  # a table of values lacks theirs
                aside[Aside(name, entry.operator, UNDESCRIBED)] += 1
            elif reason := _implausible(problem, second, find_datasheet(name), timing, is_fewer):
                aside[Aside(name, entry.operator, reason)] += 1
            else:
                result = result_of(given[len(names) :])
                yield ImportedTiming(name, problem, implementation, timing, library, result), second, kernel

    def gathered(self, results: Path) -> SourceOutcome:
        """The rows of the times; of a case's several times the median counts."""
        runs: dict[tuple[str, str], list[ImportedTiming]] = defaultdict(list)
        shortest: dict[tuple[str, Timing], float] = {}
        for timed, seconds in self.times.items():
            runs[timed.device, self.run_id(timed)].append(timed)
            if "launch" in timed.timing.includes and timed.problem.arithmetic != "unbounded":
                key = timed.device, timed.timing
                shortest[key] = min(shortest.get(key, timed.timing.overhead_s), median(seconds))
            if len(seconds) > 1:
                again = Aside(
                    timed.device, timed.problem.operator, "repeats a case: the median of its times counts"
                )
                self.outcomes.aside[again] += len(seconds) - 1
        self.outcomes.rows = (
            self._run(results, run_id, cases, shortest.get((device, cases[0].timing)))
            for (device, run_id), cases in runs.items()
        )
        gpus = (name for (name, _), (of, *_) in runs.items() if ("device_kind", "cpu") not in of.columns)
        self.outcomes.remarks += imported_rows.without_datasheet(gpus)
        return self.outcomes

    def run_id(self, timed: ImportedTiming) -> str:
        """The name of the run that a case belongs to."""
        usual = f"{self.source.name}-{self.source.commit[:7]}-{self.source.timings[timed.timing]}"
        return timed.run or usual

    def _run(
        self, results: Path, run_id: str, cases: list[ImportedTiming], overhead_s: float | None
    ) -> imported_rows.Imported:
        rows = [self._row(timed, run_id, overhead_s) for timed in cases]
        path = results / imported_rows.FOLDER / rows[0].device / f"{run_id}.parquet"
        return imported_rows.Imported(path, rows, imported_rows.declared(rows, self.find))

    def _row(self, timed: ImportedTiming, run_id: str, overhead_s: float | None) -> Measurement:
        source, timing, problem = self.source, timed.timing, timed.problem
        facts = self.facts(problem, timed.implementation)
        counts = facts | {"ring_byte": facts["byte"]}
        calibrates = self.calibration.get(facts["parameters"])
        who = dict(timed.columns).get("protocol", source.who)
        where = " and ".join(self.files[timed.run or timed])
        repository = "" if source.installed else f"{source.repository} {source.commit[:7]}"
        columns = {
            **facts,
            **imported_rows.device_columns(timed.device, "cuda", find_datasheet(timed.device)),
            "median_s": median(self.times[timed]),
            "clock_start_s": None if problem.arithmetic == "unbounded" else overhead_s,
            "protocol": f"{source.who}, imported",
            "source": imported_rows.source_text(who, where, repository, source.licence),
            "libraries": timed.libraries,
            "sweep": f"imported/{source.name}/{problem.operator}",
            **timing.model_dump(include={"cache", "fill", "statistic", "clocks"}),
            **{"timed_by": timing.by, "time_includes": ", ".join(timing.includes)},
            "kernels": self.kernels.get(timed),
            **{name: counts[name] + more if name in counts else more for name, more in timed.columns},
            "run_id": run_id,
            **({"sweep": calibrates, "role": "calibration"} if calibrates else {}),
        }
        return imported_rows.foreign_row(columns)


def _facts(problem: Problem, implementation: str) -> dict[str, Any]:
    """The columns of a problem, which is timed on many devices."""
    return problem.facts(implementation) | {"parameters": parameters_text(problem.parameters())}


def _implausible(
    problem: Problem, seconds: float, sheet: Datasheet | None, timing: Timing, fewer: bool
) -> str:
    """Why this cannot be the time of this problem on this device; empty if it can."""
    if not (math.isfinite(seconds) and seconds > 0):
        return "no time above zero"
    rates = imported_rows.times_possible(problem, seconds, sheet, timing.cache, fewer)
    return next((imported_rows.above(what) for times, what in rates if times > imported_rows.POSSIBLE), "")


def _counted(lines: pd.DataFrame, reason: str) -> Counter[Aside]:
    """Lines of no operator, by device."""
    return Counter(Aside(name, "", reason) for name in lines[DEVICE].tolist())
