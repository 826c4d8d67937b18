"""Figure of what every GPU achieves by class of work, from the oldest to the newest, with its datasheet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from bench.device.datasheet import Datasheet
from bench.judge.achieved import LAYERS, Achieved, achieved, by_age
from bench.judge.frame import DeviceRun
from plots.base import scale, style
from plots.base.page import Page

PAGES = (
    ("achieved", "What GPUs achieve: memory and matrix products", (LAYERS, "matrix products")),
    (
        "achieved-layers",
        "What GPUs achieve: convolutions, recurrent layers and attention",
        ("convolutions", "recurrent layers", "attention"),
    ),
)
"""Stem, title and classes of work of each figure."""
_WIDTH_IN, _HEIGHT_IN, _GAP_IN, _NAMES_IN = 8.6, 1.25, 0.3, 1.5
"""Size of a panel, the room between panels, and that for the names of the devices below the last."""


def draw(runs: Sequence[DeviceRun]) -> Iterator[tuple[str, Page]]:
    """(stem, page): memory and matrix products, then the other classes of work; none for a single device."""
    shown = achieved(runs)
    sheets = {run.device: run.datasheet for run in runs if run.datasheet is not None}
    sources = sorted({(run.rows[0].source or "measured here").partition(";")[0] for run in runs})
    for stem, title, works in PAGES:
        of_page = [each for each in shown if each.work in works]
        if len({each.device for each in of_page}) > 1:
            yield stem, _page(title, of_page, sheets, sources)


def _page(
    title: str, shown: Sequence[Achieved], sheets: Mapping[str, Datasheet], sources: Sequence[str]
) -> Page:
    """A panel for each class of work and its data types; the devices stand side by side by age."""
    devices = [device for device in by_age(sheets) if any(each.device == device for each in shown)]
    panels = [(key, list(of)) for key, of in groupby(shown, key=lambda each: (each.work, each.width))]
    panels = [(key, of) for key, of in panels if len(of) > 1]
    heights = [*[_HEIGHT_IN] * len(panels), _NAMES_IN]
    page = Page(
        Page.LEFT + Page.RIGHT + _WIDTH_IN,
        sum(heights) + _GAP_IN * len(panels),
        title,
        f"{len(devices)} devices, {sum(each.rows for each in shown)} times, by {len(sources)} sources",
        [
            "Line: what the datasheet promises; marker: the median; bar: the middle 80 %; dot: the best.",
            "Layers bound by memory hold at least 4 times the last-level cache; the arithmetic of the others "
            "takes at least twice as long as their bytes by the datasheet.",
            "Times below ten launches of their source are left out.",
            f"Sources: {'; '.join(sources)}.",
        ],
    )
    grid = page.grid(len(heights), 1, height_ratios=heights, hspace=_GAP_IN / _HEIGHT_IN)
    for place, (key, of) in enumerate(panels):
        axes = page.figure.add_subplot(grid[place, 0])
        _panel(axes, ", ".join(filter(None, key)), of, devices)
        lowest = place == len(panels) - 1
        names = [style.short_name(sheets[each].name) for each in devices]
        axes.set_xticks(range(len(devices)), names if lowest else [])
        axes.tick_params(axis="x", rotation=90, labelsize=7)
    return page


def _panel(axes: Axes, title: str, of: Sequence[Achieved], devices: Sequence[str]) -> None:
    stated = [each.stated for each in of if each.stated]
    values = np.array([value for each in of for value in (each.low, each.best)] + stated)
    factor, unit = scale.scaled(pd.Series(values), "flop/s" if of[0].width else "byte/s")
    axes.set_title(f"{title} ({unit})")
    for each in of:
        place, look = devices.index(each.device), style.of_device(each.device)
        if each.stated:
            axes.hlines(factor * each.stated, place - 0.4, place + 0.4, color=style.BLACK, lw=1.1, zorder=2)
        low, high = factor * each.low, factor * each.high
        axes.vlines(place, low, high, color=look.color, lw=2.4, alpha=0.55, zorder=3)
        axes.plot(place, factor * each.median, look.marker, color=look.color, ms=5, zorder=4)
        axes.plot(place, factor * each.best, ".", color=look.color, ms=3, zorder=4)
    axes.set_xlim(-0.6, len(devices) - 0.4)
    scale.measured(axes.yaxis, factor * values, log=True)
