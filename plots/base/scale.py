"""Scales, ticks and units of axes: for powers of two, neighbouring integers, ratios and times."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backend_bases import RendererBase
from matplotlib.lines import Line2D
from matplotlib.markers import TICKDOWN, TICKLEFT, MarkerStyle
from matplotlib.ticker import (
    FixedLocator,
    Formatter,
    FuncFormatter,
    LogLocator,
    MaxNLocator,
    MultipleLocator,
    NullLocator,
)

from plots.base import style

WIDE = 16
"""Values that span more than this factor get a logarithmic axis."""


_RATIOS = (
    *(1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 0.01, 0.02, 0.05, 0.1, 0.2, 0.33, 0.5, 0.7, 0.8, 0.9, 0.95),
    *(1.05, 1.1, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1e3, 2e3, 5e3, 1e4),
)
"""Ticks that an axis of ratios may have."""
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
        _set_log(axis)
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
        _small_ticks(axis, _whole)
    elif distinct.size <= most:
        axis.set_major_locator(FixedLocator(distinct.tolist()))
    else:
        axis.set_major_locator(MaxNLocator(most, integer=whole))
    axis.set_major_formatter(labels)


def measured(axis: Axis, values: np.ndarray, log: bool) -> None:
    """Scale and ticks of a y axis with these numbers on it; the caller makes a linear one start at 0."""
    if log:
        _set_log(axis)
        _decades(axis, values[np.isfinite(values)], 6)
    else:
        axis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
        axis.set_major_formatter(_Alike())


def ratio(axes: Axes, values: np.ndarray | Sequence[float], most: int) -> None:
    """A logarithmic y axis of ratios that holds 1 and all of these, with about `most` ticks.

    There is always one at 1; others are those of _RATIOS nearest to it.
    """
    given = np.asarray(values, dtype=float)
    positive = [1.0, *given[np.isfinite(given) & (given > 0)]]
    margin = max((max(positive) / min(positive)) ** 0.08, 1.05)
    low, high = min(positive) / margin, max(positive) * margin
    apart = math.log(high / low) / most
    kept = [1.0]
    for tick in sorted(_RATIOS, key=lambda value: abs(math.log(value))):
        if low <= tick <= high and all(abs(math.log(tick / other)) >= apart for other in kept):
            kept.append(tick)
    axes.set_yscale("log")
    axes.set_ylim(low, high)
    axes.yaxis.set_major_locator(FixedLocator(kept))
    axes.yaxis.set_major_formatter(FuncFormatter(plain))
    axes.yaxis.set_minor_locator(NullLocator())


def _set_log(axis: Axis) -> None:
    scale = axis.axes.set_xscale if axis.axis_name == "x" else axis.axes.set_yscale  # type: ignore[attr-defined]
    scale("log")


def _decades(axis: Axis, values: np.ndarray, most: int) -> None:
    """Ticks at 1, 10, 100, with 2 and 5 between them where there is room."""
    decades = math.log10(float(values.max()) / float(values.min())) if values.size else 1.0
    axis.set_major_locator(
        LogLocator(10, subs=(1.0, 2.0, 5.0) if decades * 3 <= most else (1.0,), numticks=most + 2)
    )
    axis.set_major_formatter(_Alike())
    _small_ticks(axis, _between_decades)


class SmallTicks(Line2D):
    """Small ticks of an axis as one line of markers, since matplotlib makes five artists of each tick.

    They are placed when drawn, as the limits of the axis are known only then.
    """

    def __init__(self, axis: Axis, between: Callable[[float, float], np.ndarray]) -> None:
        """`between` gives the places from the lower to the upper limit of the axis."""
        across = axis.axis_name == "x"  # type: ignore[attr-defined]
        super().__init__([], [], ls="", marker=MarkerStyle(TICKDOWN if across else TICKLEFT), ms=2, mew=0.6)
        self.set_color("black")
        self._axis, self._between, self._across = axis, between, across
        axes = axis.axes
        self.set(transform=axes.get_xaxis_transform() if across else axes.get_yaxis_transform())
        self.set(clip_on=False, label="_small_ticks", zorder=2.0)

    def places(self) -> np.ndarray:
        """Places of the ticks, in data coordinates."""
        return self._between(*sorted(self._axis.get_view_interval()))

    def draw(self, renderer: RendererBase) -> None:
        """Draw the ticks between the present limits of the axis."""
        at = self.places()
        self.set_data(*((at, np.zeros_like(at)) if self._across else (np.zeros_like(at), at)))
        super().draw(renderer)


def _small_ticks(axis: Axis, between: Callable[[float, float], np.ndarray]) -> None:
    axis.set_minor_locator(NullLocator())
    axis.axes.add_artist(SmallTicks(axis, between))


def _between_decades(low: float, high: float) -> np.ndarray:
    """2, 3 ... 9 of each power of ten."""
    powers = 10.0 ** np.arange(math.floor(math.log10(low)), math.ceil(math.log10(high)))
    at = np.outer(powers, np.arange(2, 10)).ravel()
    return at[(at >= low) & (at <= high)]


def _whole(low: float, high: float) -> np.ndarray:
    return np.arange(math.ceil(low), math.floor(high) + 1, dtype=float)


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


def short(value: float) -> str:
    """A short text of a value: six digits and more as Ki or Mi where that is exact."""
    return _binary(value) if value >= 2**17 and value % 2**10 == 0 else style.number(value)


def plain(value: float, _: object = None) -> str:
    """A tick's label: 0.05, 2, 1e+06."""
    return f"{value:g}"


def _binary(value: float, _: object = None) -> str:
    """16384 as 16 Ki, 1048576 as 1 Mi."""
    for power, prefix in ((30, "Gi"), (20, "Mi"), (10, "Ki")):
        if value >= 2**power:
            return f"{value / 2**power:g} {prefix}"
    return f"{value:g}"
