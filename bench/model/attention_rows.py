"""Attention among a run's rows: which of it is computed in one pass, and what the model predicts for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from bench.model import attention
from bench.model.attention import Softmax
from bench.model.implementation_factors import mark
from bench.model.roofline import Floats

if TYPE_CHECKING:
    import pandas as pd

    from bench.device.datasheet import Datasheet
    from bench.model.calibration import Calibration

SPECIAL_PER_CLOCK = 16
"""Special functions that an SM finishes in one clock, since Volta (CUDA C++ Programming Guide, 8.4.1)."""
MORE_SPECIAL = {(10, 3): 32}
"""Compute capability -> the same where it differs: Blackwell Ultra has twice as many (NVIDIA, "Making Softmax
More Efficient with NVIDIA Blackwell Ultra")."""
UNFUSED = ("math", "unfused")
"""Implementations of attention that write the scores to memory: not in one pass."""


def in_one_pass(rows: pd.DataFrame) -> pd.Series:
    """Which rows are attention's forward pass without its scores in memory."""
    if "direction" not in rows:
        return rows["operator"].isna()
    forward = (rows["operator"] == "attention") & (rows["direction"] == "forward")
    return forward & ~rows["implementation"].isin(UNFUSED)


def predict_attention(
    predictions: pd.DataFrame,
    rows: pd.DataFrame,
    by: Sequence[Calibration],
    sheet: Datasheet | None,
    working_set: Floats,
) -> None:
    """L2-priors and L2 of attention in one pass, where its data type's products are calibrated.

    `predictions` has the columns of `predict.structured` for all rows of a run, `rows` are those to predict,
    `by` the calibrations without a fit and fitted, `working_set` the bytes that each row's launches go
    through.
    """
    if not (len(rows) and by and sheet and sheet.boost_clock_hz):
        return
    softmax = Softmax(sheet.boost_clock_hz, special_per_clock(sheet))
    kinds = rows.groupby(["dtype", "implementation", rows["causal"].eq(True)], sort=False)
    of_row = _launches(rows, working_set)
    for (dtype, _, _), kind in kinds:
        machines = [calibration.machine for known in by if (calibration := known.of(str(dtype)))]
        if not machines:
            continue
        launches = of_row.only(rows.index.get_indexer(kind.index))
        plain = attention.predict(machines[0], softmax, attention.PRIOR, launches)
        answer = plain
        timed = np.flatnonzero(kind["median_s"].gt(0) & ~predictions.loc[kind.index, "calibrating"])
        if len(machines) > 1 and len(timed) >= attention.LEAST_ROWS:
            chosen = timed[attention.designated(plain.seconds[timed])]
            seconds = kind["median_s"].to_numpy(dtype=float)[chosen]
            kernel = attention.fit(machines[-1], softmax, launches.only(chosen), seconds)
            answer = attention.predict(machines[-1], softmax, kernel, launches)
            mark(predictions, kind, kind.iloc[chosen])
        predictions.loc[kind.index, "priors_s"] = plain.seconds
        predictions.loc[kind.index, "structured_s"] = answer.seconds
        predictions.loc[kind.index, "structured_limiter"] = answer.bound_by


def _launches(rows: pd.DataFrame, working_set: Floats) -> attention.AttentionLaunches:
    names = ("batch", "heads", "kv_heads", "head_width", "q_length", "byte")
    batch, heads, kv_heads, width, queries, byte = (rows[name].to_numpy(dtype=float) for name in names)
    keys = rows["kv_length"].to_numpy(dtype=float) if "kv_length" in rows else queries
    return attention.AttentionLaunches(
        **{"batch": batch, "heads": heads, "kv_heads": kv_heads, "width": width},
        queries=queries,
        keys=np.where(np.isnan(keys), queries, keys),
        causal=rows["causal"].eq(True).to_numpy(),
        byte=byte,
        beside=rows["byte_moved"].to_numpy(dtype=float) - byte,
        working_set=working_set,
    )


def special_per_clock(sheet: Datasheet) -> int:
    """Special functions that an SM of this device finishes in one clock."""
    return MORE_SPECIAL.get(sheet.capability or (0, 0), SPECIAL_PER_CLOCK)
