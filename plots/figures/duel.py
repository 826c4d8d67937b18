"""Figure of our GEMM against the library's: every case's ratio with its interval, a panel for each region.

Above 1 ours is faster. There is a page for each of our implementations with duels. Colour shows the data type
and the marker the layout; bench/judge/standings.py pairs the cases, bench/judge/goals.yaml has the goals.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

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
from plots.base.page import Page, PanelPage, Panels

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
MOST_REACH = 1.25
"""Times its ratio that the bar of an interval reaches: a wider one must not flatten the others."""
_RATIO = measured_points.Columns("ratio", "least", "most")
MANY = 60
"""Cases in one panel from which markers are small."""
_EVEN: dict[str, Any] = {"color": style.BLACK, "lw": 0.8, "label": "_even"}
_GOAL: dict[str, Any] = {"color": style.GREEN, "lw": 1.0, "ls": "--", "label": "_goal"}
_LEAST: dict[str, Any] = {"color": style.GREEN, "lw": 0.9, "ls": ":", "label": "_least"}


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
    cases = [case for panel in panels for case in panel.figures]
    libraries = sorted({case.opponent for case in cases})
    rows = run.frame
    rows = rows[(rows["cache"] == cache) & rows["implementation"].isin([name, *libraries])]
    rows = rows[rows["parameters"].isin({case.parameters for case in cases}) & (rows["visit"] == 0)]
    rows = rows[~rows["suspect"]].drop_duplicates(["implementation", "parameters"], keep="last")
    page = PanelPage(
        len(panels),
        Panels(columns, _WIDTH_IN[columns], 2.1, 0.55, 0.24),
        f"GEMM: {name} against {' and '.join(libraries)}",
        style.facts(run, rows),
        _caption(cases, name, suspect, rows),
    )
    goals = [goal_of(panel.region, run.device_name) for panel in panels]
    entries = _entries({_kind(case) for case in cases}, [goal for goal in goals if goal is not None])
    places = page.axes(entries, "cases, sorted", "time of library / ours")
    for axes, standing, goal in zip(places, panels, goals, strict=True):
        _panel(axes, standing, goal)
    return page


def _panel(axes: Axes, standing: Standing, goal: Goal | None) -> None:
    cases = standing.figures
    axes.set_title(f"{standing.region}: median {standing.median:.3f}, n = {len(cases)}")
    shown = [0.9, 1.1]
    heights = (1.0, goal.median if goal else None, goal.least if goal else None)
    for height, look in zip(heights, (_EVEN, _GOAL, _LEAST), strict=True):
        if height is not None:
            axes.axhline(height, zorder=1, **look)
            shown.append(height)
    ratios = pd.DataFrame(
        [(*_kind(case), case.low, case.value, case.high) for case in cases],
        columns=["dtype", "layout", "least", "ratio", "most"],
    )
    at = np.arange(1, len(cases) + 1)
    points = measured_points.placed(ratios, at, _RATIO, most=MOST_REACH)
    how: dict[str, Any] = {"ms": 4.2 if len(cases) <= MANY else 2.6, "mew": 0.6, "label": "_case"}
    for (dtype, layout), of_kind in points.groupby(["dtype", "layout"], sort=False):
        color = COLORS[str(dtype)]
        measured_points.intervals(axes, of_kind, color)
        axes.plot(of_kind["at"], of_kind["y"], MARKERS[str(layout)], color=color, zorder=4, **how)
    scale.ratio(axes, [*shown, *points[["y", "bottom", "top"]].to_numpy().ravel()], 9)
    axes.set_xlim(0.3, len(cases) + 0.7)
    few = [float(place) for place in range(1, len(cases) + 1)]
    axes.xaxis.set_major_locator(FixedLocator(few) if len(few) <= 5 else MaxNLocator(5, integer=True))
    axes.grid(visible=False, axis="x")


def _kind(case: CaseFigure) -> tuple[str, str]:
    has = json.loads(case.parameters)
    return has["dtype"], has["layout"]


def _entries(kinds: set[tuple[str, str]], goals: Sequence[Goal]) -> list[Artist]:
    """Entries of the legend: data types by colour, layouts by marker, and the lines."""
    dtypes, layouts = ({kind[place] for kind in kinds} for place in (0, 1))
    entries: list[Artist] = [
        *(style.marker(dtype, color, "o") for dtype, color in COLORS.items() if dtype in dtypes),
        *(style.marker(layout, "#444444", of, 4.2) for layout, of in MARKERS.items() if layout in layouts),
    ]
    lines = [(_EVEN, "even")]
    lines += [(_GOAL, "goal of the median")] if goals else []
    lines += [(_LEAST, "goal of the lowest")] if any(goal.least is not None for goal in goals) else []
    return [*entries, *(Line2D([], [], **(look | {"label": words})) for look, words in lines)]


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
