"""What bounds a launch on its device: the one classification of tables, comparisons, pages and figures.

It is the largest of four times: an empty launch; the bytes that the last-level cache holds, at its bandwidth;
those that reach memory, at memory's; FLOP at the peak of their unit and data type. So without a cache, what
has fewer FLOP for each byte than the device's own ridge, peak / bandwidth, is bound by memory. Ceilings that
the run measured come first, and the datasheet stands in for those that it lacks. No datasheet states what a
launch takes, so that nothing is bound by it where that was not measured.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from bench.model.ceilings import Ceilings
from bench.model.roofline import WITHOUT_ROOF, Floats, rows_traffic
from bench.model.tile_wave import resident

if TYPE_CHECKING:
    import pandas as pd

    from bench.device.datasheet import Datasheet

BOUNDS = ("launch", "cache", "memory", "compute")
"""What may bound a launch, a tie in this order."""
READ = (
    *("condition", "arithmetic", "dtype", "flop", "byte", "byte_moved", "byte_again", "byte_written"),
    *("moved_written", "ring_byte", "cache", "cache_byte", "flushed"),
)
"""Columns of a row that tell what bounds it."""


def bounds(rows: pd.DataFrame, roof: Callable[[str], Ceilings], sheet: Datasheet | None) -> list[str]:
    """One of BOUNDS for each row, empty where a number that it needs is neither measured nor stated.

    `rows` are those of one run, with the columns of a result file and `condition`; `roof` gives the ceilings
    of a condition.
    """
    import pandas as pd

    named = pd.Series("", index=rows.index, dtype=object)
    rows = rows[[*READ]]  # a group holds a copy of each of its columns
    for (how, arithmetic, dtype), alike in rows.groupby(["condition", "arithmetic", "dtype"], sort=False):
        if arithmetic not in WITHOUT_ROOF:
            terms = _terms(alike, str(arithmetic), str(dtype), roof(str(how)), sheet)
            known = np.isfinite(terms).all(axis=0)
            largest = np.where(known, terms, 0.0).argmax(axis=0)
            named[alike.index] = np.where(known, np.asarray(BOUNDS, dtype=object)[largest], "")
    return [str(name) for name in named]


def bound_text(bound_by: str) -> str:
    """`bound by memory`, for titles."""
    return f"bound by {bound_by}" if bound_by else "bound not known"


def cached_share(rows: pd.DataFrame) -> Floats:
    """The share of their data that launches find in the last-level cache, 0 to 1 [n]."""
    warm = ((rows["cache"] == "warm") & ~rows["flushed"].fillna(False).astype(bool)).to_numpy()
    cache_byte = np.maximum(rows["cache_byte"].to_numpy(dtype=np.float64), 1.0)
    return np.where(warm, resident(_working_set(rows) / cache_byte, 1.0), 0.0)


def _working_set(rows: pd.DataFrame) -> Floats:
    return np.asarray(rows["ring_byte"].astype(float).fillna(rows["byte"]), dtype=np.float64)


def _terms(
    rows: pd.DataFrame, arithmetic: str, dtype: str, ceilings: Ceilings, sheet: Datasheet | None
) -> Floats:
    """Seconds [4, n] of BOUNDS for rows of one condition, unit and data type; NaN where one is unknown."""
    byte, write_share = rows_traffic(rows)
    flop = rows["flop"].to_numpy(dtype=np.float64)
    peak = ceilings.peak(arithmetic, dtype) or (sheet and sheet.peak_flop_per_s(arithmetic, dtype))
    # Vector arithmetic without a peak is taken to be bound by what it moves, as in the roofline.
    compute = flop / peak if peak else np.where((flop > 0) & (arithmetic != "vector"), np.nan, 0.0)
    second_per_byte = ceilings.second_per_byte(write_share)
    if second_per_byte is None:
        stated = sheet.bandwidth_byte_per_s if sheet else None
        second_per_byte = np.full_like(byte, 1.0 / stated if stated else np.nan)
    moving = np.where(byte > 0, byte * second_per_byte, 0.0)
    working_set = _working_set(rows)
    held = cached_share(rows)
    rate = ceilings.cached_byte_per_s(working_set)
    if rate is None:  # then memory's time is an upper end of the cache's
        in_cache, in_memory = (np.where(held > 0, moving, 0.0), np.where(held > 0, 0.0, moving))
    else:
        in_cache, in_memory = held * byte / rate, (1.0 - held) * moving
    return np.stack([np.full_like(byte, ceilings.launch_s or 0.0), in_cache, in_memory, compute])
