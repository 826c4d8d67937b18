"""What a run measures whole or not at all: the cases that a claim compares, and the lines of the plots.

A comparison is the pairs, lines or edges of one claim, a few more than it needs for a verdict, with those
that are compared next to each other; or evenly spread points of one line of a plot, ends included; or a whole
line. A case may stand in several. Sweeps take turns, claims before lines.

What is known of a case before it is measured comes from the datasheet; of a CPU, which has none, it is
assumed. It chooses among cases, and decides nothing else.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from itertools import zip_longest
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from bench.errors import UserError
from bench.judge.claim_rows import ERRORS, case_rows, holds
from bench.judge.claim_tests import observed
from bench.judge.columns import Columns, Places, Texts
from bench.model.roofline import LINK, WITHOUT_ROOF, datasheet_s
from bench.runner.limits import impossible
from bench.store.schema import RunKey
from bench.sweep.claims import SHARES, Claim, Ratio

if TYPE_CHECKING:
    from bench.device.datasheet import Datasheet
    from bench.device.detect import Device
    from bench.spec import DeviceKind, Problem
    from bench.sweep.load import Case, Loaded
    from bench.sweep.suites import Entry, LoadedSuite

T = TypeVar("T")
Claims = Mapping[str, Sequence[Claim]]
"""Sweep -> its claims."""

SPARE: Mapping[DeviceKind, float] = {"cpu": 1.5, "cuda": 1.25}
"""Clusters that are measured for each that a claim needs: flags make some rows suspect, more of a CPU's."""
POINTS = 8
"""Points of a line that show its course."""
ENOUGH = {"slope": 5, "jumps": 5, "knee": POINTS}
"""Test of a claim -> points of a line, or of a column of tiles, that are enough; else all are needed."""
CPU_FLOP_PER_S, CPU_BYTE_PER_S = 1e11, 1e10
"""What a CPU is taken to reach before its ceilings are measured, to choose among cases and for nothing else:
the committed CPU runs have 35 to 1,400 GFLOP/s, by data type, and 8 to 20 GB/s on two cores."""
LAUNCH_S, LINK_BYTE_PER_S = 2e-6, 25e9
"""The same of a launch (1.0 to 2.3 us are fitted to nine GPUs' public timings) and of the link to the host
(PCIe 4.0 x16 carries 31.5 in each direction)."""
VISIT_S, LAUNCHES = 0.6, 16
"""Seconds that a visit is taken to last however small its case, and launches that it makes however large."""
ALIKE = 1.1
"""Costs that are no farther apart than this factor are taken to be alike."""
EXPECTED = ["median_s", "ridge", "launch_s"]
UNSURE = {False: ([1 / 8, 1 / 4, 1.0], [1 / 8, 4.0, 1.0]), True: ([1.0, 0.7, 1.5], [1.0, 1.15, 1.5])}
"""Whether a device has a datasheet -> how far off what is expected of it may be: times the time, the ridge,
and the launch floor. None is faster than its datasheet, but it may reach less of its arithmetic than of its
memory, or the reverse."""


@dataclass(frozen=True)
class CaseGroup:
    """Cases that are measured whole or not at all, in the order of their visits."""

    cases: tuple[Case, ...]
    claim: Claim | None = None
    """The claim that they decide; None of a line."""

    @property
    def sweep(self) -> str:
        """The sweep that they are of."""
        return self.cases[0].sweep

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """The keys of its cases, in order."""
        return tuple(case.key for case in self.cases)


def comparisons(cases: Sequence[Case], claims: Claims, device: Device) -> list[CaseGroup]:
    """Every comparison among these cases, in the order in which they should be measured."""
    queues = [_of_sweep(of, claims.get(of[0].sweep, ()), device) for of in _alike(cases, "sweep")]
    return [each for turn in zip_longest(*queues) for each in turn if each is not None]


def cases_of_suite(suite: LoadedSuite, device: Device) -> list[Case]:
    """The ceilings, and the cases of a suite for one device. UserError if a selection holds for no case."""
    kept: set[str] = set()
    applicable = [each for each in suite.taken if each[0].device.include(device.kind, device.capability)]
    needed = {name for _, names, _ in applicable for name in names}
    rows = {each.name: expected_rows(each.cases, device) for each in suite.loaded if each.name in needed}
    for entry, names, place in applicable:
        every = [each for each in suite.loaded if each.name in names]
        held = {each.name: np.flatnonzero(holds(rows[each.name], entry.where)) for each in every}
        if not any(map(len, held.values())):
            raise UserError(f"{place}: where holds for no case of {', '.join(sorted(names))}")
        for each in every:
            kept |= {case.key for case in _narrowed(each, held[each.name], entry, device, rows[each.name])}
    cases = [case for each in suite.loaded for case in each.cases]
    return [case for case in cases if case.sweep in suite.ceilings or case.key in kept]


def _narrowed(loaded: Loaded, held: Places, entry: Entry, device: Device, rows: Columns) -> Iterable[Case]:
    """The cases that an entry takes of a sweep, of those at the places that its selection names."""
    if not (entry.claims or entry.points):
        return [loaded.cases[place] for place in held]
    places = [place for place in held if impossible(loaded.cases[place], device) is None]
    able = [loaded.cases[place] for place in places]
    if entry.claims:
        wanted = filter(entry.wants, loaded.sweep.claims)
        decided = decisive(able, wanted, device, rows.at(np.array(places, dtype=np.intp)))
        return [case for each in decided for case in each.cases]
    lines = _alike(able, "series")
    return [case for line in lines for case in evenly(line, entry.points or len(line))]


def _of_sweep(cases: Sequence[Case], claims: Sequence[Claim], device: Device) -> Iterator[CaseGroup]:
    """The groups of one sweep: of its claims, of the course of its lines, and of the rest of the lines."""
    if claims:
        yield from decisive(cases, claims, device, expected_rows(cases, device))
    lines = _alike(cases, "series")  # those of the sweep's plot
    yield from (CaseGroup(tuple(evenly(line, POINTS))) for line in lines)
    yield from (CaseGroup(tuple(line)) for line in lines if len(line) > POINTS)


def decisive(
    cases: Sequence[Case], claims: Iterable[Claim], device: Device, rows: Columns
) -> Iterator[CaseGroup]:
    """The cases of one sweep that decide its claims, claim by claim; none of one that they cannot decide.

    `rows`: what is expected of each of them.
    """
    by_key = {case.key: case for case in cases}
    applicable = [claim for claim in claims if claim.device.include(device.kind, device.capability)]
    if not (applicable and cases):
        return
    # The rows of a device that has so many times what is expected.
    others = [
        rows.changed({name: times * rows[name] for name, times in zip(EXPECTED, off, strict=True)})
        for off in UNSURE[device.datasheet is not None]
    ]
    costs_s = dict(zip(rows["key"].tolist(), VISIT_S + LAUNCHES * rows["median_s"], strict=True))
    taken = set[str]()

    def cost_s(key: str) -> float:
        return 0.0 if key in taken else costs_s[key]  # another claim had better use what is there

    for claim in applicable:
        wanted = holds(rows, claim.where)
        # What holds however fast the device turns out to be is best.
        sure = np.logical_and.reduce([wanted, *(holds(each, claim.where) for each in others)])
        count = math.ceil(SPARE[device.kind] * claim.least)
        keys = _needed(claim, rows.at(sure), cost_s, count)
        if not keys and (sure != wanted).any():
            keys = _needed(claim, rows.at(wanted), cost_s, count)
        if keys:
            taken |= {*keys}
            yield CaseGroup(tuple(by_key[key] for key in keys), claim)


def _alike(cases: Iterable[Case], name: str) -> list[list[Case]]:
    """The cases of each value of this attribute."""
    values: dict[Hashable, list[Case]] = {}
    for case in cases:
        values.setdefault(getattr(case, name), []).append(case)
    return list(values.values())


def evenly(line: Sequence[T], count: int) -> list[T]:
    """`count` elements of the line, evenly spread, with the first and the last."""
    if len(line) <= count:
        return list(line)
    return [line[round(place)] for place in np.linspace(0, len(line) - 1, count)]


def _needed(claim: Claim, rows: Columns, cost_s: Callable[[str], float], count: int) -> list[str]:
    """Keys of the cases of so many clusters that decide a claim, those that are compared next to each other.

    None if there are too few for a verdict.

    What is taken is drawn: a regular choice could meet the same data type, or remainder, each time.
    """
    name, test = claim.test
    chance = random.Random(0)
    keys: dict[str, None] = {}
    for part in (test, test.less) if isinstance(test, Ratio) and test.less else (test,):
        clusters: dict[Hashable, list[tuple[str, ...]]] = {}
        seen = observed(name, part, rows, np.arange(rows.count))
        of_rows = seen.split(rows["key"].objects())
        for cluster, keys_of_one in zip(seen.cluster, of_rows, strict=True):
            clusters.setdefault(cluster, []).append(tuple(keys_of_one))
        if len(clusters) < claim.least:
            return []
        # More rows that are compared with the same one would be no further evidence.
        members = map(chance.choice, clusters.values())
        compared = [evenly(each, ENOUGH.get(name, len(each))) for each in members]
        for place in _affordable([sum(map(cost_s, each)) for each in compared], count, chance):
            keys |= dict.fromkeys(compared[place])
    return list(keys)


def _affordable(costs_s: Sequence[float], count: int, chance: random.Random) -> list[int]:
    """The places of so many clusters: those that cost nothing more, then some of the cheaper half.

    What costs hardly more than that half counts with it: on a GPU nearly all does, and the smallest cases
    alone, which are little more than a launch, would tell nothing of the others.
    """
    places = sorted(range(len(costs_s)), key=costs_s.__getitem__)
    chosen = [place for place in places if costs_s[place] == 0.0][:count]
    others = places[len(chosen) :]
    half = max(count - len(chosen), len(others) // 2)
    most_s = ALIKE * max((costs_s[place] for place in others[:half]), default=0.0)
    others = [place for place in others if costs_s[place] <= most_s]
    return sorted([*chosen, *chance.sample(others, min(count - len(chosen), len(others)))])


def expected_rows(cases: Sequence[Case], device: Device) -> Columns:
    """The cases as rows for `bench.judge.claim_tests`, with the times and roofs that are expected of them."""
    rows = case_rows(cases, device.sm_count)
    terms = cache(partial(_terms, sheet=device.datasheet))  # several cases solve the same problem
    memory_s, compute_s = np.array([terms(case.problem) for case in cases]).reshape(-1, 2).T
    with np.errstate(divide="ignore", invalid="ignore"):
        intensity = rows["flop"] / rows["byte"]
    ridge = np.full(len(cases), math.inf)
    np.divide(intensity * memory_s, compute_s, out=ridge, where=compute_s > 0)
    same = {
        "launch_s": LAUNCH_S,
        "cache_byte": device.cache_byte,
        "peak_byte": 1,  # of what counts its memory
        **dict.fromkeys(SHARES, 0.5),  # of a time that is divided into classes
        **dict.fromkeys(ERRORS, 0.0),
    }
    return rows.changed({
        **{name: np.full(len(cases), value) for name, value in same.items()},
        **dict.fromkeys(RunKey._fields, Texts(np.zeros(len(cases), dtype=np.intp), [""])),
        "memory_s": memory_s,
        "compute_s": compute_s,
        "formula_s": compute_s,  # at the clock that the datasheet states
        "median_s": LAUNCH_S + np.fmax(memory_s, compute_s),
        "intensity": intensity,
        "ridge": ridge,
    })  # fmt: skip


def _terms(problem: Problem, sheet: Datasheet | None) -> tuple[float, float]:
    """Expected seconds of a problem's memory traffic, and of its arithmetic."""
    if sheet is None:
        return problem.byte / CPU_BYTE_PER_S, problem.flop / CPU_FLOP_PER_S
    if problem.arithmetic == LINK:
        return problem.byte / LINK_BYTE_PER_S, 0.0
    if problem.arithmetic in WITHOUT_ROOF:
        return math.nan, 0.0
    of = (problem.arithmetic, problem.dtype, sheet)
    seconds = datasheet_s(0, problem.byte, *of), datasheet_s(problem.flop, 0, *of)
    return seconds[0] or math.nan, seconds[1] or 0.0
