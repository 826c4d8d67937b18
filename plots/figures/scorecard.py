"""How good the predictions are: predicted against measured at each level, and the errors by operator.

Above, a panel a level: each case a point, the diagonal being a perfect prediction, with bands of 10 and 25 %.
Below, the median and the mean of the error for each operator and device, all levels on the same cases.
What is scored and how is in bench/judge/score.py.
"""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.gridspec import SubplotSpec
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

from bench.format import share_text
from bench.judge.score import Score, Scorecard, ScoredGroup, predicted_and_measured, scorecard, scores
from bench.model.predict import LEVELS
from plots.base import scale, style
from plots.base.page import MOST_ENTRIES, Entry, Page, Together

SAID: Mapping[str, str] = {
    "L0": "L0: datasheet",
    "L1": "L1: calibrated",
    "L2": "L2: with structure",
    "L3": "L3: learned",
    "L2-priors": "L2-priors: no fit",
}
LOOKS: Mapping[str, style.LineStyle] = {
    "L0": style.LineStyle(style.GREY, "o"),
    "L1": style.LineStyle(style.BLUE, "s"),
    "L2": style.LineStyle(style.VERMILLION, "D"),
    "L2-priors": style.LineStyle(style.GREEN, "^"),
    "L3": style.LineStyle(style.PURPLE, "v"),
}
MANY = 1500
"""Points of a figure from which they are drawn as pixels: an SVG of 30,000 markers opens in no browser."""
TURNS = 40
"""Number of turns in which the points are drawn."""
_BANDS = ((0.25, "#EDEDED"), (0.10, "#D5D5D5"))
_WIDTH_IN, _SCATTER_IN, _LINE_IN, _GAP_IN = (8.6, 10.6), 2.5, 0.3, 0.75
_LABELS = 0.31
"""Share of the width that the names of operators and devices take."""
_TICKS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)


def draw(rows: pd.DataFrame) -> Iterator[tuple[str, Page]]:
    """(stem, page), if any of these rows can be scored; they are one run's, or several runs' together."""
    card = scorecard(rows)
    scored = scores(card)
    if not scored:
        return
    groups = [group for group in card.groups if len(group.rows) and group.levels]
    levels = [level for level in LEVELS if any(level in group.levels for group in groups)]
    shown = pd.concat([group.rows for group in groups])
    # Colours say the device, if there are several; else the operator.
    several = len({group.device for group in groups}) > 1
    named = [group.device if several else group.operator for group in groups]
    looks = [style.of_device(name) if several else style.of_operator(name) for name in named]
    below_in = _LINE_IN * len(groups) + 0.25
    page = Page(
        _WIDTH_IN[len(levels) > 3],
        _SCATTER_IN + _GAP_IN + below_in,
        "How far predictions are off",
        style.facts_together(shown),
        _caption(card),
    )
    page.legend(_entries(dict(zip(named, looks, strict=True))))
    gap = 2 * _GAP_IN / (_SCATTER_IN + below_in)
    outer = page.grid(2, 1, height_ratios=[_SCATTER_IN, below_in], hspace=gap)
    above = outer[0].subgridspec(1, max(2, len(levels)), wspace=0.12)
    first: Axes | None = None
    for i, level in enumerate(levels):
        here = [(group, look) for group, look in zip(groups, looks, strict=True) if level in group.levels]
        first = _scatter(page, above[i], here, level, shown["median_s"], first)
    below = outer[1].subgridspec(1, 2, width_ratios=[_LABELS, 1 - _LABELS], wspace=0.0)
    axes = page.figure.add_subplot(below[1])
    axes.set_yticks(range(len(groups)), list(_names(groups, several)))
    for label, look in zip(axes.get_yticklabels(), looks, strict=True):
        label.set_color(look.color)
    _errors(axes, groups, scored)
    yield "scorecard", page


def _scatter(
    page: Page,
    where: SubplotSpec,
    here: Sequence[tuple[ScoredGroup, style.LineStyle]],
    level: str,
    measured_s: pd.Series,
    first: Axes | None,
) -> Axes:
    """Draw the panel of a level; `measured_s` are the times at all levels, `first` the first panel."""
    axes: Axes = page.figure.add_subplot(where, sharex=first, sharey=first)
    factor, unit = scale.scaled(measured_s, "s")
    axes.set_title(f"{SAID[level]}, n = {sum(len(group.rows) for group, _ in here)}")
    many = len(measured_s) > MANY
    # By the times, not by what is predicted of them: a datasheet's picoseconds must not flatten the rest.
    low, high = measured_s.min() * factor / 1.5, measured_s.max() * factor * 1.5
    bottom = low / 10
    # Of many points every group a few, in turns: else the last device would cover all others.
    turns = TURNS if many else 1
    how: dict[str, Any] = {"ms": 3.4, "mew": 0.5, "alpha": 0.8}
    if many:
        how = {"ms": 1.8, "mew": 0.0, "alpha": 0.45, "rasterized": True}
    for turn, (group, look) in itertools.product(range(turns), here):
        predicted, measured = (times[turn::turns] * factor for times in predicted_and_measured(group, level))
        y = np.clip(predicted, bottom, high)
        how |= {"color": look.color, "clip_on": False, "zorder": 3, "label": "_case"}
        axes.plot(measured, y, look.marker, **how)
    if first is None:
        for axis in (axes.xaxis, axes.yaxis):
            scale.measured(axis, np.array([low, high]), log=True)
        # Numbers side by side take more room than one above the other.
        axes.xaxis.set_major_locator(LogLocator(10, numticks=4))
        axes.set(xlim=(low, high), ylim=(bottom, high))
        axes.set_ylabel(f"predicted ({unit})")
    else:
        axes.tick_params(labelleft=False)
    ends = np.array(axes.get_xlim())
    for share, color in _BANDS:
        axes.fill_between(ends, ends * (1 - share), ends * (1 + share), color=color, lw=0, zorder=1)
    axes.plot(ends, ends, color=style.BLACK, lw=0.7, zorder=2, label="_even")
    axes.set_xlabel(f"measured ({unit})")
    return axes


def _errors(axes: Axes, groups: Sequence[ScoredGroup], scored: Sequence[Score]) -> None:
    places = {_key(group): i for i, group in enumerate(groups)}
    levels = [level for level in LEVELS if any(score.level == level for score in scored)]
    for score in scored:
        apart = 0.2 * (levels.index(score.level) - (len(levels) - 1) / 2)
        y, look = places[_key(score)] + apart, LOOKS[score.level]
        ends = [max(end, _TICKS[0]) for end in (score.median, score.mape)]
        axes.plot(ends, [y, y], color=look.color, lw=0.8, zorder=2)
        for end, face, name in zip(ends, (look.color, "white"), ("_median", "_mape"), strict=True):
            axes.plot(end, y, look.marker, color=look.color, mfc=face, ms=4.2, mew=0.9, zorder=3, label=name)
    handles = [style.marker(level, LOOKS[level].color, LOOKS[level].marker, 4.5) for level in levels]
    handles.append(style.marker("hollow: mean (MAPE)", "#444444", "o", 4.5, mfc="white"))
    axes.legend(handles=handles, loc="lower left", bbox_to_anchor=(0, 1), ncols=len(handles), fontsize=7.5)
    axes.set_ylim(len(groups) - 0.4, -0.6)
    axes.set_xscale("log")
    low, high = axes.get_xlim()
    axes.set_xlim(min(low, 5.0), max(high, 30.0))
    axes.xaxis.set_major_locator(FixedLocator([float(tick) for tick in _TICKS]))
    axes.xaxis.set_major_formatter(FuncFormatter(scale.plain))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("|predicted / measured - 1| (percent)")
    for goal in (10.0, 25.0):
        axes.axvline(goal, color=style.GREY, lw=0.8, ls=":", zorder=1, label="_bar")


def _key(entry: ScoredGroup | Score) -> tuple[str, str, str | None, str | None]:
    return entry.operator, entry.device, entry.source, entry.regime


def _names(groups: Sequence[ScoredGroup], several: bool) -> Iterator[str]:
    """What each group is called, with its device if there are several."""
    regimes = {group.regime for group in groups}
    for group in groups:
        words = [group.operator]
        words += [group.device.removeprefix("nvidia-")] if several else []
        words += [group.regime or "regime unknown"] if len(regimes) > 1 else []
        words += ["imported"] if group.source else []
        yield "\n".join(textwrap.wrap(", ".join(words) + f" ({len(group.rows)})", 44))


def _entries(looks: Mapping[str, style.LineStyle]) -> list[Entry]:
    """What the colours of the points mean, as far as a legend can hold it: the names below have them too."""
    shown = looks.items() if len(looks) < MOST_ENTRIES else ()
    entries: list[Entry] = [style.marker(name, look.color, look.marker, 4.5) for name, look in shown]
    bands = tuple(Patch(color=color) for _, color in _BANDS[::-1])
    words = ", ".join(share_text(share) for share, _ in _BANDS[::-1])
    return [*entries, Together(f"within {words}", bands)]


def _caption(card: Scorecard) -> list[str]:
    return [
        f"{card.scored} of {card.rows} rows{card.left_out and '; '}{card.left_out}.",
        "Below: medians of the error (filled) and means (hollow), in the colours of the points above.",
        "Above: a point a case. In brackets how many cases, the same at every level.",
        "Points beyond a panel stand on its edge.",
    ]
