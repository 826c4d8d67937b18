"""Comparisons side by side: devices and what they gain, implementations, the library and ours."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd

from bench.judge.frame import DeviceRun
from bench.judge.speedup import Gain, gains, speedups
from bench.judge.standings import Standing, duels, efficiencies
from bench.model.bound import bound_text

MOST_RIVALS = 12
"""Implementations of an operator in a table of what others timed, which may be dozens of launch shapes."""
PROBLEM = ["operator", "parameters", "cache", "threads_asked"]
"""Columns that two rows of one problem share."""


def gained(runs: Sequence[DeviceRun]) -> list[dict[str, Any]]:
    """The speed-ups of the devices over the first run's, as `python -m bench compare --across device`.

    One for each operator, data type and bound, with the gain `on` each device.
    """
    sheets = {run.device: run.datasheet for run in runs}
    if len(sheets) < 2:
        return []
    base = runs[0].device
    cases = dict(speedups(pd.concat([run.frame for run in runs]), base))
    places: dict[tuple[str, str, str], dict[str, Gain]] = {}
    for gain in gains(cases, base, sheets):
        places.setdefault((gain.operator, gain.dtype, bound_text(gain.bound_by)), {})[gain.device] = gain
    return [
        {"operator": operator, "dtype": dtype, "bound": bound, "on": on}
        for (operator, dtype, bound), on in places.items()
    ]


def rivals(run: DeviceRun) -> Iterator[dict[str, Any]]:
    """Every implementation of every operator with more than one; of imported rows the MOST_RIVALS fastest.

    In how many of the `problems` that several of them timed it is the `fastest`, and the median of its time
    over the fastest one's. Suspect rows are left out.
    """
    frame = run.frame
    sound = (frame["role"] == "measurement") & (frame["visit"] == 0) & ~frame["suspect"].astype(bool)
    timed = frame[sound & frame["median_s"].notna()]
    latest = timed.sort_values("utc", kind="stable").drop_duplicates(
        [*PROBLEM, "implementation"], keep="last"
    )
    several = latest[latest.groupby(PROBLEM)["implementation"].transform("nunique") > 1]
    behind = several["median_s"] / several.groupby(PROBLEM)["median_s"].transform("min")
    by_name = behind.groupby([several["operator"], several["implementation"]])
    place = by_name.median().groupby("operator").rank(method="first").to_dict()
    for (operator, name), ratios in by_name:
        if run.imported and place[operator, name] > MOST_RIVALS:
            continue
        counts = {"problems": len(ratios), "fastest": int((ratios == 1).sum())}
        yield {"operator": operator, "implementation": name, **counts, "behind": float(ratios.median())}


def ours(run: DeviceRun) -> Iterator[tuple[str, Standing]]:
    """(region, standing) of our GEMMs against the library, and of our memory-bound kernels against the best.

    A standing's figures are seconds of theirs over seconds of ours.
    """
    if run.imported:
        return
    for cache in run.caches:
        for each in duels(run, cache)[0]:
            yield each.region if cache == "cold" else f"{each.region}, {cache}", each
    # Without a copy in the run there are no efficiencies.
    for _, against in efficiencies(run) if run.roof("cold").copy_byte_per_s else ():
        if against is not None:
            yield f"{against.kind}, {against.region}", against
