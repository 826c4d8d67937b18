"""Figures of generations: the speed-up of each device over a base, as an overview and case by case.

The overview has a panel for each operator, data type and what bounds its cases on the base, and a marker for
each device: the numbers of `python -m bench compare ... --across device`. In detail, of one operator in one
data type, a device has a row, and what bounds cases on the base a column; x is the arithmetic intensity, or
the bytes of streams. Lines show what the datasheets promise: cases bound by memory should gain as much as the
bandwidth, those bound by compute as much as the peak. A marker below its line did not get the generation's
gain.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from bench.device.datasheet import Datasheet
from bench.judge import speedup as judge
from bench.judge.frame import DeviceRun
from bench.model.bound import BOUNDS, bound_text
from plots.base import scale, style
from plots.base.page import Page, PanelPage, Panels, leaves

BINS = 18
"""Bins over the width of a panel with many cases."""
LEAST = 5
"""Fewest cases of a bin that is shown."""
MANY = BINS * LEAST
"""Cases of one panel above which the median and the spread of bins are drawn instead of points."""
MOST_PANELS = 12
PROMISES: Mapping[str, tuple[str, dict[str, Any]]] = {
    "memory": ("bandwidth", {"color": style.BLACK, "ls": (0, (5, 1.5)), "lw": 1.1}),
    "compute": ("peak", {"color": "#777777", "ls": (0, (1, 1)), "lw": 1.6}),
}
"""What bounds cases -> the number of the datasheet that promises a speed-up, and the look of its line."""
_PROMISED = "Dashed: bandwidth by datasheet; dotted: peak."
_MIDDLE = (
    "Marker: the median; bar or band: the middle 80 % of the cases.",
    "A case's time is that of the quickest library which both devices have.",
    "What bounds it follows from the base's ridge and launch overhead.",
)
_COLUMNS = (1, 1, 2, 3, 4, 3, 3, 4, 4, 3, 4, 4, 4)
_TICKS = 7
"""About how many ticks an axis of speed-ups has."""
_WIDTH_IN, _ROW_IN, _GAP_IN, _LEFT_IN, _RIGHT_IN = (2.7, 5.2), 1.5, 0.5, 1.0, 0.25
"""Sizes of the figures in detail: a panel beside others and alone, and the room between and around them."""
_MOST_LETTERS, _LETTER_IN = 16, 0.06
_X_LABELS = {"intensity": "arithmetic intensity (FLOP/byte)", "byte": "bytes of a launch"}


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
    """(stem, page): the overview, then each operator and data type in detail.

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
    compared = _Compared(base, met, sheets, rows[rows["device"].isin([base, *met])])
    yield from _overview(compared)
    for (operator, dtype), cases in pd.concat(met.values()).groupby(["operator", "dtype"], sort=True):
        x = "intensity" if (cases["arithmetic"] == "matrix").any() else "byte"
        if (cases[x] > 0).any():  # an empty launch moves no byte
            yield f"generations-{operator}-{dtype}", _detail(compared, str(operator), str(dtype), x)


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


# --- as an overview ---------------------------------------------------------------------------------


def _overview(compared: _Compared) -> Iterator[tuple[str, Page]]:
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
        page = PanelPage(
            len(here),
            Panels(columns, 2.7, 1.75, 0.5, 0.22),
            f"Speed-up over {compared.base}{which}",
            style.facts_together(compared.rows),
            caption,
            under_in=0.25 + _LETTER_IN * max(map(len, names)),
        )
        places = page.axes(entries, "", "speed-up (ratio of times)")
        for place, (axes, (title, gained)) in enumerate(zip(places, here, strict=True)):
            _at_a_glance(axes, devices, title, gained)
            axes.set_xticks(range(len(names)), names, rotation=90)
            axes.tick_params(axis="x", labelsize=6.5, labelbottom=place + columns >= len(here))
        yield f"generations-{number}" if number > 1 else "generations", page


def _at_a_glance(axes: Axes, devices: Sequence[str], title: str, gained: Sequence[judge.Gain]) -> None:
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


# --- in detail --------------------------------------------------------------------------------------


def _detail(compared: _Compared, operator: str, dtype: str, x: str) -> Page:
    """The figure of the cases with an `x`, of which there are some."""
    of_kind = {
        device: cases[(cases["operator"] == operator) & (cases["dtype"] == dtype) & (cases[x] > 0)]
        for device, cases in compared.cases.items()
    }
    by_device = {device: cases for device, cases in of_kind.items() if len(cases)}
    every = pd.concat(by_device.values())
    bounds = [name for name in (*reversed(BOUNDS), "") if (every["bound_by"] == name).any()]
    width_in = _WIDTH_IN[0] if len(bounds) > 1 else _WIDTH_IN[1]
    rows = compared.rows[(compared.rows["operator"] == operator) & (compared.rows["dtype"] == dtype)]
    page = Page(
        _LEFT_IN + _RIGHT_IN + len(bounds) * width_in,
        len(by_device) * _ROW_IN + (len(by_device) - 1) * _GAP_IN,
        f"{operator}, {dtype}: speed-up over {compared.base}",
        style.facts_together(rows),
        [
            _PROMISED,
            *_measured_alike(compared),
            *_MIDDLE,
            f"Same problems. Up to {MANY} cases are points, each one.",
        ],
        _RIGHT_IN,
        _LEFT_IN,
    )
    many = any(len(cases) > MANY for cases in by_device.values())
    page.legend([Patch(color="#CCCCCC", label="10 to 90 of 100")] if many else [])
    grid = page.grid(len(by_device), len(bounds), hspace=_GAP_IN / _ROW_IN, wspace=0.1)
    stated = {
        (gain.device, gain.bound_by): gain.stated
        for gain in compared.gains
        if gain.stated is not None and (gain.operator, gain.dtype) == (operator, dtype)
    }
    # All of few cases; of thousands, an outlier must not flatten the others, and stands on the edge.
    ends = (0.0, 1.0) if len(every) <= MANY else (0.005, 0.995)
    shown = [*np.quantile(every["speedup"], ends), *stated.values()]
    for i, (device, cases) in enumerate(by_device.items()):
        for j, name in enumerate(bounds):
            axes = page.figure.add_subplot(grid[i, j])
            scale.ratio(axes, shown, _TICKS)
            _against(axes, device, name, cases[cases["bound_by"] == name], x, stated.get((device, name)))
            wanted = every.loc[every["bound_by"] == name, x].to_numpy(dtype=float)
            scale.swept(axes.xaxis, wanted, scale.spans_far(wanted), width_in)
            margin = (wanted.max() / wanted.min()) ** 0.03
            axes.set_xlim(wanted.min() / margin / 1.02, wanted.max() * margin * 1.02)
            if i + 1 == len(by_device):
                axes.set_xlabel(_X_LABELS[x])
            if j:
                axes.tick_params(labelleft=False)
            else:
                axes.set_ylabel("\n".join([*textwrap.wrap(device.replace("-", " "), 20), "speed-up"]))
    return page


def _against(
    axes: Axes, device: str, bound_by: str, rows: pd.DataFrame, x: str, stated: float | None
) -> None:
    look, title = style.of_device(device), bound_text(bound_by)
    axes.axhline(1.0, color=style.BLACK, lw=0.7, zorder=1, label="_base")
    if stated is not None:
        name, promise = PROMISES[bound_by]
        axes.axhline(stated, zorder=2, label=f"_{name}", **promise)
        axes.annotate(f"{name} {stated:.2f} x", (0.02, 0.04), xycoords="axes fraction", size=6.5)
    if rows.empty:
        axes.set_title(f"{title}: no case")
        return
    at, speedup = rows[x].to_numpy(dtype=float), rows["speedup"].to_numpy(dtype=float)
    axes.set_title(f"{title}: median {np.median(speedup):.2f}, n = {len(rows)}")
    if len(rows) <= MANY:
        inside = np.clip(speedup, *axes.get_ylim())
        axes.plot(at, inside, look.marker, color=look.color, ms=3.6, mew=0.5, zorder=3, label="_case")
        return
    place, low, middle, high = binned(at, speedup)
    axes.fill_between(place, low, high, color=look.color, alpha=0.25, lw=0, zorder=2, label="_spread")
    axes.plot(place, middle, color=look.color, marker=look.marker, ms=3.2, lw=1.2, zorder=3, label="_median")


def binned(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(x, 10th percentile, median, 90th percentile of y) of neighbours: BINS of equal width in log x.

    The x of a bin is the geometric mean of its own cases; bins with fewer than LEAST cases are left out.
    """
    edges = np.geomspace(x.min(), x.max() * (1 + 1e-9), BINS + 1)
    bins = np.clip(np.searchsorted(edges, x, side="right") - 1, 0, BINS - 1)
    kept = [bins == i for i in range(BINS) if (bins == i).sum() >= LEAST]
    place = np.array([np.exp(np.log(x[here]).mean()) for here in kept])
    low, middle, high = np.array([np.quantile(y[here], (0.1, 0.5, 0.9)) for here in kept]).reshape(-1, 3).T
    return place, low, middle, high
