"""Histories judged by hand: a constant median, a constant band and exactly the steps that a test names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from bench.case_name import row_name
from bench.judge.history.detector import ConfirmedChange, JudgedHistory
from bench.judge.history.monitor import Track
from bench.judge.history.series import History
from plots.history.view import View, view

HALF = 0.03
"""Half of every band, ln."""


def judged(history: History, steps: Sequence[ConfirmedChange] = (), half: float = HALF) -> JudgedHistory:
    """Each series against its own median of the first three nights; classes as their members' mean."""
    log = np.where(history.doubted, np.nan, history.log_s)
    centre = pd.DataFrame(log[:, :3]).median(axis=1).to_numpy()[:, None] + np.zeros_like(log)
    ours = history.series[~history.series["ceiling"]]
    classes = ours.groupby(["operator", "implementation"]).size().rename("count").reset_index()
    keys = ["operator", "implementation"]
    departed = pd.DataFrame(log - centre).groupby([history.series[name].to_numpy() for name in keys])
    by_class = departed.mean().reindex(pd.MultiIndex.from_frame(classes[keys])).to_numpy()
    level, narrow = np.zeros_like(by_class), np.full_like(by_class, half / 2)
    machine = np.zeros((2, len(history.nights)))
    return JudgedHistory(
        history=history,
        machine=Track(machine, machine, machine - half, machine + half),
        series=Track(log, centre, centre - half, centre + half),
        classes=classes,
        by_class=Track(by_class, level, level - narrow, level + narrow),
        steps=tuple(steps),
        short=np.zeros(len(log), dtype=np.bool_),
    )


def step(history: History, row: int, began: int, effect: float, **facts: Any) -> ConfirmedChange:
    """A series' open step, raised the night after it began; `facts` change that."""
    name = row_name(history.series.iloc[row])
    one = ConfirmedChange("series", name, row, began, began + 1, None, None, effect, HALF, ())
    return replace(one, **facts)


def seen(judged: JudgedHistory, first: int = 0) -> View:
    """The history's nights from `first` on."""
    names = [row_name(judged.history.series.iloc[row]) for row in range(len(judged.history.series))]
    found = view(judged, names, None, len(judged.history.nights) - first)
    assert found is not None
    return found


def cut(history: History, nights: Sequence[int]) -> History:
    """Only these nights of it."""
    keep = list(nights)
    return replace(
        history,
        nights=tuple(history.nights[i] for i in keep),
        log_s=history.log_s[:, keep],
        half=history.half[:, keep],
        doubted=history.doubted[:, keep],
    )
