"""The timings of GPUs in result files, as predictions are learned from them (bench/model/pooled.py).

`with_learned` gives a run's frame the level L3: every row of an operator that others timed, or that the run
itself timed often enough.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from pathlib import Path

import pandas as pd

from bench.device.datasheet import Datasheet, find_datasheet
from bench.environment.dependencies import demand
from bench.format import count_text
from bench.judge.flags import OVERHEAD
from bench.judge.frame import DeviceRun
from bench.model.launch_features import COLUMNS, with_parameters
from bench.model.pooled import LEAST_ROWS, Pool
from bench.model.predict import LEARNED
from bench.model.reached import largest
from bench.model.roofline import WITHOUT_ROOF
from bench.store import parquet

READ = (*COLUMNS, "status")


def read_pool(paths: Iterable[Path], left_out: Callable[[str], object]) -> Pool:
    """The timings of GPUs in result files. UserError as `bench.store.parquet.tables`."""
    import pyarrow as pa

    every = [table for _, table in parquet.tables(paths, left_out, READ)]
    frame = pa.concat_tables(every, promote_options="permissive").to_pandas(use_threads=False)
    return pool(frame)


def pool(frame: pd.DataFrame) -> Pool:
    """The rows that say how long work takes: sound times of GPUs with a datasheet, far above a launch."""
    sheets = {name: sheet for name in frame["device_name"].unique() if (sheet := _known(str(name)))}
    rows = frame[_usable(frame) & frame["device_name"].isin(sheets)]
    return Pool(rows.reset_index(drop=True), sheets)


def counts_text(rows: pd.DataFrame) -> str:
    """How many timings these are, of how many GPUs, by whom."""
    devices = rows["device_name"].nunique()
    return f"{count_text(len(rows), 'timing')} of {count_text(devices, 'GPU')} ({sources_text(rows)})"


def sources_text(rows: pd.DataFrame) -> str:
    """The authors of these timings."""
    return ", ".join(sorted(rows["source"].fillna("measured here").str.partition(";")[0].unique()))


def with_learned(run: DeviceRun, pool: Pool, operators: Collection[str] | None = None) -> pd.DataFrame:
    """The run's frame, with LEARNED of a GPU's rows, and `calibrating` of those that they come from.

    `pool` holds the run's own timings too. Only of these operators, if any are given. UserError without
    scikit-learn, if it is needed.
    """
    frame = run.frame.copy()
    sheet = _known(run.device_name)
    if sheet is None or run.rows[0].device_kind != "cuda":
        return frame
    demand("predictions of a GPU", "scikit-learn")
    bounded = (frame["byte_moved"] > 0) & ~frame["arithmetic"].isin(WITHOUT_ROOF)
    open_rows = frame[bounded & (frame["role"] == "measurement")]
    usable = _usable(frame) & (frame["source"].isna() | run.imported)
    frame.loc[largest(frame[usable], {run.device_name: sheet}), "calibrating"] = True
    for (operator, implementation), rows in open_rows.groupby(["operator", "implementation"], sort=False):
        known = pool.of(str(operator), str(implementation))
        if (operators is not None and operator not in operators) or not len(known.rows):
            continue
        rows = with_parameters(rows[list(COLUMNS)])
        own = rows[usable[rows.index]]
        if len(own) >= LEAST_ROWS:
            designated = known.designated(sheet, own)
            learned = known.calibrated(sheet, own.loc[designated], rows)
            frame.loc[_same_cases(rows, designated), "calibrating"] = True
        elif (predicted := known.unseen(sheet, rows)) is not None:
            learned = predicted
        else:
            continue
        times = (learned.seconds, learned.low_s, learned.high_s)
        for column, seconds in zip(LEARNED, times, strict=True):
            frame.loc[rows.index, column] = seconds
    return frame


def _same_cases(rows: pd.DataFrame, wanted: pd.Index) -> pd.Index:
    """These rows, and those of the same case in other sweeps."""
    cases = rows["implementation"] + rows["cache"] + rows["parameters"]
    return rows.index[cases.isin(cases[wanted])]


def _usable(frame: pd.DataFrame) -> pd.Series:
    sound = (frame["status"] == "ok") & (frame["median_s"] > 0) & (frame["byte_moved"] > 0)
    far = ~(frame["median_s"] < OVERHEAD * frame["clock_start_s"].astype(float).fillna(0.0))
    bounded = ~frame["arithmetic"].isin(WITHOUT_ROOF)
    return sound & far & bounded


def _known(name: str) -> Datasheet | None:
    sheet = find_datasheet(name)
    return sheet if sheet and sheet.bandwidth_byte_per_s and sheet.boost_clock_hz else None
