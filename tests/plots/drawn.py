"""What a test reads out of a figure: its lines, its legend, its words."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench.device.datasheet import find_datasheet
from bench.judge.frame import DeviceRun, load
from bench.store.parquet import NO_SWEEPS, Sweeps, write
from bench.store.schema import Measurement
from plots.base.page import Captioned


def loaded(folder: Path, rows: Iterable[Measurement], sweeps: Sweeps = NO_SWEEPS) -> DeviceRun:
    """The run of these rows, by way of a result file, as figures get it."""
    (run,) = load([write(folder / "run.parquet", list(rows), sweeps)], find_datasheet)
    return run


def lines(where: Figure | Axes, label: str) -> list[Any]:
    """The lines of this label, on all axes of a figure or on one."""
    panels = where.axes if isinstance(where, Figure) else [where]
    return [line for axes in panels for line in axes.get_lines() if line.get_label() == label]


def legend(figure: Figure) -> list[str]:
    """The entries of its legends."""
    return [text.get_text() for box in figure.legends for text in box.get_texts()]


def said(figure: Captioned) -> str:
    """Its words and its caption, with one space between any two."""
    return " ".join(" ".join([*(text.get_text() for text in figure.texts), figure.caption]).split())
