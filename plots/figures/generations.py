"""Figures of generations: the speed-up of each device over a base.

There is a panel for each operator, data type and what bounds its cases on the base, and a line of it for each
device: the numbers of the page of several devices. Ticks show what the datasheets promise: cases bound by
memory should gain as much as the bandwidth, those bound by compute as much as the peak. A bar that ends below
its tick did not get the generation's gain.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from bench.device.datasheet import Datasheet
from bench.judge import speedup as judge
from bench.judge.achieved import by_age
from bench.judge.frame import DeviceRun
from bench.model.bound import bound_text
from plots.base import style
from plots.base.page import Page, leaves

MOST_PANELS = 12
_WIDTHS_IN = (1.0, 2.9, 0.5, 2.9, 0.3)
"""Room for the devices' names, a panel, the numbers of its medians, a panel and its numbers."""
_LINE_IN, _GAP_IN = 0.2, 0.55
"""Height of a device's line, and the room between two rows."""
_NUMBER: dict[str, Any] = {
    **{"xycoords": ("axes fraction", "data"), "textcoords": "offset points"},
    **{"size": 8, "va": "center"},
}
"""How the median stands at the right of its line."""
_LEGEND = (
    Line2D([], [], color=style.SKY, lw=6, label="median"),
    Line2D([], [], color=style.BLUE, label="middle 80 % of the cases"),
    style.marker("the datasheets' promise, by bandwidth or peak", style.VERMILLION, "|", 8, mew=2),
)


def draw(runs: Sequence[DeviceRun], base: str, remark: Callable[[str], object]) -> Iterator[tuple[str, Page]]:
    """(stem, page) of the speed-ups over the base; none without a case in common.

    `remark` gets a sentence for each device that has no case in common with the base.
    """
    rows = pd.concat([run.frame for run in runs], ignore_index=True)
    sheets = {run.device: run.datasheet for run in runs}
    met = dict(judge.speedups(rows, base))
    for device, cases in met.items():
        if cases.empty:
            remark(f"{device} has no case in common with {base}: no speed-ups are drawn")
    met = {device: cases for device, cases in met.items() if len(cases)}
    if not met:
        return
    rows = rows[rows["device"].isin([base, *met])]
    yield from _pages(
        rows, judge.gains(met, base, sheets), base, {name: sheets[name] for name in (base, *met)}
    )


def _measured_alike(rows: pd.DataFrame, sheets: Mapping[str, Datasheet | None]) -> list[str]:
    """The sentences of a caption on what else differs: a speed-up between two protocols is none."""
    words = {"protocol": "protocols", "regime": "regimes", "clock": "clocks", "imported": "sources"}
    by_device = rows.groupby("device")
    differing = [
        word
        for column, word in words.items()
        if len({tuple(sorted(map(str, values))) for values in by_device[column].unique()}) > 1
    ]
    missing = [device for device, sheet in sheets.items() if sheet is None]
    sentences = [f"Measured in different ways: their {', '.join(differing)} differ."] if differing else []
    return [*sentences, f"No datasheet of {', '.join(missing)}."] if missing else sentences


def _pages(
    rows: pd.DataFrame, gains: Sequence[judge.Gain], base: str, sheets: Mapping[str, Datasheet | None]
) -> Iterator[tuple[str, Page]]:
    """The pages of these gains over the base; `rows` are those of the devices with a datasheet or None."""
    panels: dict[str, list[judge.Gain]] = {}
    for gain in gains:
        title = f"{gain.operator}, {gain.dtype}, {bound_text(gain.bound_by)}"
        panels.setdefault(title, []).append(gain)
    names = {device: sheet.slug if sheet else device for device, sheet in sheets.items()}
    shown = by_age({device: sheet for device, sheet in sheets.items() if device != base})
    caption = [
        *_measured_alike(rows, sheets),
        "The same problems, n of them, each by the quickest library which both have.",
        "What bounds a case follows from the base's ridge and launch overhead.",
    ]
    for number, (here, which) in enumerate(leaves(list(panels.items()), MOST_PANELS), 1):
        lines = math.ceil(len(here) / 2)
        height_in = _LINE_IN * (len(shown) + 1)
        page = Page(
            Page.LEFT + Page.RIGHT + sum(_WIDTHS_IN),
            lines * (height_in + _GAP_IN) - _GAP_IN,
            f"Speed-up over {names[base]}{which}",
            style.facts_together(rows),
            caption,
        )
        page.legend(_LEGEND)
        room = {"width_ratios": _WIDTHS_IN, "hspace": _GAP_IN / height_in, "wspace": 0.0}
        grid = page.grid(lines, len(_WIDTHS_IN), **room)
        for place, (title, gained) in enumerate(here):
            axes = page.figure.add_subplot(grid[place // 2, 1 + 2 * (place % 2)])
            _panel(axes, shown, title, gained)
            words = [] if place % 2 else [names[device] for device in shown]
            axes.set_yticks(range(len(shown)), words)
            axes.set_xlabel("times as fast" if place + 2 >= len(here) else "")
        yield f"generations-{number}" if number > 1 else "generations", page


def _panel(axes: Axes, devices: Sequence[str], title: str, gained: Sequence[judge.Gain]) -> None:
    counts = sorted({gain.cases for gain in gained})
    axes.set_title(f"{title}, n = {' to '.join(map(str, dict.fromkeys((counts[0], counts[-1]))))}")
    axes.axvline(1.0, color=style.BLACK, lw=0.7, zorder=1, label="_base")
    for gain in gained:
        at = devices.index(gain.device)
        axes.barh(at, gain.median, 0.5, color=style.SKY, zorder=2, label="_median")
        axes.hlines(at, gain.low, gain.high, color=style.BLUE, zorder=3, label="_spread")
        if gain.stated is not None:
            ends = at - 0.4, at + 0.4
            axes.vlines(gain.stated, *ends, color=style.VERMILLION, lw=2, zorder=4, label="_stated")
        axes.annotate(f"{gain.median:.2f}", (1, at), (2, 0), **_NUMBER)
    axes.set_ylim(len(devices) - 0.4, -0.6)
    axes.set_xlim(0, 1.05 * max(end for gain in gained for end in (gain.high, gain.stated or 0.0)))
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
