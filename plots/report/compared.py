"""What stands beside each other: devices and what they gain, implementations, the library and ours."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import pandas as pd

from bench.errors import UserError
from bench.judge.duel import duels, standings
from bench.judge.efficiency import efficiencies
from bench.judge.frame import Run
from bench.judge.speedup import Gain, gains, speedups
from bench.model.bound import bound_text

MOST_RIVALS = 12
"""Implementations of an operator in a table of what others timed, which may be dozens of launch shapes."""
PROBLEM = ["operator", "parameters", "cache", "threads_asked"]
"""Columns that two rows of one problem share."""


class Gained(NamedTuple):
    """What devices gain over the first one, over the cases of one operator, data type and bound."""

    operator: str
    dtype: str
    bound: str
    on: Mapping[str, Gain]
    """By device."""


class Rival(NamedTuple):
    """An implementation among the others of its operator, over the problems that several of them timed."""

    device: str
    operator: str
    implementation: str
    problems: int
    fastest: int
    """In how many of them it is the fastest."""
    behind: float
    """Median of its time over the fastest one's."""


class Standing(NamedTuple):
    """Our kernels against the library's, in one region of sizes: seconds of theirs over seconds of ours."""

    device: str
    operator: str
    region: str
    implementation: str
    problems: int
    median: float
    least: float
    most: float


def gained(runs: Sequence[Run]) -> list[Gained]:
    """The speed-ups of the devices over the first run's, as `python -m bench compare --across device`."""
    sheets = {run.device: run.datasheet for run in runs}
    if len(sheets) < 2:
        return []
    base = runs[0].device
    cases = dict(speedups(pd.concat([run.frame for run in runs]), base))
    places: dict[tuple[str, str, str], dict[str, Gain]] = {}
    for gain in gains(cases, base, sheets):
        places.setdefault((gain.operator, gain.dtype, bound_text(gain.bound_by)), {})[gain.device] = gain
    return [Gained(*place, on) for place, on in places.items()]


def rivals(run: Run) -> Iterator[Rival]:
    """Every implementation of every operator with more than one; of imported rows the MOST_RIVALS fastest.

    Suspect rows are left out.
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
        yield Rival(
            run.device,
            str(operator),
            str(name),
            len(ratios),
            int((ratios == 1).sum()),
            float(ratios.median()),
        )


def ours(run: Run) -> Iterator[Standing]:
    """Our GEMMs against the library's by region, and our memory-bound kernels against the best other."""
    if run.imported:
        return
    for cache in run.caches:
        pairs, _ = duels(run, cache)
        for each in standings(pairs):
            ratios = [duel.ratio for duel in each.duels]
            where = each.region if cache == "cold" else f"{each.region}, {cache}"
            yield Standing(
                run.device,
                "gemm",
                where,
                each.implementation,
                len(ratios),
                each.median,
                ratios[0],
                ratios[-1],
            )
    try:
        regions = list(efficiencies(run))
    except UserError:  # no copy in this run, so no region either
        return
    for row in regions:
        if row.versus_best:
            median = statistics.median(row.versus_best)
            ends = row.versus_best[0], row.versus_best[-1]
            where = f"{row.kind}, {row.region}"
            yield Standing(
                run.device, row.operator, where, row.implementation, len(row.versus_best), median, *ends
            )
