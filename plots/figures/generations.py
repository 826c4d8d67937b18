"""Figures of generations: the speed-up of each device over a base.

There is a panel for each operator, data type and what bounds its cases on the base, and a marker for each
device: the numbers of the page of several devices. Lines show what the datasheets promise:
cases bound by memory should gain as much as the bandwidth, those bound by compute as much as the peak. A
marker below its line did not get the generation's gain.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from bench.device.datasheet import Datasheet
from bench.judge import speedup as judge
from bench.judge.frame import DeviceRun
from bench.model.bound import bound_text
from plots.base import scale, style
from plots.base.page import Page, leaves

MOST_PANELS = 12
PROMISES: Mapping[str, tuple[str, dict[str, Any]]] = {
    "memory": ("bandwidth", {"color": style.BLACK, "ls": (0, (5, 1.5)), "lw": 1.1}),
    "compute": ("peak", {"color": "#777777", "ls": (0, (1, 1)), "lw": 1.6}),
}
"""What bounds cases -> the number of the datasheet that promises a speed-up, and the look of its line."""
_PROMISED = "Dashed: bandwidth by datasheet; dotted: peak."
_MIDDLE = (
    "Marker: the median; bar: the middle 80 % of the cases.",
    "A case's time is that of the quickest library which both devices have.",
    "What bounds it follows from the base's ridge and launch overhead.",
)
_COLUMNS = (1, 1, 2, 3, 4, 3, 3, 4, 4, 3, 4, 4, 4)
_WIDTH_IN, _HEIGHT_IN, _GAP_IN = 2.7, 1.75, 0.5
"""Size of a panel, with its share of the gaps in its width, and the room between two rows."""
_TICKS = 7
"""About how many ticks an axis of speed-ups has."""
_MOST_LETTERS, _LETTER_IN = 16, 0.06


@dataclass(frozen=True)
class _Compared:
    """The devices that have cases in common with the base, with their datasheets."""

    base: str
    cases: Mapping[str, pd.DataFrame]
    """Device -> its cases (bench.judge.speedup), in the order in which they were named; none is empty."""
    sheets: Mapping[str, Datasheet | None]
    rows: pd.DataFrame
    """All rows of these devices and of the base."""

    @cached_property
    def gains(self) -> Sequence[judge.Gain]:
        """What the devices gain, by operator, data type and bound: the numbers of the command line."""
        return judge.gains(self.cases, self.base, self.sheets)


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
    yield from _pages(_Compared(base, met, sheets, rows[rows["device"].isin([base, *met])]))


def _measured_alike(compared: _Compared) -> list[str]:
    """The sentences of a caption on what else differs: a speed-up between two protocols is none."""
    words = {"protocol": "protocols", "regime": "regimes", "clock": "clocks", "imported": "sources"}
    by_device = compared.rows.groupby("device")
    differing = [
        word
        for column, word in words.items()
        if len({tuple(sorted(map(str, values))) for values in by_device[column].unique()}) > 1
    ]
    missing = [device for device in (compared.base, *compared.cases) if compared.sheets[device] is None]
    sentences = [f"Measured in different ways: their {', '.join(differing)} differ."] if differing else []
    return [*sentences, f"No datasheet of {', '.join(missing)}."] if missing else sentences


def _pages(compared: _Compared) -> Iterator[tuple[str, Page]]:
    panels: dict[str, list[judge.Gain]] = {}
    for gain in compared.gains:
        title = f"{gain.operator}, {gain.dtype}, {bound_text(gain.bound_by)}"
        panels.setdefault(title, []).append(gain)
    devices, names = list(compared.cases), _names(compared)
    looks = {device: style.of_device(device) for device in devices}
    entries = [style.marker(device, look.color, look.marker) for device, look in looks.items()]
    caption = [_PROMISED, *_measured_alike(compared), "The same problems, n of them.", *_MIDDLE]
    for number, (here, which) in enumerate(leaves(list(panels.items()), MOST_PANELS), 1):
        columns = _COLUMNS[len(here)]
        rows = math.ceil(len(here) / columns)
        page = Page(
            Page.LEFT + Page.RIGHT + columns * _WIDTH_IN,
            rows * _HEIGHT_IN + (rows - 1) * _GAP_IN,
            f"Speed-up over {compared.base}{which}",
            style.facts_together(compared.rows),
            caption,
            under_in=0.25 + _LETTER_IN * max(map(len, names)),
        )
        page.legend(entries)
        grid = page.grid(rows, columns, hspace=_GAP_IN / _HEIGHT_IN, wspace=0.22)
        for place, (title, gained) in enumerate(here):
            axes = page.figure.add_subplot(grid[place // columns, place % columns])
            axes.set_ylabel("" if place % columns else "speed-up (ratio of times)")
            _panel(axes, devices, title, gained)
            axes.set_xticks(range(len(names)), names, rotation=90)
            axes.tick_params(axis="x", labelsize=6.5, labelbottom=place + columns >= len(here))
        yield f"generations-{number}" if number > 1 else "generations", page


def _panel(axes: Axes, devices: Sequence[str], title: str, gained: Sequence[judge.Gain]) -> None:
    counts = sorted({gain.cases for gain in gained})
    axes.set_title(f"{title}, n = {' to '.join(map(str, dict.fromkeys((counts[0], counts[-1]))))}")
    axes.axhline(1.0, color=style.BLACK, lw=0.7, zorder=1, label="_base")
    for gain in gained:
        place, look = devices.index(gain.device), style.of_device(gain.device)
        bar: dict[str, Any] = {"lw": 2.2, "alpha": 0.55, "zorder": 3, "label": "_spread"}
        axes.vlines(place, gain.low, gain.high, color=look.color, **bar)
        axes.plot(place, gain.median, look.marker, color=look.color, ms=6, zorder=4, label="_median")
        if gain.stated is not None:
            name, promise = PROMISES[gain.bound_by]
            ends = (place - 0.38, place + 0.38)
            axes.plot(ends, (gain.stated, gain.stated), zorder=2, label=f"_{name}", **promise)
    shown = [end for gain in gained for end in (gain.low, gain.high, gain.stated) if end is not None]
    scale.ratio(axes, shown, _TICKS)
    axes.set_xlim(-0.6, len(devices) - 0.4)


def _names(compared: _Compared) -> list[str]:
    """The devices as ticks name them: by their first words, or in whole where these are not enough."""
    sheets = {device: compared.sheets[device] for device in compared.cases}
    whole = [style.short_name(sheet.name) if sheet else device for device, sheet in sheets.items()]
    first = [textwrap.wrap(name, _MOST_LETTERS)[0] for name in whole]
    return first if len({*first}) == len(whole) else whole
