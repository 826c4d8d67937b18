"""Measured cases as every figure over a swept size shows them: a line, intervals, markers."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from plots.style import Look

MANY = 24
"""Points on one line from which markers are small."""


def series(
    axes: Axes, x: np.ndarray, rows: pd.DataFrame, columns: tuple[str, str, str], factor: float, look: Look
) -> None:
    """Draw one line: rows sorted by `x`, one place each; those without a time are left out.

    `columns` are the median and both ends of its interval, drawn times `factor`. Flagged ones are hollow.
    """
    timed = rows[columns[0]].notna().to_numpy()
    at, some = x[timed], rows[timed]
    y, low, high = (some[column].to_numpy(dtype=float) * factor for column in columns)
    axes.plot(at, y, color=look.color, ls=look.dash, lw=1.3, label="_line", zorder=3)
    axes.vlines(at, low, high, color=look.color, lw=1.0, label="_interval", zorder=3)
    small = 4.4 if at.size <= MANY else 2.8
    for suspect in (False, True):
        these = some["suspect"].to_numpy(dtype=bool) == suspect
        if these.any():
            face = "white" if suspect else look.color
            drawn = axes.plot(at[these], y[these], look.marker, color=look.color, mfc=face, ms=small, mew=0.9)
            drawn[0].set(label="_measured", zorder=4)
