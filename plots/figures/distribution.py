"""Figure of the distribution of shares of the roof, an overview of ten thousand rows.

There is a panel for each operator and what bounds its cases. A line shows which share of the cases reached
at least so much of the roof: the farther to the right, the better. Lines are implementations if there is only
one device, else devices: solid for libraries, dashed for our kernels.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import MultipleLocator

from bench.judge.noise import OURS
from bench.model.bound import bound_text
from plots.base import style
from plots.base.page import MOST_ENTRIES, Page

POINTS = 200
"""Most points of a line: 35,000 steps would look no finer."""
FEW = 3
"""Fewest cases of a line: fewer are no distribution."""
MARKERS = 6
"""Markers on each line, which identify it without its colour."""
_COLUMNS = (1, 1, 2, 3, 2, 3, 3, 4, 4)
_WIDTH_IN, _HEIGHT_IN, _GAP_IN = 2.5, 1.9, 0.55
_LIMITS = (0.0, 125.0)


@dataclass(frozen=True)
class _Line:
    name: str
    look: style.LineStyle
    shares: np.ndarray
    """Shares of the roof, percent, ascending."""


def draw(rows: pd.DataFrame) -> Iterator[tuple[str, Page]]:
    """(stem, page) of one run's rows, or of several runs' together, if any row has a roof."""
    sound = rows[(rows["visit"] == 0) & (rows["median_s"] > 0) & rows["scored"]]
    roof, roof_name = _roof(sound)
    known = sound[roof.notna()]
    known = known.assign(share=100 * roof[known.index] / known["median_s"])
    several = known["device"].nunique() > 1
    kinds = style.grouped(sorted(known["implementation"].unique()), MOST_ENTRIES)
    devices = sorted(known["device"].unique())
    pages = math.ceil(len(devices) / MOST_ENTRIES)
    for number in range(pages):
        here, shown = (part[part["device"].isin(devices[number::pages])] for part in (known, sound))
        panels: dict[str, list[_Line]] = {}
        for (operator, bound_by), of_panel in here.groupby(["operator", "bound_by"], sort=True):
            lines = [line for line in _lines(of_panel, several, kinds) if line.shares.size >= FEW]
            if lines:
                panels[f"{operator}, {bound_text(str(bound_by))}"] = lines
        if panels:
            which = f" (page {number + 1} of {pages})" if pages > 1 else ""
            page = _page(panels, here, roof_name, which, _caption(here, shown, several, roof_name))
            yield f"distribution-{number + 1}" if number else "distribution", page


def _page(
    panels: Mapping[str, list[_Line]], known: pd.DataFrame, roof_name: str, which: str, caption: Sequence[str]
) -> Page:
    columns = _COLUMNS[len(panels)] if len(panels) < len(_COLUMNS) else 4
    high = math.ceil(len(panels) / columns)
    page = Page(
        Page.LEFT + Page.RIGHT + columns * _WIDTH_IN,
        high * _HEIGHT_IN + (high - 1) * _GAP_IN,
        f"How near to the {roof_name} roof{which}",
        style.facts_together(known),
        caption,
    )
    page.legend(_handles(panels))
    names = (f"share of the {roof_name} roof (percent)", "cases that reach it (percent)")
    places = page.panels(len(panels), columns, *names, hspace=_GAP_IN / _HEIGHT_IN, wspace=0.2)
    for axes, (name, lines) in zip(places, panels.items(), strict=True):
        _panel(axes, f"{name}, n = {sum(line.shares.size for line in lines)}", lines)
    return page


def _roof(rows: pd.DataFrame) -> tuple[pd.Series, str]:
    """Lower bound of each row by the roof, seconds, and the roof's name: calibrated if any row has that."""
    if rows["predicted_s"].notna().any() or not rows["datasheet_s"].notna().any():
        return rows["predicted_s"], "calibrated"
    return rows["datasheet_s"], "datasheet's"


def _lines(
    rows: pd.DataFrame, several: bool, kinds: Mapping[str, tuple[str, style.LineStyle]]
) -> Iterator[_Line]:
    if several:
        ours = rows["implementation"].str.startswith(OURS)
        for (device, mine), of_line in rows.groupby(["device", ours], sort=True):
            look = style.of_device(str(device))
            dash = "--" if mine else "-"
            yield _Line(str(device), replace(look, dash=dash), np.sort(of_line["share"].to_numpy(float)))
        return
    looks = dict(kinds.values())
    for name, of_line in rows.groupby(rows["implementation"].map(lambda name: kinds[name][0]), sort=True):
        yield _Line(str(name), looks[str(name)], np.sort(of_line["share"].to_numpy(float)))


def _panel(axes: Axes, title: str, lines: list[_Line]) -> None:
    axes.set_title(title)
    for line in lines:
        n = line.shares.size
        # Of n cases the i-th least is reached by all but i; thinned by rank, the ends kept.
        rank = np.unique(np.linspace(0, n - 1, min(n, POINTS)).round().astype(int))
        heights = [*(100 * (n - rank) / n), 0.0]
        shares = np.clip([*line.shares[rank], line.shares[-1]], *_LIMITS)
        how: dict[str, Any] = {"color": line.look.color, "ls": line.look.dash, "marker": line.look.marker}
        how |= {"lw": 1.3, "ms": 3.6, "markevery": max(1, len(heights) // MARKERS), "zorder": 3}
        axes.plot(shares, heights, drawstyle="steps-pre", label="_cases", **how)
    axes.axvline(100.0, color=style.BLACK, lw=0.8, zorder=1, label="_roof")
    axes.set(xlim=_LIMITS, ylim=(0.0, 102.0))
    axes.xaxis.set_major_locator(MultipleLocator(25))
    axes.yaxis.set_major_locator(MultipleLocator(25))


def _handles(panels: Mapping[str, list[_Line]]) -> list[Artist]:
    named = {line.name: line.look for lines in panels.values() for line in lines}
    return [
        Line2D([], [], color=look.color, marker=look.marker, ms=4.2, lw=1.3, label=name)
        for name, look in sorted(named.items())
    ]


def _caption(known: pd.DataFrame, sound: pd.DataFrame, several: bool, roof_name: str) -> list[str]:
    sentences = []
    beyond = int((known["share"] > _LIMITS[1]).sum())
    if beyond:
        sentences.append(f"{beyond} cases beyond {_LIMITS[1]:.0f} % stand on the right edge.")
    if len(sound) > len(known):
        sentences.append(f"{len(sound) - len(known)} cases have no {roof_name} roof.")
    sentences.append("Suspect cases (flagged) and those that calibrate are left out.")
    if several and known["implementation"].str.startswith(OURS).any():
        sentences.insert(0, "Solid: libraries; dashed: our kernels.")
    if several:
        sentences.append("Each device has its own roof.")
    return [
        *sentences,
        "The height of a line is the share of its cases that reach at least so much of the roof.",
    ]
