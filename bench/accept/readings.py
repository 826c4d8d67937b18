"""The highest rate of each kind of work in each run: what a unit can do, whoever measured it.

A kind of work is one that a single part of the device limits: matrix multiplications of a data type (its
arithmetic), a read or a copy of more than its caches hold and a narrow matrix multiplication (its memory), a
copy inside a cache, an empty kernel (its launch), a copy over the link to the host. Of a run the fastest row
of each kind counts: shapes differ between those who measure, and the fastest is what the part allowed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from bench.fleet.observed import class_of
from bench.format import memory_text
from bench.judge.flags import OVERHEAD
from bench.judge.work_class import LEAST_INTENSITY
from bench.store import parquet

PRODUCT, LINK, CACHE = "matrix multiplications in ", "link, ", "cache, "
"""How the names of kinds begin of which there are several."""
PRODUCTS = ("gemm", "linear")
STREAMING = ("stream", "elementwise", "activations")
"""Operators whose fastest rows go through memory once."""
CACHES = 4
"""Memory's rates are of rows that move at least so many times what the last-level cache holds."""
READ, COPY = (0.0, 0.1), (0.3, 0.6)
"""Shares of written bytes of a read, and of a copy or a layer that writes as much as it reads."""
COLUMNS = (
    "device", "device_name", "device_kind", "device_id", "run_id", "utc", "source", "measured_in", "sweep",
    "role", "operator", "implementation", "arithmetic", "dtype", "parameters", "cache", "cache_byte",
    "threads_asked", "status", "median_s", "low_s", "high_s", "flop", "byte", "byte_written", "byte_moved",
    "clock_start_s", "clock", "protocol", "regime", "fill", "held_power", "held_thermal", "held_hardware",
    "held_sync", "throttled", "limit_reasons", "foreign_processes", "mig", "pressure",
    "on_processor", "steal",
)  # fmt: skip
"""What is read of result files."""


def read(paths: Iterable[Path], left_out: Callable[[str], object], ours: bool = False) -> pd.DataFrame:
    """The rows of these files that tell what a unit can do.

    Columns in addition to COLUMNS: `kind` (of work), `rate`, `rate_low`, `rate_high` (its 95 % interval; the
    rate where there is none) and `who` measured it, empty of ours. Left out are rows without a time, of one
    thread, that were taken from an earlier run, of others whose time is mostly the launch (with `ours` all of
    others), and what no single part of the device limits. UserError as for `bench.store.parquet.tables`.
    """
    every = [table.select(COLUMNS) for _, table in parquet.tables(paths, left_out, COLUMNS)]
    rows: pd.DataFrame = pa.concat_tables(every, promote_options="permissive").to_pandas(use_threads=False)
    sound = (rows["status"] == "ok") & (rows["median_s"] > 0) & (rows["threads_asked"] != "one")
    sound &= rows["operator"].isin([*PRODUCTS, *STREAMING, "launch", "transfer"])
    sound &= rows["role"].isin(["measurement", "roof", "calibration"]) & rows["measured_in"].isna()
    rows = rows[sound & rows["source"].isna() if ours else sound]
    launched = rows["median_s"] < OVERHEAD * rows["clock_start_s"].astype(float).fillna(0.0)
    rows = rows[~(launched & rows["source"].notna())].reset_index(drop=True)
    # A warm cache holds none of what is much larger than it, and matters little to a product of many sums.
    cold = rows.assign(cache=rows["cache"].where(rows["byte"] < rows["cache_byte"], "cold"))
    rows["class"] = class_of(cold).astype(str)
    rows["kind"] = _kinds(rows)
    rows["who"] = [source.partition(";")[0] if isinstance(source, str) else "" for source in rows["source"]]
    counts_flop = rows["kind"].str.startswith(PRODUCT)
    amount = np.select([rows["class"] == "launch", counts_flop], [1.0, rows["flop"]], rows["byte"])
    rows["rate"] = amount / rows["median_s"]
    for end, other in (("low", "high_s"), ("high", "low_s")):
        rows[f"rate_{end}"] = rows["rate"] * (rows["median_s"] / rows[other].astype(float)).fillna(1.0)
    return rows[rows["kind"] != ""].reset_index(drop=True)


def _kinds(rows: pd.DataFrame) -> pd.Series:
    """The name of each row's kind of work; empty for one that tells nothing of a single part."""
    klass, dtype = rows["class"], rows["dtype"]
    product = rows["operator"].isin(PRODUCTS) & (rows["arithmetic"] == "matrix")
    intense = product & (rows["flop"] >= LEAST_INTENSITY["cuda"] * rows["byte"])
    large = rows["byte"] >= CACHES * rows["cache_byte"]
    words = partial(np.array, dtype=object)
    written = rows["byte_written"] / rows["byte"].where(rows["byte"] > 0)
    streaming = rows["operator"].isin(STREAMING) & (klass == "memory") & large
    kinds: Sequence[tuple[Any, Any]] = (
        (klass == "launch", "launch"),
        (klass == "transfer", words([_direction(text) for text in rows["parameters"]])),
        (
            (klass == "cache") & (rows["operator"] == "stream"),
            words([f"{CACHE}{memory_text(byte)}" for byte in rows["byte"]]),
        ),
        (intense, words([f"{PRODUCT}{name}" for name in dtype])),
        (product & (klass == "memory") & large, "narrow matrix multiplication"),
        (streaming & written.between(*READ), "memory, read"),
        (streaming & written.between(*COPY), "memory, copy"),
    )
    which, names = zip(*kinds, strict=True)
    return pd.Series(np.select(which, names, ""), index=rows.index)


def _direction(parameters: str) -> str:
    """`link, host to device`; empty for a copy of both ways at once, or of pageable memory."""
    given = json.loads(parameters)
    direction = given.get("direction", "both")
    if direction == "both" or given.get("memory") == "pageable":
        return ""
    return f"{LINK}{direction.replace('-', ' ')}"


def unit_of(kind: str) -> str:
    """The unit of its rates. Those of launches are a second each, and shown as times."""
    if kind == "launch":
        return "1/s"
    return "FLOP/s" if kind.startswith(PRODUCT) else "byte/s"


def dtype_of(kind: str) -> str:
    """The data type of products; empty for other kinds."""
    return kind.removeprefix(PRODUCT) if kind.startswith(PRODUCT) else ""
