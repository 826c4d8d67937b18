"""Measured points of figures over a swept size: a line, intervals, markers."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from plots.base.style import GREY, Look

RING: dict[str, Any] = {"color": "#444444", "marker": "o", "mfc": "none", "ms": 8, "mew": 0.6}
"""Look of a ring around a point to which a curve was fitted."""
MANY = 24
"""Points on one line from which markers are small."""


class Columns(NamedTuple):
    """Names of the columns of a median and of both ends of its interval."""

    middle: str
    low: str
    high: str


def series(
    axes: Axes, x: np.ndarray, rows: pd.DataFrame, columns: Columns, factor: float, look: Look
) -> None:
    """Draw one line: rows sorted by `x`, which has one number for each; rows without a time are left out.

    The numbers of `columns` are drawn times `factor`. Suspect points are hollow; imported points are crosses
    whatever the implementation; where the interval is not known (NaN) there is none.
    """
    timed = rows[columns.middle].notna().to_numpy()
    at = x[timed]
    y, low, high = (rows[column].to_numpy(dtype=float)[timed] * factor for column in columns)
    ours = ~rows["imported"].to_numpy(dtype=bool)[timed]
    suspect = rows["suspect"].to_numpy(dtype=bool)[timed]
    axes.plot(at, y, color=look.color, ls=look.dash, lw=1.3 if ours.any() else 0.6, label="_line", zorder=3)
    small = 4.4 if at.size <= MANY else 2.8
    if (known := np.isfinite(low) & np.isfinite(high)).any():
        how: dict[str, Any] = {"color": look.color, "lw": 1.0, "label": "_interval", "zorder": 3}
        axes.vlines(at[known], low[known], high[known], **how)
    if ours.any():
        how = {"ms": small, "mew": 0.9, "label": "_measured", "zorder": 4}
        markers(axes, at[ours], y[ours], suspect[ours], look, **how)
    if not ours.all():
        how = {"ms": small, "mew": 0.8, "label": "_imported", "zorder": 4}
        axes.plot(at[~ours], y[~ours], IMPORTED, color=look.color, **how)


def markers(axes: Axes, x: np.ndarray, y: np.ndarray, suspect: np.ndarray, look: Look, **how: Any) -> None:
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


def handle(label: str, look: Look) -> Line2D:
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


def ring(axes: Axes, x: np.ndarray, y: np.ndarray) -> None:
    """Draw a ring around points to which a curve was fitted."""
    axes.plot(x, y, label="_fitted", ls="", zorder=4.5, **RING)


def fitted() -> Line2D:
    """The legend's entry of the rings."""
    return Line2D([], [], label="calibrates the prediction", ls="", **RING)
