"""Implementations side by side: of each problem of a run the time of each, and its ratio to the library's.

A problem that several sweeps timed is one problem: the latest sound row of each implementation counts. The
library is the fastest implementation that is neither ours nor a kernel of the user's own. The interval of a
ratio is made of the rows' within their run, combined as the root of the sum of squared logarithms.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from bench.judge.noise import OURS
from bench.spec import is_custom

if TYPE_CHECKING:
    import pandas as pd

    from bench.judge.frame import DeviceRun

PROBLEM = ["operator", "parameters", "cache", "threads_asked"]
"""Columns that tell one problem of a run from another."""


class Side(NamedTuple):
    """One implementation of a problem."""

    row: int
    """Place of its row among the run's."""
    median_s: float
    ratio: float
    """Its time / that of the fastest library, of those that are not itself; NaN without another library."""
    low: float
    high: float
    """95 % interval of the ratio; 0 and infinity where a time has none."""


def side_by_side(run: DeviceRun) -> Iterator[tuple[tuple[str, ...], Mapping[str, Side]]]:
    """(operator, parameters, cache, threads) and implementation -> its time, of what two or more timed.

    Of the run's sound rows with a time, ceilings left out, the last of each problem and implementation.
    """
    rows = run.columns
    rows = rows[(rows["median_s"] > 0) & (rows["role"] == "measurement") & (rows["visit"] == 0)]
    rows = rows[~run.suspect[rows.index]].drop_duplicates([*PROBLEM, "implementation"], keep="last")
    # Nothing tells how far off an imported time without an interval may be.
    told = rows["source"].isna() | (rows["low_s"] > 0) & (rows["high_s"] > 0)
    rows = rows.assign(half=rows["run_half"].where(told), is_own=rows["implementation"].map(is_own))
    for problem, here in rows.groupby(PROBLEM, sort=False, dropna=False):
        if len(here) > 1:
            yield (
                tuple(map(str, problem)),
                {str(each.implementation): _side(each, here) for each in here.itertuples()},
            )


def is_own(implementation: str) -> bool:
    """Whether it is one of ours or a custom kernel, which the libraries are compared with."""
    return implementation.startswith(OURS) or is_custom(implementation)


def _side(row: Any, rows: pd.DataFrame) -> Side:
    libraries = rows[~rows["is_own"] & (rows["implementation"] != row.implementation)]
    if libraries.empty:
        return Side(row.Index, row.median_s, math.nan, 0.0, math.inf)
    fastest = libraries.loc[libraries["median_s"].idxmin()]
    ratio, span = row.median_s / fastest["median_s"], math.exp(math.hypot(row.half, fastest["half"]))
    if math.isnan(span):  # without an interval of a time anything is possible
        return Side(row.Index, row.median_s, ratio, 0.0, math.inf)
    return Side(row.Index, row.median_s, ratio, ratio / span, ratio * span)
