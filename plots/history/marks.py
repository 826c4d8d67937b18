"""Labels above a panel that say what happened on a night, placed so that none overlaps another."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.transforms import blended_transform_factory

from bench.format import change_text
from bench.judge.history.detector import ConfirmedChange
from bench.judge.history.series import Flags
from plots.base import style
from plots.history.date_axis import Calendar
from plots.history.view import View, verdict

LETTER_IN = 0.057
"""Width of a letter of 6.5 points, on average."""
ROW_IN = 0.115
MOST_ROWS = 4
LONGEST = 34
"""Letters of a text; the page's table of nights has all of it."""


@dataclass(frozen=True)
class Mark:
    """Something that happened on a night."""

    x: float
    """Place on the axis of dates."""
    text: str
    color: str
    dash: str


class Laid(NamedTuple):
    """A mark and the position of its label."""

    mark: Mark
    row: int | None
    """How many rows above the panel; None where there is no room."""
    leftwards: bool
    """Whether the label ends at the line instead of beginning there."""


def laid_out(marks: Sequence[Mark], calendar: Calendar, width_in: float) -> list[Laid]:
    """Each mark with its label in the lowest free row, on a panel of that width."""
    taken: list[list[tuple[float, float]]] = [[] for _ in range(MOST_ROWS)]
    laid = []
    for mark in sorted(marks, key=lambda mark: mark.x):
        at = calendar.share(mark.x) * width_in
        long = len(mark.text) * LETTER_IN + 0.1
        leftwards = at + long > width_in
        low, high = (at - long, at) if leftwards else (at, at + long)
        free = (
            row for row, ends in enumerate(taken) if all(high <= left or right <= low for left, right in ends)
        )
        row = next(free, None) if low >= -0.4 else None
        if row is not None:
            taken[row].append((low, high))
        laid.append(Laid(mark, row, leftwards))
    return laid


def rows(laid: Sequence[Laid]) -> int:
    """The number of rows of labels above a panel."""
    return max((label.row + 1 for label in laid if label.row is not None), default=0)


def unsaid(laid: Sequence[Laid]) -> int:
    """The number of marks whose labels had no room."""
    return sum(label.row is None for label in laid)


def draw(axes: Axes, laid: Sequence[Laid]) -> None:
    """Draw a line for each mark through the panel, up to its label."""
    across = blended_transform_factory(axes.transData, axes.transAxes)
    for label in laid:
        mark = label.mark
        axes.axvline(mark.x, color=mark.color, lw=0.8, ls=mark.dash, zorder=1.5, label="_mark")
        if label.row is None:
            continue
        axes.annotate(
            mark.text,
            (mark.x, 1.0),
            xycoords=across,
            xytext=(-2 if label.leftwards else 2, 2 + 72 * ROW_IN * label.row),
            textcoords="offset points",
            ha="right" if label.leftwards else "left",
            va="bottom",
            size=6.5,
            color=mark.color,
            annotation_clip=False,
        )


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
