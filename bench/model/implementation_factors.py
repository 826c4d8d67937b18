"""What an implementation's own rows tell of it beyond bytes and FLOP: a few rows, designated by their size.

They are marked as calibrating, so that no prediction is scored on what it was made from. Designated, not
random: three regimes identify what twenty random rows leave open.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

import numpy as np

from bench.model.ceilings import Ceilings

if TYPE_CHECKING:
    import pandas as pd

LEAST_OF_A_KIND = 4
"""Rows from which two are designated to say a kind's factor."""
LEAST_PRODUCTS = 6
"""Matrix products of a kind from which three are designated to say what beginning and packing them costs."""
TIES = ("parameters", "sweep")
"""What orders rows of one size, so that the same rows are designated in whatever order they are read."""


def apply_factors(predictions: pd.DataFrame, rows: pd.DataFrame, roof: Callable[[str], Ceilings]) -> None:
    """Multiply `structured_s` above the launch floor by each kind's factor; mark the rows that say it.

    A kind is what a case has apart from its numbers; its factor that of the rows a quarter and three quarters
    of the way by bytes moved. Rows of a kind that has too few get the factor of that kind in any data type
    and layout, if those suffice. `predictions` has the columns of `predict.structured` for all rows, `rows`
    are those to look at.
    """
    # Every group of rows is copied, column by column.
    rows = rows[["condition", "operator", "implementation", "byte_moved", "median_s", *TIES]]
    base = predictions["structured_s"].copy()
    usable = _usable(predictions, rows)
    floor = rows["condition"].map(lambda how: roof(str(how)).launch_s or 0.0).astype(float)
    waiting = rows.index
    for without in ((), ("dtype", "layout")):
        words = rows["parameters"].map({text: _words(text, without) for text in rows["parameters"].unique()})
        kinds = rows.groupby(["condition", "operator", "implementation", words], sort=False)
        for places in kinds.indices.values():
            if usable.to_numpy()[places].sum() < LEAST_OF_A_KIND:
                continue
            alike = rows.iloc[places]
            to = alike.index.intersection(waiting)
            timed = alike[usable[alike.index]]
            if not len(to) or timed["parameters"].nunique() < LEAST_OF_A_KIND:
                continue
            timed = timed.sort_values(["byte_moved", *TIES], kind="stable")
            last = len(timed) - 1
            designated = timed.iloc[[round(0.25 * last), round(0.75 * last)]]
            above = designated["median_s"] - floor[designated.index]
            predicted = base[designated.index] - floor[designated.index]
            if not ((above > 0) & (predicted > 0)).all():
                continue
            factor = float(np.exp(np.mean(np.log(above / predicted))))
            predictions.loc[to, "structured_s"] = floor[to] + factor * (base[to] - floor[to])
            mark(predictions, alike, designated)
            waiting = waiting.difference(to)


def apply_starts(predictions: pd.DataFrame, rows: pd.DataFrame) -> None:
    """Add to `structured_s` of a CPU's matrix products what L1 does not know: a start, packing by the byte.

    The smallest product of oneDNN takes many times an empty launch, and operands are packed for the matrix
    units first. Two numbers for each implementation and data type, neither below zero, from three rows: the
    smallest by FLOP, and those a third and two thirds of the way. Where the start is most of it, `launch`
    binds.
    """
    alike = ["condition", "operator", "implementation", "dtype"]
    rows = rows[[*alike, "flop", "byte_moved", "median_s", *TIES]]
    usable = _usable(predictions, rows)
    for _, kind in rows.groupby(alike, sort=False):
        timed = kind[usable[kind.index]].sort_values(["flop", *TIES], kind="stable")
        if timed["parameters"].nunique() < LEAST_PRODUCTS:
            continue
        # Importing it takes longer than most that imports this module.
        from scipy.optimize import nnls

        last = len(timed) - 1
        designated = timed.iloc[[0, round(last / 3), round(2 * last / 3)]]
        measured = designated["median_s"].to_numpy(dtype=float)
        missing = measured - predictions.loc[designated.index, "structured_s"].to_numpy(dtype=float)
        byte = designated["byte_moved"].to_numpy(dtype=float)
        # Of relative errors, both unknowns of the order of 1: microseconds, and seconds of all these bytes.
        scale = np.array([1e-6, 1.0 / byte.sum()])
        terms = np.stack([np.ones(3), byte], axis=1) * scale / measured[:, None]
        start_s, per_byte_s = nnls(terms, missing / measured)[0] * scale
        plain = predictions.loc[kind.index, "structured_s"]
        packed_s = per_byte_s * kind["byte_moved"].astype(float)
        predictions.loc[kind.index, "structured_s"] = plain + start_s + packed_s
        begun = plain.notna() & (start_s > plain + packed_s)
        predictions.loc[kind.index[begun], "structured_limiter"] = "launch"
        mark(predictions, kind, designated)


def _usable(predictions: pd.DataFrame, rows: pd.DataFrame) -> pd.Series:
    """Rows with a time and a prediction that calibrate nothing else."""
    here = predictions.loc[rows.index]
    return rows["median_s"].gt(0) & here["structured_s"].notna() & ~here["calibrating"]


def mark(predictions: pd.DataFrame, kind: pd.DataFrame, designated: pd.DataFrame) -> None:
    """The same problem in another sweep is the same case: it was looked at, so it is not scored either."""
    used = kind.index[kind["parameters"].isin(designated["parameters"])]
    predictions.loc[used, "calibrating"] = True


def _words(parameters: str, without: Collection[str]) -> tuple[tuple[str, object], ...]:
    """What a case has apart from its numbers: data type, layout, direction, and what is true or false."""
    given = json.loads(parameters).items()
    return tuple(sorted((k, v) for k, v in given if isinstance(v, str | bool) and k not in without))
