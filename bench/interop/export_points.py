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
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
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

_DIGITS = 9
"""Significant digits of an exported time: fewer than a double has, more than any clock."""
_AGAIN = "a time that its run has already"


@dataclass(frozen=True)
class SeriesPoint:
    """One time of one series."""

    row: Measurement
    """A row with `status` ok and a median."""
    name: str
    """The name of the series: equal for the same case, condition and device, and only for these."""
    flags: Sequence[str]
    roof: Ceilings
    """The ceilings of its run that it is compared with."""

    @property
    def of_roof(self) -> float | None:
        """Share of the roof of its run, 1 = on it; None where a ceiling is missing."""
        return reached(self.row, self.roof)

    @property
    def microseconds(self) -> float:
        """The median time of one launch."""
        assert self.row.median_s is not None
        return float(f"{self.row.median_s / 1e-6:.{_DIGITS}g}")


@dataclass
class Results:
    """Result files, read one after the other, as a year of them does not fit into memory."""

    paths: Sequence[Path]
    left_out: Callable[[str], object] | None = None
    """Gets a sentence for each file that cannot be read."""
    counts: Counter[str] = field(default_factory=Counter)
    """The number of rows so far (`all`), and of those that were left out, by reason."""

    def points(self) -> Iterator[SeriesPoint]:
        """Every time in these files, in their order.

        UserError as from `bench.store.parquet.tables`, and at the end if there was no time.
        """
        seen: dict[RunKey, set[str]] = defaultdict(set)
        for _, table in parquet.tables(self.paths, self.left_out, list(FIELDS)):
            self.counts["all"] += len(table)
            for run in runs(self._timed(table), without_mixed=True):
                for row, flags in zip(run.rows, run.flags, strict=True):
                    of_run, name = seen[RunKey.of(row)], sys.intern(_name(row))
                    # A run may be in two files, older ones hold a ceiling's second look: the first counts. A
                    # ceiling of an earlier run is among that one's times.
                    if name in of_run or row.measured_in:
                        self.counts[_AGAIN] += 1
                    else:
                        of_run.add(name)
                        yield SeriesPoint(row, name, flags, run.roof_of(row))
        if not seen:
            if 0 < self.counts["all"] == self.counts["imported"]:
                raise UserError(
                    "all rows given are imported, and other people's times are not exported as ours"
                )
            raise UserError(f"none of the {self.counts['all']} rows given has a time that was measured here")

    def omissions(self) -> list[str]:
        """One sentence for each reason for which rows were left out so far."""
        return [
            f"left out: {self.counts[what]} of {self.counts['all']} rows: {what}"
            for what in ("imported", "without a time", _AGAIN)
            if self.counts[what]
        ]

    def _timed(self, table: pa.Table) -> list[Measurement]:
        ours = table.filter(pc.is_null(table["source"]))
        self.counts["imported"] += len(table) - len(ours)
        timed = pc.and_(pc.equal(ours["status"], "ok"), pc.greater(ours["median_s"], 0.0))
        usable = ours.filter(pc.and_(timed, pc.is_finite(ours["median_s"])))
        self.counts["without a time"] += len(ours) - len(usable)
        return list(parquet.rows(usable))


def newest(
    points: Iterable[SeriesPoint], series: Callable[[SeriesPoint], Hashable], unit: str
) -> tuple[list[SeriesPoint], list[str]]:
    """(the points of each series' newest run, a sentence on those of earlier ones that a format leaves out).

    `unit` says of what the format holds one.
    """
    last: dict[Hashable, tuple[str, dict[str, SeriesPoint]]] = {}
    count = 0
    for point in points:
        count += 1
        run_id, kept = last.get(series(point), ("", {}))
        if point.row.run_id > run_id:  # a run's name begins with its time
            kept = {}
        if point.row.run_id >= run_id:
            kept.setdefault(point.name, point)
            last[series(point)] = point.row.run_id, kept
    chosen = [point for _, kept in last.values() for point in kept.values()]
    omission = f"left out: {count - len(chosen)} times of earlier runs: this format holds {unit}"
    return chosen, [omission] if count > len(chosen) else []


def _name(row: Measurement) -> str:
    """Device (a GPU by its unit), operator, implementation; sweep, parameters, condition; a hash of all.

    From the sweep on there are no commas: tools split at them.
    """
    unit = row.device_id if row.device_kind == "cuda" else ""
    device = f"{row.device}@{unit[:8]}" if unit else row.device
    parameters: dict[str, Any] = json.loads(row.parameters)
    words = [row.sweep, row.dtype]
    words += [f"{name}={value}" for name, value in parameters.items() if name != "dtype"]
    words += [row.cache] + (["one-thread"] if row.threads_asked == "one" else [])
    known = {column: getattr(row, column, None) for column in KEY}
    key: list[Any] = [row.device, unit]
    key += [UNSAID.get(column) if value is None else value for column, value in known.items()]
    digest = hashlib.sha256(json.dumps(key, separators=(",", ":")).encode()).hexdigest()[:10]
    label = " ".join([*words, f"#{digest}"]).replace(",", ";")
    return f"{device} {row.operator} {row.implementation} {label}"
