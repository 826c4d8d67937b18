"""Figure of the distribution of shares of the roof, an overview of ten thousand rows.

There is a panel for each operator and what bounds its cases. A line shows which share of the cases reached
at least so much of the roof: the farther to the right, the better. Lines are implementations if there is only
one device, else devices: solid for libraries, dashed for our kernels.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import MultipleLocator

from bench.judge.noise import OURS
from bench.model.bound import bound_text
from plots.base import style
from plots.base.page import MOST_ENTRIES, Page, PanelPage, Panels

POINTS = 200
"""Most points of a line: 35,000 steps would look no finer."""
FEW = 3
"""Fewest cases of a line: fewer are no distribution."""
MARKERS = 6
"""Markers on each line, which identify it without its colour."""
_COLUMNS = (1, 1, 2, 3, 2, 3, 3, 4, 4)
_LIMITS = (0.0, 125.0)


_Line = tuple[str, style.LineStyle, np.ndarray]
"""(name, look, shares of the roof in percent, ascending)."""


def draw(rows: pd.DataFrame) -> Iterator[tuple[str, Page]]:
    """(stem, page) of one run's rows, or of several runs' together, if any row has a roof."""
    sound = rows[(rows["visit"] == 0) & (rows["median_s"] > 0) & rows["scored"]]
    # The calibrated roof if any row has that: a lower bound of the duration.
    stated = sound["predicted_s"].isna().all() and sound["datasheet_s"].notna().any()
    roof, roof_name = ("datasheet_s", "datasheet's") if stated else ("predicted_s", "calibrated")
    known = sound[sound[roof].notna()]
    known = known.assign(share=100 * known[roof] / known["median_s"])
    several = known["device"].nunique() > 1
    kinds = style.grouped(sorted(known["implementation"].unique()), MOST_ENTRIES)
    devices = sorted(known["device"].unique())
    pages = math.ceil(len(devices) / MOST_ENTRIES)
    for number in range(pages):
        here, shown = (part[part["device"].isin(devices[number::pages])] for part in (known, sound))
        by_panel = {
            f"{operator}, {bound_text(str(bound_by))}": list(_lines(of_panel, several, kinds))
            for (operator, bound_by), of_panel in here.groupby(["operator", "bound_by"], sort=True)
        }
        panels = {title: lines for title, lines in by_panel.items() if lines}
        if not panels:
            continue
        columns = _COLUMNS[len(panels)] if len(panels) < len(_COLUMNS) else 4
        page = PanelPage(
            len(panels),
            Panels(columns, 2.5, 1.9, 0.55, 0.2),
            f"How near to the {roof_name} roof" + (f" (page {number + 1} of {pages})" if pages > 1 else ""),
            style.facts_together(here),
            _caption(here, shown, several, roof_name),
        )
        looks = {name: look for lines in panels.values() for name, look, _ in lines}
        entries = [
            Line2D([], [], color=look.color, marker=look.marker, ms=4.2, lw=1.3, label=name)
            for name, look in sorted(looks.items())
        ]
        words = (f"share of the {roof_name} roof (percent)", "cases that reach it (percent)")
        for axes, (title, lines) in zip(page.axes(entries, *words), panels.items(), strict=True):
            axes.set_title(f"{title}, n = {sum(shares.size for _, _, shares in lines)}")
            _panel(axes, lines)
        yield f"distribution-{number + 1}" if number else "distribution", page


def _lines(
    rows: pd.DataFrame, several: bool, kinds: Mapping[str, tuple[str, style.LineStyle]]
) -> Iterator[_Line]:
    """The lines with FEW cases or more: devices, ours apart, or else implementations."""
    ours = rows["implementation"].str.startswith(OURS)
    names = rows["device"] if several else rows["implementation"].map(lambda name: kinds[name][0])
    looks = dict(kinds.values())
    for (label, mine), of_line in rows.groupby([names, ours & several], sort=True):
        name = str(label)
        look = replace(style.of_device(name), dash="--" if mine else "-") if several else looks[name]
        if len(of_line) >= FEW:
            yield name, look, np.sort(of_line["share"].to_numpy(float))


def _panel(axes: Axes, lines: Sequence[_Line]) -> None:
    for _, look, of_line in lines:
        n = of_line.size
        # Of n cases the i-th least is reached by all but i; thinned by rank, the ends kept.
        rank = np.unique(np.linspace(0, n - 1, min(n, POINTS)).round().astype(int))
        heights = [*(100 * (n - rank) / n), 0.0]
        shares = np.clip([*of_line[rank], of_line[-1]], *_LIMITS)
        how: dict[str, Any] = {"color": look.color, "ls": look.dash, "marker": look.marker}
        how |= {"lw": 1.3, "ms": 3.6, "markevery": max(1, len(heights) // MARKERS), "zorder": 3}
        axes.plot(shares, heights, drawstyle="steps-pre", label="_cases", **how)
    axes.axvline(100.0, color=style.BLACK, lw=0.8, zorder=1, label="_roof")
    axes.set(xlim=_LIMITS, ylim=(0.0, 102.0))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MultipleLocator(25))


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
