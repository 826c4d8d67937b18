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
from typing import TYPE_CHECKING, Any, NamedTuple

from bench.device.datasheet import Datasheet, find_datasheet, slug_of
from bench.environment.dependencies import demand
from bench.errors import UserError, quoted
from bench.interop.expressions import as_numbers_or_nan, as_text, derived, holds, plain, values_of
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
)
from bench.interop.readers import AnotherForm, read
from bench.interop.sampling import SAMPLE, stratified_sample
from bench.interop.source_file import IN_A_SECOND, Entry, NothingRead, Source, Table, Timing
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

    rows: Iterable[Imported] = ()
    """File by file, made on demand, once: all together may not fit in memory."""
    aside: Counter[Aside] = field(default_factory=Counter)
    remarks: list[str] = field(default_factory=list)
    """Files that are left out, and devices without a datasheet."""


def imported(
    source: Source, folder: Path, results: Path, find: Find, operator: str = "", sample: bool = False
) -> SourceOutcome:
    """The rows of a source's files below `folder`, by device and way of timing, to be saved below `results`.

    `operator`: of this one alone; `sample`: no more of each than the description says. UserError if there is
    no such folder, NothingRead if it holds no file of this source that can be read.
    """
    return _Import(source, find, operator, sample).outcome(folder, results)


def calibration_shapes(sweeps: Iterable[str], find: Find) -> dict[str, str]:
    """The cases of these sweeps, as `parameters` texts -> their sweep. UserError if a sweep is unreadable."""
    loaded = (entry for name in sweeps for entry in load_all(select(name), find, sm_count=1))
    return {
        parameters_text(case.problem.parameters()): entry.name for entry in loaded for case in entry.cases
    }


@dataclass
class _Import:
    source: Source
    find: Find
    operator: str
    sample: bool
    outcomes: SourceOutcome = field(default_factory=SourceOutcome)
    times: dict[ImportedTiming, list[float]] = field(default_factory=lambda: defaultdict(list))
    kernels: dict[ImportedTiming, str] = field(default_factory=dict)
    files: dict[ImportedTiming | str, dict[str, None]] = field(default_factory=lambda: defaultdict(dict))
    """Case, or run that has a name -> where its times are from."""
    facts: Callable[[Problem, str], dict[str, Any]] = field(default_factory=lambda: cache(_facts))

    @cached_property
    def calibration(self) -> dict[str, str]:
        """See `calibration_shapes`."""
        sweeps = self.source.calibrates
        return calibration_shapes(sweeps[:1] if self.sample else sweeps, self.find)

    def outcome(self, folder: Path, results: Path) -> SourceOutcome:
        """See `imported`."""
        if any(table.reader.kind == "workbook" for table in self.source.tables):
            demand(f"import {self.source.name}", "openpyxl")
        were_read: set[Path] = set()
        another: dict[Path, AnotherForm] = {}
        for table, path, named in self._files(folder):
            try:
                self._read(table, path, named, path.relative_to(folder))
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
        self._gather(results)
        return self.outcomes

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

    def _read(self, table: Table, path: Path, named: dict[str, str], place: Path) -> None:
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
        lacking = {name: math.nan for name in table.known if name not in frame.columns}
        frame = frame.assign(**lacking, **named, release=self.source.commit)
        frame = derived(table, frame, path)
        device = as_text(values_of(frame, table.device, path)).map(
            lambda name: self.source.devices.get(name, name)
        )
        frame["l2_byte"] = device.map(lambda name: sheet.l2_byte if (sheet := _sheet(name)) else 0)
        aside: Counter[Aside] = Counter()
        lines: list[tuple[ImportedTiming, float, str]] = []
        taken = frame.index != frame.index  # nothing yet
        for reason, condition in table.left_out.items():
            out = holds(frame, condition, path) & ~taken
            aside += _counted(device[out], reason)
            taken |= out
        rest, used = ~taken, taken
        for entry in table.rows:
            chosen = rest & holds(frame, entry.where, path)
            used = used | chosen
            if chosen.any() and self.operator in ("", entry.operator):
                part = frame[chosen].sort_values(list(entry.order)) if entry.order else frame[chosen]
                lines += self._entry(table, entry, part, device[part.index], path, aside)
        # Only now is it certain that the file is as described.
        self.outcomes.aside += aside + _counted(device[~used], UNDESCRIBED)
        where = str(place if table.origin == "file" else place.parent)
        for timed, seconds, kernels in lines:
            self.times[timed].append(seconds)
            self.files[timed.run or timed][where] = None
            if kernels:
                self.kernels[timed] = kernels

    def _entry(
        self,
        table: Table,
        entry: Entry,
        frame: pd.DataFrame,
        device: pd.Series,
        path: Path,
        aside: Counter[Aside],
    ) -> Iterator[tuple[ImportedTiming, float, str]]:
        """The case, seconds and kernels of each line; those that are none are added to `aside`."""
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
        columns = (device, *described, seconds, fewer, *values)
        kind = self.find(entry.operator)
        problem_of = cache(lambda values: problem_from(kind, dict(zip(names, values, strict=True))))
        result_of = cache(lambda values: tuple(zip(entry.result, values, strict=True)))
        lines = zip(*(column.tolist() for column in columns), strict=True)
        for name, implementation, library, kernel, second, is_fewer, *cells in lines:
            given = tuple(map(plain, cells))
            problem = problem_of(given[: len(names)])
            if isinstance(problem, str):
                aside[Aside(name, entry.operator, problem)] += 1
            elif reason := _implausible(problem, second, _sheet(name), timing, is_fewer):
                aside[Aside(name, entry.operator, reason)] += 1
            else:
                result = result_of(given[len(names) :])
                yield ImportedTiming(name, problem, implementation, timing, library, result), second, kernel

    def _gather(self, results: Path) -> None:
        """Make rows of the times; of a case's several times the median counts."""
        runs: dict[tuple[str, str], list[ImportedTiming]] = defaultdict(list)
        shortest: dict[tuple[str, Timing], float] = {}
        for timed, seconds in self.times.items():
            usual = f"{self.source.name}-{self.source.commit[:7]}-{self.source.timings[timed.timing]}"
            runs[timed.device, (timed.run or usual) + "-sample" * self.sample].append(timed)
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
        self.outcomes.remarks += without_datasheet(device for device, _ in runs)

    def _run(
        self, results: Path, run_id: str, cases: list[ImportedTiming], overhead_s: float | None
    ) -> Imported:
        kept, drawn = self._sampled(cases)
        rows = [self._row(timed, run_id, overhead_s, drawn) for timed in kept]
        folder = results if self.sample else results / FOLDER
        return Imported(folder / rows[0].device / f"{run_id}.parquet", rows, declared(rows, self.find))

    def _sampled(self, cases: list[ImportedTiming]) -> tuple[list[ImportedTiming], str]:
        """Down-sample a run: (calibrating rows and SAMPLE others, a sentence about the sample)."""
        by = self.source.samples.get(cases[0].problem.operator) if self.sample else None
        if not by:
            return cases, ""
        sizes = {
            timed: " ".join(str(getattr(timed.problem, name)) for name in by)
            for timed in cases
            if self.facts(timed.problem, timed.implementation)["parameters"] not in self.calibration
        }
        drawn = stratified_sample({size: float(timed.problem.flop) for timed, size in sizes.items()})
        kept = [timed for timed in cases if timed not in sizes or sizes[timed] in drawn]
        calibrates = len(sizes) < len(cases)
        how = f"all that calibrate and {SAMPLE} drawn" if calibrates else f"those of {SAMPLE} sizes"
        return kept, f"a sample: {len(kept)} of {len(cases)} rows, {how}"

    def _row(self, timed: ImportedTiming, run_id: str, overhead_s: float | None, drawn: str) -> Measurement:
        source, timing, problem = self.source, timed.timing, timed.problem
        facts = self.facts(problem, timed.implementation)
        counts = facts | {"ring_byte": facts["byte"]}
        calibrates = self.calibration.get(facts["parameters"])
        return foreign_row(
            {
                **facts,
                **device_columns(timed.device, "cuda", _sheet(timed.device)),
                "median_s": median(self.times[timed]),
                "clock_start_s": None if problem.arithmetic == "unbounded" else overhead_s,
                "protocol": f"{source.who}, imported",
                "source": source_text(
                    dict(timed.columns).get("protocol", source.who),
                    " and ".join(self.files[timed.run or timed]),
                    "" if source.installed else f"{source.repository} {source.commit[:7]}",
                    source.licence,
                    drawn,
                ),
                "libraries": timed.libraries,
                "sweep": f"imported/{source.name}/{problem.operator}",
                **timing.model_dump(include={"cache", "fill", "statistic", "clocks"}),
                **{"timed_by": timing.by, "time_includes": ", ".join(timing.includes)},
                "kernels": self.kernels.get(timed),
                **{name: counts[name] + more if name in counts else more for name, more in timed.columns},
                "run_id": run_id,
                **({"sweep": calibrates, "role": "calibration"} if calibrates else {}),
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
    rates = times_possible(problem, seconds, sheet, timing.cache, fewer)
    return next((f"faster than {POSSIBLE:.0%} of {what}" for times, what in rates if times > POSSIBLE), "")


def _counted(devices: pd.Series, reason: str) -> Counter[Aside]:
    """Lines of no operator, by device."""
    return Counter({Aside(name, "", reason): count for name, count in Counter(devices.tolist()).items()})
