"""Figures of duration and rate over the swept parameter, measured and predicted (see prediction_lines.py).

There is one small panel for each combination of the panel columns, on as many pages as needed. Under a
duration panel, if there is room, is a strip of the ratio predicted / measured.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes

from bench.judge.frame import Run
from plots.base import axes as scale
from plots.base import measured_points, prediction_lines, style
from plots.base.measured_points import Columns
from plots.base.page import Page, leaves
from plots.base.plot_spec import Section
from plots.base.prediction_lines import Quantity

QUANTITIES: tuple[Quantity, ...] = ("duration", "rate")

MOST_PANELS = 12
"""Panels on one page, 3 rows of 4."""
MOST_WITH_STRIPS = 6
"""Panels on one page up to which a strip of ratios stays readable."""
_COLUMNS = (1, 1, 2, 3, 2, 3, 3, 4, 4, 3, 4, 4, 4)
_WIDTH_IN = (0.0, 6.0, 3.9, 3.3, 3.0)
_HEIGHT_IN = (0.0, 3.0, 2.2, 1.8)
_STRIP_IN, _GAP_IN = 0.75, 0.62


_COLUMN: dict[Quantity, Columns] = {
    "duration": Columns("median_s", "low_s", "high_s"),
    "rate": Columns("rate_per_s", "rate_low_per_s", "rate_high_per_s"),
}

_Key = tuple[Any, ...]


def draw(run: Run, rows: pd.DataFrame, section: Section, quantity: Quantity) -> Iterator[Page]:
    """The pages of one sweep's figure; none if none of its rows has this quantity.

    `rows` are those of one sweep; all lines are sorted by x. Rows without a time are ticks at the bottom.
    """
    column = _COLUMN[quantity]
    if section.per:
        if quantity == "rate":
            return
        rows = _normalised(rows, section.per)
    # A panel or line without any point (an implementation that does not exist here) is left out.
    shown = rows[rows[section.x].notna()]
    for columns in (section.lines, section.panels):
        timed = shown[column.middle].notna()
        if columns:
            timed = timed.groupby([shown[name] for name in columns], dropna=False).transform("any")
        if not timed.any():
            return
        shown = shown[timed] if columns else shown
    slim = _slim(shown, section, quantity)
    looks = style.of_lines(section.lines, [key for key, _ in _split(slim, section.lines)])
    panels = _split(slim, section.panels)
    inside = [of_panel[column.middle].to_numpy(dtype=float) for _, of_panel in panels]
    # By panel: the range inside one panel matters, not the difference between panels.
    log_y = "y" in section.log or any(scale.spans_far(panel) for panel in inside)
    drawing = _Drawing(run, section, quantity, shown, looks, rows.drop(shown.index), log_y)
    for here, which in leaves(panels, MOST_PANELS):
        yield drawing.page(here, which)


def _normalised(rows: pd.DataFrame, per: tuple[str, ...]) -> pd.DataFrame:
    """The rows with their durations divided by the product of these columns."""
    product = rows[list(per)].prod(axis=1).astype(float)
    names = [*_COLUMN["duration"], *(level.column("duration") for level in prediction_lines.LEVELS)]
    return rows.assign(**{name: rows[name] / product for name in names})


def _slim(rows: pd.DataFrame, section: Section, quantity: Quantity) -> pd.DataFrame:
    """The columns that the panels need: splitting a hundred columns into lines is slower than drawing."""
    names = [section.x, *section.lines, *section.panels, "suspect", "imported", "median_s"]
    names += _COLUMN[quantity]
    names += [level.column(of) for level in prediction_lines.LEVELS for of in ("duration", quantity)]
    return rows[list(dict.fromkeys(names))]


def _split(rows: pd.DataFrame, columns: tuple[str, ...]) -> list[tuple[_Key, pd.DataFrame]]:
    """The rows grouped by these columns, sorted; all rows under () if there are no columns."""
    if not columns:
        return [((), rows)]
    return [(key, part) for key, part in rows.groupby(list(columns), dropna=False, sort=True)]


class _Drawing:
    """The pages of one figure, which share units, scales and looks."""

    def __init__(
        self,
        run: Run,
        section: Section,
        quantity: Quantity,
        shown: pd.DataFrame,
        looks: dict[_Key, style.Look],
        hidden: pd.DataFrame,
        log_y: bool,
    ) -> None:
        self.run, self.section, self.shown, self.looks = run, section, shown, looks
        self.quantity, self.hidden, self.log_y = quantity, hidden, log_y
        self.column = column = _COLUMN[quantity]
        self.label = f"duration / ({' '.join(section.per)})" if section.per else quantity
        counted = shown["rate"].mode().iloc[0] if quantity == "rate" else ""
        self.factor, self.unit = scale.scaled(shown[column.middle], f"{counted}/s" if counted else "s")
        # Words are drawn at 0, 1, 2 in the order in which they occur.
        self.words = (
            [] if pd.api.types.is_numeric_dtype(shown[section.x]) else list(shown[section.x].unique())
        )
        x = self._x(shown)
        self.log_x = not self.words and (("x" in section.log and float(x.min()) > 0) or scale.spans_far(x))

    def page(self, panels: Sequence[tuple[_Key, pd.DataFrame]], which: str) -> Page:
        columns = _COLUMNS[len(panels)]
        rows = math.ceil(len(panels) / columns)
        strips = self.quantity == "duration" and len(panels) <= MOST_WITH_STRIPS
        strips = strips and bool(prediction_lines.best_s(self.shown).notna().any())
        panel_in = _HEIGHT_IN[rows] + (_STRIP_IN if strips else 0.0)
        sweep = self.shown["sweep"].iloc[0]
        page = Page(
            Page.LEFT + Page.RIGHT + columns * _WIDTH_IN[columns],
            rows * panel_in + (rows - 1) * _GAP_IN,
            f"{sweep}: {self.label} against {self.section.x}{which}",
            style.facts(self.run, self.shown),
            self._caption(strips),
            decided=self.section.decided,
        )
        page.legend(self._handles())
        grid = page.grid(rows, columns, hspace=_GAP_IN / panel_in, wspace=0.24)
        alike = self._alike(panels)
        first: Axes | None = None
        for i, (key, panel) in enumerate(panels):
            heights = [panel_in - _STRIP_IN, _STRIP_IN] if strips else [1.0]
            cell = grid[i // columns, i % columns].subgridspec(
                len(heights), 1, height_ratios=heights, hspace=0.1
            )
            axes = page.figure.add_subplot(cell[0], sharey=first if alike else None)
            first = first or axes
            lines = [(line, points.sort_values(self.section.x)) for line, points in self._lines(panel)]
            self._panel(axes, key, panel, lines)
            lowest = axes
            if strips:
                lowest = page.figure.add_subplot(cell[1], sharex=axes)
                lowest.axhline(1.0, color=style.GREY, lw=0.8, label="_one")
                for line, points in lines:
                    prediction_lines.strip(lowest, self._x(points), points, self.looks[line])
                scale.ratio(lowest, prediction_lines.ratios(self.shown))
                axes.tick_params(axis="x", which="both", labelbottom=False)
            scale.swept(lowest.xaxis, self._x(panel), self.log_x, _WIDTH_IN[columns] * 0.8)
            if self.words:
                lowest.set_xticks(range(len(self.words)), [str(w) for w in self.words])
            if i + columns >= len(panels):
                lowest.set_xlabel(self.section.x)
            if i % columns == 0:
                axes.set_ylabel(f"{self.label} ({self.unit})")
                if strips:
                    lowest.set_ylabel("predicted /\nmeasured")
        return page

    def _x(self, rows: pd.DataFrame) -> np.ndarray:
        if self.words:
            return np.array([self.words.index(v) for v in rows[self.section.x]], dtype=float)
        return rows[self.section.x].to_numpy(dtype=float)

    def _alike(self, panels: Sequence[tuple[_Key, pd.DataFrame]]) -> bool:
        """Whether all panels can share a y axis without flattening some."""
        highest = [panel[self.column.middle].max() for _, panel in panels]
        return self.log_y or max(highest) <= 3 * min(highest)

    def _panel(
        self, axes: Axes, key: _Key, rows: pd.DataFrame, lines: list[tuple[_Key, pd.DataFrame]]
    ) -> None:
        words = (style.labelled(c, v) for c, v in zip(self.section.panels, key, strict=True))
        # With y given, matplotlib need not measure every tick to place the title.
        axes.set_title(", ".join(words), y=1.0)
        predicted = prediction_lines.Lines(axes, self.quantity, self.factor)
        for line, points in lines:
            measured_points.series(axes, self._x(points), points, self.column, self.factor, self.looks[line])
            predicted.draw(self._x(points), points, self.looks[line].color)
        lost = rows[rows[self.column.middle].isna()]
        if len(lost):
            at = np.unique(self._x(lost))
            measured_points.on_floor(axes, at, 0.012, 5, label="_unmeasured", zorder=1)
        both = [self.column.middle, prediction_lines.CALIBRATED.column(self.quantity)]
        everything = rows[both].to_numpy(dtype=float) * self.factor
        scale.measured(axes.yaxis, everything, self.log_y)
        if not self.log_y:
            axes.set_ylim(
                0, max(axes.get_ylim()[1], float(rows[self.column.high].max()) * self.factor * 1.08)
            )

    def _lines(self, rows: pd.DataFrame) -> Iterator[tuple[_Key, pd.DataFrame]]:
        """The lines that have a point in the figure and in these rows."""
        for key, points in _split(rows, self.section.lines):
            if key in self.looks and points[self.column.middle].notna().any():
                yield key, points

    def _handles(self) -> list[Artist]:
        handles: list[Artist] = []
        for key, look in self.looks.items():
            words = [style.labelled(c, v) for c, v in zip(self.section.lines, key, strict=True)]
            if self.shown["imported"].all():
                words, look = [*words, "(imported)"], replace(look, marker=measured_points.IMPORTED)
            handles.append(measured_points.handle(" ".join(words) or "measured", look))
        handles += [level.handle() for level in reversed(prediction_lines.shown(self.shown))]
        if self.shown["suspect"].any():
            handles.append(style.flagged(4.4))
        return handles

    def _caption(self, strips: bool) -> str:
        sentences = [measured_points.caption(self.shown)]
        if prediction_lines.best_s(self.shown).notna().any():
            sentences.append(prediction_lines.explained(self.shown))
            if strips and prediction_lines.structure_adds(self.shown):
                sentences.append("Below, predicted / measured: markers with structure, dashed calibrated.")
        elif not self.run.ceilings:
            sentences.append("No ceilings in this run, hence no prediction.")
        else:
            sentences.append("This run lacks a ceiling that these rows need, hence no prediction.")
        lost = self.shown[self.shown["median_s"].isna()]
        if len(lost):
            sentences.append(
                f"{len(lost)} of {len(self.shown)} cases have no time ({_why(lost)}): ticks at the bottom."
            )
        if len(self.hidden):
            lines = f"{len(self.hidden)} cases of lines or panels without any time"
            sentences.append(f"Not drawn: {lines} ({_why(self.hidden)}).")
        sentences.append(style.flag_counts(self.shown))
        return " ".join(sentences)


def _why(rows: pd.DataFrame) -> str:
    """Counts of the rows' statuses, as a text."""
    return ", ".join(f"{n} {status}" for status, n in rows["status"].value_counts().items())
