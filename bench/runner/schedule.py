"""Schedule of a run: in which order cases run, how long each may sample, which are left out.

A budget of wall seconds is divided as the run goes, by the expected costs of cases (price.py). Cases of which
one launch is predicted to take too long are refused. The rest run in an order that gives every sweep its
share of the time, with a budget or without: something of every sweep first, then more lines and more points
of each line. Whenever time runs out, an even spread has been measured. Pure arithmetic.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bench.spec import DeviceKind


class Range(NamedTuple):
    """Range for the limit of a visit's sampling, settling included, wall seconds."""

    least_s: float
    """Below this a median is useless."""
    most_s: float
    """Above this more samples no longer narrow the interval: the machine's own drift remains."""


ONE_VISIT: Mapping[DeviceKind, Range] = {"cpu": Range(0.4, 2.0), "cuda": Range(1.5, 7.0)}
"""A GPU's clock takes seconds to settle; most visits end long before."""
SEVERAL_VISITS: Mapping[DeviceKind, Range] = {"cpu": Range(0.4, 1.0), "cuda": Range(0.4, 1.5)}
"""Shorter on a GPU, which other cases keep loaded in between. A CPU does not settle in less."""
OVERHEAD_S = 0.2
"""Building, checking and reporting a small case on a CPU, before the run has shown how long that takes."""
LAUNCHES = 16
"""Launches that sampling needs, settling included, for an interval to be known."""
LAUNCH_SHARE = 1 / 1200
"""Largest share of the run's budget that one launch may take: 0.1 s of 120 s."""
ROOF_TIMED_S = 0.36
"""Least seconds for which a roof is timed: it is the best rate that was sustained."""
SAMPLING_SHARE = 1 / 60
"""Largest share of the run's budget that a visit may sample if it is expected to end sooner."""


@dataclass(frozen=True)
class Job:
    """The remaining visits of one case, for scheduling."""

    key: str
    launch_s: float | None
    """Predicted seconds of one launch; None if unknown."""
    visits: int = 1
    """Number of remaining visits."""
    beside_s: float = OVERHEAD_S
    """Wall seconds of each visit beside its sampling and the launches that set it up."""
    first_s: float = 0.0
    """Wall seconds once, if the first visit is among them: compiling and tuning."""
    expected_s: float | None = None
    """Wall seconds that each visit is expected to sample, settling included; None: as long as its limit."""

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
    """The cases that run, and those that are skipped."""

    sampling_s: dict[str, float]
    """Key of a case that runs -> seconds that a visit may sample."""
    skipped: dict[str, str]
    """Key of a skipped case -> the reason."""
    total_s: float
    """Expected wall seconds of all visits."""
    visits: int
    """Number of all visits."""


def launch_limit_s(budget_s: float | None) -> float:
    """Seconds that one launch may take in a run of this budget."""
    return 10.0 if budget_s is None else budget_s * LAUNCH_SHARE


def schedule(
    jobs: Sequence[Job], left_s: float | None, budget_s: float | None, sampling: Range = ONE_VISIT["cpu"]
) -> Schedule:
    """Share `left_s` seconds (None: no limit) among jobs in the order they will run.

    `budget_s` is the whole run's; `sampling` the range for the limit of a visit. A job gets room for all of
    its visits or for none. Room is reserved by the jobs' expected costs; a job without an expectation is
    taken to sample up to its limit.
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
            cost_s = job.cost_s(least_s)
            if spent_s + cost_s <= left_s:  # a cheaper one may still fit after one that does not
                spent_s += cost_s
                kept.append(job)
            else:
                skipped[job.key] = f"left out: the budget of {budget_s:g} s has no room for it"
        chosen = kept
        base_s = _largest_base(chosen, left_s, least_s, most_s)
    if budget_s is not None:
        most_s = min(most_s, max(least_s, SAMPLING_SHARE * budget_s))
    limits_s = {job.key: job.limit_s(base_s if job.expected_s is None else most_s) for job in chosen}
    total_s, visits = _cost_s(chosen)(base_s), sum(job.visits for job in chosen)
    return Schedule(limits_s, skipped, total_s, visits)


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


class Place(NamedTuple):
    """The place of a case among others, for choosing an even spread."""

    sweep: str
    kind: Hashable
    """Everything it computes but for the numbers: operator, implementation, data type, layout, direction."""
    line: Hashable
    """The line of its sweep's plot."""
    implementation: str = ""
    cost_s: float = 1.0
    """Expected wall seconds; equal for all if nothing is known."""


DEAR = 1.5
"""A case is dear if it costs more than this many times as much as a cheap one."""
CHEAP = 0.1
"""Share of the cases that cost no more than a cheap one."""
DEAR_SHARE = 1 / 6
"""Share of the time that dear cases get at first while there are others (BREADTH_S); afterwards half.

Otherwise dear cases would fill a short run: where a visit takes 0.3 s, tuning a kernel or settling at the
power limit takes 0.5 to 2 s more, for more than half of all cases. With a sixth, ten minutes on an H100 are
some 1,500 cases, few of which are tuned; with half, some 900.
"""
BREADTH_S = 500.0
"""Wall seconds of cases after which dear ones get half of the time: the others have had a round by then."""


def order(places: Sequence[Place]) -> list[int]:
    """The cases as indices, in the order that leaves an even spread whenever time runs out.

    First comes one case of every sweep. Then cheap and dear cases stand in two queues, which share the time
    (DEAR_SHARE, then equally). Among the cheap every sweep gets the same time, and within a sweep every
    implementation; among the dear it is the other way round, since there is time for few of each sweep.
    Within one sweep and implementation, cases of an earlier round (see `rounds`) come first.
    """
    costs_s, turns = [place.cost_s for place in places], rounds(places)
    first: dict[str, int] = {}
    for index, place in enumerate(places):
        before = first.setdefault(place.sweep, index)
        if _opens_with(turns[index], costs_s[index]) < _opens_with(turns[before], costs_s[before]):
            first[place.sweep] = index
    dear_s = DEAR * float(np.quantile(costs_s, CHEAP)) if costs_s else 0.0
    had_s = [0.0, 0.0]
    cheap: dict[tuple[str, str], list[int]] = {}
    dear: dict[tuple[str, str], list[int]] = {}
    for index in sorted(range(len(places)), key=lambda index: (turns[index], index)):
        place, is_dear = places[index], costs_s[index] > dear_s
        if first[place.sweep] == index:
            had_s[is_dear] += costs_s[index]
        elif is_dear:
            dear.setdefault((place.implementation, place.sweep), []).append(index)
        else:
            cheap.setdefault((place.sweep, place.implementation), []).append(index)
    queues = [_fair(cheap, costs_s), _fair(dear, costs_s)]
    merged = _taking_turns(queues, costs_s, (1 - DEAR_SHARE, DEAR_SHARE), had_s)
    spent_s = itertools.accumulate((costs_s[index] for index in merged), initial=sum(had_s))
    early = merged[: sum(total_s < BREADTH_S for total_s in spent_s)]
    chosen = set(early)
    late = _taking_turns([[index for index in queue if index not in chosen] for queue in queues], costs_s)
    return [*first.values(), *early, *late]


def _opens_with(turn: int, cost_s: float) -> tuple[bool, float, int]:
    """Sort key: a sweep opens with the cheapest of its lines' middles and ends, at equal cost a middle."""
    return turn > 1, cost_s, turn


def _fair(queues: Mapping[tuple[str, str], Sequence[int]], costs_s: Sequence[float]) -> list[int]:
    """Merge the queues of pairs: the pairs' first names take turns by time, and within each the second."""
    grouped: dict[str, list[Sequence[int]]] = {}
    for (group, _), queue in queues.items():
        grouped.setdefault(group, []).append(queue)
    return _taking_turns([_taking_turns(group, costs_s) for group in grouped.values()], costs_s)


def _taking_turns(
    queues: Sequence[Sequence[int]],
    costs_s: Sequence[float],
    shares: Sequence[float] | None = None,
    had_s: Sequence[float] | None = None,
) -> list[int]:
    """Merge queues: the next index is always of the queue that has had the least time for its share.

    `had_s` is the time that each has had before. At a tie the first queue is next; an empty queue leaves its
    time to the others.
    """
    shares, had_s = shares or [1.0] * len(queues), had_s or [0.0] * len(queues)
    waiting = [(had_s[place] / shares[place], place) for place, queue in enumerate(queues) if queue]
    heapq.heapify(waiting)
    at, merged = [0] * len(queues), []
    while waiting:
        until_now_s, place = heapq.heappop(waiting)
        index = queues[place][at[place]]
        merged.append(index)
        at[place] += 1
        if at[place] < len(queues[place]):
            heapq.heappush(waiting, (until_now_s + costs_s[index] / shares[place], place))
    return merged


def rounds(places: Sequence[Place]) -> list[int]:
    """The round in which each case runs.

    A line gives one case to each round: its middle, then both ends, then the middles of its widest gaps. The
    first line of each kind and of each sweep begins in round 0, the next of the same kind a round later, and
    so on. Lines of a single case count as one line if they are of one kind: the sweep wrote each point as a
    block, for instance where rows shrink while columns grow.
    """
    points = Counter((place.sweep, place.line) for place in places)
    members: dict[tuple[str, Hashable], list[int]] = {}
    for index, place in enumerate(places):
        line = place.line if points[place.sweep, place.line] > 1 else ("points", place.kind)
        members.setdefault((place.sweep, line), []).append(index)
    numbers = [0] * len(places)
    lines_of_kind: Counter[Hashable] = Counter()
    seen: set[str] = set()
    for indices in members.values():
        place = places[indices[0]]
        late = lines_of_kind[place.kind] if place.sweep in seen else 0
        lines_of_kind[place.kind] += 1
        seen.add(place.sweep)
        for index, turn in zip(indices, _turns(len(indices)), strict=True):
            numbers[index] = late + turn
    return numbers


def _turns(count: int) -> list[int]:
    """The turn of each of `count` points on a line: first the middle, the ends, then middles of wide gaps."""
    turns = [1] * count
    turns[count // 2] = 0
    chosen = sorted({0, count // 2, count - 1})
    for turn in range(len(chosen), count):
        gap, left = max((b - a, -a) for a, b in itertools.pairwise(chosen))
        middle = -left + gap // 2
        turns[middle] = turn - 1  # middle and ends took rounds 0 and 1
        chosen = sorted([*chosen, middle])
    return turns
