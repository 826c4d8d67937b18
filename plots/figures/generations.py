"""Figure of generations side by side: the speed-up of each device over a base, as an overview.

There is a panel for each operator, data type and what bounds its cases on the base, and a marker for each
device: the numbers of `python -m bench compare ... --across device`. Lines show what the datasheets promise:
cases bound by memory should gain as much as the bandwidth, those bound by compute as much as the peak. A
marker below its line did not get the generation's gain. Case by case: plots/figures/generations_detail.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from bench.judge.speedup import Gain
from bench.model.bound import bound_text
from plots.base import style
from plots.base.page import Page, leaves
from plots.figures import generations_detail, speedups
from plots.figures.speedups import Compared

MOST_PANELS = 12
_COLUMNS = (1, 1, 2, 3, 4, 3, 3, 4, 4, 3, 4, 4, 4)
_WIDTH_IN, _HEIGHT_IN, _GAP_IN = 2.4, 1.75, 0.5


def draw(compared: Compared) -> Iterator[tuple[str, Page]]:
    """(stem, page): the overview, then each operator and data type in detail."""
    yield from _overview(compared)
    cases = pd.concat(compared.cases.values())
    kinds = sorted(set(zip(cases["operator"], cases["dtype"], strict=True)))
    for operator, dtype in kinds:
        page = generations_detail.page(compared, operator, dtype)
        if page is not None:
            yield f"generations-{operator}-{dtype}", page


def _overview(compared: Compared) -> Iterator[tuple[str, Page]]:
    panels: dict[str, list[Gain]] = {}
    for gain in compared.gains:
        title = f"{gain.operator}, {gain.dtype}, {bound_text(gain.bound_by)}"
        panels.setdefault(title, []).append(gain)
    for number, (here, which) in enumerate(leaves(list(panels), MOST_PANELS), 1):
        columns = _COLUMNS[len(here)]
        high = math.ceil(len(here) / columns)
        page = Page(
            Page.LEFT + Page.RIGHT + columns * _WIDTH_IN,
            high * _HEIGHT_IN + (high - 1) * _GAP_IN,
            f"Speed-up over {compared.base}{which}",
            style.facts_together(compared.rows),
            [
                speedups.PROMISED,
                *speedups.measured_alike(compared),
                "The same problems, how many is below; from left to right as in the legend.",
                *speedups.MIDDLE,
            ],
        )
        page.legend(speedups.legend(compared, compared.cases))
        names = ("", "speed-up (ratio of times)")
        places = page.panels(len(here), columns, *names, hspace=_GAP_IN / _HEIGHT_IN, wspace=0.22)
        for axes, title in zip(places, here, strict=True):
            _at_a_glance(axes, list(compared.cases), title, panels[title])
        yield f"generations-{number}" if number > 1 else "generations", page


def _at_a_glance(axes: Axes, devices: Sequence[str], title: str, gained: Sequence[Gain]) -> None:
    axes.set_title(title)
    axes.axhline(1.0, color=style.BLACK, lw=0.7, zorder=1, label="_base")
    shown = [1.0]
    for gain in gained:
        place, look = devices.index(gain.device), style.of_device(gain.device)
        axes.vlines(
            place, gain.low, gain.high, color=look.color, lw=2.2, alpha=0.55, zorder=3, label="_spread"
        )
        axes.plot(place, gain.median, look.marker, color=look.color, ms=6, zorder=4, label="_median")
        shown += [gain.low, gain.high]
        if gain.stated is not None:
            name, promise = speedups.PROMISES[gain.bound_by]
            ends = (place - 0.38, place + 0.38)
            axes.plot(ends, (gain.stated, gain.stated), zorder=2, label=f"_{name}", **promise)
            shown.append(gain.stated)
        below: dict[str, Any] = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points"}
        below |= {"ha": "center", "va": "top", "size": 6}
        axes.annotate(str(gain.cases), (place, 0.0), (0, -3), **below)
    speedups.ratio_axis(axes, shown)
    axes.set_xlim(-0.6, len(devices) - 0.4)
    axes.set_xticks([])
