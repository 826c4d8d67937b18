"""The figures of a history: a series over its nights, the machine and the classes, and what moved."""

from __future__ import annotations

import json
import re
import textwrap
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator
from matplotlib.transforms import blended_transform_factory

from bench.format import change_text
from bench.judge.history.change_points import change_points
from bench.judge.history.monitor import Track
from bench.judge.history.series import KEY, Floats
from plots.base import scale, style
from plots.base.page import Page
from plots.history import panel as panels
from plots.history.panel import Panel
from plots.history.view import View, verdict

MOST_SERIES = 24
"""Series that are drawn."""
OF_A_CLASS = 3
"""Movers of one class that are drawn before those of others."""
VISIBLE = 0.002
"""How far, ln, the machine must have moved a time for it to be drawn without that, too."""
BOUNDS = {0: "memory: what the memory's speed decides", 1: "core: what computing or launching decides"}
PANELS = 12
"""Panels of classes on a page."""
MOST_MOVERS = 20
"""Rows of the figure of the movers."""
PREFIX = {"series": "", "class": "all of ", "ceiling": "ceiling: ", "machine": "the machine: "}
"""What stands before the name of a series, a class, a ceiling, and what all ceilings have in common."""
_SERIES_IN, _ABOVE_SERIES_IN = 1.9, 0.22
"""Height of a series' panel, and the room for words that its page leaves above it anyway."""
_HALF_IN, _TRACK_IN, _DATES_IN, _TITLE_IN = 4.0, 1.05, 0.34, 0.24
_ABOVE_TRACKS_IN = 0.2
"""Room for a title that a page leaves above its first row of panels anyway."""
_BETWEEN_IN = 0.62
"""Between two columns of panels, for the labels of the right one."""
_LOOKS = {"SLOWER": (style.VERMILLION, "^"), "FASTER": (style.BLUE, "v")}


# ---- a series


def series(
    view: View, rows: Sequence[int], left_out: int, width_in: float = panels.WIDE_IN
) -> Iterator[tuple[str, Page]]:
    """(stem, page) of each of these rows of History.series; `left_out` more would have been drawn."""
    for row in rows:
        yield f"series/{stem(view, row)}", _series_page(view, row, left_out, width_in)


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
    return rows[:MOST_SERIES], max(0, len(rows) - MOST_SERIES)


def matching(view: View, text: str) -> list[int]:
    """Rows of the series with this text in their name, in capitals or not; none for no text."""
    return [row for row, name in enumerate(view.labels) if text and text.lower() in name.lower()]


def stem(view: View, row: int) -> str:
    """A file's name for a series, the same every night: its words, and what tells it from others alike."""
    words = re.sub(r"[^a-z0-9.]+", "-", view.labels[row].lower()).strip("-.")
    key = json.dumps([str(value) for value in view.history.series.iloc[row][[*KEY]]])
    return f"{words[:80]}-{zlib.crc32(key.encode()):08x}"


def _series_page(view: View, row: int, left_out: int, width_in: float) -> Page:
    history, track = view.history, view.judged.series
    log_s, half, own = (view.shown(each[row]) for each in (history.log_s, history.half, track.log))
    factor, unit = scale.scaled(pd.Series(np.exp(log_s)), "s")

    def in_unit(log: Floats) -> Floats:
        return np.asarray(factor * np.exp(log))

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
    above_in = max(panels.ROW_IN * panel.rows - _ABOVE_SERIES_IN, 0.01)
    name, caption = view.labels[row], _series_caption(view, panel, left_out)
    page = Page(Page.LEFT + Page.RIGHT + width_in, _SERIES_IN + above_in, name, view.facts, caption)
    page.figure.set_label(f"Duration of {name}")
    page.legend(panels.legend(view, [panel]))
    grid = page.grid(2, 1, height_ratios=[above_in, _SERIES_IN], hspace=0.0)
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


def _series_caption(view: View, panel: Panel, left_out: int) -> list[str]:
    usable = int((np.isfinite(panel.value) & ~panel.doubted).sum())
    sentences = [] if panel.judged else ["Too few nights to judge it yet, so there is no band."]
    sentences.append(f"{usable} of {len(view.nights)} nights have a time that is not suspect.")
    if panel.beyond:
        sentences.append("Triangles on an edge stand beyond it.")
    if panel.unsaid:
        sentences.append("Lines without words: see the table of nights.")
    if left_out:
        more = f"{left_out} more series moved or were requested, and are not drawn"
        sentences.append(f"{more}; --match TEXT chooses.")
    sentences.append(view.calendar.remark())
    if panel.judged:
        sentences.append("An alarm takes two nights running outside of the band.")
    if panel.moved:
        without = "the time without what the machine's own ceilings moved"
        sentences.append(f"Crosses: {without}, which is what was judged.")
    return [*sentences, "Short ticks on the floor are nights without a time."]


# ---- the machine, and classes


def machine(view: View, width_in: float = panels.WIDE_IN) -> Iterator[tuple[str, Page]]:
    """(stem, page), if any ceiling was measured."""
    track = view.judged.machine
    shown = [
        Panel.of(view, track, row, "machine", _percent, width_in, title=BOUNDS[row])
        for row in _rows(view, track)
    ]
    if not shown:
        return
    caption = [
        "Above 0 the machine was slower than on the nights before.",
        "The median departure of the ceilings of a kind (bandwidths; peaks and launches) of the same runs.",
        "What stands out of its noise is taken out of the other series before they are judged.",
    ]
    yield "machine", _page(view, shown, [width_in], "The machine's ceilings, night by night", caption)


def classes(view: View, width_in: float = panels.WIDE_IN) -> Iterator[tuple[str, Page]]:
    """(stem, page) of each dozen of classes judged on a night shown: those with an open step first."""
    track = view.judged.by_class
    still = {step.row for step in view.open_steps() if step.kind == "class"}
    kinds = view.judged.classes[["operator", "implementation", "count"]].itertuples(index=False)
    names = [f"{operator} {name} ({count:.0f} series)" for operator, name, count in kinds]
    rows = sorted(_rows(view, track), key=lambda row: (row not in still, names[row]))
    pages = -(-len(rows) // PANELS)
    for number in range(pages):
        of_page = rows[number * PANELS : (number + 1) * PANELS]
        halves = len(of_page) > 1 and width_in > 2 * _HALF_IN
        columns_in = [_HALF_IN, _HALF_IN] if halves else [width_in]
        shown = [
            Panel.of(view, track, row, "class", _percent, columns_in[0], title=names[row]) for row in of_page
        ]
        which = f" ({number + 1} of {pages})" if pages > 1 else ""
        caption = [
            "The mean over a class's series of how far each is from its own rolling median.",
            "What the machine moved is taken out. A level that is kept becomes normal, and the curve is 0.",
        ]
        title = f"Operators by implementation, night by night{which}"
        stem = f"classes-{number + 1}" if number else "classes"
        yield stem, _page(view, shown, columns_in, title, caption)


def _rows(view: View, track: Track) -> list[int]:
    """The rows of a track with a value on a night shown."""
    rows: list[int] = np.flatnonzero(np.isfinite(view.shown(track.log)).any(axis=1)).tolist()
    return rows


def _percent(log: Floats) -> Floats:
    return np.asarray(100 * np.expm1(log))


def _page(
    view: View, shown_panels: Sequence[Panel], columns_in: Sequence[float], title: str, caption: Sequence[str]
) -> Page:
    """Panels in columns so wide, each row with room above for the words that its panels need."""
    columns = len(columns_in)
    lines = [shown_panels[i : i + columns] for i in range(0, len(shown_panels), columns)]
    words = [max(panel.rows for panel in line) for line in lines]
    above_in = [
        _TITLE_IN + panels.ROW_IN * rows + (_DATES_IN if i else -_ABOVE_TRACKS_IN)
        for i, rows in enumerate(words)
    ]
    width_in = sum(columns_in) + (columns - 1) * _BETWEEN_IN
    unsaid = sum(panel.unsaid for panel in shown_panels)
    sentences = [f"{unsaid} lines have no room for their words: see the table of nights."] if unsaid else []
    sentences += [view.calendar.remark(), *caption]
    sentences += ["Short ticks on the floor: nights with too few before them to tell."]
    area_in = sum(above_in) + _TRACK_IN * len(lines)
    page = Page(Page.LEFT + Page.RIGHT + width_in, area_in, title, view.facts, sentences)
    page.figure.set_label(title)
    page.legend(panels.legend(view, shown_panels))
    heights = [height for line_in in above_in for height in (line_in, _TRACK_IN)]
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


# ---- what moved


def movers(view: View, moved: pd.DataFrame) -> Iterator[tuple[str, Page]]:
    """(stem, page) of the first movers, if there are any."""
    if moved.empty:
        return
    shown = moved.head(MOST_MOVERS)
    left = len(moved) - len(shown)
    caption = [f"{left} more are in movers.csv."] if left else []
    caption += [
        "Hollow: classes, the seconds of their members together, and their median effect.",
        "Grey: the noise of a night (half of the band).",
        "Median of the first nights shown against that of the nights since the newest step, or the last "
        "three; only nights of the last segment.",
    ]
    title = "What moved, the most time first"
    page = Page(9.8, 0.3 * len(shown) + 0.2, title, view.facts, caption, right_in=2.35)
    page.figure.set_label(f"What moved on {view.history.device_name}")
    handles = [style.marker(word, color, marker, 6) for word, (color, marker) in _LOOKS.items()]
    page.legend([*handles, Patch(color=panels.BAND, label="noise of a night")])
    grid = page.grid(1, 3, width_ratios=[0.42, 0.29, 0.29], wspace=0.06)
    time = page.figure.add_subplot(grid[1])
    effect = page.figure.add_subplot(grid[2])
    y = np.arange(len(shown))
    factor, unit = scale.scaled(shown["moved_s"].abs(), "s")
    noise = 100 * shown["noise"].to_numpy(dtype=float)
    effect.barh(y, 2 * noise, left=-noise, height=0.5, color=panels.BAND, zorder=1, label="_noise")
    beside = blended_transform_factory(effect.transAxes, effect.transData)
    for place, mover in enumerate(shown.to_dict("records")):
        moved_s, share = mover["moved_s"], mover["effect"]
        for axes, at, sign in ((time, factor * abs(moved_s), moved_s), (effect, 100 * share, share)):
            color, marker = _LOOKS[verdict(sign)]
            face = "white" if mover["kind"] == "class" else color
            axes.plot(at, place, marker, color=color, mfc=face, ms=6, zorder=3, label="_mover")
        since = f", {mover['since']}" if mover["since"] else ""
        words = f"{change_text(1 + share)}, {mover['over_noise']:.1f} x noise, {mover['state']}{since}"
        offset: dict[str, Any] = {"xytext": (6, 0), "textcoords": "offset points"}
        effect.annotate(words, (1.0, place), xycoords=beside, va="center", size=6.5, **offset)
    names = [PREFIX[kind] + name for kind, name in zip(shown["kind"], shown["name"], strict=True)]
    time.set_yticks(y, ["\n".join(textwrap.wrap(name, 58)[:2]) for name in names], size=6.5)
    time.set_xlabel(f"time moved ({unit})")
    _log(time, factor * shown["moved_s"].abs().to_numpy(dtype=float))
    effect.set_xlabel("effect (percent)")
    effect.use_sticky_edges = False
    effect.axvline(0.0, color="#444444", lw=0.7, zorder=1.5, label="_zero")
    effect.xaxis.set_major_locator(MaxNLocator(5))
    effect.xaxis.set_major_formatter(FuncFormatter(scale.plain))
    effect.set_yticks(y, [""] * len(y))
    for axes in (time, effect):
        axes.set_ylim(len(shown) - 0.4, -0.6)
    yield "movers", page


def _log(axes: Axes, values: np.ndarray) -> None:
    axes.set_xscale("log")
    positive = values[values > 0]
    axes.set_xlim(float(positive.min()) / 2, float(positive.max()) * 2)
    few = positive.max() / positive.min() < 30
    axes.xaxis.set_major_locator(LogLocator(10, subs=(1.0, 2.0, 5.0) if few else (1.0,), numticks=6))
    axes.xaxis.set_major_formatter(FuncFormatter(scale.plain))
    axes.xaxis.set_minor_locator(NullLocator())
