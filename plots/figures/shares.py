"""Figure of the time of layers by class of work: a stack for each size, a panel for each way of running.

Heights are shares of the time that torch's profiler saw in operators, so that all stacks are of one height;
the number above each is the measured duration of a launch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import Patch
from matplotlib.ticker import PercentFormatter

from bench.format import seconds_text
from bench.judge.frame import DeviceRun
from plots.base import style
from plots.base.page import Page, PanelPage, Panels, leaves
from plots.base.parameter_words import axis_words
from plots.base.plot_spec import Section, completed, split

MOST_PANELS = 6
"""Panels on one page."""
_SEVERAL = Panels(2, 3.275, 2.2, 0.75, 0.35 / 3.1)
_ALONE = _SEVERAL._replace(columns=1, width_in=6.6 - Page.LEFT - Page.RIGHT)
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
    if shown.empty:
        return
    # Panels tell apart what differs, by as few columns as that takes: the kind before its sizes.
    whole = completed(replace(section, lines=(), panels=("kind", "dtype")), shown)
    apart = [name for name in (*whole.panels, *whole.lines) if shown[name].nunique(dropna=False) > 1]
    groups = split(shown, apart, sort=False)
    entries = [Patch(facecolor=color, label=name) for name, color in CLASSES.values()]
    words = (axis_words(section.x, str(shown["operator"].iloc[0])), "share of the time")
    for here, which in leaves(groups, MOST_PANELS):
        of_page = pd.concat([of_panel for _, of_panel in here])
        caption = [
            f"Shares of the time of {of_page['parts_by'].iloc[0]}, in calls of their own after timing.",
            "What autograd and Python take is left out. Above each stack: the measured duration of a launch.",
        ]
        title = f"{section.heading(of_page)}{which}"
        panels, facts = _SEVERAL if len(here) > 1 else _ALONE, style.facts(run, of_page)
        page = PanelPage(len(here), panels, title, facts, caption, decided=section.decided)
        for axes, (key, of_panel) in zip(page.axes(entries, *words), here, strict=True):
            # Values that speak for themselves, numbers with their names: `transformer, float32, depth=2`.
            pairs = [(name, v) for name, v in zip(apart, key, strict=True) if v is not None and v == v]
            texts = (v if isinstance(v, str) else style.labelled(name, v) for name, v in pairs)
            axes.set_title(", ".join(texts))
            _panel(axes, of_panel.sort_values(section.x), section.x)
        yield page


def _panel(axes: Axes, rows: pd.DataFrame, x: str) -> None:
    """One stack for each row, its share of contractions in it."""
    parts = rows[list(CLASSES)].to_numpy(dtype=float)
    shares = parts / parts.sum(axis=1, keepdims=True)
    where, base = np.arange(len(rows)), np.zeros(len(rows))
    for place, (_, color) in enumerate(CLASSES.values()):
        axes.bar(where, shares[:, place], _WIDTH, base, color=color, label="_class")
        base += shares[:, place]
    for at, (share, duration_s) in enumerate(zip(shares[:, 0], rows["median_s"], strict=True)):
        axes.text(at, share / 2, f"{share:.0%}", ha="center", va="center", color="white", fontsize="small")
        axes.text(at, 1.02, seconds_text(float(duration_s)), ha="center", va="bottom", fontsize="x-small")
    axes.set_xticks(where, [style.number(value) for value in rows[x]])
    axes.tick_params(axis="x", length=0)
    axes.set_ylim(0, _TOP)
    axes.set_yticks(np.linspace(0, 1, 6))
    axes.grid(False)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
