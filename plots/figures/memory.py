"""Figure of memory: what training steps hold at most (`peak_byte`) over one parameter, with the prediction.

Points are counted, so they have no interval. The dashed line is bench.model.step_memory's, which knows
the problem alone. Over depth, steps with checkpoints are one line, however many segments each has.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from bench.judge.frame import DeviceRun
from bench.model.step_memory import TrainingStep
from plots.base import scale, style
from plots.base.page import Page, leaves
from plots.base.parameter_words import axis_words
from plots.base.plot_spec import Section, split

MOST_PANELS = 6
"""Panels on one page."""
_COLUMNS, _PANEL_IN, _GAP_IN = 2, (3.1, 2.5), (0.75, 0.7)
_LINES = ("implementation", "optimizer", "checkpoints")
_PANELS = ("layers", "width", "batch", "dtype", "threads_asked")


def draw(run: DeviceRun, rows: pd.DataFrame, section: Section) -> Iterator[Page]:
    """A page for each six panels; none where no line has two points."""
    shown = rows[rows[section.x].notna() & (rows["peak_byte"] > 0)]
    if shown.empty:
        return
    checkpoints = np.where(shown["segments"] > 1, "with checkpoints", "without checkpoints")
    shown = shown.assign(
        checkpoints=checkpoints if section.x != "segments" else "", predicted=_predicted(shown)
    )
    apart = [name for name in _PANELS if name != section.x and shown[name].nunique() > 1]
    groups = [(key, panel) for key, panel in split(shown, apart) if panel[section.x].nunique() > 1]
    if not groups:
        return
    shown = pd.concat([panel for _, panel in groups])
    columns = [name for name in _LINES if shown[name].nunique() > 1] or ["implementation"]
    keys = list(dict.fromkeys(zip(*(shown[name] for name in columns), strict=True)))
    looks = style.of_lines(tuple(columns), keys)
    off = float((shown["predicted"] / shown["peak_byte"] - 1).abs().max())
    for here, which in leaves(groups, MOST_PANELS):
        lines = math.ceil(len(here) / _COLUMNS)
        page = Page(
            Page.LEFT + _COLUMNS * _PANEL_IN[0] + _GAP_IN[0] + Page.RIGHT,
            lines * _PANEL_IN[1] + (lines - 1) * _GAP_IN[1],
            f"{section.heading(shown)}{which}",
            style.facts(run, shown),
            [
                f"Counted, so without intervals. Predicted from the sizes: at most {100 * off:.2g} % off.",
                "Inputs are left out, and so are the weights where there is no optimizer.",
            ],
            decided=section.decided,
        )
        entries = [style.marker(style.named(columns, key), of.color, of.marker) for key, of in looks.items()]
        page.legend([*entries, Line2D([], [], color="#444444", ls="--", lw=1.0, label="predicted")])
        gaps = {"wspace": _GAP_IN[0] / _PANEL_IN[0], "hspace": _GAP_IN[1] / _PANEL_IN[1]}
        places = page.panels(len(here), _COLUMNS, axis_words(section.x, "training"), "memory, MB", **gaps)
        for axes, (key, panel) in zip(places, here, strict=True):
            axes.set_title(style.named(apart, key), y=1.0)
            _panel(axes, panel, section.x, columns, looks)
        yield page


def _predicted(rows: pd.DataFrame) -> list[int]:
    return [_step(row).peak_byte(str(row["implementation"])) for _, row in rows.iterrows()]


def _step(row: pd.Series) -> TrainingStep:
    given: dict[str, Any] = {}
    for each in fields(TrainingStep):
        given[each.name] = row[each.name] if isinstance(row[each.name], str) else int(row[each.name])
    return TrainingStep(**given)


def _panel(
    axes: Axes,
    rows: pd.DataFrame,
    x: str,
    columns: list[str],
    looks: dict[tuple[object, ...], style.LineStyle],
) -> None:
    for key, line in rows.groupby(columns, sort=False):
        line = line.sort_values(x)
        look = looks[key]
        at, measured, predicted = (line[name].to_numpy(dtype=float) for name in (x, "peak_byte", "predicted"))
        axes.plot(at, predicted / 1e6, color=look.color, ls="--", lw=1.0, label="_predicted")
        axes.plot(at, measured / 1e6, look.marker, color=look.color, ms=4.4, label="_measured", zorder=4)
    values = rows[x].to_numpy(dtype=float)
    scale.swept(axes.xaxis, values, log=bool((values > 0).all()), width_in=_PANEL_IN[0])
    scale.measured(axes.yaxis, rows["peak_byte"].to_numpy(dtype=float) / 1e6, log=True)
