"""Figure of the time of layers by class of work: a stack for each size, a panel for each way of running.

Heights are shares of the time that torch's profiler saw in operators, so that all stacks are of one height;
the number above each is the measured duration of a launch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import Patch
from matplotlib.ticker import PercentFormatter

from bench.format import seconds_text
from bench.judge.frame import DeviceRun
from plots.base import style
from plots.base.page import Page, leaves
from plots.base.parameter_words import axis_words
from plots.base.plot_spec import Section, completed

MOST_PANELS = 6
"""Panels on one page."""
_COLUMNS, _PANEL_IN, _GAP_IN = 2, (3.1, 2.2), (0.35, 0.75)
_WIDTH = 0.72
"""Width of a stack, as a share of the distance to the next."""
_TOP = 1.13
"""Upper end of the axes, with room for the durations above the stacks."""
CLASSES = {
    "contraction_s": ("products and convolutions", "#0072B2"),
    "normalization_s": ("norms and softmax", "#E69F00"),
    "elementwise_s": ("element-wise, and copies", "#B0B0B0"),
}
"""Column -> what it is called, and its colour, from the bottom of the stacks."""


def draw(run: DeviceRun, rows: pd.DataFrame, section: Section) -> Iterator[Page]:
    """Pages of up to six panels; none where no time is divided into classes."""
    known = rows[section.x].notna() & rows["median_s"].notna() & (rows[list(CLASSES)].sum(axis=1) > 0)
    shown = rows[known & rows[list(CLASSES)].notna().all(axis=1)]
    # Panels tell apart what differs, by as few columns as that takes: the kind before its sizes.
    whole = completed(replace(section, lines=(), panels=("kind", "dtype")), shown) if len(shown) else section
    apart = [name for name in (*whole.panels, *whole.lines) if shown[name].nunique(dropna=False) > 1]
    groups = (
        list(shown.groupby(apart, dropna=False, sort=False)) if apart else [((), shown)] * bool(len(shown))
    )
    for here, which in leaves(groups, MOST_PANELS):
        page = _page(run, pd.concat([of_panel for _, of_panel in here]), section, which, len(here))
        gaps = {"wspace": _GAP_IN[0] / _PANEL_IN[0], "hspace": _GAP_IN[1] / _PANEL_IN[1]}
        operator = str(shown["operator"].iloc[0])
        words = axis_words(section.x, operator)
        places = page.panels(len(here), min(_COLUMNS, len(here)), words, "share of the time", **gaps)
        for axes, (key, of_panel) in zip(places, here, strict=True):
            axes.set_title(_title(apart, key), fontsize="medium")
            _panel(axes, of_panel.sort_values(section.x), section.x)
        yield page


def _page(run: DeviceRun, shown: pd.DataFrame, section: Section, which: str, count: int) -> Page:
    columns, lines = min(_COLUMNS, count), math.ceil(count / _COLUMNS)
    page = Page(
        Page.LEFT + _COLUMNS * _PANEL_IN[0] + _GAP_IN[0] + Page.RIGHT if columns > 1 else 6.6,
        lines * _PANEL_IN[1] + (lines - 1) * _GAP_IN[1],
        f"{section.heading(shown)}{which}",
        style.facts(run, shown),
        [
            f"Shares of the time of {shown['parts_by'].iloc[0]}, in calls of their own after timing.",
            "What autograd and Python take is left out. Above each stack: the measured duration of a launch.",
        ],
        decided=section.decided,
    )
    page.legend([Patch(facecolor=color, label=name) for name, color in CLASSES.values()])
    return page


def _title(columns: list[str], key: Any) -> str:
    """`transformer, float32, eager`: values that speak for themselves, numbers with their names."""
    values = key if isinstance(key, tuple) else (key,)
    phrases = [
        (name, value)
        for name, value in zip(columns, values, strict=True)
        if value is not None and value == value
    ]
    return ", ".join(str(v) if isinstance(v, str) else style.labelled(n, v) for n, v in phrases)


def _panel(axes: Axes, rows: pd.DataFrame, x: str) -> None:
    """One stack for each row, its share of contractions in it."""
    parts = rows[list(CLASSES)].to_numpy(dtype=float)
    shares = parts / parts.sum(axis=1, keepdims=True)
    where, base = np.arange(len(rows)), np.zeros(len(rows))
    for place, (_, color) in enumerate(CLASSES.values()):
        axes.bar(where, shares[:, place], _WIDTH, base, color=color, label="_class")
        base += shares[:, place]
    for at, share in enumerate(shares[:, 0]):
        axes.text(at, share / 2, f"{share:.0%}", ha="center", va="center", color="white", fontsize="small")
    for at, duration_s in enumerate(rows["median_s"]):
        axes.text(at, 1.02, seconds_text(float(duration_s)), ha="center", va="bottom", fontsize="x-small")
    axes.set_xticks(where, [style.number(value) for value in rows[x]])
    axes.tick_params(axis="x", length=0)
    axes.set_ylim(0, _TOP)
    axes.set_yticks(np.linspace(0, 1, 6))
    axes.grid(False)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
