"""What devices achieve by class of work, and what their datasheets promise.

These are rates: cases need not be common to two devices, so times of any source may stand side by side. A
class counts the rows that its limit decides: layers bound by memory of at least `LARGE` times the last-level
cache, and others whose arithmetic takes at least `CLEAR` times as long as their bytes by the datasheet.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.device.datasheet import Datasheet
from bench.judge.frame import DeviceRun
from bench.store.schema import Measurement

LARGE, CLEAR = 4, 2
MIDDLE = (0.1, 0.5, 0.9)
"""Quantiles of a class's rates."""
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


@dataclass(frozen=True)
class Achieved:
    """The rates of one class of work on one device."""

    device: str
    work: str
    width: str
    """Data types; empty for layers bound by memory, whose bytes count."""
    rows: int
    low: float
    median: float
    high: float
    best: float
    """Bytes/s of layers bound by memory, else FLOP/s."""
    stated: float | None
    """What the datasheet promises: its bandwidth, or the highest peak of these data types."""
    watts: float | None
    """The median power of these rows; None unless all tell it."""


def achieved(measured_runs: Sequence[DeviceRun]) -> list[Achieved]:
    """The rates by class, data types and device, from the oldest compute capability on, those of AMD last.

    Rows without a time, suspect ones and devices without a datasheet are left out. Of a pass over memory that
    was timed with several shapes of a launch the fastest counts.
    """
    sheets = {run.device: run.datasheet for run in measured_runs if run.datasheet is not None}
    reached: dict[tuple[str, str, str], list[tuple[float, float, float | None]]] = defaultdict(list)
    for run in measured_runs:
        for row in _fastest(run) if run.device in sheets else ():
            if found := _rate(row, sheets[run.device]):
                work, width, rate, stated = found
                reached[work, width, run.device].append((rate, stated, row.power_w))
    order = itertools.product(dict.fromkeys(CLASSES.values()), ["", *WIDTHS.values()], by_age(sheets))
    shown = []
    for work, width, device in dict.fromkeys(order):
        if rows := reached.get((work, width, device)):
            of, promises, powers = zip(*rows, strict=True)
            low, median, high = map(float, np.quantile(of, MIDDLE))
            promised = max(promises) or None
            watts = None if None in powers else float(np.median(powers))
            shown.append(Achieved(device, work, width, len(of), low, median, high, max(of), promised, watts))
    return shown


def _fastest(run: DeviceRun) -> Iterator[Measurement]:
    """The run's sound rows; of those of the operator stream only the fastest of each size."""
    passes: dict[str, Measurement] = {}
    for row in run.sound:
        if row.operator != "stream":
            yield row
        else:
            before = passes.get(row.parameters, row)
            passes[row.parameters] = min(before, row, key=lambda each: each.median_s or 0.0)
    yield from passes.values()


def by_age(sheets: Mapping[str, Datasheet | None]) -> list[str]:
    """Devices by compute capability, then by bandwidth; then those without one, then without a datasheet."""

    def age(device: str) -> tuple[Any, ...]:
        if (sheet := sheets[device]) is None:
            return (True,)
        return False, sheet.capability or (99, 0), sheet.bandwidth_byte_per_s or 0.0, device

    return sorted(sheets, key=age)


def _rate(row: Measurement, sheet: Datasheet) -> tuple[str, str, float, float] | None:
    """(class, data types, rate, what the datasheet promises) of a row that its class's limit decides."""
    work, width = CLASSES.get(row.operator), WIDTHS.get(row.dtype)
    if work is None or row.median_s is None or row.role != "measurement":
        return None
    bandwidth = sheet.bandwidth_byte_per_s or 0.0
    if work == LAYERS:
        return (work, "", row.byte / row.median_s, bandwidth) if row.byte >= LARGE * sheet.l2_byte else None
    peak = sheet.peak_flop_per_s(row.arithmetic, row.dtype) or 0.0
    if width is None or not (peak and bandwidth) or row.flop / peak < CLEAR * row.byte / bandwidth:
        return None
    return work, width, row.flop / row.median_s, peak
