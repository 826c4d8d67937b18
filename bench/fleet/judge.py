"""Verdicts on effects: which rows (units, or nodes) lie beyond the healthy ones, of which one in twenty may.

Each row has several tests: its effect in each class, alone and together; the same without its effect in its
other classes, where units that are fast or slow in everything hide nothing; and its mean over all classes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.stats import false_discovery_control

from bench.fleet.effects import HALF_SE
from bench.fleet.null import FAR, MANY, Null, fitted

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Column = tuple[str, bool | None]
"""Class, and whether all GPUs of the node were at work; `all` and None for the mean over all classes."""

LEVEL = 0.02
"""Level of Benjamini and Hochberg's procedure. At most 5 % of what is named shall be healthy, also where the
healthy have heavier tails than they show: studies/README.md has the share as tried.
"""
LEAST_EFFECT = 0.01
"""No row is named for less, ln, however quiet the others are."""
FAST = 0.03
"""A unit is reported as fast from this effect on, ln."""
LEAST_SPREAD = 5e-4
"""Healthy rows are at least so far apart, ln."""
LEAST_OF_SE = 0.9
"""Nor are few rows closer together than this share of their usual standard error, an estimate too."""
MEDIAN_SE = 1.2533
"""A median's standard error is so many times a mean's."""
OVERALL: Column = ("all", None)


class Wide(NamedTuple):
    """Effects [row, column], NaN where unknown."""

    rows: list[str]
    columns: list[Column]
    effect: Floats
    se: Floats
    """Standard errors of the effects."""


class Tested(NamedTuple):
    """p values of rows, and the verdicts on them, which name none before `named`."""

    wide: Wide
    """The effects, with OVERALL as the last column if there are at least two others."""
    nulls: list[Null]
    """The null of each column."""
    p: Floats
    """[row, column] the probability that a healthy row has such an effect."""
    own: Floats
    """[row, column] effect without that in the other classes; NaN where there are fewer than two others."""
    own_p: Floats
    fast_p: Floats
    """[row, column] the probability that a healthy row is so fast."""
    row_p: Floats
    """[row] all tests for being slow together (Simes)."""
    far: Flags
    """[row, column] so slow that no tail of healthy rows explains it."""
    slow: Flags
    """[row]"""
    slow_in: Flags
    """[row, column] false in a row that is not slow."""
    fast: Flags
    """[row, column]"""

    @property
    def intervals(self) -> tuple[Floats, Floats]:
        """[row, column] the ends of the 95 % intervals of the effects."""
        count = np.isfinite(self.wide.effect).sum(axis=0)
        centre_se = MEDIAN_SE * np.array([null.sd for null in self.nulls]) / np.sqrt(count)
        half = HALF_SE * np.hypot(self.wide.se, centre_se)
        return self.wide.effect - half, self.wide.effect + half


def tested(wide: Wide, nulls: list[Null] | None = None) -> Tested:
    """Every row against the others, or against these nulls of its columns."""
    nulls = nulls or _nulls(wide.effect, wide.se)
    wide = with_mean(wide, nulls)
    if len(wide.columns) > len(nulls):
        nulls = [*nulls, *_nulls(wide.effect[:, -1:], wide.se[:, -1:], nulls[0])]
    p, fast_p = np.full_like(wide.effect, np.nan), np.full_like(wide.effect, np.nan)
    (own, own_se), own_p = _without_others(wide), np.full_like(wide.effect, np.nan)
    far = np.zeros(p.shape, dtype=np.bool_)
    for column, null in enumerate(nulls):
        effect, more = wide.effect[:, column], _beyond_usual(wide.se[:, column])
        p[:, column], fast_p[:, column] = null.slow_p(effect, more), null.fast_p(effect, more)
        far[:, column] = effect >= null.far + FAR * more
    several = np.flatnonzero(np.isfinite(own).any(axis=0))
    own_nulls = _nulls(own[:, several], own_se[:, several], nulls[0])
    for at, null in zip(several, own_nulls, strict=True):
        own_p[:, at] = null.slow_p(own[:, at], _beyond_usual(own_se[:, at]))
    small = wide.effect < LEAST_EFFECT
    p, own_p = np.where(small & ~np.isnan(p), 1.0, p), np.where(small & ~np.isnan(own_p), 1.0, own_p)
    # few rows hardly know their own spread, and one that is too small names several of them
    few = max(MANY / len(wide.rows), 1.0)
    row_p = np.minimum([few * _adjusted(each).min(initial=1.0) for each in np.hstack([p, own_p])], 1.0)
    nobody = np.zeros(p.shape, dtype=np.bool_)
    return Tested(wide, nulls, p, own, own_p, fast_p, row_p, far, nobody[:, 0], nobody, nobody)


def _nulls(effect: Floats, se: Floats, like: Null | None = None) -> list[Null]:
    """The null of each column. A few rows can be close together by chance, closer than their errors allow."""
    by_error = LEAST_OF_SE * np.nanmedian(se, axis=0) if len(effect) < MANY else np.zeros(effect.shape[1])
    return fitted(effect, np.maximum(LEAST_SPREAD, by_error), like)


def named(parts: list[Tested]) -> list[Tested]:
    """Every part (a kind of device each) with the verdicts on its rows, all judged as one family."""
    every = np.concatenate([part.row_p for part in parts]) if parts else np.empty(0)
    far = np.concatenate([part.far.any(axis=1) for part in parts]) if parts else np.empty(0, dtype=np.bool_)
    slow = far | (_adjusted(every) <= LEVEL)
    level = LEVEL * slow.sum() / max(len(every), 1)
    verdicts, begin = [], 0
    for part in parts:
        mine = slow[begin : begin + len(part.row_p)]
        begin += len(mine)
        slow_in = np.zeros(part.p.shape, dtype=np.bool_)
        for row in np.flatnonzero(mine):
            both = _adjusted(np.hstack([part.p[row], part.own_p[row]])) <= level * (1 + 1e-9)
            slow_in[row] = both[: len(both) // 2] | both[len(both) // 2 :] | part.far[row]
        fast = (_adjusted(part.fast_p) <= LEVEL) & (part.wide.effect < -FAST)
        verdicts.append(part._replace(slow=mine, slow_in=slow_in, fast=fast))
    return verdicts


def _adjusted(p: Floats) -> Floats:
    """p values adjusted for how many they are (Benjamini and Hochberg), the least being Simes' of them all.

    1 where there is none.
    """
    adjusted, known = np.ones_like(p), ~np.isnan(p)
    adjusted[known] = false_discovery_control(p[known])
    return adjusted


def _beyond_usual(se: Floats) -> Floats:
    """Standard deviation that each row has beyond the usual one, which the spread of the rows contains."""
    usual = np.nanmedian(se)
    return np.sqrt(np.maximum(np.nan_to_num(se) ** 2 - usual**2, 0.0))


def with_mean(wide: Wide, nulls: list[Null]) -> Wide:
    """The table with each row's mean over its columns, if there are several.

    A column counts the more, the more alike healthy rows are in it.
    """
    if len(wide.columns) < 2:
        return wide
    weight = np.where(np.isfinite(wide.effect), [1 / null.scale**2 for null in nulls], 0.0)
    total = weight.sum(axis=1)
    mean = np.nansum(weight * np.nan_to_num(wide.effect), axis=1) / total
    se = np.sqrt(np.nansum((weight * np.nan_to_num(wide.se)) ** 2, axis=1)) / total
    return Wide(
        wide.rows,
        [*wide.columns, OVERALL],
        np.column_stack([wide.effect, mean]),
        np.column_stack([wide.se, se]),
    )


def _without_others(wide: Wide) -> tuple[Floats, Floats]:
    """[row, column] effect minus the median of the row's other classes, alone or together; its error."""
    own, own_se = np.full_like(wide.effect, np.nan), np.full_like(wide.effect, np.nan)
    for column, (_, together) in enumerate(wide.columns):
        others = [i for i, c in enumerate(wide.columns) if c[1] == together and i != column]
        if len(others) > 1:
            own[:, column] = wide.effect[:, column] - np.median(wide.effect[:, others], axis=1)
            mean_se = np.sqrt(np.mean(wide.se[:, others] ** 2, axis=1) / len(others))
            own_se[:, column] = np.hypot(wide.se[:, column], mean_se)
    return own, own_se
