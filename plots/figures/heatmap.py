"""Heatmap of measured / predicted time over two swept parameters, which shows where predictions hold.

There is a panel for each way of running. A cell is the median over its cases of measured / predicted time, by
the best level with a prediction: 1 is neutral, red took longer, blue less. The colours have the same limits
in every figure of every device. Each cell holds its number, as both ends of the colours print as one grey.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import FixedLocator, FuncFormatter

from bench.judge.frame import DeviceRun
from plots.base import prediction_lines, scale, style
from plots.base.page import Page, PanelPage, Panels, leaves
from plots.base.parameter_words import axis_words
from plots.base.plot_spec import Section, split

REACH = 1.0
"""The colours end at 2 ** -REACH and 2 ** REACH; cells beyond have the last colour, and their number."""
COLORS = "RdBu_r"
"""Blue, white, red: matplotlib's colour map whose halves are alike in lightness."""
MOST_CELLS = 24
"""Cells along one axis; more values share cells."""
MOST_PANELS = 6
"""Panels on one page."""
MOST_NUMBERS = 1500
"""Cells on one page up to which each shows its number."""
_CELL_IN, _LEAST_IN, _GAP_IN, _RIGHT_IN = (0.33, 0.23), 1.6, 0.72, 0.95
_WIDEST_IN, _LEAST_PAGE_IN = 13.0, 6.6
_HATCHES = {"skipped": "////", "unsupported": "....", "out_of_memory": "xxxx"}
_OTHER_HATCH = "++++"
_UNPREDICTED: dict[str, Any] = {"facecolor": "#D0D0D0", "edgecolor": "white", "lw": 0.4}
_CELL = ["panel", "row", "column"]


class _Places(NamedTuple):
    """Cells along one axis."""

    labels: list[str]
    where: np.ndarray
    """The cell of each row."""
    binned: str = ""
    """The range that a label stands for, if it is more than one value."""


def draw(run: DeviceRun, rows: pd.DataFrame, section: Section) -> Iterator[Page]:
    """The pages for the rows of one sweep; none if no row has both a time and a prediction."""
    rows = rows[rows[section.x].notna() & rows[section.y].notna()]
    rows = rows.assign(ratio=rows["median_s"] / prediction_lines.best_s(rows))
    groups = [each for each in split(rows, section.panels) if each[1]["ratio"].notna().any()]
    for here, which in leaves(groups, MOST_PANELS):
        yield _page(run, section, here, which)


def _page(run: DeviceRun, section: Section, groups: Sequence[tuple[Any, pd.DataFrame]], which: str) -> Page:
    shown = pd.concat([of_panel.assign(panel=i) for i, (_, of_panel) in enumerate(groups)])
    values = [shown[name].to_numpy(dtype=float) for name in (section.x, section.y)]
    x, y = (_places(of_axis, own=True) for of_axis in values)
    if 2 * len({*zip(x.where, y.where, strict=True)}) < len(x.labels) * len(y.labels):
        x, y = (_places(of_axis, own=False) for of_axis in values)
    shown = shown.assign(column=x.where, row=y.where)
    width_in = max(_LEAST_IN, _CELL_IN[0] * len(x.labels))
    height_in = max(_LEAST_IN, _CELL_IN[1] * len(y.labels))
    columns = min(len(groups), max(1, int(_WIDEST_IN / (width_in + _GAP_IN))))
    across_in = columns * width_in + (columns - 1) * _GAP_IN
    page = PanelPage(
        len(groups),
        Panels(columns, across_in / columns, height_in, _GAP_IN, _GAP_IN / width_in),
        f"{section.heading(shown)}: measured / predicted{which}",
        style.facts(run, shown),
        _caption(shown, section, x, y),
        _RIGHT_IN + max(0.0, _LEAST_PAGE_IN - Page.LEFT - across_in - _RIGHT_IN),
        decided=section.decided,
    )
    operator = str(shown["operator"].iloc[0])
    along, up = (axis_words(name, operator) for name in (section.x, section.y))
    places = page.axes(_handles(shown), along, up)
    numbers = len(groups) * len(x.labels) * len(y.labels) <= MOST_NUMBERS
    for i, (axes, (key, _)) in enumerate(zip(places, groups, strict=True)):
        axes.set_title(style.named(section.panels, key), y=1.0)
        _cells(axes, shown[shown["panel"] == i], (len(x.labels), len(y.labels)), numbers)
        _ticks(axes, x, y)
    _bar(page)
    return page


def _bar(page: Page) -> None:
    """Draw the colour bar right of the panels."""
    boxes = [axes.get_position() for axes in page.figure.axes]
    left = max(box.x1 for box in boxes) + 0.2 / page.width_in
    low, high = min(box.y0 for box in boxes), max(box.y1 for box in boxes)
    axes = page.figure.add_axes((left, low, 0.13 / page.width_in, high - low))
    bar = page.figure.colorbar(ScalarMappable(Normalize(-REACH, REACH), COLORS), axes, extend="both")
    bar.set_label("measured / predicted time")
    bar.ax.yaxis.set_major_locator(FixedLocator([-1.0, -0.5, 0.0, 0.5, 1.0]))
    bar.ax.yaxis.set_major_formatter(FuncFormatter(_as_ratio))
    bar.ax.grid(visible=False)


def _places(values: np.ndarray, own: bool) -> _Places:
    """A cell for each value if `own` and there are few values; else for powers of two, or equal parts."""
    distinct = np.unique(values)
    if own and distinct.size <= MOST_CELLS:
        return _Places([_short(v) for v in distinct], np.searchsorted(distinct, values))
    if scale.spans_far(values):
        power = np.floor(np.log2(values)).astype(int)
        powers = np.arange(power.min(), power.max() + 1)
        every = math.ceil(powers.size / MOST_CELLS)
        labels = [_short(2.0 ** int(p)) for p in powers[::every]]
        until = "twice it" if every == 1 else f"{2**every} times it"
        return _Places(labels, (power - powers[0]) // every, f"from its label to below {until}")
    count = min(16, distinct.size)
    edges = np.linspace(distinct[0], distinct[-1], count + 1)
    where = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, count - 1)
    return _Places([style.number(v) for v in edges[:-1]], where, "from its label to the next")


def _short(value: float) -> str:
    """A label that fits below its cell: 128Ki."""
    return scale.short(value).replace(" ", "")


def _cells(axes: Axes, rows: pd.DataFrame, shape: tuple[int, int], numbers: bool) -> None:
    """Draw the cells of one panel: colour and number for a ratio, a hatch where there is no time."""
    columns, lines = shape
    axes.set_xlim(-0.5, columns - 0.5)
    axes.set_ylim(-0.5, lines - 0.5)
    axes.grid(visible=False)
    axes.tick_params(length=0)
    ratio = np.full((lines, columns), np.nan)
    for cell, of_cell in rows.groupby(["row", "column"]):
        line, column = cast("tuple[int, int]", cell)
        middle = float(of_cell["ratio"].median())
        if middle == middle:
            ratio[line, column] = middle
        else:
            how = _UNPREDICTED | {"label": "_unpredicted"}
            if of_cell["median_s"].isna().all():
                how = _hatched(str(of_cell["status"].mode().iloc[0]))
            axes.add_patch(Rectangle((column - 0.5, line - 0.5), 1, 1, **how))
    mesh = axes.pcolormesh(
        np.arange(columns + 1) - 0.5,
        np.arange(lines + 1) - 0.5,
        np.ma.masked_invalid(np.log2(ratio)),
        cmap=COLORS,
        norm=Normalize(-REACH, REACH),
        edgecolors="white",
        lw=0.4,
    )
    mesh.set_label("_cells")
    if numbers:
        for line, column in np.argwhere(np.isfinite(ratio)):
            value = ratio[line, column]
            far = abs(math.log2(value)) > 0.62 * REACH
            how = {"size": 5.5, "ha": "center", "va": "center", "color": "white" if far else "black"}
            axes.text(column, line, _number(value), label="_number", **how)


def _number(ratio: float) -> str:
    """The text of a ratio, at most four characters: 0.97, 12, 340."""
    return f"{ratio:.2f}" if ratio < 9.95 else f"{ratio:.0f}"


def _hatched(status: str) -> dict[str, Any]:
    hatch = _HATCHES.get(status, _OTHER_HATCH)
    return {"facecolor": "white", "edgecolor": "#A0A0A0", "lw": 0.0, "hatch": hatch, "label": f"_{status}"}


def _ticks(axes: Axes, x: _Places, y: _Places) -> None:
    upright = any(len(label) > 5 for label in x.labels)
    axes.set_xticks(range(len(x.labels)), x.labels, rotation=90 if upright else 0, size=6.5)
    axes.set_yticks(range(len(y.labels)), y.labels, size=6.5)


def _handles(rows: pd.DataFrame) -> list[Artist]:
    """Entries of the legend: the hatches of statuses that fill a cell."""
    lost = rows[rows.groupby(_CELL)["median_s"].transform("count") == 0]
    statuses = sorted(lost["status"].unique(), key=lambda status: (status not in _HATCHES, status))
    words = {status: {"label": status.replace("_", " ")} for status in statuses}
    handles: list[Artist] = [Patch(**(_hatched(status) | how)) for status, how in words.items()]
    if (rows["median_s"].notna() & rows["ratio"].isna()).any():
        handles.append(Patch(label="no prediction", **_UNPREDICTED))
    return handles


def _caption(rows: pd.DataFrame, section: Section, x: _Places, y: _Places) -> list[str]:
    timed = rows[rows["ratio"].notna()]
    structured = int(timed["structured_s"].notna().sum())
    by = "with structure" if structured == len(timed) else "calibrated" if not structured else ""
    by = by or f"with structure for {structured} cases, calibrated for {len(timed) - structured}"
    cells = timed.groupby(_CELL).size()
    each = f"{cells.min()} to {cells.max()} cases" if cells.max() > 1 else "one case"
    low, middle, high = timed["ratio"].quantile([0.1, 0.5, 0.9])
    caption = [f"{len(timed)} cases: median {middle:.2f}, middle 80 % from {low:.2f} to {high:.2f}."]
    lost = rows[rows["median_s"].isna()]
    if len(lost):
        counts = ", ".join(f"{n} {status}" for status, n in lost["status"].value_counts().items())
        caption.append(f"{len(lost)} cases have no time ({counts}).")
    if rows["imported"].any():
        caption.append("Imported times have no interval and were not checked by us.")
    if timed["suspect"].any():
        caption.append(f"{int(timed['suspect'].sum())} of them are suspect (flagged).")
    caption += [f"A cell of {n} reaches {p.binned}." for n, p in ((section.x, x), (section.y, y)) if p.binned]
    return [
        *caption,
        f"Median of measured / predicted time ({by}), {each} a cell. Above 1 (red): slower than predicted.",
        prediction_lines.bound(rows),
    ]


def _as_ratio(power: float, _: object = None) -> str:
    """A tick's label on the colour bar, whose values are powers of two."""
    return f"{2.0**power:.2g}"
