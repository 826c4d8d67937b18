"""Scales, ticks and units of axes: for powers of two, neighbouring integers, ratios and times."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.axis import Axis
from matplotlib.ticker import (
    FixedLocator,
    Formatter,
    FuncFormatter,
    LogLocator,
    MaxNLocator,
    MultipleLocator,
    NullFormatter,
    NullLocator,
)

WIDE = 16
"""Values that span more than this factor get a logarithmic axis."""


_UNITS: Mapping[str, Sequence[tuple[float, float, str]]] = {
    "s": ((2.0, 1.0, "s"), (2e-3, 1e3, "ms"), (2e-6, 1e6, "µs"), (2e-9, 1e9, "ns"), (0.0, 1e12, "ps")),
    "flop/s": ((2e12, 1e-12, "TFLOP/s"), (1e9, 1e-9, "GFLOP/s"), (0.0, 1e-6, "MFLOP/s")),
    "byte/s": ((1e9, 1e-9, "GB/s"), (0.0, 1e-6, "MB/s")),
}


def scaled(values: pd.Series, unit: str) -> tuple[float, str]:
    """The factor on these SI values and the unit with which most of them are easy to read.

    `unit` is `s`, `flop/s` or `byte/s`. Times span decades and go by their median, rates by the largest.
    """
    typical = float(values.median() if unit == "s" else values.max()) if values.notna().any() else 0.0
    for least, factor, name in _UNITS[unit]:
        if typical >= least:
            return factor, name
    raise AssertionError(f"{typical} {unit} is negative")


def spans_far(values: np.ndarray) -> bool:
    """Whether the values need a logarithmic axis."""
    finite = values[np.isfinite(values)]
    return finite.size > 0 and float(finite.min()) > 0 and float(finite.max()) > WIDE * float(finite.min())


def swept(axis: Axis, values: np.ndarray, log: bool, width_in: float) -> None:
    """Scale and ticks of an x axis with these numbers on it, `width_in` inches wide.

    Powers of two are the ticks if all values are such. Neighbouring integers (an alignment sweep) get a small
    tick each, and a labelled one at the multiples of 8.
    """
    distinct = np.unique(values[np.isfinite(values)])
    most = max(2, int(width_in / 0.45))
    whole = distinct.size > 0 and bool((distinct == np.round(distinct)).all())
    powers = whole and float(distinct.min()) >= 1 and all(int(v).bit_count() == 1 for v in distinct)
    labels = FuncFormatter(_binary) if powers and distinct.max() >= 2**17 else _Alike()
    if log and distinct.size > 1:  # a single value has no span that a logarithmic axis could be made of
        axis.axes.set(**{f"{axis.axis_name}scale": "log"})  # type: ignore[attr-defined]
        if powers:
            octaves = math.log2(distinct.max() / distinct.min())
            every = math.ceil(octaves / most) or 1
            distinct = float(distinct.min()) * 2.0 ** (every * np.arange(round(octaves) // every + 1))
        elif distinct.size > 4 or float((distinct[1:] / distinct[:-1]).min()) <= 1.5:
            _decades(axis, distinct, most)
            return
        axis.set_major_locator(FixedLocator(distinct.tolist()))
        axis.set_major_formatter(labels)
        axis.set_minor_locator(NullLocator())
        return
    if whole and distinct.size >= 8 and float(np.diff(distinct).min()) == 1 and np.ptp(distinct) <= 8 * most:
        axis.set_major_locator(MultipleLocator(8))
        axis.set_minor_locator(MultipleLocator(1))
    elif distinct.size <= most:
        axis.set_major_locator(FixedLocator(distinct.tolist()))
    else:
        axis.set_major_locator(MaxNLocator(most, integer=whole))
    axis.set_major_formatter(labels)


def measured(axis: Axis, values: np.ndarray, log: bool) -> None:
    """Scale and ticks of a y axis with these numbers on it; the caller makes a linear one start at 0."""
    if log:
        axis.axes.set(**{f"{axis.axis_name}scale": "log"})  # type: ignore[attr-defined]
        _decades(axis, values[np.isfinite(values)], 6)
    else:
        axis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
        axis.set_major_formatter(_Alike())


def _decades(axis: Axis, values: np.ndarray, most: int) -> None:
    """Ticks at 1, 10, 100, with 2 and 5 between them where there is room."""
    decades = math.log10(float(values.max()) / float(values.min())) if values.size else 1.0
    axis.set_major_locator(
        LogLocator(10, subs=(1.0, 2.0, 5.0) if decades * 3 <= most else (1.0,), numticks=most + 2)
    )
    axis.set_major_formatter(_Alike())
    axis.set_minor_locator(LogLocator(10, subs=range(2, 10), numticks=100))
    axis.set_minor_formatter(NullFormatter())


class _Alike(Formatter):
    """Labels that write the numbers of an axis in one way: 1000 and 100000, or up to millions 1 k and 1 M."""

    def __call__(self, x: float, pos: int | None = None) -> str:
        """The label of a tick."""
        assert self.axis is not None
        if max(map(abs, self.axis.get_view_interval())) >= 10**6:
            for power, prefix in ((15, "P"), (12, "T"), (9, "G"), (6, "M"), (3, "k")):
                if abs(x) >= 10**power:
                    return f"{x / 10**power:.4g} {prefix}"
        return f"{x:.10g}"


def _binary(value: float, _: object = None) -> str:
    """16384 as 16 Ki, 1048576 as 1 Mi."""
    for power, prefix in ((30, "Gi"), (20, "Mi"), (10, "Ki")):
        if value >= 2**power:
            return f"{value / 2**power:g} {prefix}"
    return f"{value:g}"
