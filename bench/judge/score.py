"""How far predictions are from measured times: the arithmetic of the scorecard.

The error of a prediction is |predicted / measured - 1|, its bias the ratio predicted / measured. A score sums
them up over the rows of one operator on one device, at one level of the model:

    L0         datasheet_s    the datasheet's roofline
    L1         predicted_s    the roofline with the ceilings of the same run, and its launch floor
    L2         structured_s   with structure: tiles, waves, split-K, cache residency, passes
    L3         learned_s      learned from timings of many GPUs, with an interval
    L2-priors  priors_s       the same with measured ceilings and shared constants, nothing fitted

All levels of a group are scored on the same rows, those where each of them has a number: a level must not
look better for having passed over what is hard. Rows without a time, rows whose time is suspect and rows
that the model was calibrated with are never scored. Numbers that somebody else measured have groups of their
own, and so have the regimes, whose clocks differ.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from bench.model.calibrated_runs import Errors
from bench.model.predict import LEARNED, LEVELS

SCORED = (
    *("run_id", "device", "operator", "source", "regime", "visit", "median_s", "calibrating", "scored"),
    *dict.fromkeys((*LEVELS.values(), *LEARNED)),
)
"""Columns that are needed."""


@dataclass(frozen=True)
class Score:
    """One level of the model, over the rows of one operator on one device."""

    operator: str
    device: str
    """Slug of the device."""
    level: str
    n: int
    """Rows scored."""
    mape: float
    """Mean of the error, percent."""
    median: float
    """Median of the error, percent."""
    p90: float
    """90th percentile of the error, percent."""
    ratio: float
    """Geometric mean of predicted / measured: 1 is unbiased, below 1 is too optimistic."""
    source: str | None
    """The author, if it was not this suite."""
    regime: str | None
    """sustained | boost; None where the rows do not say."""
    runs: tuple[str, ...]
    """The runs whose rows are scored, by their ids."""
    coverage: float | None = None
    """Percent of the rows whose time is inside the level's 90 % interval; None where it has none."""


@dataclass(frozen=True)
class Scorecard:
    """What is scored, and what is not."""

    scores: tuple[Score, ...]
    """By operator, device, source, regime and level; none of a group without a row that all levels know."""
    rows: int
    """All rows that were given ..."""
    scored: int
    """... and those in the scores."""


def scorecard(frame: pd.DataFrame) -> Scorecard:
    """Sort out what can be scored of these rows, and score each level on it.

    `frame` holds rows as bench.judge.frame derives them, of one run or of many: the columns of a Measurement,
    those of LEVELS that there are, `calibrating`, and `scored`: false where the time is suspect for any
    reason but that it is quicker than predicted. A case that was visited twice is scored once, so rows of a
    second visit (older files) are not counted at all.
    """
    frame = frame[frame["visit"] == 0]
    calibrating, usable = (frame[name].to_numpy(dtype=bool) for name in ("calibrating", "scored"))
    sound = frame[(frame["median_s"].astype(float) > 0) & ~calibrating & usable]
    # Nulls are values of their own here: "measured by us", "regime not said". Of who else measured, the files
    # are left out, of which one may have many.
    who = sound["source"].map(lambda source: source.partition(";")[0], na_action="ignore")
    found: list[Score] = []
    scored = 0
    for key, rows in sound.groupby(
        [sound["operator"], sound["device"], who, sound["regime"]], sort=True, dropna=False
    ):
        levels = [level for level, name in LEVELS.items() if name in rows]
        seconds = rows[[LEVELS[level] for level in levels]].set_axis(levels, axis=1).astype(float)
        known = (seconds > 0) & (seconds < np.inf)
        levels = [level for level in levels if known[level].any()]
        common = known[levels].all(axis=1) & bool(levels)
        scored += int(common.sum())
        if common.any():
            found += [_score(key, level, seconds.loc[common, level], rows[common]) for level in levels]
    return Scorecard(tuple(found), len(frame), scored)


def _score(key: tuple[Any, ...], level: str, predicted_s: pd.Series, rows: pd.DataFrame) -> Score:
    """Of one level over the rows of a group: (operator, device, source, regime)."""
    operator, device, *known = key
    source, regime = (each if isinstance(each, str) else None for each in known)
    errors = Errors.of(predicted_s.to_numpy(), rows["median_s"].to_numpy(dtype=float))
    percent = (100 * errors.mape, 100 * errors.median, 100 * errors.p90)
    runs, covered = tuple(sorted(rows["run_id"].unique())), None
    if level == "L3" and len(told := rows.dropna(subset=["learned_low_s", "learned_high_s"])):
        inside = told["median_s"].between(told["learned_low_s"], told["learned_high_s"])
        covered = float(100 * inside.mean())
    numbers = (errors.n, *percent, errors.ratio)
    return Score(str(operator), str(device), level, *numbers, source, regime, runs, covered)
