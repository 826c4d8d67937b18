"""What a run can afford: in which order cases run, how long each may take, which are left out.

A budget of wall seconds is shared out as the run goes. Cases whose one launch is predicted to take too long
are refused. The rest run in rounds: something of every sweep and of every kind of case first, then more lines
and more points of each line. Whenever time runs out, an even spread has been measured. Pure arithmetic.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bench.spec import DeviceKind


class Range(NamedTuple):
    """Wall seconds that the sampling of one visit may take, settling included."""

    least_s: float
    """Below this a median is not worth having."""
    most_s: float
    """Above this more samples no longer narrow the interval: the machine's own drift remains."""


ONE_VISIT: Mapping[DeviceKind, Range] = {"cpu": Range(0.4, 2.0), "cuda": Range(1.5, 7.0)}
"""A GPU's clock takes seconds to settle; most visits end long before."""
SEVERAL_VISITS: Mapping[DeviceKind, Range] = {"cpu": Range(0.4, 1.0), "cuda": Range(0.4, 1.5)}
"""Other cases keep a GPU loaded in between. A CPU has not settled within less."""
OVERHEAD_S = 0.2
"""Building, checking and reporting a small case, before the run has shown how long that takes."""
LAUNCHES = 16
"""Launches that sampling needs, settling included, for an interval to be known."""
LAUNCH_SHARE = 1 / 1200
"""Largest share of the run's budget that one launch may take: 0.1 s of 120 s."""


@dataclass(frozen=True)
class Job:
    """One case as far as scheduling is concerned."""

    key: str
    launch_s: float | None
    """Predicted seconds of one launch; None where nothing is known."""
    visits: int = 1
    """Visits it has before it."""

    def cost_s(self, base_s: float, overhead_s: float) -> float:
        """Wall seconds of its visits if each samples for `base_s`: building and checking launch too."""
        return self.visits * (overhead_s + 4 * (self.launch_s or 0.0) + self.sampling_s(base_s))

    def sampling_s(self, base_s: float) -> float:
        """Seconds of sampling: at least as many launches as an interval needs."""
        return max(base_s, LAUNCHES * (self.launch_s or 0.0))


@dataclass(frozen=True)
class Schedule:
    """Seconds of sampling a visit for those that run, a reason for the others, seconds in all."""

    sampling_s: dict[str, float]
    skipped: dict[str, str]
    total_s: float
    visits: int
    """Of those that run, together."""


def launch_limit_s(budget_s: float | None) -> float:
    """Seconds that one launch may take in a run of this budget."""
    return 10.0 if budget_s is None else budget_s * LAUNCH_SHARE


def schedule(
    jobs: Sequence[Job],
    left_s: float | None,
    budget_s: float | None,
    overhead_s: float = OVERHEAD_S,
    sampling: Range = ONE_VISIT["cpu"],
) -> Schedule:
    """Share `left_s` seconds (None: no limit) among jobs in the order they will run.

    `budget_s` is the whole run's; `overhead_s` what a visit costs beside its sampling, `sampling` what that
    may take. A job gets room for all of its visits or for none.
    """
    least_s, most_s = sampling
    skipped: dict[str, str] = {}
    if budget_s is not None:
        limit_s = launch_limit_s(budget_s)
        for job in jobs:
            if job.launch_s is not None and job.launch_s > limit_s:
                skipped[job.key] = (
                    f"one launch is predicted to take {job.launch_s:.2g} s; "
                    f"a budget of {budget_s:g} s allows {limit_s:.2g} s"
                )
    chosen = [job for job in jobs if job.key not in skipped]
    base_s = most_s
    if left_s is not None:
        kept, spent_s = [], 0.0
        for job in chosen:
            cost_s = job.cost_s(least_s, overhead_s)
            if spent_s + cost_s <= left_s:  # a cheaper one may still fit after one that does not
                spent_s += cost_s
                kept.append(job)
            else:
                skipped[job.key] = f"left out: the budget of {budget_s:g} s has no room for it"
        chosen = kept
        base_s = _largest_base(chosen, left_s, overhead_s, least_s, most_s)
    total_s = _cost_s(chosen, overhead_s)(base_s)
    visits = sum(job.visits for job in chosen)
    return Schedule({job.key: job.sampling_s(base_s) for job in chosen}, skipped, total_s, visits)


def _largest_base(jobs: Iterable[Job], left_s: float, overhead_s: float, low: float, high: float) -> float:
    """The longest sampling time that still fits, by bisection."""
    cost_s = _cost_s(jobs, overhead_s)
    if cost_s(high) <= left_s:
        return high
    for _ in range(12):
        middle = (low + high) / 2
        low, high = (middle, high) if cost_s(middle) <= left_s else (low, middle)
    return low


def _cost_s(jobs: Iterable[Job], overhead_s: float) -> Callable[[float], float]:
    """Sampling time -> seconds that all jobs take: `Job.cost_s` of thousands, many times over."""
    counted = [(job.launch_s or 0.0, job.visits) for job in jobs]
    launch_s, visits = np.asarray(counted, dtype=np.float64).reshape(-1, 2).T
    fixed_s = float(visits @ (overhead_s + 4 * launch_s))
    return lambda base_s: fixed_s + float(visits @ np.maximum(base_s, LAUNCHES * launch_s))


class Place(NamedTuple):
    """Where a case belongs, as far as choosing an even spread goes."""

    sweep: str
    kind: Hashable
    """What it computes but for the numbers: operator, implementation, data type, layout, direction."""
    line: Hashable
    """The line of its sweep's plot."""


def order(places: Sequence[Place]) -> list[int]:
    """The cases as indices, in the order that leaves an even spread whenever time runs out.

    In rounds (see `rounds`), and within a round the sweeps take turns, one case each.
    """
    found = rounds(places)
    taken: Counter[tuple[int, str]] = Counter()
    keys = []
    for turn, place in zip(found, places, strict=True):
        keys.append((turn, taken[turn, place.sweep]))
        taken[turn, place.sweep] += 1
    return sorted(range(len(places)), key=keys.__getitem__)


def rounds(places: Sequence[Place]) -> list[int]:
    """For each case in which round it runs.

    A line gives one case a round: its middle, then both ends, then the middles of its widest gaps. The first
    line of each kind and of each sweep begins in round 0; the next of the same kind a round later, and so on.
    Lines of a single case are one line if they are of one kind: its points are blocks of their own, as where
    rows shrink while columns grow.
    """
    points = Counter((place.sweep, place.line) for place in places)
    members: dict[tuple[str, Hashable], list[int]] = {}
    for index, place in enumerate(places):
        line = place.line if points[place.sweep, place.line] > 1 else ("points", place.kind)
        members.setdefault((place.sweep, line), []).append(index)
    found = [0] * len(places)
    lines_of_kind: Counter[Hashable] = Counter()
    seen: set[str] = set()
    for indices in members.values():
        place = places[indices[0]]
        late = lines_of_kind[place.kind] if place.sweep in seen else 0
        lines_of_kind[place.kind] += 1
        seen.add(place.sweep)
        for index, turn in zip(indices, _turns(len(indices)), strict=True):
            found[index] = late + turn
    return found


def _turns(count: int) -> list[int]:
    """For each of `count` points, how late it is chosen: the middle, the ends, middles of the widest gaps."""
    turns = [1] * count
    turns[count // 2] = 0
    chosen = sorted({0, count // 2, count - 1})
    for turn in range(len(chosen), count):
        gap, left = max((b - a, -a) for a, b in itertools.pairwise(chosen))
        middle = -left + gap // 2
        turns[middle] = turn - 1  # middle and ends took rounds 0 and 1
        chosen = sorted([*chosen, middle])
    return turns
