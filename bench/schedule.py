"""What a run can afford: which cases are worth starting, and how long each may take.

A budget of wall seconds is shared out before measuring: cases whose one launch is predicted to take too
long are refused, and if the rest do not fit, each line of each plot keeps an even spread with its ends.
Pure arithmetic.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

LEAST_CASE_S = 0.2
"""Wall seconds of sampling below which a median is not worth having."""
MOST_CASE_S = 2.0
"""Above this more samples no longer narrow the interval: the machine's own drift remains."""
OVERHEAD_S = 0.2
"""Building, checking and reporting a small case."""
LAUNCHES = 16
"""Launches that a case needs: some to build, check and settle, a dozen to sample."""
LAUNCH_SHARE = 1 / 600
"""Largest share of the run's budget that one launch may take: 0.2 s of 120 s."""


@dataclass(frozen=True)
class Job:
    """One case as far as scheduling is concerned."""

    key: str
    sweep: str
    series: str
    launch_s: float | None
    """Predicted seconds of one launch; None where nothing is known."""

    def cost_s(self, base_s: float) -> float:
        """Wall seconds it takes if sampling may last `base_s`."""
        launch_s = self.launch_s or 0.0
        return OVERHEAD_S + 4 * launch_s + self.budget_s(base_s)

    def budget_s(self, base_s: float) -> float:
        """Seconds of sampling: at least a dozen launches."""
        return max(base_s, (LAUNCHES - 4) * (self.launch_s or 0.0))


@dataclass(frozen=True)
class Schedule:
    """The outcome: seconds of sampling by key for those to run, a reason by key for the others."""

    budget_s: dict[str, float]
    skipped: dict[str, str]


def launch_limit_s(budget_s: float | None) -> float:
    """Seconds that one launch may take in a run of this budget."""
    return 10.0 if budget_s is None else budget_s * LAUNCH_SHARE


def schedule(jobs: Sequence[Job], left_s: float | None, budget_s: float | None) -> Schedule:
    """Share `left_s` seconds (None: no limit) among the jobs of a run whose whole budget is `budget_s`."""
    limit_s = launch_limit_s(budget_s)
    skipped = {
        job.key: f"one launch is predicted to take {job.launch_s:.2g} s; "
        f"a budget of {budget_s:g} s allows {limit_s:.2g} s"
        for job in jobs
        if job.launch_s is not None and budget_s is not None and job.launch_s > limit_s
    }
    affordable = [job for job in jobs if job.key not in skipped]
    if left_s is None:
        return Schedule({job.key: job.budget_s(MOST_CASE_S) for job in affordable}, skipped)
    chosen = affordable
    if _total(affordable, LEAST_CASE_S) > left_s:
        chosen = _spread(affordable, left_s)
        kept = {job.key for job in chosen}
        reason = f"left out: a budget of {budget_s:g} s has room for {len(kept)} of {len(affordable)} cases"
        skipped |= {job.key: reason for job in affordable if job.key not in kept}
    base_s = _largest_base(chosen, left_s)
    return Schedule({job.key: job.budget_s(base_s) for job in chosen}, skipped)


def _total(jobs: Iterable[Job], base_s: float) -> float:
    return sum(job.cost_s(base_s) for job in jobs)


def _largest_base(jobs: Sequence[Job], left_s: float) -> float:
    """The longest sampling time that still fits, by bisection."""
    low, high = LEAST_CASE_S, MOST_CASE_S
    if _total(jobs, high) <= left_s:
        return high
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if _total(jobs, middle) <= left_s else (low, middle)
    return low


def _spread(jobs: Sequence[Job], left_s: float) -> list[Job]:
    """As many points of every series as fit, evenly spread, the ends first."""
    series: dict[tuple[str, str], list[Job]] = {}
    for job in jobs:
        series.setdefault((job.sweep, job.series), []).append(job)
    ranked = [
        (order, position, job)
        for line in series.values()
        for position, (order, job) in enumerate(zip(_orders(len(line)), line, strict=True))
    ]
    chosen: set[str] = set()
    spent = 0.0
    for _, _, job in sorted(ranked, key=lambda entry: entry[0]):
        cost = job.cost_s(LEAST_CASE_S)
        if spent + cost > left_s:
            continue  # a cheaper one may still fit
        spent += cost
        chosen.add(job.key)
    return [job for job in jobs if job.key in chosen]


def _orders(count: int) -> list[int]:
    """For each of `count` points, how late it is chosen: ends, then middles of the widest gaps."""
    order = [0] * count
    chosen = sorted({0, count - 1}) if count else []
    for rank, point in enumerate(chosen):
        order[point] = rank
    rank = len(chosen)
    while rank < count:
        gap, left = max((b - a, -a) for a, b in itertools.pairwise(chosen))
        middle = -left + gap // 2
        order[middle] = rank
        rank += 1
        chosen = sorted([*chosen, middle])
    return order
