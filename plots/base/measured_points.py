"""Measured points of figures over a swept size: a line, intervals, markers."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.lines import Line2D

from plots.base.style import LineStyle

MANY = 24
"""Points on one line from which markers are small."""


class Columns(NamedTuple):
    """Names of the columns of a median and of both ends of its interval."""

    middle: str
    low: str
    high: str


def placed(rows: pd.DataFrame, at: np.ndarray, columns: Columns, factor: float = 1.0) -> pd.DataFrame:
    """The rows with the numbers that are drawn: `at`, `y`, and `low` and `high`, the ends of its interval.

    Numbers of `columns` are times `factor`.
    """
    y, low, high = (rows[name].to_numpy(dtype=float) * factor for name in columns)
    return rows.assign(at=at, y=y, low=low, high=high)


def series(axes: Axes, points: pd.DataFrame, look: LineStyle, joined: bool = True) -> None:
    """Draw one line: `placed` rows in the order of the axis; those without a time are left out.

    Suspect points are hollow; imported points are crosses whatever the implementation. Points that are not
    `joined` have no line.
    """
    timed = points[points["y"].notna()]
    imported = timed["imported"].astype(bool)
    if joined:
        width = 0.6 if imported.all() else 1.3
        axes.plot(timed["at"], timed["y"], color=look.color, ls=look.dash, lw=width, label="_line", zorder=3)
    intervals(axes, timed, look.color)
    how: dict[str, Any] = {"ms": 4.4 if len(timed) <= MANY else 2.8, "zorder": 4}
    markers(axes, timed[~imported], look, mew=0.9, label="_measured", **how)
    if imported.any():
        crosses = timed[imported]
        axes.plot(crosses["at"], crosses["y"], IMPORTED, color=look.color, mew=0.8, label="_imported", **how)


def intervals(axes: Axes, points: pd.DataFrame, color: str) -> None:
    """Draw the intervals of `placed` rows; a long one is cut off by the axes instead of stretching them."""
    # Of a time that may be 0 no rate is the highest.
    known = points[points["low"].notna()].fillna({"high": 1e3 * points["y"].max()})
    segments = [[(at, low), (at, high)] for at, low, high in known[["at", "low", "high"]].to_numpy()]
    how: dict[str, Any] = {"lw": 2.0, "alpha": 0.45, "label": "_interval", "zorder": 2.5}
    axes.add_collection(LineCollection(segments, color=color, **how), autolim=False)


def markers(axes: Axes, points: pd.DataFrame, look: LineStyle, **how: Any) -> None:
    """Draw the points of `placed` rows, hollow where they are suspect."""
    for hollow in (False, True):
        these = points[points["suspect"].astype(bool) == hollow]
        if len(these):
            face = "white" if hollow else look.color
            axes.plot(these["at"], these["y"], look.marker, color=look.color, mfc=face, **how)


def handle(label: str, look: LineStyle) -> Line2D:
    """The legend's entry of a line."""
    return Line2D([], [], color=look.color, ls=look.dash, marker=look.marker, lw=1.3, ms=4.4, label=label)


IMPORTED = "x"
"""Marker of imported points; no other marker looks like it."""


def caption(rows: pd.DataFrame) -> str:
    """The sentence of a caption that explains the points of these rows."""
    of_time = rows[rows["median_s"].notna()]
    without, imported = int(of_time["low_s"].isna().sum()), of_time["imported"]
    if imported.all() and without == len(of_time):
        return "Imported (crosses): one time a case as its source has it, no interval, unchecked by us."
    unknown = f", unknown for {without} of {len(of_time)}" if without else ""
    crosses = "; crosses are imported and were not checked by us" if imported.any() else ""
    return f"Medians with 95 % intervals{unknown}{crosses}."
