"""A panel of a history: its points, the band they were judged by, and the verdicts."""

from __future__ import annotations

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

from bench.judge.history.detector import Kind
from bench.judge.history.monitor import Track
from bench.judge.history.series import Flags, Floats
from plots.base import measured_points, scale, style
from plots.history import marks
from plots.history.view import View

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


@dataclass(frozen=True)
class Panel:
    """What is drawn of a row; arrays [nights shown], in the unit of the axis, NaN where there is nothing."""

    value: Floats
    centre: Floats
    low: Floats
    high: Floats
    held: Flags
    """Nights of a step, which are drawn however far off they are."""
    laid: Sequence[marks.Laid]
    doubted: Flags
    """Values that are hollow."""
    title: str = ""
    value_low: Floats | None = None
    value_high: Floats | None = None
    """Ends of the 95 % interval of each value."""
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
        happened = [*marks.boundary_marks(view), *marks.step_marks(view, kind, row)]
        laid = marks.laid_out(happened, view.calendar, width_in)
        given = {"value": value, "doubted": np.zeros(value.size, dtype=bool)} | more
        return cls(centre=centre, low=low, high=high, held=marks.held(view, kind, row), laid=laid, **given)

    @cached_property
    def limits(self) -> tuple[float, float]:
        """Ends of the y axis: everything that was judged, and all values near the bulk."""
        shown = [self.value, self.low, self.high]
        optional = self.value_low, self.value_high, self.as_judged
        shown += [values for values in optional if values is not None]
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
    marks.draw(axes, panel.laid)
    axes.set_ylim(low, high)
    axes.yaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 2.5, 5, 10]))
    axes.yaxis.set_major_formatter(FuncFormatter(scale.plain))
    axes.set_ylabel(unit)
    axes.annotate(
        panel.title,
        (0.0, 1.0),
        xycoords="axes fraction",
        xytext=(0, 3 + 72 * marks.ROW_IN * above),
        textcoords="offset points",
        size=8,
        weight="bold",
        va="bottom",
        annotation_clip=False,
    )
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
