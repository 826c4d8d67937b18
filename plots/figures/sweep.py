"""Figures of duration and rate over the swept parameter, measured and predicted (see prediction_lines.py).

There is one small panel for each combination of the panel columns, on as many pages as needed. Under a
duration panel, if there is room, is a strip of the ratio predicted / measured.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes

from bench.format import count_text
from bench.judge.frame import DeviceRun, parameter_names
from bench.model.roofline import LINK
from plots.base import measured_points, prediction_lines, scale, style
from plots.base.measured_points import Columns
from plots.base.page import MOST_ENTRIES, Page, leaves
from plots.base.parameter_words import OF_OPERATOR, PER, axis_words
from plots.base.plot_spec import Section, split
from plots.base.prediction_lines import Quantity

QUANTITIES: tuple[Quantity, ...] = ("duration", "rate")

MOST_PANELS = 12
"""Panels on one page, 3 rows of 4."""
MOST_WITH_STRIPS = 6
"""Panels on one page up to which a strip of ratios stays readable."""
MOST_APART = 1000
"""Times the highest point of a panel by which another's may be higher on one logarithmic axis."""
_COLUMNS = (1, 1, 2, 3, 2, 3, 3, 4, 4, 3, 4, 4, 4)
_WIDTH_IN = (0.0, 6.0, 3.9, 3.3, 3.0)
_HEIGHT_IN = (0.0, 3.0, 2.2, 1.8)
_STRIP_IN, _GAP_IN = 0.75, 0.62
_RATIOS = (0.8, 1.0, 1.25)
"""Lines across a strip, which holds them at least."""
_BARS = 0.8
"""Share of the distance between two places that bars take."""


_COLUMN: dict[Quantity, Columns] = {
    "duration": Columns("median_s", "low_s", "high_s"),
    "rate": Columns("rate_per_s", "rate_low_per_s", "rate_high_per_s"),
}

_Key = tuple[Any, ...]


def draw(run: DeviceRun, rows: pd.DataFrame, section: Section, quantity: Quantity) -> Iterator[Page]:
    """The pages of one sweep's figure; none if none of its rows has this quantity.

    `rows` are those of one sweep; all lines are sorted by x. Rows without a time are ticks at the bottom.
    """
    if section.per:
        if quantity == "rate":
            return
        rows = _normalised(rows, section.per)
    # A panel or line without any point (an implementation that does not exist here) is left out.
    shown = rows[rows[section.x].notna()]
    for columns in (section.lines, section.panels):
        timed = shown[_COLUMN[quantity].middle].notna()
        if columns:
            timed = timed.groupby([shown[name] for name in columns], dropna=False).transform("any")
        if not timed.any():
            return
        shown = shown[timed] if columns else shown
    drawing = _Drawing(run, section, quantity, shown, rows.drop(shown.index))
    pages = []
    for keys in _together(list(drawing.looks), MOST_ENTRIES - len(drawing.further_entries)):
        of_lines = pd.concat([points for key, points in split(drawing.points, section.lines) if key in keys])
        panels = [each for each in split(of_lines, section.panels) if each[1]["y"].notna().any()]
        pages += [(here, keys) for here, _ in leaves(panels, MOST_PANELS)]
    for number, (here, keys) in enumerate(pages, 1):
        yield drawing.page(here, keys, f" (page {number} of {len(pages)})" if len(pages) > 1 else "")


def _together(keys: list[_Key], most: int) -> list[list[_Key]]:
    """The lines of each page, at most so many, those that differ in the last column alone side by side."""
    if len(keys) <= most:
        return [keys]
    pages: list[list[_Key]] = []
    for _, block in itertools.groupby(keys, key=lambda key: key[:-1]):
        lines = list(block)
        if pages and len(pages[-1]) + len(lines) <= most:
            pages[-1] += lines
        else:
            pages += [lines[i : i + most] for i in range(0, len(lines), most)]
    return pages


def _normalised(rows: pd.DataFrame, per: tuple[str, ...]) -> pd.DataFrame:
    """The rows with their durations divided by the product of these columns."""
    product = rows[list(per)].prod(axis=1).astype(float)
    names = [*_COLUMN["duration"], *(level.column("duration") for level in prediction_lines.LEVELS)]
    return rows.assign(**{name: rows[name] / product for name in names})


class _Drawing:
    """The pages of one figure, which share units, scales and looks."""

    def __init__(
        self, run: DeviceRun, section: Section, quantity: Quantity, shown: pd.DataFrame, hidden: pd.DataFrame
    ) -> None:
        self.run, self.section, self.shown, self.hidden, self.quantity = run, section, shown, hidden, quantity
        column = _COLUMN[quantity]
        per = PER.get(section.per, " x ".join(section.per))
        self.label = f"duration per {per}" if section.per else quantity
        counted = shown["rate"].mode().iloc[0] if quantity == "rate" else ""
        self.factor, self.unit = scale.scaled(shown[column.middle], f"{counted}/s" if counted else "s")
        # Bars of words stand at 0, 1, 2, in the order in which they occur.
        words = not pd.api.types.is_numeric_dtype(shown[section.x])
        places = list(shown[section.x].unique()) if words else []
        self.bars: list[Any] = places
        self.predicted = prediction_lines.shown(shown)
        x = shown[section.x].map({bar: at for at, bar in enumerate(places)}) if places else shown[section.x]
        at = x.to_numpy(dtype=float)
        self.log_x = not places and (("x" in section.log and float(at.min()) > 0) or scale.spans_far(at))
        # Only the columns that the panels need: splitting a hundred into lines is slower than drawing.
        names = [section.x, *section.lines, *section.panels]
        names += ["suspect", "imported", "role", "median_s", *column]
        names += [level.column(of) for level in prediction_lines.LEVELS for of in ("duration", quantity)]
        slim = shown[list(dict.fromkeys(names))]
        self.points = measured_points.placed(slim, at, column, self.factor)
        # Lines with values that a claim compares come first, so that they stand on one page.
        keys = sorted((key for key, _ in split(slim, section.lines)), key=section.compared.isdisjoint)
        self.looks = style.of_lines(section.lines, keys)
        # By panel: the range inside one panel matters, not the difference between panels. The length of a
        # bar is what it shows.
        far = any(scale.spans_far(self._heights(panel)) for _, panel in split(self.points, section.panels))
        asked = "y" in section.log and quantity == (section.quantity or quantity)
        self.log_y = (asked or far) and not places

    @cached_property
    def further_entries(self) -> list[Artist]:
        """Entries of the legend beside the lines."""
        flagged = [style.flagged(4.4)] if self.shown["suspect"].any() else []
        return [*flagged, *prediction_lines.entries(self.predicted)]

    def page(self, panels: Sequence[tuple[_Key, pd.DataFrame]], keys: Sequence[_Key], which: str) -> Page:
        """The page with these panels; `keys` are its lines."""
        columns = _COLUMNS[len(panels)]
        rows = math.ceil(len(panels) / columns)
        strips = self.quantity == "duration" and len(panels) <= MOST_WITH_STRIPS
        held = any(level is not prediction_lines.DATASHEET for level in self.predicted)
        strips = strips and held and not self.bars
        panel_in = _HEIGHT_IN[rows] + (_STRIP_IN if strips else 0.0)
        page = Page(
            Page.LEFT + Page.RIGHT + columns * _WIDTH_IN[columns],
            rows * panel_in + (rows - 1) * _GAP_IN,
            f"{self.section.heading(self.shown)}: {self.label}{which}",
            style.facts(self.run, self.shown),
            self._caption(),
        )
        page.legend([*self._line_entries(keys), *self.further_entries])
        grid = page.grid(rows, columns, hspace=_GAP_IN / panel_in, wspace=0.24)
        alike = self._alike(panels)
        first: Axes | None = None
        strip: Axes | None = None
        tops: list[float] = []
        every = np.concatenate([self._heights(panel) for _, panel in panels])
        for i, (key, panel) in enumerate(panels):
            heights = [panel_in - _STRIP_IN, _STRIP_IN] if strips else [1.0]
            cell = grid[i // columns, i % columns].subgridspec(
                len(heights), 1, height_ratios=heights, hspace=0.1
            )
            axes = page.figure.add_subplot(cell[0], sharey=first if alike else None)
            first = first or axes
            lines = list(self._lines(panel))
            tops.append(self._panel(axes, key, panel, lines))
            scale.measured(axes.yaxis, every if alike else self._heights(panel), self.log_y)
            if not self.log_y:
                axes.set_ylim(0, max(tops) if alike else tops[-1])
            lowest = axes
            if strips:
                lowest = page.figure.add_subplot(cell[1], sharex=axes, sharey=strip, yscale="log")
                strip = strip or lowest
                for one in _RATIOS:
                    lowest.axhline(one, color=style.GREY, lw=0.8 if one == 1 else 0.3, label="_one")
                for line, points in lines:
                    prediction_lines.strip(lowest, points, self.looks[line])
                scale.measured(lowest.yaxis, np.array(lowest.get_ylim()), log=True)
                axes.tick_params(axis="x", which="both", labelbottom=False)
            if self.bars:
                lowest.set_xticks(range(len(self.bars)), self.bars)
                lowest.set_xlim(-0.6, len(self.bars) - 0.4)
                lowest.grid(visible=False, axis="x")
            else:
                scale.swept(lowest.xaxis, panel["at"].to_numpy(), self.log_x, _WIDTH_IN[columns] * 0.8)
            if i + columns >= len(panels):
                lowest.set_xlabel(self._x_words)
            if i % columns == 0:
                axes.set_ylabel(f"{self.label} ({self.unit})")
                if strips:
                    lowest.set_ylabel("predicted /\nmeasured")
        return page

    @cached_property
    def _x_words(self) -> str:
        """Words of the x axis, with the parameters that are equal to it throughout: m = n = k."""
        x, operator = self.section.x, str(self.shown["operator"].iloc[0])
        # In the order of the words: m = n = k.
        names = dict.fromkeys([*OF_OPERATOR.get(operator, ()), *parameter_names(self.shown)])
        others = [name for name in names if name in self.shown.columns and name not in (x, "dtype")]
        equal = [name for name in others if bool((self.shown[name] == self.shown[x]).all())]
        words = [name if len(name) == 1 else axis_words(name, operator) for name in equal]
        return " = ".join([axis_words(x, operator), *words])

    def _alike(self, panels: Sequence[tuple[_Key, pd.DataFrame]]) -> bool:
        """Whether all panels can share a y axis without flattening some."""
        highest = [panel["y"].max() for _, panel in panels]
        return bool(max(highest) <= (MOST_APART if self.log_y else 3) * min(highest))

    def _panel(
        self, axes: Axes, key: _Key, rows: pd.DataFrame, lines: list[tuple[_Key, pd.DataFrame]]
    ) -> float:
        """Draw a panel; the height that a linear y axis from 0 needs."""
        # With y given, matplotlib need not measure every tick to place the title.
        axes.set_title(style.named(self.section.panels, key), y=1.0)
        predicted = prediction_lines.Lines(axes, self.quantity, self.factor)
        wide = _BARS / len(lines) if self.bars else 0.0
        for place, (line, points) in enumerate(lines):
            look = self.looks[line]
            points = points.assign(at=points["at"] + wide * (place - (len(lines) - 1) / 2))
            if self.bars:
                how: dict[str, Any] = {"color": look.color, "alpha": 0.3, "label": "_bar", "zorder": 1.5}
                axes.bar(points["at"], points["y"], 0.9 * wide, **how)
            measured_points.series(axes, points, look, joined=not self.bars)
            predicted.draw(points, look.color, 0.9 * wide)
        lost = rows["at"][rows["y"].isna()].unique()
        floor: dict[str, Any] = {"ms": 5, "mew": 0.8, "label": "_unmeasured", "zorder": 1}
        floor |= {"color": style.GREY, "transform": axes.get_xaxis_transform()}
        axes.plot(lost, np.full(len(lost), 0.012), "|", **floor)
        return 1.08 * float(np.nanmax([*self._heights(rows), *np.fmin(rows["high"], 2 * rows["y"])]))

    def _heights(self, points: pd.DataFrame) -> np.ndarray:
        """Every height in a panel of these points, measured or predicted, in the unit of the axis."""
        levels = [level.column(self.quantity) for level in prediction_lines.shown(points)]
        predicted = points[levels].to_numpy(dtype=float).ravel() * self.factor
        return np.concatenate([points["y"].to_numpy(dtype=float), predicted])

    def _lines(self, panel: pd.DataFrame) -> Iterator[tuple[_Key, pd.DataFrame]]:
        """The lines that have a point in this panel, in the order of the x axis."""
        for key, points in split(panel, self.section.lines):
            if key in self.looks and points["y"].notna().any():
                yield key, points.sort_values("at", kind="stable")

    def _line_entries(self, keys: Sequence[_Key]) -> list[Artist]:
        entries: list[Artist] = []
        for key in keys:
            look = self.looks[key]
            words = [style.labelled(c, v) for c, v in zip(self.section.lines, key, strict=True)]
            if self.shown["imported"].all():
                words, look = [*words, "(imported)"], replace(look, marker=measured_points.IMPORTED)
            label = " ".join(words) or "measured"
            of_bar = style.marker(label, look.color, look.marker)
            entries.append(of_bar if self.bars else measured_points.handle(label, look))
        return entries

    def _caption(self) -> list[str]:
        sentences = []
        if not prediction_lines.best_s(self.shown).notna().any():
            missing = (
                "No ceiling is about the link to the host"
                if (self.shown["arithmetic"] == LINK).all()
                else "This run lacks a ceiling that these rows need"
                if self.run.ceilings
                else "No ceilings in this run"
            )
            sentences.append(f"{missing}, hence no prediction.")
        lost = self.shown[self.shown["median_s"].isna()]
        if len(lost):
            sentences.append(
                f"{len(lost)} of {len(self.shown)} cases have no time ({_why(lost)}): ticks at the bottom."
            )
        if len(self.hidden):
            hidden = f"{count_text(len(self.hidden), 'case')} ({_why(self.hidden)})"
            sentences.append(f"Not drawn: {hidden}, as nothing on the same line has a time.")
        sentences += [style.flag_counts(self.shown), measured_points.caption(self.shown)]
        return [*sentences, *prediction_lines.explained(self.shown)]


def _why(rows: pd.DataFrame) -> str:
    """Counts of the rows' statuses, as a text."""
    return ", ".join(f"{n} {status}" for status, n in rows["status"].value_counts().items())
