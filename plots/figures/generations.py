"""Figure of generations side by side: the speed-up of each device over a base, as an overview.

There is a panel for each kind of problem and data type, and a marker for each device. Lines show what the
datasheets promise: memory-bound problems should gain as much as the bandwidth, others as much as the peak. A
marker below its line did not get the generation's gain. Case by case: plots/figures/generations_detail.py.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Mapping

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from plots.base import problem_sizes, style
from plots.base.page import Page, leaves
from plots.figures import generations_detail, speedups
from plots.figures.speedups import Compared

MOST_PANELS = 12
_COLUMNS = (1, 1, 2, 3, 4, 3, 3, 4, 4, 3, 4, 4, 4)
_WIDTH_IN, _HEIGHT_IN, _GAP_IN = 2.7, 1.75, 0.5
_MOST_LETTERS, _LETTER_IN = 16, 0.06

_Panel = tuple[str, str]
"""Kind of problem (`problem_sizes.panels`) and data type."""


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
    panels: dict[_Panel, dict[str, pd.DataFrame]] = {}
    for device, cases in compared.cases.items():
        for name, of_panel in problem_sizes.panels(cases):
            for dtype, those in of_panel.groupby("dtype", sort=True):
                panels.setdefault((name, str(dtype)), {})[device] = those
    # As `problem_sizes.panels` orders the sizes of one operator.
    order = {name: i for i, name in enumerate(dict.fromkeys(name for name, _ in panels))}
    keys = sorted(panels, key=lambda key: (key[0].split(",")[0], key[1], order[key[0]]))
    devices = _names(compared)
    for number, (here, which) in enumerate(leaves(keys, MOST_PANELS), 1):
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
                "The same problems, n of them.",
                *speedups.MIDDLE,
            ],
            under_in=0.15 + _LETTER_IN * max(map(len, devices)),
        )
        page.legend(speedups.legend(compared, compared.cases))
        names = ("", "speed-up (ratio of times)")
        places = page.panels(len(here), columns, *names, hspace=_GAP_IN / _HEIGHT_IN, wspace=0.22)
        for place, (axes, key) in enumerate(zip(places, here, strict=True)):
            _at_a_glance(axes, compared, ", ".join(key), panels[key])
            axes.set_xticks(range(len(devices)), devices, rotation=90)
            axes.tick_params(axis="x", labelsize=6.5, labelbottom=place + columns >= len(here))
        yield f"generations-{number}" if number > 1 else "generations", page


def _at_a_glance(axes: Axes, compared: Compared, title: str, by_device: Mapping[str, pd.DataFrame]) -> None:
    counts = [len(cases) for cases in by_device.values()]
    counted = " to ".join(map(str, sorted({min(counts), max(counts)})))
    axes.set_title(f"{title}, n = {counted}")
    axes.axhline(1.0, color=style.BLACK, lw=0.7, zorder=1, label="_base")
    shown = [1.0]
    for place, device in enumerate(compared.cases):
        if device not in by_device:
            continue
        look = style.of_device(device)
        low, middle, high = np.quantile(by_device[device]["speedup"], (0.1, 0.5, 0.9))
        axes.vlines(place, low, high, color=look.color, lw=2.2, alpha=0.55, zorder=3, label="_spread")
        axes.plot(place, middle, look.marker, color=look.color, ms=6, zorder=4, label="_median")
        shown += [low, high]
        for name, gain in compared.gains(device, by_device[device]).items():
            ends = (place - 0.38, place + 0.38)
            axes.plot(ends, (gain, gain), zorder=2, label=f"_{name}", **speedups.PROMISES[name])
            shown.append(gain)
    speedups.ratio_axis(axes, shown)
    axes.set_xlim(-0.6, len(compared.cases) - 0.4)


def _names(compared: Compared) -> list[str]:
    """The devices as ticks name them: by their first words, or in whole where these are not enough."""
    sheets = {device: compared.sheets[device] for device in compared.cases}
    whole = [style.short_name(sheet.name) if sheet else device for device, sheet in sheets.items()]
    first = [textwrap.wrap(name, _MOST_LETTERS)[0] for name in whole]
    return first if len({*first}) == len(whole) else whole
