"""Schedule of a run: how long each case may sample, and which are left out.

A budget of wall seconds is divided as the run goes, by the expected costs of cases (price.py). Cases of which
one launch is predicted to take too long are refused. The rest get room comparison by comparison: all cases of
one, or none. Pure arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bench.spec import DeviceKind


class SamplingLimits(NamedTuple):
    """Range for the limit of a visit's sampling, settling included, wall seconds."""

    least_s: float
    """Below this a median is useless."""
    most_s: float
    """Above this more samples no longer narrow the interval: the machine's own drift remains."""


ONE_VISIT: Mapping[DeviceKind, SamplingLimits] = {
    "cpu": SamplingLimits(0.4, 2.0),
    "cuda": SamplingLimits(1.5, 7.0),
}
"""A GPU's clock takes seconds to settle; most visits end long before."""
SEVERAL_VISITS: Mapping[DeviceKind, SamplingLimits] = {
    "cpu": SamplingLimits(0.15, 1.0),
    "cuda": SamplingLimits(0.4, 1.5),
}
"""Shorter: visits differ by more than their samples tell, so several short ones tell more than one long;
and a GPU is kept loaded by other cases in between."""
OVERHEAD_S = 0.2
"""Building, checking and reporting a small case on a CPU, before the run has shown how long that takes."""
LAUNCHES = 16
"""Launches that sampling needs, settling included, for an interval to be known."""
LAUNCH_SHARE = 1 / 1200
"""Largest share of the run's budget that one launch may take: 0.1 s of 120 s."""
SHORT_RUNS_SHARE, SHORT_RUNS_MOST_S = 1 / 200, 0.1
"""The same of short runs, which have few cases, and the most seconds that this allows."""
ROOF_TIMED_S = 0.36
"""Least seconds for which a roof is timed: it is the best rate that was sustained."""
SAMPLING_SHARE = 1 / 60
"""Largest share of the run's budget that a visit may sample if it is expected to end sooner.

Not of work bound by power: a clock that falls by 5 % with a time constant of 0.5 s has settled within 2 s in
hardly a visit, within 5 s in every one (tests/bench/test_sampling.py)."""


@dataclass(frozen=True)
class Job:
    """The remaining visits of one case, for scheduling."""

    key: str
    launch_s: float | None
    """Predicted seconds of one launch; None if unknown."""
    visits: int = 1
    """Number of remaining visits."""
    beside_s: float = OVERHEAD_S
    """Wall seconds of each visit on top of its sampling and the launches that set it up."""
    first_s: float = 0.0
    """Wall seconds once, if the first visit is among them: compiling and tuning."""
    expected_s: float | None = None
    """Wall seconds that each visit is expected to sample, settling included; None: as long as its limit."""
    bound_by_power: bool = False
    """Whether the clock takes seconds to settle: a visit then has the longest limit, whatever the budget."""

    @property
    def fixed_s(self) -> float:
        """Wall seconds that do not depend on how long each visit may sample."""
        each_s = self.beside_s + 4 * (self.launch_s or 0.0)  # building and checking launch too
        return self.first_s + self.visits * (each_s + (self.expected_s or 0.0))

    def cost_s(self, base_s: float) -> float:
        """Wall seconds of its visits if each may sample for `base_s`."""
        return self.fixed_s + (0.0 if self.expected_s is not None else self.visits * self.limit_s(base_s))

    def limit_s(self, base_s: float) -> float:
        """Seconds that a visit may sample: time for as many launches as an interval needs at least."""
        return max(base_s, LAUNCHES * (self.launch_s or 0.0))


@dataclass(frozen=True)
class Schedule:
    """The cases that run, and those that do not."""

    sampling_s: dict[str, float]
    """Key of a case that runs -> seconds that a visit may sample."""
    refused: dict[str, str]
    """Key of a case of which one launch would take too long -> the reason."""
    left_out: frozenset[str]
    """Keys of cases for which there is no time."""
    total_s: float
    """Expected wall seconds of all visits."""
    visits: int
    """Number of all visits."""


def launch_limit_s(budget_s: float | None) -> float:
    """Seconds that one launch may take in a run of this budget."""
    if budget_s is None:
        return 10.0
    return max(budget_s * LAUNCH_SHARE, min(budget_s * SHORT_RUNS_SHARE, SHORT_RUNS_MOST_S))


def schedule(
    jobs: Sequence[Job],
    left_s: float | None,
    budget_s: float | None,
    sampling: SamplingLimits = ONE_VISIT["cpu"],
    comparisons: Sequence[Sequence[str]] = (),
    begun: Collection[str] = (),
) -> Schedule:
    """Share `left_s` seconds (None: no limit) among jobs.

    `budget_s` is the whole run's; `sampling` the range for the limit of a visit. A job gets room for all of
    its visits or for none. Jobs in no comparison come first, one by one; then those of each of the
    `comparisons` (keys of jobs) in turn, all or none. Those that are `begun` have room in any case. Room is
    reserved by expected costs; a job without an expectation is taken to sample up to its limit.
    """
    least_s, most_s = sampling
    refused: dict[str, str] = {}
    if budget_s is not None:
        limit_s = launch_limit_s(budget_s)
        for job in jobs:
            if job.launch_s is not None and job.launch_s > limit_s:
                refused[job.key] = (
                    f"one launch is predicted to take {job.launch_s:.2g} s; "
                    f"a budget of {budget_s:g} s allows {limit_s:.2g} s"
                )
    chosen = {job.key: job for job in jobs if job.key not in refused}
    every, base_s = frozenset(chosen), most_s
    if left_s is not None:
        kept = dict.fromkeys(key for key in begun if key in chosen)
        spent_s = sum(chosen[key].cost_s(least_s) for key in kept)
        compared = {key for keys in comparisons for key in keys}
        for keys in (*([key] for key in chosen if key not in compared), *comparisons):
            fresh = [key for key in keys if key in chosen and key not in kept]
            cost_s = sum(chosen[key].cost_s(least_s) for key in fresh)
            if spent_s + cost_s <= left_s:  # a cheaper one may still fit after one that does not
                spent_s += cost_s
                kept |= dict.fromkeys(fresh)
        chosen = {key: chosen[key] for key in kept}
        base_s = _largest_base(chosen.values(), left_s, least_s, most_s)
    share_s = most_s if budget_s is None else min(most_s, max(least_s, SAMPLING_SHARE * budget_s))

    def visit_limit_s(job: Job) -> float:
        if job.expected_s is None:
            return job.limit_s(base_s)
        return job.limit_s(most_s if job.bound_by_power else share_s)

    limits_s = {key: visit_limit_s(job) for key, job in chosen.items()}
    total_s, visits = _cost_s(chosen.values())(base_s), sum(job.visits for job in chosen.values())
    return Schedule(limits_s, refused, every - chosen.keys(), total_s, visits)


def _largest_base(jobs: Iterable[Job], left_s: float, low: float, high: float) -> float:
    """The longest sampling time that still fits, by bisection."""
    cost_s = _cost_s(jobs)
    if cost_s(high) <= left_s:
        return high
    for _ in range(12):
        middle = (low + high) / 2
        low, high = (middle, high) if cost_s(middle) <= left_s else (low, middle)
    return low


def _cost_s(jobs: Iterable[Job]) -> Callable[[float], float]:
    """Sampling time -> seconds that all jobs take: a fast sum of `Job.cost_s` over thousands of jobs."""
    jobs = list(jobs)
    fixed_s = sum(job.fixed_s for job in jobs)
    open_ended = [(job.launch_s or 0.0, job.visits) for job in jobs if job.expected_s is None]
    launch_s, visits = np.asarray(open_ended, dtype=np.float64).reshape(-1, 2).T
    return lambda base_s: fixed_s + float(visits @ np.maximum(base_s, LAUNCHES * launch_s))
