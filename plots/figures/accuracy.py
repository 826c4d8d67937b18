"""Figure of time against error: a panel for each size, a mark for each data type.

The error is the row's: the largest as a share of the largest result, against float64. To the lower left is
better. In a sweep whose operands are rounded to each type (`data: normal` of gemm) it is what the type costs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from bench.judge.frame import DeviceRun
from plots.base import measured_points, style
from plots.base.page import Page, leaves
from plots.base.plot_spec import Section

MOST_PANELS = 6
"""Panels on one page."""
_COLUMNS, _PANEL_IN, _GAP_IN = 2, (3.1, 2.5), (0.6, 0.7)
_ROOM = 1.7
"""Times as far as the outermost marks."""


def draw(run: DeviceRun, rows: pd.DataFrame, section: Section) -> Iterator[Page]:
    """A page for each implementation and six sizes; none where no row has both a time and an error."""
    shown = rows[rows[section.x].notna() & rows["median_s"].notna() & (rows["relative_error"] > 0)]
    types = list(shown.groupby("dtype")["relative_error"].median().sort_values().index)
    looks = dict(zip(types, style.of_lines(("dtype",), [(name,) for name in types]).values(), strict=True))
    for implementation, of_one in shown.groupby("implementation", sort=True):
        groups = list(of_one.groupby(section.x, sort=True))
        for here, which in leaves(groups, MOST_PANELS):
            lines = math.ceil(len(here) / _COLUMNS)
            page = Page(
                Page.LEFT + _COLUMNS * _PANEL_IN[0] + _GAP_IN[0] + Page.RIGHT,
                lines * _PANEL_IN[1] + (lines - 1) * _GAP_IN[1],
                f"{section.heading(of_one)}: {implementation}{which}",
                style.facts(run, of_one),
                [
                    measured_points.caption(of_one),
                    "Errors are against float64; hollow marks are suspect (flagged).",
                ],
                decided=section.decided,
            )
            page.legend([style.marker(name, look.color, look.marker) for name, look in looks.items()])
            gaps = {"wspace": _GAP_IN[0] / _PANEL_IN[0], "hspace": _GAP_IN[1] / _PANEL_IN[1]}
            error, duration = "largest error / largest result", "duration, s"
            places = page.panels(len(here), _COLUMNS, error, duration, **gaps)
            for axes, (size, of_size) in zip(places, here, strict=True):
                axes.set_title(style.labelled(section.x, size), y=1.0)
                _panel(axes, of_size, looks)
            yield page


def _panel(axes: Axes, rows: pd.DataFrame, looks: dict[str, style.LineStyle]) -> None:
    """The marks of one size, with their intervals."""
    ends: list[np.ndarray] = []
    axes.set_xscale("log")
    axes.set_yscale("log")
    for name, of_type in rows.groupby("dtype"):
        look = looks[str(name)]
        x, y = (of_type[column].to_numpy(dtype=float) for column in ("relative_error", "median_s"))
        low, high = (of_type[column].to_numpy(dtype=float) for column in ("low_s", "high_s"))
        measured_points.intervals(axes, x, y, low, high, look.color)
        ends += [*measured_points.reach(y, low, high), y]
        measured_points.markers(axes, x, y, of_type["suspect"].to_numpy(dtype=bool), look, label="_measured")
    for limits, values in ((axes.set_xlim, rows["relative_error"]), (axes.set_ylim, np.concatenate(ends))):
        limits(float(np.nanmin(values)) / _ROOM, float(np.nanmax(values)) * _ROOM)
