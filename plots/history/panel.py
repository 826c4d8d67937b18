"""A panel of a history: its points, the band they were judged by, and labels of what happened on a night.

Labels stand above the panel, placed so that none overlaps another.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator
from matplotlib.transforms import blended_transform_factory

from bench.format import change_text
from bench.judge.history.detector import ConfirmedChange, Kind
from bench.judge.history.monitor import Track
from bench.judge.history.series import Flags, Floats
from plots.base import measured_points, scale, style
from plots.history.view import Calendar, View, verdict

WIDE_IN, NARROW_IN = 8.2, 2.7
"""Width of the axes of a figure, and of the same for a window as narrow as a telephone's."""
BAND, ZERO = "#D5D5D5", "#AAAAAA"
CHANGE = (0, (1, 1.5))
"""Dash of a change point's line."""
POINT, MANY = 3.4, 120
"""Size of a point; nights from which points are smaller."""
FAR = 1.5
"""Times the range of most values by which others may lie outside of it, and still set the axis."""
GAP = 3.0
"""Times the usual distance of two nights that is a gap in a line."""
LETTER_IN = 0.057
"""Width of a letter of 6.5 points, on average."""
ROW_IN = 0.115
MOST_ROWS = 4
LONGEST = 34
"""Letters of a text; the page's table of nights has all of it."""
_OVER_THE_AXES: dict[str, Any] = {"textcoords": "offset points", "annotation_clip": False}


@dataclass
class Mark:
    """Something that happened on a night, and where its label stands."""

    x: float
    """Place on the axis of dates."""
    text: str
    color: str
    dash: str
    row: int | None = None
    """How many rows above the panel; None where there is no room."""
    leftwards: bool = False
    """Whether the label ends at the line instead of beginning there."""


def lay_out(marks: Sequence[Mark], calendar: Calendar, width_in: float) -> None:
    """Put each label in the lowest free row, on a panel of that width."""
    taken: list[list[tuple[float, float]]] = [[] for _ in range(MOST_ROWS)]
    for mark in sorted(marks, key=lambda mark: mark.x):
        at = calendar.share(mark.x) * width_in
        long = len(mark.text) * LETTER_IN + 0.1
        mark.leftwards = at + long > width_in
        low, high = (at - long, at) if mark.leftwards else (at, at + long)
        free = (
            row for row, ends in enumerate(taken) if all(high <= left or right <= low for left, right in ends)
        )
        mark.row = next(free, None) if low >= -0.4 else None
        if mark.row is not None:
            taken[mark.row].append((low, high))


def _draw_labels(axes: Axes, marks: Sequence[Mark]) -> None:
    """Draw a line for each mark through the panel, up to its label."""
    across = blended_transform_factory(axes.transData, axes.transAxes)
    for mark in marks:
        axes.axvline(mark.x, color=mark.color, lw=0.8, ls=mark.dash, zorder=1.5, label="_mark")
        if mark.row is not None:
            side, ha = (-2, "right") if mark.leftwards else (2, "left")
            offset: dict[str, Any] = {"xytext": (side, 2 + 72 * ROW_IN * mark.row), "ha": ha}
            look: dict[str, Any] = {"color": mark.color, "size": 6.5, "va": "bottom", **_OVER_THE_AXES}
            axes.annotate(mark.text, (mark.x, 1.0), xycoords=across, **offset, **look)


def boundary_marks(view: View) -> list[Mark]:
    """A mark where a segment begins, saying what changed."""
    x = view.calendar.x
    return [Mark(float(x[i]), _short(change), "#444444", "--") for i, change in view.boundaries()]


def step_marks(view: View, kind: str, row: int) -> list[Mark]:
    """A mark where each step of this row began; one that is open since before the first night, there.

    Of a series also those of its class that it took part in.
    """
    marks = []
    for step in steps(view, kind, row):
        began = step.began - view.first
        effect = change_text(math.exp(step.effect))
        label = f"{'class ' if kind != step.kind else ''}{verdict(step.effect)} {effect}"
        label += ", open" if step.ended is None else ""
        if began < 0:
            label += f" since {view.history.nights[step.began].utc[:10]}"
        color = style.VERMILLION if step.effect > 0 else style.BLUE
        marks.append(Mark(float(view.calendar.x[max(0, began)]), label, color, "-"))
    return marks


def held(view: View, kind: str, row: int) -> Flags:
    """[nights shown] whether a night belongs to a step of this row."""
    nights = view.first + np.arange(len(view.nights))
    belongs = np.zeros(len(nights), dtype=np.bool_)
    for step in steps(view, kind, row):
        belongs |= (nights >= step.began) & (nights < (step.ended or view.first + len(nights)))
    return belongs


def steps(view: View, kind: str, row: int) -> list[ConfirmedChange]:
    """Steps of a row that reach a night shown; of a series also those of its class that it took part in."""
    return [
        step
        for step in view.judged.steps
        if (step.kind, step.row) == (kind, row)
        or (kind == "series" and step.kind == "class" and row in step.members)
        if step.began >= view.first or step.ended is None or step.ended >= view.first
    ]


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


# ---- the panel


@dataclass(frozen=True)
class Panel:
    """What is drawn of a row; arrays [nights shown], in the unit of the axis, NaN where there is nothing."""

    value: Floats
    centre: Floats
    low: Floats
    high: Floats
    held: Flags
    """Nights of a step, which are drawn however far off they are."""
    marks: Sequence[Mark]
    doubted: Flags
    """Values that are hollow."""
    title: str = ""
    value_low: Floats | None = None
    value_high: Floats | None = None
    """Ends of the 95 % interval of each value; both or none."""
    as_judged: Floats | None = None
    """The value without what the machine itself did, where that is visibly another."""
    changes: npt.NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    """Places on the axis of dates where a change-point pass divides the row."""

    @classmethod
    def of(
        cls,
        view: View,
        track: Track,
        row: int,
        kind: Kind,
        in_unit: Callable[[Floats], Floats],
        width_in: float,
        **more: Any,
    ) -> Panel:
        """The panel of a row of a track, with its marks; `in_unit` turns ln into the unit of the axis."""
        value, centre, low, high = (
            in_unit(view.shown(levels[row])) for levels in (track.log, track.centre, track.low, track.high)
        )
        marks = [*boundary_marks(view), *step_marks(view, kind, row)]
        lay_out(marks, view.calendar, width_in)
        given = {"value": value, "doubted": np.zeros(value.size, dtype=bool)} | more
        return cls(centre=centre, low=low, high=high, held=held(view, kind, row), marks=marks, **given)

    @cached_property
    def limits(self) -> tuple[float, float]:
        """Ends of the y axis: everything that was judged, and all values near the bulk."""
        optional = self.value_low, self.value_high, self.as_judged
        shown = [values for values in (self.value, self.low, self.high, *optional) if values is not None]
        values = np.concatenate(shown)
        values = values[np.isfinite(values)]
        if not values.size:
            return -1.0, 1.0
        least, most = (float(end) for end in np.quantile(values, (0.05, 0.95)))
        room = FAR * ((most - least) or 0.05 * abs(most) or 1.0)
        usual = values[(values >= least - room) & (values <= most + room)]
        kept = self.value[self.held]
        usual = np.concatenate([usual, kept[np.isfinite(kept)]])
        low, high = float(usual.min()), float(usual.max())
        margin = 0.08 * (high - low) or 0.05 * abs(high) or 1.0
        return low - margin, high + margin

    @property
    def judged(self) -> bool:
        """Whether any night was compared with a band."""
        return bool(np.isfinite(self.low).any())

    @property
    def moved(self) -> bool:
        """Whether the machine's own movement is visible on any night."""
        return self.as_judged is not None and bool(np.isfinite(self.as_judged).any())

    @property
    def rows(self) -> int:
        """The number of rows of labels above it."""
        return max((mark.row + 1 for mark in self.marks if mark.row is not None), default=0)

    @property
    def unsaid(self) -> int:
        """The number of marks whose labels had no room."""
        return sum(mark.row is None for mark in self.marks)

    @property
    def beyond(self) -> bool:
        """Whether a value stands outside of the axis."""
        low, high = self.limits
        return bool(((self.value < low) | (self.value > high)).any())


def draw(axes: Axes, view: View, panel: Panel, unit: str, width_in: float, above: int) -> None:
    """The panel with its axes; `unit` names the y axis, `above`: rows of words below its title."""
    x = view.calendar.x
    small = POINT if len(x) <= MANY else 1.9
    known = np.isfinite(panel.value)
    low, high = panel.limits
    band = np.isfinite(panel.low) & np.isfinite(panel.high)
    if band.any():
        at, under = _broken(view, panel.low)
        _, over = _broken(view, panel.high)
        there = np.isfinite(under) & np.isfinite(over)
        axes.fill_between(at, under, over, where=there.tolist(), color=BAND, lw=0, zorder=0.8, label="_band")
        # The band of a single night has no width and would be invisible.
        lone = band & ~np.r_[False, band[:-1]] & ~np.r_[band[1:], False]
        axes.vlines(x[lone], panel.low[lone], panel.high[lone], color=BAND, lw=3, zorder=0.8, label="_band")
    axes.plot(*_broken(view, panel.centre), color="#444444", lw=1.0, zorder=2, label="_centre")
    axes.plot(*_broken(view, panel.value), color=style.BLUE, lw=0.5, alpha=0.55, zorder=2.2, label="_line")
    if panel.value_low is not None and panel.value_high is not None:
        inside = known & np.isfinite(panel.value_low)
        look: dict[str, Any] = {"color": style.BLUE, "lw": 0.8, "alpha": 0.7, "zorder": 2.4}
        axes.vlines(x[inside], panel.value_low[inside], panel.value_high[inside], label="_interval", **look)
    if panel.as_judged is not None and panel.moved:
        axes.plot(x, panel.as_judged, "x", color="#222222", ms=small, mew=0.8, zorder=3.4, label="_judged")
    within = known & (panel.value >= low) & (panel.value <= high)
    for points, face, mew, name in (
        (within & ~panel.doubted, style.BLUE, 0.0, "_night"),
        (within & panel.doubted, "white", 0.8, "_doubted"),
    ):
        if points.any():
            look = {"color": style.BLUE, "mfc": face, "ms": small, "mew": mew, "zorder": 3, "label": name}
            axes.plot(x[points], panel.value[points], "o", **look)
    for beyond, edge, marker in ((panel.value > high, high, "^"), (panel.value < low, low, "v")):
        if beyond.any():
            edges = np.full(beyond.sum(), edge)
            look = {"color": "#444444", "ms": 4, "mew": 0, "zorder": 4, "clip_on": False}
            axes.plot(x[beyond], edges, marker, label="_far", **look)
    if not known.all():  # a night without this row: a tick on the floor, for a gap alone may be no night
        measured_points.on_floor(axes, x[~known], 0.0, 4, clip_on=False, zorder=4, label="_missing")
    if panel.changes.size:
        look = {"color": style.PURPLE, "lw": 0.9, "ls": CHANGE, "zorder": 1.6, "label": "_change"}
        axes.vlines(panel.changes, 0, 1, transform=axes.get_xaxis_transform(), **look)
    _draw_labels(axes, panel.marks)
    axes.set_ylim(low, high)
    axes.yaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 2.5, 5, 10]))
    axes.yaxis.set_major_formatter(FuncFormatter(scale.plain))
    axes.set_ylabel(unit)
    look = {"size": 8, "weight": "bold", "va": "bottom", **_OVER_THE_AXES}
    offset = (0, 3 + 72 * ROW_IN * above)
    axes.annotate(panel.title, (0.0, 1.0), xycoords="axes fraction", xytext=offset, **look)
    view.calendar.label(axes, width_in)


def legend(view: View, panels: Sequence[Panel]) -> list[Artist]:
    """Legend entries for the points, lines and bands that these panels contain."""
    intervals = any(panel.value_low is not None and np.isfinite(panel.value_low).any() for panel in panels)
    night = "a night with its 95 % interval" if intervals else "a night"
    handles: list[Artist] = [
        Line2D([], [], color=style.BLUE, marker="o", lw=0.6, ms=POINT, mew=0, label=night)
    ]
    if any((panel.doubted & np.isfinite(panel.value)).any() for panel in panels):
        handles.append(style.flagged(POINT))
    if any(panel.moved for panel in panels):
        handles.append(style.marker("without the machine's own", "#222222", "x", POINT))
    if any(panel.judged for panel in panels):
        handles.append(Line2D([], [], color="#444444", lw=1.0, label="rolling median"))
        handles.append(Patch(color=BAND, label="band"))
    if view.boundaries():
        handles.append(Line2D([], [], color="#444444", lw=0.8, ls="--", label="new segment"))
    if any(panel.changes.size for panel in panels):
        handles.append(Line2D([], [], color=style.PURPLE, lw=0.9, ls=CHANGE, label="change point"))
    return handles


def _broken(view: View, y: Floats) -> tuple[Floats, Floats]:
    """(x, y) of a line that ends where a segment does, and where nights are missing from the calendar."""
    x = view.calendar.x
    if x.size < 2:
        return x, y
    apart = np.diff(x)
    gaps = set((np.flatnonzero(apart > GAP * np.median(apart)) + 1).tolist())
    breaks = sorted(gaps | {i for i, _ in view.boundaries()})
    return np.insert(x, breaks, x[breaks]), np.insert(y, breaks, np.nan)
