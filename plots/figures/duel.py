"""Figure of our GEMM against the library's: every case's ratio with its interval, a panel for each region.

Above 1 ours is faster. There is a page for each of our implementations with duels. Colour shows the data type
and the marker the layout; bench/judge/standings.py pairs the cases, bench/judge/goals.yaml has the goals.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, MaxNLocator

from bench.format import count_text
from bench.judge.frame import DeviceRun
from bench.judge.goals import Goal, goal_of
from bench.judge.standings import ALL_16_BIT, CaseFigure, Standing, duels
from plots.base import measured_points, scale, style
from plots.base.page import Page

COLORS: Mapping[str, str] = {
    "float16": style.BLUE,
    "bfloat16": style.SKY,
    "tf32": style.GREEN,
    "float32": style.ORANGE,
    "float64": style.VERMILLION,
    "float8_e4m3": style.PURPLE,
    "mxfp8": style.WINE,
    "nvfp4": style.OLIVE,
    "int8": style.BLACK,
}
MARKERS: Mapping[str, str] = {"NN": "o", "NT": "s", "TN": "^", "TT": "D"}
_COLUMNS = (1, 1, 2, 3, 2, 3, 3, 4, 4, 3, 4, 4, 4, 4, 4, 4, 4)
_WIDTH_IN = (0.0, 6.0, 3.9, 3.0, 2.6)
_HEIGHT_IN, _GAP_IN = 2.1, 0.55
MOST_REACH = 1.25
"""Times its ratio that the bar of an interval reaches: a wider one must not flatten the others."""
MANY = 60
"""Cases in one panel from which markers are small."""


def draw(run: DeviceRun) -> Iterator[tuple[str, Page]]:
    """(implementation, with the suffix -warm for that cache; page) of each of ours that has duels."""
    for cache in run.caches:
        regions, suspect = duels(run, cache)
        regions = [each for each in regions if each.region != ALL_16_BIT]
        for name in sorted({each.implementation for each in regions}):
            panels = [each for each in regions if each.implementation == name]
            leaf = name if cache == "cold" else f"{name}-{cache}"
            yield leaf, _page(run, cache, name, panels, suspect)


def _page(run: DeviceRun, cache: str, name: str, panels: Sequence[Standing], suspect: int) -> Page:
    columns = _COLUMNS[min(len(panels), len(_COLUMNS) - 1)]
    lines = math.ceil(len(panels) / columns)
    cases = [case for panel in panels for case in panel.figures]
    libraries = sorted({case.opponent for case in cases})
    rows = run.frame
    rows = rows[(rows["cache"] == cache) & rows["implementation"].isin([name, *libraries])]
    rows = rows[rows["parameters"].isin({case.parameters for case in cases}) & (rows["visit"] == 0)]
    rows = rows[~rows["suspect"]].drop_duplicates(["implementation", "parameters"], keep="last")
    page = Page(
        Page.LEFT + Page.RIGHT + columns * _WIDTH_IN[columns],
        lines * _HEIGHT_IN + (lines - 1) * _GAP_IN,
        f"GEMM: {name} against {' and '.join(libraries)}",
        style.facts(run, rows),
        _caption(cases, name, suspect, rows),
    )
    goals = {panel.region: goal_of(panel.region, run.device_name) for panel in panels}
    page.legend(_handles(cases, [goal for goal in goals.values() if goal is not None]))
    names = ("cases, sorted", "time of library / ours")
    places = page.panels(len(panels), columns, *names, hspace=_GAP_IN / _HEIGHT_IN, wspace=0.24)
    for axes, standing in zip(places, panels, strict=True):
        _panel(axes, standing, goals[standing.region])
    return page


def _panel(axes: Axes, standing: Standing, goal: Goal | None) -> None:
    cases = standing.figures
    axes.set_title(f"{standing.region}: median {standing.median:.3f}, n = {len(cases)}")
    axes.axhline(1.0, color=style.BLACK, lw=0.8, zorder=1, label="_even")
    shown = [1.0, *(case.value for case in cases)]
    if goal is not None:
        axes.axhline(goal.median, color=style.GREEN, lw=1.0, ls="--", zorder=1, label="_goal")
        shown.append(goal.median)
        if goal.least is not None:
            axes.axhline(goal.least, color=style.GREEN, lw=0.9, ls=":", zorder=1, label="_least")
            shown.append(goal.least)
    kinds: dict[tuple[str, str], list[tuple[int, CaseFigure]]] = defaultdict(list)
    for place, case in enumerate(cases, 1):
        kinds[_kind(case)].append((place, case))
    for (dtype, layout), of_kind in kinds.items():
        color, small = COLORS[dtype], 4.2 if len(cases) <= MANY else 2.6
        at = [place for place, _ in of_kind]
        low, middle, high = np.array([(case.low, case.value, case.high) for _, case in of_kind]).T
        measured_points.intervals(axes, np.array(at), middle, low, high, color, MOST_REACH)
        shown += np.concatenate(measured_points.reach(middle, low, high, MOST_REACH)).tolist()
        axes.plot(at, middle, MARKERS[layout], color=color, ms=small, mew=0.6, zorder=4, label="_case")
    scale.ratio(axes, [*shown, 0.9, 1.1], 9)
    axes.set_xlim(0.3, len(cases) + 0.7)
    few = [float(place) for place in range(1, len(cases) + 1)]
    axes.xaxis.set_major_locator(FixedLocator(few) if len(few) <= 5 else MaxNLocator(5, integer=True))
    axes.grid(visible=False, axis="x")


def _kind(case: CaseFigure) -> tuple[str, str]:
    has = json.loads(case.parameters)
    return has["dtype"], has["layout"]


def _handles(cases: Sequence[CaseFigure], goals: Sequence[Goal]) -> list[Artist]:
    kinds = [_kind(case) for case in cases]
    handles: list[Artist] = [
        style.marker(dtype, color, "o")
        for dtype, color in COLORS.items()
        if any(kind[0] == dtype for kind in kinds)
    ]
    handles += [
        style.marker(layout, "#444444", marker, 4.2)
        for layout, marker in MARKERS.items()
        if any(kind[1] == layout for kind in kinds)
    ]
    handles.append(Line2D([], [], color=style.BLACK, lw=0.8, label="even"))
    if goals:
        handles.append(Line2D([], [], color=style.GREEN, lw=1.0, ls="--", label="goal of the median"))
    if any(goal.least is not None for goal in goals):
        handles.append(Line2D([], [], color=style.GREEN, lw=0.9, ls=":", label="goal of the lowest"))
    return handles


def _caption(cases: Sequence[CaseFigure], name: str, suspect: int, rows: pd.DataFrame) -> list[str]:
    lowest = sorted(cases)[:3]
    sentences = [f"Left out: {count_text(suspect, 'pair')} with a suspect time."] if suspect else []
    return [
        f"Above 1 {name} is quicker; bars: 95 % intervals.",
        *sentences,
        style.flag_counts(rows),
        "Lowest: " + "; ".join(f"{case.name} {case.value:.3f}" for case in lowest) + ".",
        f"Median time of the library / median time of {name}, same problem, same run.",
        f"The interval is that of both rows; beyond an arrow, a factor of {MOST_REACH:g} away, it goes on.",
    ]
