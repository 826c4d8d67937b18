"""What moved since the first night shown: series and classes whose level left its band, by time moved.

Held against each other are only nights of the last segment: what another driver did is no mover. Before is
the median of the first nights shown, up to the first step; now is that of the nights since the newest step
or, where there was none, of the last three. Both are of times without what the machine itself did.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from bench.judge.history.detector import ConfirmedChange
from bench.judge.history.monitor import Track
from bench.judge.history.rolling import row_median
from bench.judge.history.series import Floats
from plots.history.view import View, state

EARLY, LATE, SETTLED = 5, 3, 7
"""Nights that tell the level before, the level now, and the level now since a step."""

COLUMNS = (
    *("kind", "name", "operator", "implementation", "row", "before_s", "now_s", "moved_s"),
    *("effect", "noise", "over_noise", "since", "commit", "state"),
)
"""kind: series | ceiling | class; row: of History.series or JudgedHistory.classes; before_s, now_s,
moved_s: seconds of one launch, of a class those of its members together; effect: now / before - 1, of a
class the median of its members'; noise: half of the band as a share; over_noise: |ln(now / before)| over
half of the band; since, commit: the night on which its newest step began; state: open | recovered |
accepted | segment ended | no alarm.
"""


def movers(view: View) -> pd.DataFrame:
    """A row for each mover, columns COLUMNS; the most seconds moved first."""
    before, now = _levels(view)
    every = pd.concat([_series(view, before, now), _classes(view, before, now)], ignore_index=True)
    table = every[every["effect"].abs() > every["noise"]]
    moved_s, over_noise = table["now_s"] - table["before_s"], table["effect"].abs() / table["noise"]
    table = table.assign(moved_s=moved_s, over_noise=over_noise)
    table[["effect", "noise"]] = np.expm1(table[["effect", "noise"]])
    of_series = _newest(view)
    of_class = {step.row: step for step in view.judged.steps if step.kind == "class"}
    kinds = zip(table["kind"], table["row"], strict=True)
    steps = [(of_class if kind == "class" else of_series).get(row) for kind, row in kinds]
    nights = [view.history.nights[step.began] if step else None for step in steps]
    table = table.assign(
        since=[night.utc[:10] if night else "" for night in nights],
        commit=[night.commit if night else "" for night in nights],
        state=list(map(state, steps)),
    )[[*COLUMNS]]
    return table.sort_values("moved_s", key=abs, ascending=False, kind="stable", ignore_index=True)


def _series(view: View, before: Floats, now: Floats) -> pd.DataFrame:
    """Every series: kind to now_s of COLUMNS, and its effect and noise in ln."""
    series = view.history.series
    return pd.DataFrame(
        {
            "kind": np.where(series["ceiling"].to_numpy(bool), "ceiling", "series"),
            "name": view.labels,
            "operator": series["operator"].to_numpy(),
            "implementation": series["implementation"].to_numpy(),
            "row": np.arange(len(series)),
            "before_s": np.exp(before),
            "now_s": np.exp(now),
            "effect": now - before,
            "noise": _half_band(view, view.judged.series),
        }
    )


def _classes(view: View, before: Floats, now: Floats) -> pd.DataFrame:
    """The same of every class by its members' moves.

    A class's own track forgets a step once its members' windows have.
    """
    classes = view.judged.classes[["operator", "implementation"]].reset_index(drop=True).astype(str)
    series = view.history.series
    of = pd.MultiIndex.from_frame(classes).get_indexer(pd.MultiIndex.from_frame(series[[*classes.columns]]))
    there = (of >= 0) & np.isfinite(before) & np.isfinite(now) & ~series["ceiling"].to_numpy(bool)
    of, before, now = of[there], before[there], now[there]
    # The median, so that no single member moves its class.
    effect = pd.Series(now - before).groupby(of).median().reindex(range(len(classes)))
    before_s, now_s = (np.bincount(of, np.exp(level), len(classes)) for level in (before, now))
    noise = _half_band(view, view.judged.by_class)
    table = classes.assign(kind="class", name=classes["operator"] + " " + classes["implementation"])
    return table.assign(
        row=np.arange(len(table)), before_s=before_s, now_s=now_s, effect=effect.astype(float), noise=noise
    )


def _newest(view: View) -> dict[int, ConfirmedChange]:
    """Row of a series -> the newest step that it took part in, by itself or with its class."""
    newest: dict[int, ConfirmedChange] = {}
    for step in view.judged.steps:
        if step.kind != "machine":
            for row in (step.row,) if step.kind == "series" else step.members:
                if row not in newest or newest[row].began <= step.began:
                    newest[row] = step
    return newest


def _levels(view: View) -> tuple[Floats, Floats]:
    """(before, now) of each series, ln seconds; NaN where there are too few nights to tell."""
    judged, history = view.judged, view.history
    value = np.where(np.isfinite(judged.series.log), judged.series.log, history.log_s)
    shape = value.shape
    order = np.arange(shape[1])
    segment = np.array([night.segment for night in history.nights])
    here = (segment == segment[-1]) & (order >= view.first)
    start = int(np.flatnonzero(here)[0])
    usable = np.isfinite(value) & ~history.doubted & here
    held, stepped = np.full(shape[0], start), np.zeros(shape[0], dtype=bool)
    first, centre = np.full(shape[0], shape[1]), np.full(shape[0], np.nan)
    for row, step in _newest(view).items():
        began = step.began
        if began < start and step.ended is not None and step.ended <= start:
            continue
        stepped[row] = True
        # Back in its old band its level is that of the nights that ended it.
        held[row] = max(start, step.ended - 1 if step.ended and step.ending == "recovered" else began)
        if segment[began] == segment[-1]:
            centre[row] = judged.series.centre[row, began]
    for step in view.judged.steps:
        if step.kind == "machine" or step.began < start:
            continue
        rows = [step.row] if step.kind == "series" else list(step.members)
        first[rows] = np.minimum(first[rows], step.began)
    late = usable & (order >= held[:, None])
    late &= np.cumsum(late[:, ::-1], axis=1)[:, ::-1] <= np.where(stepped, SETTLED, LATE)[:, None]
    until = np.where(stepped, np.minimum(first, held), np.where(late.any(1), late.argmax(1), 0))
    early = usable & (order < until[:, None])
    early &= np.cumsum(early, axis=1) <= EARLY
    before, now = (row_median(np.where(chosen, value, np.nan)) for chosen in (early, late))
    return np.where(np.isfinite(before), before, centre), now


def _half_band(view: View, track: Track) -> Floats:
    """[rows] half of the last band that each row was compared with in the last segment, ln; else NaN."""
    segment = np.array([night.segment for night in view.history.nights])
    half = np.where(segment == segment[-1], (track.high - track.low) / 2, np.nan)
    return pd.DataFrame(half).ffill(axis=1).iloc[:, -1].to_numpy()
