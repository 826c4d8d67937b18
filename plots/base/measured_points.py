"""Measured points of figures over a swept size: a line, intervals, markers."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.markers import CARETDOWN, CARETUP

from plots.base.style import GREY, LineStyle

RING: dict[str, Any] = {"color": "#444444", "marker": "o", "mfc": "none", "ms": 8, "mew": 0.6}
"""Look of a ring around a point to which a curve was fitted."""
MANY = 24
"""Points on one line from which markers are small."""
REACH = 2.0
"""Times its median, up and down, that the bar of an interval reaches; one that goes on ends in an arrow."""
_ARROW: dict[str, Any] = {"ls": "", "ms": 4.5, "mew": 0.0, "alpha": 0.8}


class Columns(NamedTuple):
    """Names of the columns of a median and of both ends of its interval."""

    middle: str
    low: str
    high: str


def series(
    axes: Axes,
    x: np.ndarray,
    rows: pd.DataFrame,
    columns: Columns,
    factor: float,
    look: LineStyle,
    joined: bool = True,
) -> None:
    """Draw one line: rows sorted by `x`, which has one number for each; rows without a time are left out.

    The numbers of `columns` are drawn times `factor`. Suspect points are hollow; imported points are crosses
    whatever the implementation. Points that are not `joined` have no line.
    """
    timed = rows[columns.middle].notna().to_numpy()
    at = x[timed]
    y, low, high = (rows[column].to_numpy(dtype=float)[timed] * factor for column in columns)
    ours = ~rows["imported"].to_numpy(dtype=bool)[timed]
    suspect = rows["suspect"].to_numpy(dtype=bool)[timed]
    if joined:
        width = 1.3 if ours.any() else 0.6
        axes.plot(at, y, color=look.color, ls=look.dash, lw=width, label="_line", zorder=3)
    small = 4.4 if at.size <= MANY else 2.8
    intervals(axes, at, y, low, high, look.color)
    if ours.any():
        how: dict[str, Any] = {"ms": small, "mew": 0.9, "label": "_measured", "zorder": 4}
        markers(axes, at[ours], y[ours], suspect[ours], look, **how)
    if not ours.all():
        how = {"ms": small, "mew": 0.8, "label": "_imported", "zorder": 4}
        axes.plot(at[~ours], y[~ours], IMPORTED, color=look.color, **how)


def intervals(
    axes: Axes,
    x: np.ndarray,
    middle: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    color: str,
    most: float = REACH,
) -> None:
    """Draw the intervals of points, as far as `reach`; an arrow at an end says that the interval goes on.

    No bar where neither end is known (NaN).
    """
    known = np.isfinite(low) | np.isfinite(high)
    x, middle, low, high = (values[known] for values in (x, middle, low, high))
    bottom, top = reach(middle, low, high, most)
    if not known.any():
        return
    axes.vlines(x, bottom, top, color=color, lw=2.0, alpha=0.45, label="_interval", zorder=2.5)
    # Comparisons with NaN are false: an end that is not known goes on, too.
    for arrow, ends, inside in ((CARETDOWN, bottom, low >= bottom), (CARETUP, top, high <= top)):
        if not inside.all():
            how = _ARROW | {"marker": arrow, "color": color, "label": "_goes_on", "zorder": 2.6}
            axes.plot(x[~inside], ends[~inside], **how)


def reach(
    middle: np.ndarray, low: np.ndarray, high: np.ndarray, most: float = REACH
) -> tuple[np.ndarray, np.ndarray]:
    """Both ends of the bars: at most `most` times the median away; NaN where neither end is known."""
    known = np.isfinite(low) | np.isfinite(high)
    bottom, top = np.fmax(low, middle / most), np.fmin(high, middle * most)
    return np.where(known, bottom, np.nan), np.where(known, top, np.nan)


def markers(
    axes: Axes, x: np.ndarray, y: np.ndarray, suspect: np.ndarray, look: LineStyle, **how: Any
) -> None:
    """Draw points, hollow where they are suspect."""
    for hollow in (False, True):
        these = suspect == hollow
        if these.any():
            face = "white" if hollow else look.color
            axes.plot(x[these], y[these], look.marker, color=look.color, mfc=face, **how)


def on_floor(axes: Axes, x: np.ndarray, height: float, size: float, **how: Any) -> None:
    """Draw ticks at `height`, a share of the axes, for points without a value."""
    look: dict[str, Any] = {"color": GREY, "ms": size, "mew": 0.8, "transform": axes.get_xaxis_transform()}
    axes.plot(x, np.full(x.size, height), "|", **(look | how))


def handle(label: str, look: LineStyle) -> Line2D:
    """The legend's entry of a line."""
    return Line2D([], [], color=look.color, ls=look.dash, marker=look.marker, lw=1.3, ms=4.4, label=label)


def arrows(rows: pd.DataFrame, columns: Columns) -> list[Line2D]:
    """The legend's entry of the arrows, if an interval of these rows goes on beyond its bar."""
    middle, low, high = (rows[column].to_numpy(dtype=float) for column in columns)
    bottom, top = reach(middle, low, high)
    if ((low >= bottom) & (high <= top) | np.isnan(bottom)).all():
        return []
    look = _ARROW | {"color": "#444444", "marker": CARETUP, "label": "the interval goes on", "ms": 7.0}
    return [Line2D([], [], **look)]


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


def ring(axes: Axes, x: np.ndarray, y: np.ndarray) -> None:
    """Draw a ring around points to which a curve was fitted."""
    axes.plot(x, y, label="_fitted", ls="", zorder=4.5, **RING)


def fitted() -> Line2D:
    """The legend's entry of the rings."""
    return Line2D([], [], label="calibrates the prediction", ls="", **RING)
