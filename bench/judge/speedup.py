"""One device against another, case by case: what a generation gained.

A case is one problem: the same operator and parameters, the same cache, on a CPU the same threads. Of our own
kernels, which are tuned for some devices and not for others, nothing is said; of the libraries, the quickest
of those that both devices have counts on each, so that neither gains by having more of them; where they have
none in common (a CPU and a GPU), the quickest of each.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from bench.judge.noise import OURS

if TYPE_CHECKING:
    import pandas as pd

    from bench.device.datasheet import Datasheet

CASE = ("operator", "parameters", "cache", "threads_asked")
"""Columns that two devices must agree in; and in the regime, where all rows have one."""
KEPT = ("flop", "byte", "intensity", "arithmetic", "dtype")
"""Columns of the base's row that stay with a case."""


def speedups(rows: pd.DataFrame, base: str) -> Iterator[tuple[str, pd.DataFrame]]:
    """(device, its cases that the base has too), for every other device, in order of appearance.

    `rows` are those of all runs, as `bench.judge.frame` derives them. A case has the columns CASE and KEPT,
    `base_s`, `device_s` (median seconds) and `speedup` = base_s / device_s: above 1 the device is quicker.
    Rows without a time, in doubt, or of our kernels are passed over; of a case that a device measured more
    than once the newest row stands. The frame is empty if the two have no case in common.
    """
    case = [*CASE] if rows["regime"].isna().any() else [*CASE, "regime"]
    # To be above a roof is no reason to doubt a time here; what calibrates is not scored, but is a case.
    sound = rows["scored"].astype(bool) | (rows["calibrating"].astype(bool) & ~rows["suspect"].astype(bool))
    usable = (rows["visit"] == 0) & (rows["median_s"] > 0) & sound
    usable &= ~rows["implementation"].str.startswith(OURS)
    newest = rows[usable].sort_values("utc", kind="stable")
    newest = newest.drop_duplicates(["device", "implementation", *case], keep="last")
    before = newest[newest["device"] == base]
    for device in dict.fromkeys(rows["device"]):
        if device != base:
            yield str(device), _met(before, newest[newest["device"] == device], case)


def _met(before: pd.DataFrame, after: pd.DataFrame, case: list[str]) -> pd.DataFrame:
    by_name = [*case, "implementation"]
    both = before.merge(after[[*by_name, "median_s"]], on=by_name, suffixes=("", "_after"))
    shared = _quickest(both, case, {"base_s": "median_s", "device_s": "median_s_after"})
    ours, theirs = (_quickest(one, case, {"base_s": "median_s"}) for one in (before, after))
    theirs = theirs[[*case, "base_s"]].rename(columns={"base_s": "device_s"})
    # Those of both sides, but where an implementation was shared that counts.
    found = ours.merge(theirs, on=case)
    known = found[case].merge(shared[[*case, "base_s", "device_s"]], on=case, how="left")
    for name in ("base_s", "device_s"):
        found[name] = np.where(known[name].notna(), known[name], found[name])
    return found.assign(speedup=found["base_s"] / found["device_s"])


def _quickest(rows: pd.DataFrame, case: list[str], least: dict[str, str]) -> pd.DataFrame:
    """One row a case, with the least of each of these columns, renamed, over its implementations."""
    grouped = rows.groupby(case, sort=False, dropna=False)
    named = {new: grouped[old].min() for new, old in least.items()} | {
        name: grouped[name].first() for name in KEPT
    }
    first = grouped["flop"].first().to_frame()
    return first.assign(**named).reset_index()


def stated_gain(
    base: Datasheet | None, device: Datasheet | None, arithmetic: str, dtype: str
) -> tuple[float | None, float | None]:
    """(bandwidth, peak) of the device over the base's, as their datasheets say; None where one does not."""
    if base is None or device is None:
        return None, None
    bandwidths = device.bandwidth_byte_per_s, base.bandwidth_byte_per_s
    peaks = (one.peak_flop_per_s(arithmetic, dtype) for one in (device, base))
    return _ratio(*bandwidths), _ratio(*peaks)


def _ratio(above: float | None, below: float | None) -> float | None:
    return above / below if above and below else None
