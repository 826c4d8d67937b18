"""Figure of generations side by side: the speed-up of each device over a base, as an overview.

There is a panel for each operator, data type and what bounds its cases on the base, and a marker for each
device: the numbers of `python -m bench compare ... --across device`. Lines show what the datasheets promise:
cases bound by memory should gain as much as the bandwidth, those bound by compute as much as the peak. A
marker below its line did not get the generation's gain. Case by case: plots/figures/generations_detail.py.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Sequence

import pandas as pd
from matplotlib.axes import Axes

from bench.judge.speedup import Gain
from bench.model.bound import bound_text
from plots.base import scale, style
from plots.base.page import Page, leaves
from plots.figures import generations_detail, speedups
from plots.figures.speedups import ComparedDevices

MOST_PANELS = 12
_COLUMNS = (1, 1, 2, 3, 4, 3, 3, 4, 4, 3, 4, 4, 4)
_WIDTH_IN, _HEIGHT_IN, _GAP_IN = 2.7, 1.75, 0.5
_MOST_LETTERS, _LETTER_IN = 16, 0.06


def draw(compared: ComparedDevices) -> Iterator[tuple[str, Page]]:
    """(stem, page): the overview, then each operator and data type in detail."""
    yield from _overview(compared)
    cases = pd.concat(compared.cases.values())
    kinds = sorted(set(zip(cases["operator"], cases["dtype"], strict=True)))
    for operator, dtype in kinds:
        page = generations_detail.page(compared, operator, dtype)
        if page is not None:
            yield f"generations-{operator}-{dtype}", page


def _overview(compared: ComparedDevices) -> Iterator[tuple[str, Page]]:
    panels: dict[str, list[Gain]] = {}
    for gain in compared.gains:
        title = f"{gain.operator}, {gain.dtype}, {bound_text(gain.bound_by)}"
        panels.setdefault(title, []).append(gain)
    devices, names = list(compared.cases), _names(compared)
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
                "The same problems, n of them.",
                *speedups.MIDDLE,
            ],
            under_in=0.25 + _LETTER_IN * max(map(len, names)),
        )
        looks = {device: style.of_device(device) for device in devices}
        page.legend([style.marker(device, look.color, look.marker) for device, look in looks.items()])
        labels = ("", "speed-up (ratio of times)")
        places = page.panels(len(here), columns, *labels, hspace=_GAP_IN / _HEIGHT_IN, wspace=0.22)
        for place, (axes, title) in enumerate(zip(places, here, strict=True)):
            _at_a_glance(axes, devices, title, panels[title])
            lowest = place + columns >= len(here)
            axes.set_xticks(range(len(names)), names, rotation=90)
            axes.tick_params(axis="x", labelsize=6.5, labelbottom=lowest)
        yield f"generations-{number}" if number > 1 else "generations", page


def _at_a_glance(axes: Axes, devices: Sequence[str], title: str, gained: Sequence[Gain]) -> None:
    counts = sorted({gain.cases for gain in gained})
    axes.set_title(f"{title}, n = {' to '.join(map(str, dict.fromkeys((counts[0], counts[-1]))))}")
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
    scale.ratio(axes, shown, speedups.TICKS)
    axes.set_xlim(-0.6, len(devices) - 0.4)


def _names(compared: ComparedDevices) -> list[str]:
    """The devices as ticks name them: by their first words, or in whole where these are not enough."""
    sheets = {device: compared.sheets[device] for device in compared.cases}
    whole = [style.short_name(sheet.name) if sheet else device for device, sheet in sheets.items()]
    first = [textwrap.wrap(name, _MOST_LETTERS)[0] for name in whole]
    return first if len({*first}) == len(whole) else whole
