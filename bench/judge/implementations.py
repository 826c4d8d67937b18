"""Implementations side by side: of each problem of a run the time of each, and its ratio to the library's.

A problem that several sweeps timed is one problem: the latest sound row of each implementation counts. The
library is the fastest implementation that is neither ours nor a kernel of the user's own. The interval of a
ratio is made of the rows' within their run, combined as the root of the sum of squared logarithms.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

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
    """(operator, parameters, cache, threads) and implementation -> its time, of what two or more timed."""
    rows = _timed(run)
    for problem, here in rows.groupby(PROBLEM, sort=False, dropna=False):
        if len(here) > 1:
            yield tuple(map(str, problem)), _sides(here)


def is_own(implementation: str) -> bool:
    """Whether it is one of ours or a custom kernel, which the libraries are compared with."""
    return implementation.startswith(OURS) or is_custom(implementation)


def _timed(run: DeviceRun) -> pd.DataFrame:
    """The run's sound rows with a time, ceilings left out, the last of each problem and implementation.

    `run_half` is NaN where nothing tells how far off a time may be: of imported rows without an interval.
    """
    rows = run.columns
    rows = rows[(rows["median_s"] > 0) & (rows["role"] == "measurement") & (rows["visit"] == 0)]
    rows = rows[~run.suspect[rows.index]].drop_duplicates([*PROBLEM, "implementation"], keep="last")
    told = rows["source"].isna() | (rows["low_s"] > 0) & (rows["high_s"] > 0)
    return rows.assign(run_half=rows["run_half"].where(told))


def _sides(rows: pd.DataFrame) -> Mapping[str, Side]:
    times: Sequence[tuple[int, str, float, float]] = [
        (int(place), str(name), float(seconds), float(half))
        for place, name, seconds, half in zip(
            rows.index, rows["implementation"], rows["median_s"], rows["run_half"], strict=True
        )
    ]
    return {name: _side(place, name, seconds, half, times) for place, name, seconds, half in times}


def _side(
    place: int, name: str, seconds: float, half: float, times: Sequence[tuple[int, str, float, float]]
) -> Side:
    libraries = [each for each in times if not is_own(each[1]) and each[1] != name]
    if not libraries:
        return Side(place, seconds, math.nan, 0.0, math.inf)
    *_, fastest_s, half_of_it = min(libraries, key=lambda each: each[2])
    ratio, span = seconds / fastest_s, math.exp(math.hypot(half, half_of_it))
    if math.isnan(span):  # without an interval of a time anything is possible
        return Side(place, seconds, ratio, 0.0, math.inf)
    return Side(place, seconds, ratio, ratio / span, ratio * span)
