"""What devices achieve by class of work, and what their datasheets promise.

These are rates: cases need not be common to two devices, so times of any source may stand side by side. A
class counts the rows that its limit decides: layers bound by memory of at least `LARGE` times the last-level
cache, and others whose arithmetic takes at least `CLEAR` times as long as their bytes by the datasheet.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from bench.device.datasheet import Datasheet
from bench.judge.columns import Columns
from bench.judge.frame import DeviceRun

LARGE, CLEAR = 4, 2
LAYERS = "layers bound by memory"
CLASSES: Mapping[str, str] = {
    **dict.fromkeys(
        ("activations", "batchnorm", "elementwise", "fusion", "gated_activation", "layernorm", "pooling"),
        LAYERS,
    ),
    **dict.fromkeys(("rms_norm", "softmax", "stream"), LAYERS),
    **dict.fromkeys(("gemm", "linear"), "matrix multiplications"),
    "convolution": "convolutions",
    "attention": "attention",
    **dict.fromkeys(("recurrence", "recurrent"), "recurrent layers"),
}
"""Operator -> class of work."""
WIDTHS: Mapping[str, str] = {
    **{"float64": "float64", "float32": "float32", "tf32": "tf32"},
    **dict.fromkeys(("float16", "bfloat16"), "16 bits"),
    **dict.fromkeys(("float8_e4m3", "float8_e5m2", "int8", "mxfp8"), "8 bits"),
}
"""Data type -> the types that it is shown with."""

READ = ("operator", "parameters", "arithmetic", "dtype", "flop", "byte", "median_s", "power_w")
"""Columns of a row that its rate is made of."""


class Achieved(NamedTuple):
    """The rates of one class of work on one device."""

    device: str
    work: str
    width: str
    """Data types; empty for layers bound by memory, whose bytes count."""
    median: float
    """Bytes/s of layers bound by memory, else FLOP/s."""
    stated: float | None
    """What the datasheet promises: its bandwidth, or the highest peak of these data types."""
    watts: float | None
    """The median power of these rows; None unless all tell it."""


def achieved(rates: Iterable[pd.DataFrame | None], sheets: Mapping[str, Datasheet | None]) -> list[Achieved]:
    """The rates by class, data types and device, from the oldest compute capability on, those of AMD last.

    `rates` are those of each run (`rates_of`), `sheets` the datasheets of their devices.
    """
    known = [of_run for of_run in rates if of_run is not None]
    if not known:
        return []
    of = pd.concat(known).groupby(["work", "width", "device"])
    watts = of["power_w"].agg(lambda watts: watts.median(skipna=False))
    told = pd.concat([of["rate"].median(), of["stated"].max(), watts], axis=1).astype(object)
    numbers: dict[Any, list[Any]] = told.where(told.notna(), None).T.to_dict("list")
    order = itertools.product(dict.fromkeys(CLASSES.values()), dict.fromkeys(["", *WIDTHS.values()]))
    kinds = ((work, width, device) for work, width in order for device in by_age(sheets))
    return [Achieved(kind[2], *kind[:2], *numbers[kind]) for kind in kinds if kind in numbers]


def rates_of(run: DeviceRun) -> pd.DataFrame | None:
    """Class, data types, rate and what the datasheet promises of the sound rows that their limit decides.

    None without a datasheet. Of a pass over memory that was timed with several shapes of a launch the fastest
    counts.
    """
    if (sheet := run.datasheet) is None:
        return None
    rows = run.columns
    sound = (rows["median_s"] > 0) & ~run.suspect & (rows["role"] == "measurement")
    rows = rows.loc[sound & rows["operator"].isin(CLASSES), [*READ]].sort_values("median_s")
    passes = rows[rows["operator"] == "stream"]
    rows = rows.drop(passes.index[passes.duplicated("parameters")])
    of = Columns.of(rows[["operator", "arithmetic", "dtype"]])
    work, width = of["operator"].told(CLASSES.get), of["dtype"].told(lambda dtype: WIDTHS.get(dtype, ""))
    peak = np.full(of.count, math.nan)
    for unit, places in of.parts(("arithmetic", "dtype")):
        peak[places] = sheet.peak_flop_per_s(*unit) or math.nan
    bandwidth, layers = sheet.bandwidth_byte_per_s or math.nan, work == LAYERS
    clear = (width != "") & (rows["flop"] / peak >= CLEAR * rows["byte"] / bandwidth)
    columns = {
        **{"device": run.device, "work": work, "width": np.where(layers, "", width)},
        "rate": rows["byte"].where(layers, rows["flop"]) / rows["median_s"],
        "stated": np.where(layers, bandwidth, peak),
        "power_w": rows["power_w"].astype(float),
    }
    return pd.DataFrame(columns)[np.where(layers, rows["byte"] >= LARGE * sheet.l2_byte, clear)]


def by_age(sheets: Mapping[str, Datasheet | None]) -> list[str]:
    """Devices by compute capability, then by bandwidth; then those without one, then without a datasheet."""

    def age(device: str) -> tuple[Any, ...]:
        if (sheet := sheets[device]) is None:
            return (True,)
        return False, sheet.capability or (99, 0), sheet.bandwidth_byte_per_s or 0.0, device

    return sorted(sheets, key=age)
