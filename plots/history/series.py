"""One series over its nights: how long it took, what it was compared with, and when it changed."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from bench.judge.history.change_points import change_points
from bench.judge.history.series import KEY, Floats
from plots.base import scale
from plots.base.page import Page
from plots.history import marks
from plots.history import panel as panels
from plots.history.panel import Panel
from plots.history.view import View

MOST = 24
"""Series that are drawn."""
OF_A_CLASS = 3
"""Movers of one class that are drawn before those of others."""
VISIBLE = 0.002
"""How far, ln, the machine must have moved a time for it to be drawn without that, too."""
_PANEL_IN = 1.9
_SPARE_IN = 0.22
"""Room for words that a page leaves above its panel anyway."""


def draw(
    view: View, rows: Sequence[int], left_out: int, width_in: float = panels.WIDE_IN
) -> Iterator[tuple[str, Page]]:
    """(stem, page) of each of these rows of History.series; `left_out` more would have been drawn."""
    for row in rows:
        yield f"series/{stem(view, row)}", _page(view, row, left_out, width_in)


def chosen(view: View, moved: pd.DataFrame, match: str) -> tuple[list[int], int]:
    """(rows of the series drawn, how many are left out).

    First those that match, then those with an open step of their own, then the movers: of each class the
    first few before the rest, or one class's step would be all there is to see.
    """
    still = [step.row for step in view.open_steps() if step.kind == "series"]
    single = moved[moved["kind"] != "class"]
    place = single.groupby(["operator", "implementation"]).cumcount()
    movers = [*single.loc[place < OF_A_CLASS, "row"], *single.loc[place >= OF_A_CLASS, "row"]]
    rows = [int(row) for row in dict.fromkeys([*matching(view, match), *still, *movers])]
    return rows[:MOST], max(0, len(rows) - MOST)


def matching(view: View, text: str) -> list[int]:
    """Rows of the series with this text in their name, in capitals or not; none for no text."""
    return [row for row, name in enumerate(view.labels) if text and text.lower() in name.lower()]


def stem(view: View, row: int) -> str:
    """A file's name for a series, the same every night: its words, and what tells it from others alike."""
    words = re.sub(r"[^a-z0-9.]+", "-", view.labels[row].lower()).strip("-.")
    key = json.dumps([str(value) for value in view.history.series.iloc[row][[*KEY]]])
    return f"{words[:80]}-{zlib.crc32(key.encode()):08x}"


def _page(view: View, row: int, left_out: int, width_in: float) -> Page:
    judged, history = view.judged, view.history
    log_s, half = view.shown(history.log_s[row]), view.shown(history.half[row])
    factor, unit = scale.scaled(pd.Series(np.exp(log_s)), "s")

    def in_unit(log: Floats) -> Floats:
        return np.asarray(factor * np.exp(log))

    track = judged.series
    own = view.shown(track.log[row])
    moved = np.abs(own - log_s) > VISIBLE
    panel = Panel.of(
        *(view, track, row, "series", in_unit, width_in),
        value=in_unit(log_s),
        doubted=view.shown(history.doubted[row]),
        value_low=in_unit(log_s - half),
        value_high=in_unit(log_s + half),
        as_judged=in_unit(np.where(moved, own, np.nan)),
        changes=_changes(view, row),
    )
    above_in = max(marks.ROW_IN * marks.rows(panel.laid) - _SPARE_IN, 0.01)
    page = Page(
        Page.LEFT + Page.RIGHT + width_in,
        _PANEL_IN + above_in,
        view.labels[row],
        view.facts,
        _caption(view, panel, left_out),
    )
    page.figure.set_label(f"Duration of {view.labels[row]}")
    page.legend(panels.legend(view, [panel]))
    grid = page.grid(2, 1, height_ratios=[above_in, _PANEL_IN], hspace=0.0)
    panels.draw(page.figure.add_subplot(grid[1]), view, panel, f"duration ({unit})", width_in, 0)
    return page


def _changes(view: View, row: int) -> Floats:
    """Places on the axis of dates of the nights with which a new level begins; all nights tell which."""
    history = view.history
    track = view.judged.series.log[row]
    log = np.where(np.isfinite(track), track, history.log_s[row])
    log[history.doubted[row]] = np.nan
    begins = change_points(log, [night.segment for night in history.nights])
    return np.array([float(view.calendar.x[night - view.first]) for night in begins if night >= view.first])


def _caption(view: View, panel: Panel, left_out: int) -> list[str]:
    usable = int((np.isfinite(panel.value) & ~panel.doubted).sum())
    sentences = [] if panel.judged else ["Too few nights to judge it yet, so there is no band."]
    sentences.append(f"{usable} of {len(view.nights)} nights have a time that is not suspect.")
    if panel.beyond:
        sentences.append("Triangles on an edge stand beyond it.")
    if marks.unsaid(panel.laid):
        sentences.append("Lines without words: see the table of nights.")
    if left_out:
        sentences.append(
            f"{left_out} more series moved or were requested, and are not drawn; --match TEXT chooses."
        )
    sentences.append(view.calendar.remark())
    if panel.judged:
        sentences.append("An alarm takes two nights running outside of the band.")
    if panel.moved:
        sentences.append(
            "Crosses: the time without what the machine's own ceilings moved, which is what was judged."
        )
    return [*sentences, "Short ticks on the floor are nights without a time."]
