"""The highest rate of each kind of work in each run: what a unit can do, whoever measured it.

A kind of work is one that a single part of the device limits: matrix multiplications of a data type (its
arithmetic), a read or a copy of more than its caches hold and a narrow matrix multiplication (its memory), a
copy inside a cache, an empty kernel (its launch), a copy over the link to the host. Of a run the fastest row
of each kind counts: shapes differ between those who measure, and the fastest is what the part allowed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from bench.fleet.observed import CASE, class_of
from bench.format import memory_text
from bench.judge.flags import OVERHEAD, disturbances
from bench.judge.noise import usual_half
from bench.judge.work_class import LEAST_INTENSITY, WorkClass
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
ALIKE = ("device", "cache_byte", "driver", *CASE)
"""Columns that are equal in rows of one case on one kind of device: virtual machines of one name have
processors with other caches, and hosts with other kernels, between which the rate of a product differs 35
times."""
NO_INTERVAL = "no interval: too few samples"
"""Why a row is not fit to be judged that nothing disturbed."""
COLUMNS = (
    "device", "device_name", "device_kind", "device_id", "run_id", "utc", "source", "measured_in", "sweep",
    "role", "operator", "implementation", "arithmetic", "dtype", "parameters", "cache", "cache_byte",
    "threads_asked", "status", "median_s", "low_s", "high_s", "noise_runs", "noise_visits", "visits",
    "flop", "byte", "byte_written", "byte_moved", "clock_start_s", "clock", "driver", "protocol", "regime",
    "fill",
    "held_power", "held_thermal", "held_hardware", "held_sync", "throttled", "limit_reasons",
    "foreign_processes", "mig", "pressure", "on_processor", "steal",
)  # fmt: skip
"""What is read of result files."""


def read(paths: Iterable[Path], left_out: Callable[[str], object], ours: bool = False) -> pd.DataFrame:
    """The rows of these files that tell what a unit can do.

    Columns in addition to COLUMNS: `kind` (of work), `case` (equal where ALIKE are), `rate`, `rate_low`,
    `rate_high` (where 95 of 100 runs find it), `unfit` (why it is not fit to be judged, empty if it is) and
    `who` measured it, empty of ours.
    Left out are rows without a time, of one thread, that were taken from an earlier run, of others whose time
    is mostly the launch (with `ours` all of others), and what no single part of the device limits. UserError
    as for `bench.store.parquet.tables`.
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
    rows["case"] = ["\n".join(map(str, row)) for row in rows[list(ALIKE)].to_numpy()]
    rows["who"] = [source.partition(";")[0] if isinstance(source, str) else "" for source in rows["source"]]
    counts_flop = rows["kind"].str.startswith(PRODUCT)
    amount = np.select([rows["class"] == "launch", counts_flop], [1.0, rows["flop"]], rows["byte"])
    rows["rate"] = amount / rows["median_s"]
    rows = rows[rows["kind"] != ""].reset_index(drop=True)
    known = rows.astype(object).where(rows.notna(), None)  # as in a Measurement
    fitness = [_fitness(row) for row in known.itertuples(index=False)]
    low_s, high_s, rows["unfit"] = np.array(fitness, dtype=object).reshape(-1, 3).T
    for end, other_s in (("low", high_s), ("high", low_s)):
        rows[f"rate_{end}"] = rows["rate"] * rows["median_s"] / other_s.astype(float)
    return rows


def _fitness(row: Any) -> tuple[float, float, str]:
    """The ends of the row's interval between runs, seconds, NaN if unknown, and why it is not fit."""
    ends_s = (math.nan, math.nan)
    if row.low_s and row.high_s and row.low_s <= row.median_s <= row.high_s < math.inf:
        ends_s = row.low_s, row.high_s
        if row.noise_runs is None:  # older: what its visits differ by, and nothing of other runs
            most = math.exp(usual_half(row))
            ends_s = min(row.low_s, row.median_s / most), max(row.high_s, row.median_s * most)
    why = disturbances(row) or [NO_INTERVAL] * math.isnan(ends_s[0])
    return *ends_s, ", ".join(why)


def _kinds(rows: pd.DataFrame) -> pd.Series:
    """The name of each row's kind of work; empty for one that tells nothing of a single part."""
    klass = rows["class"]
    product = rows["operator"].isin(PRODUCTS) & (rows["arithmetic"] == "matrix")
    intense = product & (rows["flop"] >= LEAST_INTENSITY["cuda"] * rows["byte"])
    memory = (klass == WorkClass.MEMORY) & (rows["byte"] >= CACHES * rows["cache_byte"])
    written = rows["byte_written"] / rows["byte"].where(rows["byte"] > 0)
    streaming = memory & rows["operator"].isin(STREAMING)
    # Not of a copy of both ways at once, nor of pageable memory.
    way = rows["parameters"].str.extract(r'"direction": ?"(\w+-to-\w+)"', expand=False)
    way = way.mask(rows["parameters"].str.contains("pageable"))
    kind = pd.Series("", index=rows.index, dtype=object)
    kind = kind.mask(streaming & written.between(*COPY), "memory, copy")
    kind = kind.mask(streaming & written.between(*READ), "memory, read")
    kind = kind.mask(product & memory, "narrow matrix multiplication")
    kind = kind.mask(intense, PRODUCT + rows["dtype"])
    cached = (klass == WorkClass.CACHE) & (rows["operator"] == "stream")
    kind = kind.mask(cached, CACHE + rows["byte"].map(memory_text).astype(str))
    kind = kind.mask(klass == WorkClass.TRANSFER, LINK + way.str.replace("-", " "))
    return kind.mask(klass == WorkClass.LAUNCH, "launch").fillna("")


def unit_of(kind: str) -> str:
    """The unit of its rates. Those of launches are a second each, and shown as times."""
    if kind == "launch":
        return "1/s"
    return "FLOP/s" if kind.startswith(PRODUCT) else "byte/s"


def dtype_of(kind: str) -> str:
    """The data type of products; empty for other kinds."""
    return kind.removeprefix(PRODUCT) if kind.startswith(PRODUCT) else ""
