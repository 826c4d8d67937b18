"""The timings of GPUs in result files, as predictions are learned from them (bench/model/pooled.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from bench.device.datasheet import find_datasheet
from bench.judge.flags import OVERHEAD
from bench.model.launch_features import COLUMNS
from bench.model.pooled import Pool
from bench.model.roofline import WITHOUT_ROOF
from bench.store import parquet

if TYPE_CHECKING:
    import pandas as pd

    from bench.device.datasheet import Datasheet


def read_pool(paths: Iterable[Path], left_out: Callable[[str], object]) -> Pool:
    """The timings of GPUs in result files. UserError as `bench.store.parquet.tables`."""
    import pyarrow as pa

    wanted = [*COLUMNS, "status", "device_kind", "set_aside"]
    every = [table for _, table in parquet.tables(paths, left_out, wanted)]
    frame = pa.concat_tables(every, promote_options="permissive").to_pandas(use_threads=False)
    return pool(frame)


def pool(frame: pd.DataFrame) -> Pool:
    """The rows that say how long work takes: sound times of GPUs with a datasheet, far above a launch."""
    sheets = {name: sheet for name in frame["device_name"].unique() if (sheet := _known(str(name)))}
    sound = (frame["status"] == "ok") & (frame["median_s"] > 0) & (frame["byte_moved"] > 0)
    far = ~(frame["median_s"] < OVERHEAD * frame["clock_start_s"].astype(float).fillna(0.0))
    bounded = ~frame["arithmetic"].isin(WITHOUT_ROOF)
    rows = frame[sound & far & bounded & frame["device_name"].isin(sheets)]
    return Pool(rows.reset_index(drop=True), sheets)


def _known(name: str) -> Datasheet | None:
    sheet = find_datasheet(name)
    return sheet if sheet and sheet.bandwidth_byte_per_s and sheet.boost_clock_hz else None
