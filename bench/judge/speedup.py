"""Speedups of one device over another, case by case: what a generation gained.

A case is one problem: the same operator and parameters, the same cache, on a CPU the same threads. Our own
kernels are not compared, as they are tuned for some devices only. Each device counts with the fastest of the
libraries that both have, so that neither gains by having more of them; where they have none in common (a CPU
and a GPU), with its fastest one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from bench.device.datasheet import Datasheet
from bench.judge.columns import Columns, Texts
from bench.judge.frame import DeviceRun
from bench.judge.noise import OURS
from bench.model.bound import BOUNDS

CASE = ("operator", "parameters", "cache", "threads_asked")
"""Columns in which two rows must agree; and in the regime, if all rows have one."""
KEPT = ("arithmetic", "dtype", "bound_by")
"""Columns of the base's row that stay with a case."""
READ = (*CASE, "arithmetic", "dtype", "device", "implementation", "visit", "median_s", "utc", "regime")
"""Columns of a row that speed-ups are made of."""
LINKED = ("collective",)
"""Operators whose bytes cross links between devices, which no datasheet here has the rate of."""
MIDDLE = (0.1, 0.9)
"""Quantiles of the cases between which a range lies."""
ALIKE = ("operator", "dtype", "bound_by")
"""Columns in which the cases of one Gain agree."""


@dataclass(frozen=True)
class Gain:
    """What a device gains over the base, over cases that agree in ALIKE."""

    operator: str
    dtype: str
    bound_by: str
    """What bounds these cases on the base (`bench.model.bound`); empty: not known."""
    device: str
    cases: int
    median: float
    """Median of base_s / device_s: above 1 the device is faster; `low` and `high` likewise."""
    low: float
    high: float
    stated: float | None
    """The ratio that the datasheets promise these cases: of bandwidths where memory bounds them, of peaks
    where compute does. None where they say nothing, of cases of several arithmetic units, and of LINKED."""


def gains(cases: Mapping[str, pd.DataFrame], base: str, sheets: Mapping[str, Datasheet | None]) -> list[Gain]:
    """The gains by ALIKE, then by device; `cases`: device -> its cases, as `speedups` gives them."""
    gained = []
    for device, of_device in cases.items():
        for (operator, dtype, bound_by), alike in of_device.groupby([*ALIKE], sort=True):
            low, median, high = np.quantile(alike["speedup"], (MIDDLE[0], 0.5, MIDDLE[1]))
            units = alike["arithmetic"].unique()
            of = (str(bound_by), str(units[0]), str(dtype))
            known = len(units) == 1 and operator not in LINKED
            stated = stated_gain(sheets[base], sheets[device], *of) if known else None
            numbers = (len(alike), float(median), float(low), float(high), stated)
            gained.append(Gain(str(operator), str(dtype), str(bound_by), device, *numbers))
    order = {name: place for place, name in enumerate(("", *BOUNDS))}
    return sorted(gained, key=lambda gain: (gain.operator, gain.dtype, -order[gain.bound_by]))


def compared(run: DeviceRun) -> pd.DataFrame:
    """What `speedups` needs of the rows of a run."""
    return run.columns[[*READ]].assign(blamed=run.blamed, bound_by=run.bounds)


def speedups(rows: pd.DataFrame, base: str) -> Iterator[tuple[str, pd.DataFrame]]:
    """(device, its cases that the base has too), for every other device, in order of appearance.

    `rows` are those of all runs (`compared`). A case has the columns CASE and KEPT, and `speedup` = the
    base's seconds / the device's: above 1 the device is faster. Rows that have no time, are suspect, or are
    of our kernels are left out; the newest row of a case counts. The frame is empty if the two have no case
    in common.
    """
    case = [*CASE] if rows["regime"].isna().any() else [*CASE, "regime"]
    # A time above a roof is not suspect here.
    usable = (rows["visit"] == 0) & (rows["median_s"] > 0) & ~rows["blamed"].astype(bool)
    ours = Texts.of(rows["implementation"]).told(lambda name: str(name).startswith(OURS))
    newest = rows[usable & ~ours]
    newest = newest.assign(case=Columns.of(newest[case]).numbered(case))
    newest = newest[newest["case"].isin(newest.loc[newest["device"] == base, "case"])]
    newest = newest.sort_values("utc", kind="stable")
    newest = newest.drop_duplicates(["device", "implementation", "case"], keep="last")
    before = newest[newest["device"] == base]
    times = newest[["device", "case", "implementation", "median_s"]]
    for device in rows["device"].unique():
        if device != base:
            yield str(device), _met(before, times[times["device"] == device], case)


def _met(before: pd.DataFrame, after: pd.DataFrame, case: list[str]) -> pd.DataFrame:
    """The cases of both; of implementations that both have, if there are any, else of all, the fastest."""
    before = before[before["case"].isin(after["case"])]
    by_name = ["case", "implementation"]
    both = before[by_name].merge(after[by_name]).assign(shared=True)
    ours, theirs = (
        rows.merge(both, on=by_name, how="left")
        .sort_values(["shared", "median_s"], kind="stable")
        .drop_duplicates("case")
        for rows in (before, after)
    )
    joined = ours[["case", *case, *KEPT, "median_s"]].merge(theirs[["case", "median_s"]], on="case")
    return joined.assign(speedup=joined.pop("median_s_x") / joined.pop("median_s_y"))


def stated_gain(
    base: Datasheet | None, device: Datasheet | None, bound_by: str, arithmetic: str, dtype: str
) -> float | None:
    """The device's bandwidth, or peak, over the base's by their datasheets; None where one is unknown."""
    if base is None or device is None or bound_by not in ("memory", "compute"):
        return None
    ours, theirs = (
        sheet.bandwidth_byte_per_s if bound_by == "memory" else sheet.peak_flop_per_s(arithmetic, dtype)
        for sheet in (device, base)
    )
    return ours / theirs if ours and theirs else None
