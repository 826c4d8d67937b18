"""What a test reads out of a figure: its points and its words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text

from bench.device.datasheet import find_datasheet
from bench.judge.frame import DeviceRun
from bench.judge.read_runs import load
from bench.store.parquet import NO_SWEEPS, Sweeps, write
from bench.store.schema import Measurement
from plots.base import style
from plots.base.page import Captioned, Page


def loaded(folder: Path, rows: Iterable[Measurement], sweeps: Sweeps = NO_SWEEPS) -> DeviceRun:
    """The run of these rows, by way of a result file, as figures get it."""
    path = folder / f"{len(list(folder.glob('*.parquet')))}.parquet"
    (run,) = load([write(path, list(rows), sweeps)], find_datasheet)
    return run


def opened(pages: Iterable[tuple[str, Page]]) -> dict[str, Captioned]:
    """Name -> figure of each of these pages, which are drawn here in the look of all figures."""
    with style.look():
        return {name: page.figure for name, page in pages}


def figures(pages: Iterable[Page]) -> list[Captioned]:
    """The figures of pages without names."""
    return list(opened((str(number), page) for number, page in enumerate(pages)).values())


def panels(where: Figure | Axes) -> list[Axes]:
    """The axes of a figure, or these."""
    return where.axes if isinstance(where, Figure) else [where]


def titled(figure: Figure, beginning: str) -> Axes:
    """The panel whose title begins so."""
    (axes,) = [axes for axes in figure.axes if axes.get_title("left").startswith(beginning)]
    return axes


def lines(where: Figure | Axes, label: str) -> list[Any]:
    """The lines of this label, on all axes of a figure or on one."""
    return [line for axes in panels(where) for line in axes.get_lines() if line.get_label() == label]


def points(where: Figure | Axes, label: str) -> list[tuple[float, float]]:
    """The points of all lines of this label, sorted."""
    return sorted((x, y) for line in lines(where, label) for x, y in line.get_xydata().tolist())


def heights(where: Figure | Axes, label: str) -> list[float]:
    """The ordinates of these points, sorted."""
    return sorted(y for _, y in points(where, label))


def spans(where: Figure | Axes, label: str = "_interval") -> list[tuple[float, float]]:
    """(lower end, upper end) of each vertical bar of this label, sorted."""
    bars = [of for axes in panels(where) for of in axes.collections if of.get_label() == label]
    return sorted((low[1], high[1]) for bar in bars for low, high in bar.get_segments())  # type: ignore[attr-defined]


def solid_and_hollow(where: Figure | Axes, label: str) -> tuple[int, int]:
    """How many points of this label are filled, and how many are hollow: suspect."""
    counts = Counter[bool]()
    for line in lines(where, label):
        counts[line.get_markerfacecolor() == "white"] += len(line.get_xdata())
    return counts[False], counts[True]


def legend(figure: Figure) -> list[str]:
    """The entries of its legends."""
    return [text.get_text() for box in figure.legends for text in box.get_texts()]


def said(figure: Captioned) -> str:
    """Its words and its caption, from the top down, with one space between any two."""
    return " ".join(" ".join([*(text.get_text() for text in _top_down(figure)), figure.caption]).split())


def _top_down(figure: Figure) -> list[Text]:
    return sorted(figure.texts, key=lambda text: -text.get_position()[1])


def assert_readable(figure: Captioned, name: str) -> None:
    """A title, one line of caption, and panels with finite points and words on their axes."""
    title, *_ = figure.texts
    (caption,) = (text.get_text() for text in figure.texts if text.get_color() == "#555555")
    assert title.get_weight() == "bold" and title.get_text(), name
    assert caption and "\n" not in caption, name
    for axes in figure.axes:
        values = [np.asarray(line.get_ydata(), dtype=float) for line in axes.get_lines()]
        assert values or axes.collections or axes.patches, name
        assert np.isfinite(np.concatenate([*values, axes.get_xlim(), axes.get_ylim()])).all(), name
        for label in (axes.get_xlabel(), axes.get_ylabel()):
            assert not label or (len(label) > 3 and "_" not in label), (name, label)
