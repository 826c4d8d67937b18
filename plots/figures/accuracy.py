"""Figure of time against error: a panel for each size, a mark for each data type.

The error is the row's: the largest as a share of the largest result, against float64. To the lower left is
better. In a sweep whose operands are rounded to each type (`data: normal` of gemm) it is what the type costs.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from bench.judge.frame import DeviceRun
from plots.base import measured_points, style
from plots.base.page import Page, PanelPage, Panels, leaves
from plots.base.plot_spec import Section

MOST_PANELS = 6
"""Panels on one page."""
_PANELS = Panels(2, 3.4, 2.5, 0.7, 0.6 / 3.1)
_ROOM = 1.7
"""Times as far as the outermost marks."""
_TIME = measured_points.Columns("median_s", "low_s", "high_s")
_LABELS = ("largest error / largest result", "duration, s")


def draw(run: DeviceRun, rows: pd.DataFrame, section: Section) -> Iterator[Page]:
    """A page for each implementation and six sizes; none where no row has both a time and an error."""
    shown = rows[rows[section.x].notna() & rows["median_s"].notna() & (rows["relative_error"] > 0)]
    types = list(shown.groupby("dtype")["relative_error"].median().sort_values().index)
    looks = dict(zip(types, style.of_lines(("dtype",), [(name,) for name in types]).values(), strict=True))
    entries = [style.marker(name, look.color, look.marker) for name, look in looks.items()]
    for implementation, of_one in shown.groupby("implementation", sort=True):
        caption = [
            measured_points.caption(of_one),
            "Errors are against float64; hollow marks are suspect (flagged).",
        ]
        for here, which in leaves(list(of_one.groupby(section.x, sort=True)), MOST_PANELS):
            title = f"{section.heading(of_one)}: {implementation}{which}"
            facts = style.facts(run, of_one)
            page = PanelPage(len(here), _PANELS, title, facts, caption, decided=section.decided)
            for axes, (size, of_size) in zip(page.axes(entries, *_LABELS), here, strict=True):
                axes.set_title(style.labelled(section.x, size), y=1.0)
                _panel(axes, of_size, looks)
            yield page


def _panel(axes: Axes, rows: pd.DataFrame, looks: dict[str, style.LineStyle]) -> None:
    """The marks of one size, with their intervals."""
    axes.set(xscale="log", yscale="log")
    points = measured_points.placed(rows, rows["relative_error"].to_numpy(), _TIME)
    for name, of_type in points.groupby("dtype"):
        look = looks[str(name)]
        measured_points.intervals(axes, of_type, look.color)
        measured_points.markers(axes, of_type, look, label="_measured")
    for limits, values in ((axes.set_xlim, points["at"]), (axes.set_ylim, points[["y", "bottom", "top"]])):
        limits(float(np.nanmin(values)) / _ROOM, float(np.nanmax(values)) * _ROOM)
