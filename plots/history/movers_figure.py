"""The movers as a figure: the time each gained or lost, and its size relative to the noise."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator
from matplotlib.transforms import blended_transform_factory

from bench.format import change_text
from plots.base import scale, style
from plots.base.page import Page
from plots.history import panel as panels
from plots.history.view import View

MOST = 20
"""Rows of the figure."""
_WIDTH_IN, _WORDS_IN, _ROW_IN, _WRAP = 9.8, 2.35, 0.3, 58
PREFIX = {"series": "", "class": "all of ", "ceiling": "ceiling: ", "machine": "the machine: "}
"""What stands before the name of a series, a class, a ceiling, and what all ceilings have in common."""
_LOOKS = {"SLOWER": (style.VERMILLION, "^"), "FASTER": (style.BLUE, "v")}


def draw(view: View, moved: pd.DataFrame) -> Iterator[tuple[str, Page]]:
    """(stem, page) of the first movers, if there are any."""
    if moved.empty:
        return
    shown = moved.head(MOST)
    left = len(moved) - len(shown)
    caption = [f"{left} more are in movers.csv."] if left else []
    caption += [
        "Hollow: classes, the seconds of their members together, and their median effect.",
        "Grey: the noise of a night (half of the band).",
        "Median of the first nights shown against that of the nights since the newest step, or the last "
        "three; only nights of the last segment.",
    ]
    area_in = _ROW_IN * len(shown) + 0.2
    title = "What moved, the most time first"
    page = Page(_WIDTH_IN, area_in, title, view.facts, caption, _WORDS_IN)
    page.figure.set_label(f"What moved on {view.history.device_name}")
    handles = [style.marker(verdict, color, marker, 6) for verdict, (color, marker) in _LOOKS.items()]
    page.legend([*handles, Patch(color=panels.BAND, label="noise of a night")])
    grid = page.grid(1, 3, width_ratios=[0.42, 0.29, 0.29], wspace=0.06)
    time = page.figure.add_subplot(grid[1])
    effect = page.figure.add_subplot(grid[2])
    y = np.arange(len(shown))
    factor, unit = scale.scaled(shown["moved_s"].abs(), "s")
    moved_s, effects = shown["moved_s"].to_numpy(dtype=float), shown["effect"].to_numpy(dtype=float)
    own = (shown["kind"] == "class").to_numpy()
    noise = 100 * shown["noise"].to_numpy(dtype=float)
    effect.barh(y, 2 * noise, left=-noise, height=0.5, color=panels.BAND, zorder=1, label="_noise")
    for verdict, (color, marker) in _LOOKS.items():
        for face, which in (("white", own), (color, ~own)):
            for axes, at_x, sign in (
                (time, factor * np.abs(moved_s), moved_s),
                (effect, 100 * effects, effects),
            ):
                at = which & (sign > 0 if verdict == "SLOWER" else sign <= 0)
                if at.any():
                    look: dict[str, Any] = {"color": color, "mfc": face, "ms": 6, "ls": "", "zorder": 3}
                    axes.plot(at_x[at], y[at], marker, label="_mover", **look)
    names = [PREFIX[kind] + name for kind, name in zip(shown["kind"], shown["name"], strict=True)]
    time.set_yticks(y, ["\n".join(textwrap.wrap(name, _WRAP)[:2]) for name in names], size=6.5)
    time.set_xlabel(f"time moved ({unit})")
    _log(time, factor * np.abs(moved_s))
    effect.set_xlabel("effect (percent)")
    effect.use_sticky_edges = False
    effect.axvline(0.0, color="#444444", lw=0.7, zorder=1.5, label="_zero")
    effect.xaxis.set_major_locator(MaxNLocator(5))
    effect.xaxis.set_major_formatter(FuncFormatter(scale.plain))
    _words(effect, shown)
    effect.set_yticks(y, [""] * len(y))
    for axes in (time, effect):
        axes.set_ylim(len(shown) - 0.4, -0.6)
    yield "movers", page


def _words(axes: Axes, shown: pd.DataFrame) -> None:
    """A column right of the panel: the effect, its size relative to the noise, and the state of the step."""
    for place, mover in enumerate(shown.to_dict("records")):
        since = f", {mover['since']}" if mover["since"] else ""
        axes.annotate(
            f"{change_text(1 + mover['effect'])}, {mover['over_noise']:.1f} x noise, {mover['state']}{since}",
            (1.0, place),
            xycoords=blended_transform_factory(axes.transAxes, axes.transData),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            size=6.5,
        )


def _log(axes: Axes, values: np.ndarray) -> None:
    axes.set_xscale("log")
    positive = values[values > 0]
    axes.set_xlim(float(positive.min()) / 2, float(positive.max()) * 2)
    few = positive.max() / positive.min() < 30
    axes.xaxis.set_major_locator(LogLocator(10, subs=(1.0, 2.0, 5.0) if few else (1.0,), numticks=6))
    axes.xaxis.set_major_formatter(FuncFormatter(scale.plain))
    axes.xaxis.set_minor_locator(NullLocator())
