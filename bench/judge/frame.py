"""A run of a unit: where rows meet their ceilings, flags and derived columns. Files: read_runs.py.

The only place that joins them. A row is a `bench.store.schema.Measurement`; of many rows at once
`DeviceRun.frame` has every column of it, a column for each parameter, and these, in SI units, NaN where a
time, its interval or a ceiling is missing:

    rate_per_s  rate_low_per_s  rate_high_per_s      flop or byte (as `rate` says) / time
    flop_per_s  flop_low_per_s  flop_high_per_s      flop / time
    predicted_s  limiter  predicted_per_s            calibrated roofline of the same run, its largest term
    datasheet_s  datasheet_per_s                     roofline of the datasheet
    structured_s  structured_limiter  structured_per_s   with tiles, waves, caches
    learned_s  learned_low_s  learned_high_s         NaN until `bench.judge.timings.with_learned` fills them
    of_roof                                          share of the calibrated roof, or of the cache's
    imported  calibrating                            another's number; used to calibrate, so never scored
    intensity                                        flop / byte
    condition                                        which ceilings it is compared with: cold, warm, ...
    bound_by                                         launch, cache, memory or compute (bench.model.bound)
    scored                                           whether predictions are scored on it
    blamed                                           whether a flag other than above_roof casts doubt on it
    flags  suspect                                   names, and whether one of them casts doubt on its time
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bench.device.datasheet import Datasheet
from bench.judge.columns import Columns
from bench.judge.flags import OVERHEAD, SUSPECT, flags, surely_above_roof
from bench.judge.within_run import WithinRun, within_run
from bench.judge.work_class import told_apart
from bench.model.bound import bounds, cached_share
from bench.model.calibrated_runs import Known
from bench.model.ceilings import Ceilings, condition
from bench.model.predict import LEARNED, add_rooflines, completed, reached, structured
from bench.store import parquet
from bench.store.parquet import Rows, Sweeps
from bench.store.schema import ARROW, FIELDS, Measurement, RunKey

if TYPE_CHECKING:
    import pandas as pd


T = TypeVar("T")
_CASE = ["sweep", "operator", "implementation", "parameters", "cache", "threads_asked"]
_KIND = [
    *(*_CASE, "visit", "status", "median_s", "clock_start_s", "flop", "byte", "arithmetic"),
    *("cache_byte", "device_kind"),
]
_TOLD = {
    *("source", "timed_by", "statistic", "clocks", "time_includes", "environment", "host", "tags", "kernels"),
    *("median_s", "clock_start_s", "byte_again", "moved_written", "byte_beside", "special_functions"),
    *("threads_asked", "product_m", "product_n", "product_k"),
}
"""Nullable columns that say nothing of how far off a time may be, or of what disturbed it."""


@dataclass(frozen=True, eq=False)
class DeviceRun:
    """One run on one device."""

    key: RunKey
    name: str
    """The run's name in texts, as `bench.store.schema.run_names` gives it."""
    rows: Sequence[Measurement]
    """Every row, measured or not, in the order in which they were written."""
    measured_ceilings: Mapping[str, Ceilings]
    """Condition (`bench.model.ceilings.condition`) -> ceilings that were measured under it."""
    datasheet: Datasheet | None = None
    calibrating: Known | None = None
    """Another run of the same device, whose ceilings and calibration stand in for those that it lacks."""
    sweeps: Sweeps = field(default_factory=dict)
    """What its sweeps declared when it was measured."""

    @property
    def device(self) -> str:
        """Slug of the device."""
        return self.key.device

    @property
    def run_id(self) -> str:
        """Its id, which runs on other units may share."""
        return self.key.run_id

    @property
    def device_name(self) -> str:
        """The device as its driver or the kernel calls it."""
        return self.first.device_name

    @cached_property
    def first(self) -> Measurement:
        """Its first row, for what all of them share."""
        return self.rows[0]

    @cached_property
    def imported(self) -> bool:
        """Whether somebody else measured it."""
        return isinstance(self.rows, Rows) or all(row.source is not None for row in self.rows)

    @property
    def is_alone(self) -> bool:
        """Whether its claims are judged apart from other runs of its device: its source says how it timed.

        Times of several sources may be of several kinds: with launches or without, of a cold cache or a warm.
        """
        return self.imported and self.first.timed_by is not None

    @cached_property
    def _alike(self) -> tuple[npt.NDArray[np.intp], list[Measurement]] | None:
        """(the kind of each row, a row of each kind) where rows of a kind have the same flags and intervals.

        These are rows of others that tell no more than their time, of cases that were timed once; else None.
        """
        if not isinstance(self.rows, Rows) or self.measured_ceilings or self.calibrating:
            return None
        table = self.rows.table
        told = {name for name in FIELDS if ARROW.field(name).nullable and table[name].null_count < len(table)}
        facts = Columns.of(table.select(_KIND).to_pandas(use_threads=False))
        median_s = facts.floats("median_s")
        timed = facts["status"].are("ok") & (0 < median_s) & (median_s < math.inf)
        again = np.bincount(facts.numbered(_CASE)) > 1
        if not told <= _TOLD or facts["visit"].any() or not timed.all() or again.any():
            return None
        apart = told_apart(facts) | {"launch": median_s < OVERHEAD * facts.floats("clock_start_s")}
        kind, first = Columns(apart, facts.count).kinds(apart)
        return kind, list(parquet.rows(table.take(first)))

    @property
    def is_plain(self) -> bool:
        """Whether its rows tell no more than their time: none has an interval of its own."""
        return self._alike is not None

    def each(self, said_of: Callable[[Measurement], T]) -> list[T]:
        """What is said of each row, where of rows of a kind the same is."""
        if self._alike is None:
            return list(map(said_of, self.rows))
        kind, rows = self._alike
        said = list(map(said_of, rows))
        return [said[number] for number in kind.tolist()]

    def only(self, places: npt.NDArray[np.intp]) -> DeviceRun:
        """The run with these of its rows alone."""
        return replace(self, rows=Rows(parquet.as_table(self.rows).take(places)))

    @cached_property
    def ceilings(self) -> Mapping[str, Ceilings]:
        """Condition -> ceilings, with those of memory and launch that `completed` reads from other rows."""
        return {
            of: completed(measured, [row for row in self.rows if _condition(row) == of])
            for of, measured in self.measured_ceilings.items()
        }

    def roof(self, of: str) -> Ceilings:
        """What rows of this condition are compared with.

        Warm rows of a run that measured no warm ceilings are compared with the cold ones, which they
        may well beat. Those of the run that calibrates it, and else empty ceilings, if there are none.
        """
        own = self.ceilings.get(of) or self.ceilings.get(of.replace("warm", "cold"))
        return own or (self.calibrating.ceilings if self.calibrating else Ceilings())

    def roof_of(self, row: Measurement) -> Ceilings:
        """What this row of the run is compared with."""
        return self.roof(_condition(row))

    def flags_of(self, row: Measurement) -> list[str]:
        """The flags of this row of the run."""
        return flags(row, self.roof_of(row))

    @cached_property
    def flags(self) -> Sequence[Sequence[str]]:
        """The flags of each row."""
        return self.each(self.flags_of)

    @cached_property
    def suspect(self) -> npt.NDArray[np.bool_]:
        """Whether a flag casts doubt on the time of each row, if it has one."""
        return np.array([not SUSPECT.isdisjoint(names) for names in self.flags], dtype=bool)

    @cached_property
    def blamed(self) -> npt.NDArray[np.bool_]:
        """Whether another flag than above_roof does."""
        # Being quicker than a prediction casts doubt on one of the two, and must not spare the prediction.
        spared = SUSPECT - {"above_roof"}
        return np.array([not spared.isdisjoint(names) for names in self.flags], dtype=bool)

    @property
    def sound(self) -> list[Measurement]:
        """The rows with a time that no flag makes suspect."""
        return [row for row, doubt in zip(self.rows, self.suspect, strict=True) if row.is_timed and not doubt]

    @cached_property
    def within(self) -> Sequence[WithinRun | None]:
        """The within-run interval of each row; None without a time."""
        return self.each(lambda row: within_run([row])[0]) if self.is_plain else within_run(self.rows)

    def run_ends_s(self, row: Measurement) -> tuple[float, float] | tuple[None, None]:
        """(low, high) in seconds: where 95 of 100 further visits of the run would find this row of it."""
        within = self._within_by_row.get(_same(row))
        if within is None or row.median_s is None:
            return None, None
        factor = math.exp(within.visit)
        return row.median_s / factor, row.median_s * factor

    def surely_above_roof(self, row: Measurement) -> bool:
        """Whether every visit of the run would find this row of it above the roof that bounds it."""
        _, slow_s = self.run_ends_s(row)
        return slow_s is not None and surely_above_roof(row, self.roof_of(row), slow_s)

    @cached_property
    def _within_by_row(self) -> Mapping[Hashable, WithinRun | None]:
        return {_same(row): within for row, within in zip(self.rows, self.within, strict=True)}

    @cached_property
    def bounds(self) -> Sequence[str]:
        """What bounds each row on this device: one of `bench.model.bound.BOUNDS`, or empty."""
        return bounds(self.columns, self.roof, self.datasheet)

    @property
    def measured(self) -> int:
        """How many rows have a time."""
        return int(self.columns["median_s"].notna().sum())

    @cached_property
    def columns(self) -> pd.DataFrame:
        """The rows as a table: every column of a Measurement, `condition`, and the parameters.

        A wrong result has no time here, whatever a file may hold.
        """
        import pandas as pd

        stored = parquet.as_table(self.rows)
        given = [name for name in stored.column_names if name not in FIELDS]
        table = _with_added(stored)
        names = [name for name in table.column_names if name not in FIELDS]
        names = sorted(name for name in names if table[name].null_count < len(table))
        frame: pd.DataFrame = table.select([*FIELDS, *names]).to_pandas(use_threads=False)
        frame["threads_asked"] = frame["threads_asked"].fillna("all")
        is_timed = ((frame["status"] == "ok") & frame["median_s"].between(0, math.inf, "neither")).to_numpy()
        for name in ("median_s", "low_s", "high_s"):
            frame[name] = np.where(is_timed, frame[name].to_numpy(dtype=np.float64), math.nan)
        visit = np.array([each.visit if each else math.nan for each in self.within])
        frame["run_half"] = np.array([each.half if each else math.nan for each in self.within])
        frame["run_by"] = [each.by if each else None for each in self.within]
        for name, sign in (("run_low_s", -1), ("run_high_s", 1)):
            frame[name] = frame["median_s"] * np.exp(sign * visit)
        asked = Columns.of(frame[["cache", "threads_asked"]])
        kind, first = asked.kinds(asked)
        values = (asked[name][first].tolist() for name in asked)
        conditions = [condition(*of) for of in zip(*values, strict=True)]
        frame["condition"] = np.array(conditions, dtype=object)[kind]
        there = Columns({name: stored[name].is_valid().to_numpy() for name in given}, len(frame))
        kind, first = there.kinds(given)
        named = [" ".join(name for name in given if there[name][row]) for row in first]
        frame["parameter_names"] = pd.Categorical(named).take(kind)
        return frame

    @cached_property
    def frame(self) -> pd.DataFrame:
        """`columns` with those that are derived."""
        frame = self.columns.copy()
        _add_rates(frame)
        _add_verdicts(frame, self)
        _add_predictions(frame, self)
        frame["scored"] = frame["median_s"].notna() & ~frame["blamed"] & ~frame["calibrating"]
        return frame


def parameter_names(rows: pd.DataFrame) -> list[str]:
    """Parameters of these rows that have a column of their own, in the order in which they occur."""
    names = (name for of_kind in rows["parameter_names"].unique() for name in of_kind.split())
    return [name for name in dict.fromkeys(names) if name in rows.columns]


def _with_added(table: pa.Table) -> pa.Table:
    """The same with the parameters that operators have since, where rows lack them."""
    import kernels

    for operator in {*pc.unique(table["operator"]).to_pylist()} & {*kernels.names()}:
        for name, value in kernels.problem(operator).added.items():
            given = table[name] if name in table.column_names else pa.nulls(len(table), pa.scalar(value).type)
            lacking = pc.and_(pc.equal(table["operator"], operator), pc.is_null(given))
            filled = pc.if_else(lacking, pa.scalar(value, given.type), given)
            table = table.drop_columns([name] if name in table.column_names else []).append_column(
                name, filled
            )
    return table


def _same(row: Measurement) -> Hashable:
    """What is equal of a row each time that it is made of its table."""
    return row.case, row.visit, row.utc, row.median_s


def _condition(row: Measurement) -> str:
    return condition(row.cache, row.threads_asked)


def _counts(frame: pd.DataFrame) -> pd.Series:
    """What a rate counts: FLOP or bytes."""
    counts = frame["flop"].where(frame["rate"] == "flop", frame["byte"]).astype(float)
    return counts.where(counts > 0)


def _add_rates(frame: pd.DataFrame) -> None:
    flop = frame["flop"].where(frame["flop"] > 0).astype(float)
    byte = frame["byte"].where(frame["byte"] > 0).astype(float)
    # The quickest time is the highest rate: the ends of the interval change places.
    for name, count in (("rate", _counts(frame)), ("flop", flop)):
        frame[f"{name}_per_s"] = count / frame["median_s"]
        frame[f"{name}_low_per_s"] = count / frame["high_s"]
        # A clock with coarse steps may leave no lower end above zero: no rate is the highest then.
        frame[f"{name}_high_per_s"] = count / frame["low_s"].where(frame["low_s"] > 0)
    frame["intensity"] = flop / byte


def _add_predictions(frame: pd.DataFrame, run: DeviceRun) -> None:
    given = run.calibrating.calibrations if run.calibrating else None
    for name, column in structured(frame, run.roof, run.datasheet, given).items():
        frame[str(name)] = column
    frame[[*LEARNED]] = np.nan
    add_rooflines(frame, run.roof, run.datasheet)
    for level in ("structured", "predicted", "datasheet"):
        frame[f"{level}_per_s"] = _counts(frame) / frame[f"{level}_s"]
    frame["of_roof"] = frame["predicted_s"] / frame["median_s"]
    # A warm row is compared with the cache that held its data, as far as one did ...
    warm = (frame["cache"] == "warm") & frame["of_roof"].notna()
    told = warm & frame["condition"].isin([of for of in frame["condition"].unique() if run.roof(of).cached])
    shares = [reached(row, run.roof_of(row)) for row in itertools.compress(run.rows, told)]
    frame.loc[told, "of_roof"] = np.array(shares, dtype=float)
    # ... of which memory's roof says nothing, where that of the cache was not measured.
    unknown = warm & ~told & (frame["limiter"] == "memory") & (cached_share(frame) > 0)
    frame.loc[unknown, "of_roof"] = np.nan


def _add_verdicts(frame: pd.DataFrame, run: DeviceRun) -> None:
    import pandas as pd

    frame["imported"] = frame["source"].notna()
    frame["bound_by"] = pd.Series(run.bounds, index=frame.index, dtype=str)
    frame["flags"] = pd.Series([" ".join(names) for names in run.flags], index=frame.index, dtype=str)
    # A row without a time is no point, whatever its result was.
    frame["suspect"] = run.suspect & frame["median_s"].notna()
    frame["blamed"] = run.blamed
