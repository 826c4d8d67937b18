"""The movement of the machine's ceilings and of each class of series: small panels, percent over nights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from bench.judge.history.series import Floats
from plots.base.page import Page
from plots.history import marks
from plots.history import panel as panels
from plots.history.panel import Panel
from plots.history.view import View

BOUNDS = {0: "memory: what the memory's speed decides", 1: "core: what computing or launching decides"}
PANELS = 12
"""Panels of classes on a page."""
_HALF_IN, _PANEL_IN, _DATES_IN, _TITLE_IN = 4.0, 1.05, 0.34, 0.24
_SPARE_IN = 0.2
"""Room for a title that a page leaves above its first row anyway."""
_BETWEEN_IN = 0.62
"""Between two columns of panels, for the labels of the right one."""


def machine(view: View, width_in: float = panels.WIDE_IN) -> Iterator[tuple[str, Page]]:
    """(stem, page), if any ceiling was measured."""
    track = view.judged.machine
    rows = [row for row in range(len(track.log)) if np.isfinite(view.shown(track.log[row])).any()]
    if not rows:
        return
    shown_panels = [
        Panel.of(view, track, row, "machine", _percent, width_in, title=BOUNDS[row]) for row in rows
    ]
    caption = [
        "Above 0 the machine was slower than on the nights before.",
        "The median departure of the ceilings of a kind (bandwidths; peaks and launches) of the same runs.",
        "What stands out of its noise is taken out of the other series before they are judged.",
    ]
    yield "machine", _page(view, shown_panels, [width_in], "The machine's ceilings, night by night", caption)


def classes(view: View, width_in: float = panels.WIDE_IN) -> Iterator[tuple[str, Page]]:
    """(stem, page) of each dozen of classes judged on a night shown: those with an open step first."""
    judged = view.judged
    track = judged.by_class
    rows = [row for row in range(len(track.log)) if np.isfinite(view.shown(track.log[row])).any()]
    still = {step.row for step in view.open_steps() if step.kind == "class"}
    kinds = zip(*(judged.classes[name] for name in ("operator", "implementation", "count")), strict=True)
    names = [f"{operator} {name} ({count:.0f} series)" for operator, name, count in kinds]
    rows.sort(key=lambda row: (row not in still, names[row]))
    pages = -(-len(rows) // PANELS)
    for number in range(pages):
        of_page = rows[number * PANELS : (number + 1) * PANELS]
        halves = len(of_page) > 1 and width_in > 2 * _HALF_IN
        columns_in = [_HALF_IN, _HALF_IN] if halves else [width_in]
        shown_panels = [
            Panel.of(view, track, row, "class", _percent, columns_in[0], title=names[row]) for row in of_page
        ]
        which = f" ({number + 1} of {pages})" if pages > 1 else ""
        caption = [
            "The mean over a class's series of how far each is from its own rolling median.",
            "What the machine moved is taken out. A level that is kept becomes normal, and the curve is 0.",
        ]
        title = f"Operators by implementation, night by night{which}"
        yield (
            f"classes{f'-{number + 1}' if number else ''}",
            _page(view, shown_panels, columns_in, title, caption),
        )


def _percent(log: Floats) -> Floats:
    return np.asarray(100 * np.expm1(log))


def _page(
    view: View, shown_panels: Sequence[Panel], columns_in: Sequence[float], title: str, caption: Sequence[str]
) -> Page:
    """Panels in columns so wide, each row with room above for the words that its panels need."""
    columns = len(columns_in)
    lines = [shown_panels[i : i + columns] for i in range(0, len(shown_panels), columns)]
    words = [max(marks.rows(panel.laid) for panel in line) for line in lines]
    above_in = [
        _TITLE_IN + marks.ROW_IN * rows + (_DATES_IN if i else -_SPARE_IN) for i, rows in enumerate(words)
    ]
    width_in = sum(columns_in) + (columns - 1) * _BETWEEN_IN
    unsaid = sum(marks.unsaid(panel.laid) for panel in shown_panels)
    sentences = [f"{unsaid} lines have no room for their words: see the table of nights."] if unsaid else []
    sentences += [
        view.calendar.remark(),
        *caption,
        "Short ticks on the floor: nights with too few before them to tell.",
    ]
    page = Page(
        Page.LEFT + Page.RIGHT + width_in,
        sum(above_in) + _PANEL_IN * len(lines),
        title,
        view.facts,
        sentences,
    )
    page.figure.set_label(title)
    page.legend(panels.legend(view, shown_panels))
    heights = [height for line_in in above_in for height in (line_in, _PANEL_IN)]
    gap = _BETWEEN_IN / (width_in / columns - _BETWEEN_IN * (columns - 1) / columns) if columns > 1 else 0.0
    grid = page.grid(2 * len(lines), columns, height_ratios=heights, hspace=0.0, wspace=gap)
    for i, panel in enumerate(shown_panels):
        line, column = divmod(i, columns)
        axes = page.figure.add_subplot(grid[2 * line + 1, column])
        unit = "departure (percent)" if columns == 1 else "percent"
        panels.draw(axes, view, panel, unit, columns_in[0], words[line])
        axes.axhline(0.0, color=panels.ZERO, lw=0.7, zorder=1, label="_zero")
        axes.tick_params(labelsize=7)
        if line + 1 < len(lines) and (line + 1) * columns + column < len(shown_panels):
            axes.set_xlabel("")
    return page
