"""What moved since the first night shown: series and classes whose level left its band, by time moved.

Held against each other are only nights of the last segment: what another driver did is no mover. Before is
the median of the first nights shown, up to the first step; now is that of the nights since the newest step
or, where there was none, of the last three. Both are of times without what the machine itself did.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pandas as pd

from bench.judge.history.series import Flags, Floats
from plots.history.view import View, state

if TYPE_CHECKING:
    from bench.judge.history.detector import Step
    from bench.judge.history.monitor import Track

EARLY, LATE, SETTLED = 5, 3, 7
"""Nights that tell the level before, the level now, and the level now since a step."""

COLUMNS = (
    *("kind", "name", "operator", "implementation", "row", "before_s", "now_s", "moved_s"),
    *("effect", "noise", "over_noise", "since", "commit", "state"),
)
"""kind: series | ceiling | class; row: of History.series or Judged.classes; before_s, now_s, moved_s: seconds
of one launch, of a class those of its members together; effect: now / before - 1, of a class the median of
its members'; noise: half of the band as a share; over_noise: |ln(now / before)| over half of the band; since,
commit: the night on which its newest step began; state: open | recovered | accepted | segment ended |
no alarm.
"""


def movers(view: View) -> pd.DataFrame:
    """A row for each mover, columns COLUMNS; the most seconds moved first."""
    before, now = _levels(view)
    newest = _newest(view)
    noise = _half_band(view, view.judged.series)
    found = [
        *_series(view, before, now, noise, newest),
        *_classes(view, before, now),
    ]
    table = pd.DataFrame(found, columns=list(COLUMNS))
    order = table["moved_s"].abs().sort_values(ascending=False, kind="stable").index
    return table.loc[order].reset_index(drop=True)


def _series(
    view: View, before: Floats, now: Floats, noise: Floats, newest: dict[int, Step]
) -> list[tuple[object, ...]]:
    table = view.history.series
    operators, implementations = table["operator"].tolist(), table["implementation"].tolist()
    kinds = np.where(table["ceiling"].to_numpy(bool), "ceiling", "series").tolist()
    rows = np.flatnonzero(np.abs(now - before) > noise)
    return [
        (
            *(kinds[row], view.labels[row], operators[row], implementations[row], row),
            *_told(float(before[row]), float(now[row]), float(noise[row])),
            *_since(view, newest.get(row)),
        )
        for row in rows.tolist()
    ]


def _classes(view: View, before: Floats, now: Floats) -> list[tuple[object, ...]]:
    """Classes by their members' moves: a class's own track forgets a step once its members' windows have."""
    classes = view.judged.classes
    noise = _half_band(view, view.judged.by_class)
    steps = {step.row: step for step in view.judged.steps if step.kind == "class"}
    keys = pd.MultiIndex.from_frame(classes[["operator", "implementation"]])
    own = pd.MultiIndex.from_frame(view.history.series[["operator", "implementation"]])
    of = keys.get_indexer(own)
    there = (
        (of >= 0) & np.isfinite(before) & np.isfinite(now) & ~view.history.series["ceiling"].to_numpy(bool)
    )
    of, before, now = of[there], before[there], now[there]
    # The median, so that no single member moves its class.
    effect = pd.Series(now - before).groupby(of).median().reindex(range(len(classes))).to_numpy(dtype=float)
    before_s, now_s = (np.bincount(of, np.exp(level), len(classes)) for level in (before, now))
    found: list[tuple[object, ...]] = []
    for row in np.flatnonzero(np.abs(effect) > noise).tolist():
        operator, implementation = (str(name) for name in keys[row])
        moved = (float(before_s[row]), float(now_s[row]), float(now_s[row] - before_s[row]))
        size = (
            float(np.expm1(effect[row])),
            float(np.expm1(noise[row])),
            abs(float(effect[row] / noise[row])),
        )
        named = ("class", f"{operator} {implementation}", operator, implementation, row)
        found.append((*named, *moved, *size, *_since(view, steps.get(row))))
    return found


def _told(before: float, now: float, noise: float) -> tuple[float, ...]:
    seconds = float(np.exp(before)), float(np.exp(now))
    over = abs(now - before) / noise if noise else float("inf")
    return (*seconds, seconds[1] - seconds[0], float(np.expm1(now - before)), float(np.expm1(noise)), over)


def _since(view: View, step: Step | None) -> tuple[str, str, str]:
    """(date, commit, state) of a step's first night."""
    if step is None:
        return "", "", state(step)
    night = view.history.nights[step.began]
    return night.utc[:10], night.commit, state(step)


def _newest(view: View) -> dict[int, Step]:
    """Row of a series -> the newest step that it took part in, by itself or with its class."""
    found: dict[int, Step] = {}
    for step in view.judged.steps:
        if step.kind != "machine":
            for row in (step.row,) if step.kind == "series" else step.members:
                if row not in found or found[row].began <= step.began:
                    found[row] = step
    return found


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
    late &= _counted(late[:, ::-1])[:, ::-1] <= np.where(stepped, SETTLED, LATE)[:, None]
    until = np.where(stepped, np.minimum(first, held), np.where(late.any(1), late.argmax(1), 0))
    early = usable & (order < until[:, None])
    early &= _counted(early) <= EARLY
    before, now = _medians(value, early), _medians(value, late)
    return np.where(np.isfinite(before), before, centre), now


def _half_band(view: View, track: Track) -> Floats:
    """[rows] half of the last band that each row was held against in the last segment, ln; else NaN."""
    segment = np.array([night.segment for night in view.history.nights])
    half = np.where(segment == segment[-1], (track.high - track.low) / 2, np.nan)
    there = np.isfinite(half)
    last = half.shape[1] - 1 - there[:, ::-1].argmax(1) if half.size else np.zeros(len(half), dtype=int)
    return np.asarray(half[np.arange(len(half)), last])


def _counted(some: Flags) -> npt.NDArray[np.int64]:
    """How many of each row up to and including each column."""
    return np.cumsum(some, axis=1)


def _medians(values: Floats, some: Flags) -> Floats:
    """The median of each row's chosen values; NaN of none."""
    # NaN sorts behind all others, so the chosen ones are each row's first.
    ordered = np.sort(np.where(some, values, np.nan), axis=1)
    count = some.sum(1)
    rows = np.arange(len(ordered))
    middle = (ordered[rows, np.maximum(count - 1, 0) // 2] + ordered[rows, count // 2]) / 2
    return np.where(count > 0, middle, np.nan)
