"""Prediction lines of figures: how each level is drawn and labelled, and what bounds the rows.

L0 is the datasheet (dotted grey), L1 the roofline of the run (dashed), L2 refined by tiles, waves and caches
(dash and dot). A level without a prediction, or with the same as the one before, is not drawn.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from plots.base import measured_points, style

Quantity = Literal["duration", "rate"]

SAME = 0.005
"""Relative difference up to which two levels count as equal: less than the width of a line."""
_DARK = "#444444"


@dataclass(frozen=True)
class Level:
    """One level of prediction."""

    name: str
    """Beginning of its columns' names, and of the labels of its lines."""
    label: str
    """Name of the level in a legend."""
    look: dict[str, Any]
    alone: str
    """Colour of a line that several implementations share."""

    def column(self, quantity: Quantity) -> str:
        """The column of this quantity: seconds, FLOP/s or bytes/s."""
        return f"{self.name}_s" if quantity == "duration" else f"{self.name}_per_s"


DATASHEET = Level("datasheet", "datasheet", {"ls": ":", "lw": 1.0}, style.GREY)
CALIBRATED = Level("predicted", "roofline of this run", {"ls": "--", "lw": 1.0}, _DARK)
STRUCTURED = Level("structured", "refined", {"ls": (0, (7, 1.5, 1, 1.5)), "lw": 0.9}, _DARK)
LEVELS = (DATASHEET, CALIBRATED, STRUCTURED)


def best_s(rows: pd.DataFrame) -> pd.Series:
    """Prediction of the best level for each row, seconds: with structure if there is one, else calibrated."""
    return rows["structured_s"].fillna(rows["predicted_s"])


def structure_adds(rows: pd.DataFrame) -> bool:
    """Whether the structured level differs from the calibrated one on these rows."""
    structured, calibrated = (rows[name].to_numpy(dtype=float) for name in ("structured_s", "predicted_s"))
    known = np.isfinite(structured)
    apart = np.abs(structured[known] / calibrated[known] - 1)
    # Where there is no calibrated prediction the ratio is NaN, which counts as a difference.
    return not bool((apart <= SAME).all())


def shown(rows: pd.DataFrame) -> tuple[Level, ...]:
    """The levels with predictions of their own for these rows.

    Ceilings make all levels but the datasheet's: drawn with their own rows these would say nothing.
    """
    ceilings = bool((rows["role"] != "measurement").all())
    levels = LEVELS[:1] if ceilings else LEVELS[:2]
    known = [level for level in levels if rows[level.column("duration")].notna().any()]
    return (*known, STRUCTURED) if not ceilings and structure_adds(rows) else tuple(known)


def entries(levels: Sequence[Level]) -> list[Line2D]:
    """The legend's entries of these levels."""
    return [Line2D([], [], color=of.alone, label=f"predicted: {of.label}", **of.look) for of in levels]


class Lines:
    """The predicted lines of one panel; a line that several implementations share is drawn once, in grey."""

    def __init__(self, axes: Axes, quantity: Quantity, factor: float) -> None:
        """Values of `quantity` are drawn times `factor`."""
        self._axes, self._quantity, self._factor = axes, quantity, factor
        self._drawn: dict[tuple[float, ...], tuple[Level, Line2D]] = {}

    def draw(self, rows: pd.DataFrame, color: str, bar: float = 0.0) -> None:
        """Draw the levels for one line of rows, sorted by their `at`; across bars if these have a width."""
        x = rows["at"].to_numpy(dtype=float)
        for level in shown(rows):
            y = rows[level.column(self._quantity)].to_numpy(dtype=float) * self._factor
            known = np.isfinite(y)
            if bar:
                how: dict[str, Any] = {"color": level.alone, "zorder": 5, "label": f"_{level.name}"}
                how |= level.look
                self._axes.hlines(y[known], x[known] - bar / 2, x[known] + bar / 2, **how)
            else:
                self.add(level, x[known], y[known], level.alone if level is DATASHEET else color)

    def add(self, level: Level, x: np.ndarray, y: np.ndarray, color: str) -> None:
        """Draw a line of this level in the unit of the axis; `y` is finite."""
        curve = tuple(float(f"{v:.3g}") for v in (*x, *y))
        if curve in self._drawn:
            # The same prediction for two implementations belongs to neither.
            first, line = self._drawn[curve]
            line.set_color(first.alone)
        elif curve:
            # A line of one point would be invisible.
            how: dict[str, Any] = {"marker": "_", "ms": 12} if len(x) == 1 else {}
            how |= {"color": color, "zorder": 2, "label": f"_{level.name}"}
            (line,) = self._axes.plot(x, y, **how, **level.look)
            self._drawn[curve] = (level, line)


def strip(axes: Axes, points: pd.DataFrame, look: style.LineStyle) -> None:
    """Draw predicted / measured of one line of rows, by the best level."""
    best = points.assign(y=best_s(points) / points["median_s"])
    best = best[best["y"].notna()]
    axes.plot(best["at"], best["y"], ls=look.dash, color=look.color, lw=0.8)
    measured_points.markers(axes, best, look, ms=2.4, mew=0.6, label="_ratio")


def bound(rows: pd.DataFrame) -> str:
    """What bounds the timed rows: `Bound by memory 12, compute 5.`; empty if unknown."""
    timed = rows[rows["median_s"].notna()]
    counted = Counter(name for name in timed["bound_by"] if name).most_common()
    counts = ", ".join(f"{name} {n}" for name, n in counted)
    return f"Bound by {counts}." if counts else ""


def explained(rows: pd.DataFrame) -> list[str]:
    """Sentences of a caption on the predicted lines of these rows; none if nothing is predicted."""
    levels = shown(rows)
    sentences = [bound(rows)]
    if CALIBRATED in levels:
        sentences.append(
            "Predicted: launch floor + max(FLOP / peak, bytes / bandwidth), ceilings of the same run."
        )
    if STRUCTURED in levels:
        gpu = (rows["device_kind"] == "cuda") & rows["product_m"].notna()
        what = "tiles, waves, split K and caches too"
        if not gpu.any():
            what = "caches, kernels of a launch and special functions too"
        sentences.append(f"Refined: {what}.")
    return sentences
