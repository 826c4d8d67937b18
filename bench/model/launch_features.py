"""Launches of any operator as numbers, in terms that mean the same on every GPU.

A launch's *base* is its start and the longer of moving its bytes, at the bandwidth that a copy reaches or
that its few blocks draw, and computing at the datasheet's peak. The other features are the sizes
themselves and what decides how far from its base a launch ends up:

    rows of a softmax or normalization    bytes of the rows in flight on all SMs against the last-level cache
                                          (a row that leaves it is read again), how full blocks and waves
                                          are, whether rows begin where wide loads may
    channels of a batch normalization     channels for each SM, values of each channel
    products, convolutions                waves of common tiles and how full they are, edges of tiles,
                                          alignment, bytes of the panels in flight against the cache
    device                                bytes and FLOP of an SM in one clock, memory against cache,
                                          generation, kind of memory

Times are in seconds, sizes in bytes; the rows' columns are those of a result file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from bench.device.datasheet import Datasheet
from bench.spec import ITEM_BYTE, PACKED

COLUMNS = (
    *("device_name", "run_id", "operator", "implementation", "dtype", "arithmetic", "cache", "parameters"),
    *("source", "median_s", "clock_start_s", "flop", "byte", "byte_written", "byte_moved"),
    *("special_functions", "product_m", "product_n", "product_k"),
)
"""Columns of a result file that are read."""
PARAMETER = "p."
"""Begins the column of a parameter, so that `rows` of a softmax is no column of the table."""
START_S = 3e-6
"""What a launch takes on top of its work where its row does not say."""
DRAWN_SHARE, DRAWN_BYTE = 1.4, 5.0
"""What one SM draws from memory: so many times its share of the bandwidth, so many bytes a clock at least
(the priors of bench/model/calibration.py)."""
TILES = ((64, 64), (128, 64), (128, 128), (256, 128))
"""Tiles of a product whose waves are counted; kernels/gemm and the libraries have these."""
MOST_THREADS = 1024
"""Threads of a block at most."""
THREADS_OF_SM = {(7, 5): 1024, (8, 6): 1536, (8, 9): 1536, (12, 0): 1536}
"""Compute capability -> threads that an SM holds where that is not 2,048 (CUDA C++ Programming Guide, table
of technical specifications)."""
_NO_SIZE = ("dtype",)


@dataclass(frozen=True)
class Vocabulary:
    """The parameters and words of the rows that a model is learned from, in the order of its features."""

    sizes: tuple[str, ...]
    """Parameters that are numbers."""
    words: Mapping[str, Mapping[str, int]]
    """Column of a word -> word -> its number."""

    @classmethod
    def of(cls, rows: pd.DataFrame) -> Vocabulary:
        """The vocabulary of rows with columns of parameters, as `with_parameters` gives them."""
        given = [
            name for name in map(str, rows.columns) if name.startswith(PARAMETER) and rows[name].notna().any()
        ]
        numbers = [name for name in given if _is_size(rows[name])]
        spelled = (name for name in given if name not in numbers)
        words = {
            name: {word: i for i, word in enumerate(sorted(_text(rows[name]).unique()))}
            for name in ("operator", "implementation", "dtype", "cache", *spelled)
        }
        if len(words["operator"]) > 1:
            numbers = []  # each has its own; what products have in common are their sides
        return cls(tuple(numbers), {name: known for name, known in words.items() if len(known) > 1})


def with_parameters(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows with a column for each parameter, `p.NAME`; None where an operator has no such parameter."""
    parsed = {text: json.loads(text) for text in rows["parameters"].unique()}
    names = sorted({name for given in parsed.values() for name in given} - set(_NO_SIZE))
    columns = {PARAMETER + name: [parsed[text].get(name) for text in rows["parameters"]] for name in names}
    return pd.concat([rows, pd.DataFrame(columns, index=rows.index)], axis=1)


def features(
    rows: pd.DataFrame,
    sheets: Mapping[str, Datasheet],
    shares: Mapping[str, float],
    of_peak: Mapping[tuple[str, str, str], float],
    vocabulary: Vocabulary,
) -> tuple[pd.DataFrame, pd.Series]:
    """(features, a column each; base in seconds) of rows of one operator, with columns of parameters.

    `sheets` and `shares` (of the datasheet's bandwidth, as a copy reaches it) are by device name; `of_peak`
    is the share of the peak that products reach, by device name, operator and data type.
    """
    gpu = pd.DataFrame({name: _facts(sheet) for name, sheet in sheets.items()}).T.astype(float)
    gpu = gpu.loc[rows["device_name"]].set_index(rows.index)
    reached = gpu["bandwidth"] * rows["device_name"].map(shares)
    peak = peaks(rows, sheets)
    item = rows["dtype"].map(lambda dtype: ITEM_BYTE[dtype] / PACKED.get(dtype, 1)).astype(float)
    start_s = rows["clock_start_s"].astype(float).fillna(START_S)
    by_blocks = np.minimum(_blocks(rows), gpu["sm"]) * np.maximum(
        DRAWN_SHARE * reached / gpu["sm"], DRAWN_BYTE * gpu["clock"]
    )
    kinds = zip(rows["device_name"], rows["operator"], rows["dtype"], strict=True)
    share = pd.Series([of_peak[kind] for kind in kinds], index=rows.index)
    moving_s = rows["byte_moved"] / np.minimum(reached, by_blocks)
    computing_s = rows["flop"] / (peak * share)
    base = start_s + np.maximum(moving_s, computing_s)
    byte = rows["byte_moved"].clip(lower=1)
    features: dict[str, pd.Series] = {name: _log(rows[name]) for name in vocabulary.sizes}
    for name, words in vocabulary.words.items():
        features[f"is {name}"] = _text(rows[name]).map(words).fillna(-1)
    features |= {
        "base": _log(base),
        "computing to moving": _log((computing_s / moving_s).clip(lower=1e-6)),
        "bytes to cache": _log(byte / gpu["cache"]),
        "start to base": start_s / base,
        "special functions to bytes": rows["special_functions"].astype(float).fillna(0.0) / byte,
        "written": rows["byte_written"] / rows["byte"].clip(lower=1),
        "bytes of an SM in a clock": _log(reached / gpu["sm"] / gpu["clock"]),
        "FLOP of an SM in a clock": _log(peak / gpu["sm"] / gpu["clock"]),
        "memory to cache": _log(gpu["bandwidth"] / gpu["cache"]),
        "SMs": _log(gpu["sm"]),
        **{name: gpu[name] for name in ("generation", "threads", "AMD", "HBM")},
    }
    if PARAMETER + "length" in rows and PARAMETER + "rows" in rows:
        features |= _of_rows(rows, gpu, item)
    if {PARAMETER + "c", PARAMETER + "h", PARAMETER + "n"} <= set(rows):
        features |= _of_channels(rows, gpu, item)
    if rows["product_m"].notna().all():
        features |= _of_products(rows, gpu, item)
    table = pd.DataFrame(features).astype(np.float32)
    return table.replace([np.inf, -np.inf], np.nan).fillna(-1.0), base


def _blocks(rows: pd.DataFrame) -> pd.Series:
    """Blocks of a launch where they can be fewer than SMs: one a row, or a channel that lies by itself."""
    if PARAMETER + "length" in rows and PARAMETER + "rows" in rows:
        return rows[PARAMETER + "rows"].astype(float)
    if (rows["operator"] == "batchnorm").all():
        apart = rows[PARAMETER + "layout"] == "NCHW"
        return rows[PARAMETER + "c"].astype(float).where(apart, np.inf)
    return pd.Series(np.inf, index=rows.index)


def near(table: pd.DataFrame) -> list[str]:
    """The features by which launches of one device resemble each other: sizes, words and their time."""
    by = ("base", "computing to moving", "bytes to cache", "unaligned")
    names = map(str, table.columns)
    return [name for name in names if name.startswith((PARAMETER, "is ", "product")) or name in by]


def _facts(sheet: Datasheet) -> dict[str, float]:
    major, minor = sheet.capability or (0, 0)
    return {
        "bandwidth": sheet.bandwidth_byte_per_s or np.nan,
        "cache": sheet.l2_byte,
        "sm": sheet.sm_count,
        "clock": sheet.boost_clock_hz or np.nan,
        "generation": major + minor / 10,
        "threads": THREADS_OF_SM.get((major, minor), 2048),
        "AMD": sheet.capability is None,
        "HBM": sheet.memory_type == "HBM",
    }


def peaks(rows: pd.DataFrame, sheets: Mapping[str, Datasheet]) -> pd.Series:
    """FLOP/s of each row's units; float16's matrix peak where the datasheet lacks its type."""
    kinds = list(zip(rows["device_name"], rows["arithmetic"], rows["dtype"], strict=True))
    by_kind = {
        (name, arithmetic, dtype): sheets[name].peak_flop_per_s(arithmetic, dtype)
        or sheets[name].peak_flop_per_s("matrix", "float16")
        or np.nan
        for name, arithmetic, dtype in set(kinds)
    }
    return pd.Series([by_kind[kind] for kind in kinds], index=rows.index, dtype=float)


def _of_rows(rows: pd.DataFrame, gpu: pd.DataFrame, item: pd.Series) -> dict[str, pd.Series]:
    """Features of a matrix that is processed row by row, each by a block."""
    length, count = (rows[PARAMETER + name].astype(float) for name in ("length", "rows"))
    block = (2 ** np.ceil(np.log2(length / 4))).clip(32, MOST_THREADS)
    at_once = gpu["sm"] * gpu["threads"] / block
    waves = count / at_once
    return {
        "bytes of a row": _log(length * item),
        "unaligned": (length % (16 / item) != 0).astype(float),
        "part of a warp": (length % 32 != 0).astype(float),
        **{f"fills {size}": length / (np.ceil(length / size) * size) for size in (1024, 4096)},
        "fills a power of 2": length / 2 ** np.ceil(np.log2(length)),
        "in flight to cache": _log(at_once * length * item / gpu["cache"]),
        "in flight on an SM": _log(gpu["threads"] / block * length * item),
        "waves": _log(waves),
        "last wave": waves / np.ceil(waves),
    }


def _of_channels(rows: pd.DataFrame, gpu: pd.DataFrame, item: pd.Series) -> dict[str, pd.Series]:
    """Features of images, whose channels are processed in turn or side by side."""
    batch, channels, height = (rows[PARAMETER + name].astype(float) for name in "nch")
    width = rows[PARAMETER + "w"].astype(float).fillna(1.0) if PARAMETER + "w" in rows else 1.0
    values = batch * height * width
    return {
        "channels of an SM": _log(channels / gpu["sm"]),
        "pixels": _log(height * width),
        "values of a channel": _log(values),
        "channel to cache": _log(values * item / gpu["cache"]),
    }


def _of_products(rows: pd.DataFrame, gpu: pd.DataFrame, item: pd.Series) -> dict[str, pd.Series]:
    m, n, k = (rows[f"product_{side}"].astype(float) for side in "mnk")
    count = (rows["flop"] / (2 * m * n * k)).clip(lower=1).round()
    features = {f"product {side}": _log(size) for side, size in zip("mnk", (m, n, k), strict=True)}
    features |= {
        f"alignment of {side}": (size % 2 != 0) * 1.0 + (size % 4 != 0) + (size % 8 != 0)
        for side, size in zip("mnk", (m, n, k), strict=True)
    }
    for tile_m, tile_n in TILES:
        waves = np.ceil(m / tile_m) * np.ceil(n / tile_n) * count / gpu["sm"]
        features |= {
            f"waves of {tile_m}x{tile_n}": _log(waves),
            f"last wave of {tile_m}x{tile_n}": waves / np.ceil(waves),
        }
    return features | {
        "products": _log(count),
        "longer side": _log(m / n).abs(),
        "edge of m": m / (np.ceil(m / 128) * 128),
        "edge of n": n / (np.ceil(n / 128) * 128),
        "panels to cache": _log(128 * k * item * np.sqrt(gpu["sm"]) / gpu["cache"]),
        "second operand to cache": _log(n * k * item / gpu["cache"]),
        "first operand to cache": _log(m * k * item / gpu["cache"]),
    }


def _is_size(column: pd.Series) -> bool:
    values = column.dropna().unique().tolist()
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def _text(column: pd.Series) -> pd.Series:
    return column.astype(object).fillna("").astype(str)


def _log(column: pd.Series) -> pd.Series:
    return pd.Series(np.log(column.astype(float).clip(lower=1e-12)), index=column.index)
