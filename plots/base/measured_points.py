"""Measured cases as every figure over a swept size shows them: a line, intervals, markers."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from plots.base.style import Look

MANY = 24
"""Points on one line from which markers are small."""


def series(
    axes: Axes, x: np.ndarray, rows: pd.DataFrame, columns: tuple[str, str, str], factor: float, look: Look
) -> None:
    """Draw one line: rows sorted by `x`, one place each; those without a time are left out.

    `columns` are the median and both ends of its interval, drawn times `factor`. Flagged ones are hollow;
    imported ones, which have no interval, are crosses whatever the implementation.
    """
    timed = rows[columns[0]].notna().to_numpy()
    at = x[timed]
    y, low, high = (rows[column].to_numpy(dtype=float)[timed] * factor for column in columns)
    ours = ~rows["imported"].to_numpy(dtype=bool)[timed]
    doubted = rows["suspect"].to_numpy(dtype=bool)[timed]
    axes.plot(at, y, color=look.color, ls=look.dash, lw=1.3 if ours.any() else 0.6, label="_line", zorder=3)
    if ours.any():
        axes.vlines(at[ours], low[ours], high[ours], color=look.color, lw=1.0, label="_interval", zorder=3)
    small = 4.4 if at.size <= MANY else 2.8
    for suspect in (False, True):
        these = ours & (doubted == suspect)
        if these.any():
            face = "white" if suspect else look.color
            drawn = axes.plot(at[these], y[these], look.marker, color=look.color, mfc=face, ms=small, mew=0.9)
            drawn[0].set(label="_measured", zorder=4)
    if not ours.all():
        drawn = axes.plot(at[~ours], y[~ours], IMPORTED, color=look.color, ms=small, mew=0.8)
        drawn[0].set(label="_imported", zorder=4)


IMPORTED = "x"
"""Marker of what was measured by others; none of ours looks like it."""


def told(rows: pd.DataFrame) -> str:
    """What a point is, for the caption."""
    if not rows["imported"].any():
        return "Median of each case; bars: its 95 % interval."
    if rows["imported"].all():
        return "Imported: crosses, one time a case as its source has it, no interval, unchecked by us."
    return (
        "Median of each case; bars: its 95 % interval. Crosses are imported: one time a case as the source "
        "has it, no interval, unchecked by us."
    )
