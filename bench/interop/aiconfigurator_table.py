"""One table of the package aiconfigurator-core: what in it is a sound time of a bfloat16 linear layer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

from bench.errors import UserError

COLUMNS = (
    "framework",
    "version",
    "device",
    "op_name",
    "kernel_source",
    "gemm_dtype",
    "m",
    "n",
    "k",
    "latency",
)
LINEAR = ("torch.nn.functional.linear", "vllm_default")
"""What runs, as the tables call it; the second is what older ones call all they hold."""
GPUS = ("NVIDIA ", "Tesla ")
"""What the names of NVIDIA's GPUs begin with."""

Say = Callable[[str], object]


@dataclass(frozen=True)
class Timings:
    """What one GPU took under one version of vLLM."""

    device: str
    """As its driver gives it."""
    version: str
    shapes: pd.DataFrame
    """`m`, `n`, `k` as the table has them, and `seconds`: one row a shape, by size."""


def timings(path: Path, say: Say) -> Iterator[Timings]:
    """Every GPU's times in one table. `say` is told what is left out, a sentence each.

    UserError if the table cannot be read, or has nothing that could be imported.
    """
    linear = _linear(_read(path), path, say)
    for (device, version), some in linear.groupby(["device", "version"], sort=True):
        if not str(device).startswith(GPUS):
            say(f"left out {path}: {device} is no NVIDIA GPU")
            continue
        sound = _sound(some, path, say)
        if not sound.empty:
            yield Timings(str(device), str(version), sound)


def _read(path: Path) -> pd.DataFrame:
    try:
        frame: pd.DataFrame = pq.read_table(path).to_pandas()
    except Exception as error:  # what a reader raises over bytes that mean nothing is anybody's guess
        said = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(f"left out {path}: not a whole parquet file ({said})") from error
    if lacking := [name for name in COLUMNS if name not in frame.columns]:
        there = ", ".join(map(str, frame.columns))
        raise UserError(f"left out {path}: lacks the column {lacking[0]}; it has {there}")
    return frame


def _linear(frame: pd.DataFrame, path: Path, say: Say) -> pd.DataFrame:
    """The bfloat16 rows that torch's linear layer ran; other types have kernels of vLLM's own."""
    frame = frame[(frame["gemm_dtype"] == "bfloat16") & (frame["op_name"] == "gemm")]
    ours = frame["kernel_source"].isin(LINEAR)
    if not ours.all():
        others = ", ".join(sorted(frame["kernel_source"][~ours].astype(str).unique()))
        say(f"left out {int((~ours).sum())} rows of {path}: run by {others}, not by {LINEAR[0]}")
    if not ours.any():
        raise UserError(f"left out {path}: holds no bfloat16 row of {LINEAR[0]}")
    return frame[ours]


def _sound(table: pd.DataFrame, path: Path, say: Say) -> pd.DataFrame:
    """Rows that have a size and a time.

    Of several times of one shape the median counts: nothing says which of them is the better one.
    """
    numbers = table[["m", "n", "k", "latency"]].apply(pd.to_numeric, errors="coerce").astype(np.float64)
    sizes, latency_ms = numbers[["m", "n", "k"]], numbers["latency"]
    whole = ((sizes >= 1) & (sizes % 1 == 0)).all(axis=1)
    sound = numbers[whole & np.isfinite(latency_ms) & (latency_ms > 0)]
    if len(sound) < len(table):
        say(f"left out {len(table) - len(sound)} rows of {path}: without whole sizes or a time above zero")
    once = sound.groupby(["m", "n", "k"], sort=True)["latency"].median().reset_index()
    if len(once) < len(sound):
        say(f"{path}: {len(sound) - len(once)} rows repeat a shape; the median of its times counts")
    sized = once.astype({"m": np.int64, "n": np.int64, "k": np.int64})
    return pd.DataFrame({**{name: sized[name] for name in "mnk"}, "seconds": once["latency"] / 1e3})
