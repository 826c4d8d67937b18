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

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd

from bench.model.calibrated_runs import Errors
from bench.model.predict import LEVELS


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

    def as_json(self) -> dict[str, Any]:
        """Its fields in this order; the runs as a list."""
        return asdict(self) | {"runs": list(self.runs)}


@dataclass(frozen=True)
class ScoredGroup:
    """The rows that one set of scores is about."""

    operator: str
    device: str
    source: str | None
    regime: str | None
    levels: tuple[str, ...]
    """The levels with a number for any row of the group."""
    rows: pd.DataFrame
    """What is scored: every level has a number for each of them. May be empty."""
    lost: Mapping[str, int]
    """Level -> rows that it has a number for and that are not scored, because another level has none."""


@dataclass(frozen=True)
class Scorecard:
    """What is scored, and how many rows are not, each for the first reason that applies."""

    groups: tuple[ScoredGroup, ...]
    """The groups by operator, device, source and regime."""
    rows: int
    """All rows that were given."""
    without_time: int
    calibrating: int
    suspect: int
    without_number: int
    """Rows with a sound time, but at least one of the group's levels has no number for them."""

    @property
    def scored(self) -> int:
        """Rows in the scores."""
        return sum(len(group.rows) for group in self.groups)

    @property
    def left_out(self) -> str:
        """`left out: 3 without a time, 2 suspect (flagged)`; empty if nothing is."""
        counts = (
            (self.without_time, "without a time"),
            (self.calibrating, "that calibrate the model"),
            (self.suspect, "suspect (flagged)"),
            (self.without_number, "that not every level has a number for"),
        )
        listed = ", ".join(f"{n} {why}" for n, why in counts if n)
        return listed and f"left out: {listed}"


def scorecard(frame: pd.DataFrame) -> Scorecard:
    """Sort out what can be scored of these rows.

    `frame` holds rows as bench.judge.frame derives them, of one run or of many: the columns of a Measurement,
    those of LEVELS that there are, `calibrating`, and `scored`: false where the time is suspect for any
    reason but that it is quicker than predicted. A case that was visited twice is scored once, so rows of a
    second visit (older files) are not counted at all.
    """
    frame = frame[frame["visit"] == 0]
    timed = frame["median_s"].to_numpy(dtype=float) > 0
    calibrating, usable = (frame[name].to_numpy(dtype=bool) for name in ("calibrating", "scored"))
    sound = frame[timed & ~calibrating & usable]
    groups = tuple(_groups(sound))
    return Scorecard(
        groups=groups,
        rows=len(frame),
        without_time=int((~timed).sum()),
        calibrating=int((timed & calibrating).sum()),
        suspect=int((timed & ~calibrating & ~usable).sum()),
        without_number=len(sound) - sum(len(group.rows) for group in groups),
    )


def scores(card: Scorecard) -> list[Score]:
    """A score for each level of each group that has rows."""
    return [_score(group, level) for group in card.groups if len(group.rows) for level in group.levels]


def predicted_and_measured(group: ScoredGroup, level: str) -> tuple[np.ndarray, np.ndarray]:
    """Seconds as this level predicts them, and as they were measured, of each row of the group."""
    rows = group.rows
    return rows[LEVELS[level]].to_numpy(dtype=float), rows["median_s"].to_numpy(dtype=float)


def _groups(sound: pd.DataFrame) -> Iterator[ScoredGroup]:
    # Nulls are values of their own here: "measured by us", "regime not said". Of who else measured, the files
    # are left out, of which one may have many.
    who = sound["source"].map(lambda source: source.partition(";")[0], na_action="ignore")
    for (operator, device, source, regime), rows in sound.groupby(
        [sound["operator"], sound["device"], who, sound["regime"]], sort=True, dropna=False
    ):
        levels = [level for level, name in LEVELS.items() if name in rows]
        seconds = rows[[LEVELS[level] for level in levels]].set_axis(levels, axis=1).astype(float)
        known = (seconds > 0) & (seconds < np.inf)
        levels = [level for level in levels if known[level].any()]
        common = known[levels].all(axis=1) & bool(levels)
        yield ScoredGroup(
            operator=str(operator),
            device=str(device),
            source=source if isinstance(source, str) else None,
            regime=regime if isinstance(regime, str) else None,
            levels=tuple(levels),
            rows=rows[common],
            lost={level: int((known[level] & ~common).sum()) for level in levels},
        )


def _score(group: ScoredGroup, level: str) -> Score:
    errors = Errors.of(*predicted_and_measured(group, level))
    return Score(
        operator=group.operator,
        device=group.device,
        level=level,
        n=errors.n,
        mape=100 * errors.mape,
        median=100 * errors.median,
        p90=100 * errors.p90,
        ratio=errors.ratio,
        source=group.source,
        regime=group.regime,
        runs=tuple(sorted(group.rows["run_id"].unique())),
        coverage=_coverage(group.rows) if level == "L3" else None,
    )


def _coverage(rows: pd.DataFrame) -> float | None:
    known = rows.dropna(subset=["learned_low_s", "learned_high_s"])
    inside = known["median_s"].between(known["learned_low_s"], known["learned_high_s"])
    return float(100 * inside.mean()) if len(known) else None
