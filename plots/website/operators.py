"""A page's part on one operator: its rate over its size on every device, and what the curve says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from matplotlib.lines import Line2D

from bench.device.datasheet import Datasheet
from bench.format import amount_text, count_text, memory_text, share_text
from bench.judge.achieved import by_age
from bench.judge.speedup import LINKED
from bench.model.roofline import WITHOUT_ROOF
from plots.base import scale, style
from plots.base.page import Page, PanelPage, Panels
from plots.figures.generations import BINS, binned

FEWEST = 5
"""Sizes below which points would be no curve."""
_WIDTH_IN, _HEIGHT_IN = 8.2, 3.4


class Curve(NamedTuple):
    """The rate of one device over the size of the work: medians of the cases of a bin."""

    device: str
    size: np.ndarray
    rate: np.ndarray
    stated: float | None
    """What the datasheet promises."""
    cases: int

    @property
    def best(self) -> float:
        """The highest rate of a bin."""
        return float(self.rate.max())

    @property
    def half_at(self) -> float:
        """The size of the smallest bin with half of it."""
        return float(self.size[self.rate >= self.best / 2].min())


class Drawn(NamedTuple):
    """The curves of an operator in one data type."""

    dtype: str
    rate: str
    """flop or byte."""
    curves: Sequence[Curve]


def drawn(rows: pd.DataFrame, sheets: Mapping[str, Datasheet | None]) -> Drawn | None:
    """The curves in the data type that most devices have; None without any.

    `rows` are those of one operator (`Run.rated`). At each problem the fastest implementation counts.
    """
    sound = rows[(rows["role"] == "measurement") & ~rows["suspect"] & (rows["rate_per_s"] > 0)]
    if sound.empty:
        return None
    dtype = sound.groupby("dtype")["device"].nunique().sort_index().idxmax()
    of_type = sound[sound["dtype"] == dtype].sort_values("rate_per_s", ascending=False)
    fastest = of_type.drop_duplicates(["device", "parameters", "cache", "threads_asked"])
    rate = str(fastest["rate"].iloc[0])
    curves = []
    for device in by_age(sheets):
        cases = fastest[(fastest["device"] == device) & (fastest[rate] > 0)]
        by_size = cases.groupby(rate)["rate_per_s"].median()
        size, middle = by_size.index.to_numpy(float), by_size.to_numpy(float)
        if len(size) > BINS:
            size, _, middle, _ = binned(cases[rate].to_numpy(float), cases["rate_per_s"].to_numpy(float))
        if len(size) >= FEWEST:
            operator, arithmetic = (str(cases[name].iloc[0]) for name in ("operator", "arithmetic"))
            stated = _stated(operator, sheets[device], rate, arithmetic, str(dtype))
            curves.append(Curve(device, size, middle, stated, len(cases)))
    return Drawn(str(dtype), rate, curves) if curves else None


def _stated(operator: str, sheet: Datasheet | None, rate: str, arithmetic: str, dtype: str) -> float | None:
    if sheet is None or arithmetic in WITHOUT_ROOF or operator in LINKED:
        return None
    return sheet.bandwidth_byte_per_s if rate == "byte" else sheet.peak_flop_per_s(arithmetic, dtype)


def page(operator: str, of: Drawn, sheets: Mapping[str, Datasheet | None]) -> Page:
    """The figure: a line for each device, from small to large."""
    unit = "FLOP" if of.rate == "flop" else "bytes"
    cases = sum(each.cases for each in of.curves)
    made = PanelPage(
        1,
        Panels(1, _WIDTH_IN, _HEIGHT_IN, 0.0, 0.0),
        f"{operator}, {of.dtype}: rate over size",
        f"{count_text(len(of.curves), 'device')}, {count_text(cases, 'case')}",
        ["Medians of neighbouring sizes; at each problem the fastest implementation counts."],
    )
    looks = style.of_devices([each.device for each in of.curves], 3.6)
    names = {device: sheet.name if (sheet := sheets[device]) else device for device in looks}
    entries = [
        Line2D([], [], **look, lw=1.2, label=style.short_name(names[it])) for it, look in looks.items()
    ]
    values = np.concatenate([each.rate for each in of.curves])
    factor, words = scale.scaled(pd.Series(values), f"{of.rate}/s")
    (axes,) = made.axes(entries, f"{unit} of a launch", words)
    for each in of.curves:
        axes.plot(each.size, factor * each.rate, lw=1.2, **looks[each.device])
    sizes = np.concatenate([each.size for each in of.curves])
    scale.swept(axes.xaxis, sizes, log=True, width_in=_WIDTH_IN)
    scale.measured(axes.yaxis, factor * values, log=True)
    return made


def reading(of: Drawn) -> Iterator[str]:
    """Two paragraphs that read the curve, with numbers from its points."""
    is_memory = of.rate == "byte"
    unit, promise = ("byte/s", "bandwidth") if is_memory else ("FLOP/s", "peak")

    def size(value: float) -> str:
        return memory_text(round(value)) if is_memory else amount_text(value, "FLOP")

    rates = sorted((each.best, each.device) for each in of.curves)
    (low, slowest), (high, fastest) = rates[0], rates[-1]
    text = f"The curve of {fastest} reaches {amount_text(high, unit)}."
    if len(rates) > 1:
        text = (
            f"The highest curve is that of {fastest}, {amount_text(high, unit)}; the lowest that of "
            f"{slowest}, {amount_text(low, unit)}: a factor of {high / low:.3g} over {len(rates)} devices."
        )
    shares = sorted((each.best / each.stated, each.device) for each in of.curves if each.stated)
    if len(shares) > 1:
        (least, worst), (most, best) = shares[0], shares[-1]
        middle = share_text(float(np.median([share for share, _ in shares])))
        text += (
            f" Of the {promise} that its datasheet promises, {best} reaches most, {share_text(most)}, and "
            f"{worst} least, {share_text(least)}; the median is {middle}."
        )
    elif shares:
        text += f" That is {share_text(shares[0][0])} of the {promise} of its datasheet."
    if is_memory and shares and shares[-1][0] > 1:
        text += " More than all of it is what a cache served."
    yield text
    halves = sorted((each.half_at, each.device) for each in of.curves)
    (first, soonest), (last, latest) = halves[0], halves[-1]
    text = f"Half of that needs {size(first)}."
    if len(halves) > 1:
        typical = size(float(np.median([at for at, _ in halves])))
        text = (
            f"Half of its own best needs {size(first)} on {soonest} and {size(last)} on {latest}; half of "
            f"the devices have it from {typical} on."
        )
    if small := [each.device for each in of.curves if each.half_at == each.size.min()]:
        text += f" The smallest size that was measured has it on {_some(small)}."
    text += " Smaller work takes the time of a launch, and leaves units idle."
    if falls := [each.device for each in of.curves if each.rate[-1] < 0.8 * each.best]:
        why = ": their data have left the cache." if is_memory else "."
        text += f" The largest sizes run more than a fifth below the best on {_some(falls)}{why}"
    yield text


def _some(devices: Sequence[str]) -> str:
    return ", ".join(devices[:3]) + (f" and {len(devices) - 3} more" if len(devices) > 3 else "")
