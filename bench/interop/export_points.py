"""Points to export: every time that was measured here, under a name that stays the same from night to night.

Other tools identify a series by its name alone, so the name ends in a hash of all that makes a series here: a
case under another protocol or clock, or on another GPU, is another series there too. Rows without a time and
imported rows are left out, and counted.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from bench.errors import UserError
from bench.judge.frame import runs
from bench.judge.history.series import KEY, UNSAID
from bench.model.ceilings import Ceilings
from bench.model.predict import reached
from bench.store import parquet
from bench.store.schema import FIELDS, Measurement, RunKey

SECONDS_PER_MICROSECOND = 1e-6
DIGITS = 9
"""Significant digits of an exported time: fewer than a double has, more than any clock."""


@dataclass(frozen=True)
class Point:
    """One time of one series."""

    row: Measurement
    """A row with `status` ok and a median."""
    group: str
    """Device (a GPU by its unit), operator and implementation, a blank between."""
    label: str
    """The rest of the name: sweep, data type, parameters, condition, hash. No commas: tools split at them."""
    flags: tuple[str, ...]
    roof: Ceilings
    """The ceilings of its run that it is held against."""

    @property
    def of_roof(self) -> float | None:
        """Share of the roof of its run, 1 = on it; None where a ceiling is missing."""
        return reached(self.row, self.roof)[0]

    @property
    def name(self) -> str:
        """The name of the series: equal for the same case, condition and device, and only for these."""
        return f"{self.group} {self.label}"

    @property
    def microseconds(self) -> float:
        """The median time of one launch."""
        assert self.row.median_s is not None
        return rounded(self.row.median_s / SECONDS_PER_MICROSECOND)


@dataclass
class Results:
    """Result files, read one after the other, as a year of them does not fit into memory."""

    paths: Sequence[Path]
    left_out: Callable[[str], object] | None = None
    """Gets a sentence for each file that cannot be read."""
    counts: Counter[str] = field(default_factory=Counter)
    """The number of rows so far (`all`), and of those that were left out, by reason."""

    def points(self) -> Iterator[Point]:
        """Every time in these files, in their order.

        UserError as from `bench.store.parquet.tables`, and at the end if there was no time.
        """
        seen: dict[RunKey, set[str]] = defaultdict(set)
        for _, table in parquet.tables(self.paths, self.left_out, list(FIELDS)):
            self.counts["all"] += len(table)
            for row, flags, roof in _flagged(self._timed(table)):
                point = Point(row, _group(row), _label(row), tuple(flags), roof)
                of_run, name = seen[RunKey.of(row)], sys.intern(point.name)
                # A run may be in two files, and older ones hold a ceiling's second look: the first counts.
                if name in of_run:
                    self.counts["a time that its run has already"] += 1
                    continue
                of_run.add(name)
                yield point
        if not seen:
            raise UserError(self._why_nothing())

    def omissions(self) -> list[str]:
        """One sentence for each reason for which rows were left out so far."""
        return [
            f"left out: {self.counts[what]} of {self.counts['all']} rows: {what}"
            for what in ("imported", "without a time", "a time that its run has already")
            if self.counts[what]
        ]

    def _timed(self, table: pa.Table) -> list[Measurement]:
        ours = table.filter(pc.is_null(table["source"]))
        self.counts["imported"] += len(table) - len(ours)
        timed = pc.and_(pc.equal(ours["status"], "ok"), pc.greater(ours["median_s"], 0.0))
        usable = ours.filter(pc.and_(timed, pc.is_finite(ours["median_s"])))
        self.counts["without a time"] += len(ours) - len(usable)
        return list(parquet.rows(usable))

    def _why_nothing(self) -> str:
        if self.counts["all"] and self.counts["imported"] == self.counts["all"]:
            return "all rows given are imported, and other people's times are not exported as ours"
        return f"none of the {self.counts['all']} rows given has a time that was measured here"


def latest(points: Iterable[Point]) -> tuple[list[Point], list[str]]:
    """(each series' time in its last run, sentences on what was left out), for formats with one time each."""
    last: dict[str, Point] = {}
    count = 0
    for point in points:
        count += 1
        kept = last.setdefault(point.name, point)
        if point.row.run_id > kept.row.run_id:  # a run's name begins with its time
            last[point.name] = point
    older = count - len(last)
    omission = f"left out: {older} times of earlier runs: this format holds one a series"
    return list(last.values()), [omission] if older else []


def rounded(value: float) -> float:
    """The value rounded to DIGITS significant digits."""
    return float(f"{value:.{DIGITS}g}")


def _flagged(rows: Sequence[Measurement]) -> Iterator[tuple[Measurement, Sequence[str], Ceilings]]:
    """Each row with its flags and its roof; a run that mixes ceilings has none."""
    for run in runs(rows, without_mixed=True):
        for row, flags in zip(run.rows, run.flags, strict=True):
            yield row, flags, run.roof_of(row)


def _unit(row: Measurement) -> str:
    """The GPU's own hash; a CPU has none."""
    return row.device_id if row.device_kind == "cuda" else ""


def _group(row: Measurement) -> str:
    unit = _unit(row)
    device = f"{row.device}@{unit[:8]}" if unit else row.device
    return f"{device} {row.operator} {row.implementation}"


def _label(row: Measurement) -> str:
    parameters: dict[str, Any] = json.loads(row.parameters)
    words = [row.sweep, row.dtype]
    words += [f"{name}={value}" for name, value in parameters.items() if name != "dtype"]
    words += [row.cache] + (["one-thread"] if row.threads_asked == "one" else [])
    known = {column: getattr(row, column, None) for column in KEY}
    key: list[Any] = [row.device, _unit(row)]
    key += [UNSAID.get(column) if value is None else value for column, value in known.items()]
    digest = hashlib.sha256(json.dumps(key, separators=(",", ":")).encode()).hexdigest()[:10]
    return " ".join([*words, f"#{digest}"]).replace(",", ";")
