"""Forecast of a run: the cost of its visits and how many the budget allows, updated while the run goes on.

Only this module turns cases into priced jobs. The planner asks it while the run goes on; for a device that is
not here it forecasts from the datasheet alone (`python -m bench list --on h100_sxm5 --suite core`).
"""

from __future__ import annotations

import math
from collections.abc import Container, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from types import MappingProxyType
from typing import Any, NamedTuple

from bench.device.datasheet import Datasheet
from bench.device.detect import Device
from bench.errors import UserError
from bench.model.ceilings import Ceilings
from bench.model.roofline import LINK, calibrated, datasheet_s, traffic
from bench.runner.price import ASSUMED, LearnedPrices, Price, PricedWork, price
from bench.runner.schedule import ONE_VISIT, ROOF_TIMED_S, SEVERAL_VISITS, Job, SamplingLimits, schedule
from bench.sampling.protocol import Protocol
from bench.spec import DeviceKind, Problem
from bench.sweep.load import Case
from bench.sweep.suites import Suite

BUDGET_S: Mapping[DeviceKind, float] = {"cpu": 120.0, "cuda": 600.0}
"""Default budget of a run without a suite, wall seconds."""
ROOF_S: Mapping[DeviceKind, SamplingLimits] = {
    "cpu": SamplingLimits(0.6, 0.6),
    "cuda": SamplingLimits(0.6, 3.0),
}
"""Seconds that a visit to a roof may sample, settling included."""
PROBE_S: Mapping[DeviceKind, float] = {"cpu": 0.2, "cuda": 0.3}
"""Seconds that a visit to a probe, which bounds nothing, may sample, settling included."""
CEILING_SHARE = 0.16
"""Share of a GPU's budget for all visits to ceilings, unless their least sampling takes more."""
SHORT = 6.0
"""Times the expected seconds of the first visits to ceilings: a run that has less is short."""
MARGIN = 1.2
"""Times the expected seconds of the other cases: ceilings leave so much for them."""
CEILINGS_MOST = 0.5
"""Largest share of any budget for all visits to ceilings, where there are other cases: these come first."""
PROBE_SHARE = 0.06
"""Share of a GPU's budget for probes, part of CEILING_SHARE; probes without room are left out, evenly."""
AGAIN = 0.3
"""Cost of building and checking a roof again, as a share of the first time: its memory is touched by then."""
SENTINEL_LOOKS = 6
"""Visits to sentinels during a run: two sentinels, three times each (bench/runner/planner.py)."""


def again_s(beside_s: float, sampled_s: float) -> float:
    """Wall seconds of another visit to a roof, from its first one's without sampling, and of sampling."""
    return AGAIN * beside_s + sampled_s


def case_traffic(case: Case, device: Device) -> tuple[float, float]:
    """(bytes that reach memory at least, share of them that are written, 0 to 1) of one launch."""
    problem, name = case.problem, case.implementation
    moved, again = problem.byte_moved(name), problem.byte_again(name)
    byte, share = traffic(moved, again, problem.moved_written(name), device.cache_byte)
    return float(byte), float(share)


def predicted_s(case: Case, device: Device, ceilings: Ceilings) -> float | None:
    """Calibrated lower bound on the seconds of one launch; None if a ceiling is missing."""
    problem, name = case.problem, case.implementation
    moved = problem.byte_moved(name)
    beside = (problem.byte_beside(name) or 0) / moved if moved else 0.0
    units = (problem.arithmetic, problem.dtype)
    roof = calibrated(problem.flop, *case_traffic(case, device), *units, ceilings, beside)
    return roof.seconds if roof else None


def stated_s(problem: Problem, sheet: Datasheet | None) -> float | None:
    """Seconds of one launch on top of its floor, by the datasheet; over the link to the host, as assumed.

    None without a datasheet, or where it lacks a number.
    """
    if problem.arithmetic == LINK:
        return problem.byte * ASSUMED["link_byte_s"].value
    return datasheet_s(problem.flop, problem.byte, problem.arithmetic, problem.dtype, sheet)


def impossible(case: Case, device: Device) -> dict[str, Any] | None:
    """Status and reason of a case that the device cannot run however much time there is; None if it can."""
    if reason := case.missing(device.kind, device.capability):
        return {"status": "unsupported", "reason": reason}
    if case.problem.byte > device.memory_byte:
        need, have = case.problem.byte / 1e9, device.memory_byte / 1e9
        return {"status": "skipped", "reason": f"needs {need:.0f} GB; {device} has {have:.0f} GB"}
    return None


def budget_s(given: str | None, kind: DeviceKind, suite: Suite | None = None) -> float | None:
    """Wall seconds that --bench-budget gives, None for no limit; UserError if it is no positive number.

    Without one those of the suite, or BUDGET_S.
    """
    if given is None:
        return BUDGET_S[kind] if suite is None else suite.limit_s(kind)
    try:
        seconds = float(given)
    except ValueError:
        seconds = math.nan
    if not seconds > 0:
        raise UserError(f"--bench-budget {given}: give seconds, more than 0, or inf for no limit")
    return None if math.isinf(seconds) else seconds


class Tally(NamedTuple):
    """Numbers of cases and of their sweeps, and the wall seconds that the cases are expected to take."""

    cases: int
    sweeps: int
    seconds: float

    @classmethod
    def of(cls, cases: Sequence[Case], seconds: float) -> Tally:
        """These cases, which take so many seconds in all."""
        return cls(len(cases), len({case.sweep for case in cases}), seconds)


@dataclass(frozen=True)
class Forecast:
    """The expected extent and duration of a run, with ceilings counted apart."""

    planned: Tally
    """The cases for which there is room."""
    possible: Tally
    """All cases, without a budget."""
    ceilings: Tally
    """The ceilings, with all visits to them."""
    keys: frozenset[str]
    """Keys of the cases that are planned."""
    start_s: float
    """Wall seconds before the first ceiling."""

    @property
    def seconds(self) -> float:
        """Wall seconds of the run."""
        return self.start_s + self.ceilings.seconds + self.planned.seconds

    @property
    def all_s(self) -> float:
        """Wall seconds without a budget."""
        return self.start_s + self.ceilings.seconds + self.possible.seconds


class Prices:
    """Expected costs of the cases of one run on one device, corrected by the costs of its visits."""

    def __init__(self, device: Device, settings: Protocol, budget_s: float | None) -> None:
        """`budget_s` is the whole run's; None for no limit."""
        self.device, self.settings, self.budget_s = device, settings, budget_s
        several = settings.visits > 1
        self.sampling = (SEVERAL_VISITS if several else ONE_VISIT)[device.kind]
        self._roof_s = ROOF_S[device.kind].most_s
        self.left_out: set[str] = set()
        """Keys of the ceilings that the budget has no room for."""
        self.is_short = False
        """Whether cases come before their ceilings, after which there might be no time for them."""
        self.ceilings_most_s = math.inf
        """Wall seconds that ceilings may take."""
        self._besides, self._samplings = LearnedPrices(), LearnedPrices()
        self._paid: set[Hashable] = set()
        """Kinds of cases that were visited at least once."""
        self._is_hot = False
        """Whether the last visit was bound by power, so that the clock has fallen."""
        self._known: dict[str, tuple[Hashable, PricedWork, Price]] = {}

    # ---- ceilings

    def limit_ceilings(self, cases: Iterable[Case], spent_s: float = ASSUMED["start_s"].value) -> None:
        """Make the ceilings among these cases, the first of them first, fit into their share of the budget.

        `spent_s` are over. Of a GPU, roofs are sampled for less: with ten minutes long enough to settle once,
        with more as long as they want. Ceilings for which there is no room are `left_out`; second visits are
        made as far as there is time.
        """
        self.left_out, self.is_short = set(), False
        if self.budget_s is None:
            return
        able = [case for case in cases if self._is_possible(case)]
        ceilings = [case for case in able if case.role != "measurement"]
        if self.device.kind == "cuda":
            self._limit_on_gpu(ceilings, self.budget_s)
        share_s = left_s = max(0.0, self.budget_s - spent_s)
        asked_s = self.settings.visits * sum(
            self.visit_s(case) for case in able if case.role == "measurement"
        )
        if asked_s:
            self.is_short = left_s < SHORT * sum(map(self.ceiling_cost_s, ceilings))
            share_s = max(left_s - MARGIN * asked_s, CEILINGS_MOST * left_s)
            share_s = min(CEILINGS_MOST * self.budget_s, share_s)
        spent_s = 0.0
        for case in ceilings:
            cost_s = self.ceiling_cost_s(case)
            if case.key not in self.left_out and spent_s + cost_s <= share_s:
                spent_s += cost_s
            else:
                self.left_out.add(case.key)
        self.ceilings_most_s = share_s

    def _limit_on_gpu(self, ceilings: Sequence[Case], budget_s: float) -> None:
        probes_s, sweeps = 0.0, dict[str, list[Case]]()
        for case in ceilings:
            if case.role != "roof":
                sweeps.setdefault(case.sweep, []).append(case)
        for case in interleaved(sweeps.values()):
            cost_s = self.ceiling_cost_s(case)
            if probes_s + cost_s <= PROBE_SHARE * budget_s:
                probes_s += cost_s
            else:
                self.left_out.add(case.key)
        looks = SENTINEL_LOOKS + 2 * sum(case.role == "roof" for case in ceilings)
        share_s = (CEILING_SHARE * budget_s - probes_s) / looks
        least_s, most_s = ROOF_S["cuda"]
        self._roof_s = min(most_s, max(least_s, share_s))

    def _is_possible(self, case: Case) -> bool:
        return impossible(case, self.device) is None

    def ceiling_s(self, case: Case) -> float:
        """Seconds that a visit to this ceiling may sample, settling included.

        A roof bound by power may settle as long as any case: unsettled it would be too high.
        """
        if case.role != "roof":
            return PROBE_S[self.device.kind]
        *_, priced = self.known(case)
        return self._roof_s if priced.again_s is None else max(self._roof_s, self.sampling.most_s)

    def ceiling_cost_s(self, case: Case) -> float:
        """Expected wall seconds of the first visit to a ceiling."""
        return sum(self._ceiling_parts_s(case))

    def ceiling_again_s(self, case: Case) -> float:
        """Expected wall seconds of another visit to it."""
        return again_s(*self._ceiling_parts_s(case))

    def _ceiling_parts_s(self, case: Case) -> tuple[float, float]:
        """Expected wall seconds of the first visit to a ceiling: (without sampling, of sampling)."""
        *_, work, priced = self.known(case)
        sampling_s, expected_s = self.ceiling_s(case), priced.after(is_hot=True)  # they follow each other
        if expected_s is not None:
            more_s = 0.0 if case.role != "roof" else ROOF_TIMED_S - self.settings.least_timed_s
            sampling_s = min(sampling_s, expected_s + more_s)
        return priced.kind_s + priced.first_s + priced.beside_s + 4 * (work.launch_s or 0.0), sampling_s

    # ---- the other cases

    def jobs(self, cases: Iterable[tuple[Case, float | None, int]]) -> list[Job]:
        """Jobs for the remaining visits of (case, predicted seconds of a launch, visits made).

        Prices are those learned so far. The first case of a kind pays for what all of its kind share, unless
        an earlier visit has. Without a prediction the datasheet's time is taken.
        """
        besides, samplings = self._besides.shares(), self._samplings.shares()
        paid, is_hot = set(self._paid), self._is_hot
        jobs = []
        for case, launch_s, made in cases:
            kind, work, priced = self.known(case)
            sort = _sort(case, made == 0)
            sampling_s, is_hot = priced.after(is_hot), priced.again_s is not None
            first_s = 0.0 if made else priced.first_s + (kind not in paid) * priced.kind_s
            paid.add(kind)
            jobs.append(
                Job(
                    case.key,
                    work.launch_s if launch_s is None else launch_s,
                    self.settings.visits - made,
                    besides(sort) * priced.beside_s,
                    besides(sort) * first_s,
                    None if sampling_s is None else samplings(sort) * sampling_s,
                    bound_by_power=priced.again_s is not None,
                )
            )
        return jobs

    def visited(self, case: Case, first: bool, beside_s: float, sampling_s: float | None) -> None:
        """Learn from a visit: wall seconds without sampling, and of sampling (None: it did not sample)."""
        kind, _, priced = self.known(case)
        sort = _sort(case, first)
        expected_s = priced.beside_s + first * (priced.first_s + (kind not in self._paid) * priced.kind_s)
        self._paid.add(kind)
        self._besides.visited(sort, expected_s, beside_s)
        expected_sampling_s, self._is_hot = priced.after(self._is_hot), priced.again_s is not None
        if sampling_s is not None and expected_sampling_s is not None:
            self._samplings.visited(sort, expected_sampling_s, sampling_s)

    def visit_s(self, case: Case) -> float:
        """Expected wall seconds of a first visit to this case, as short as possible."""
        *_, work, priced = self.known(case)
        job = Job("", work.launch_s, 1, priced.beside_s, priced.first_s, priced.sampling_s)
        return job.cost_s(self.sampling.least_s)

    def forecast(
        self,
        cases: Sequence[Case],
        launch_s: Mapping[str, float | None] = MappingProxyType({}),
        left_s: float | None = None,
        comparisons: Sequence[Sequence[str]] = (),
        start_s: float = ASSUMED["start_s"].value,
    ) -> Forecast:
        """The forecast of a run over these cases, in this order, without those that the device cannot run.

        `launch_s`: predictions by key, better than the datasheet's. `left_s`: seconds of the budget that are
        left for these cases; None before the run has begun. `comparisons`: keys of cases that are measured
        all or none. `start_s`: wall seconds before the first ceiling.
        """
        cases = [case for case in cases if case.key not in self.left_out and self._is_possible(case)]
        ceilings = [case for case in cases if case.role != "measurement"]
        others = [case for case in cases if case.role == "measurement"]
        ceilings_s = min(self.ceilings_most_s, self._ceilings_cost_s(ceilings, len(others)))
        of_ceilings = Tally.of(ceilings, ceilings_s)
        if left_s is None and self.budget_s is not None:
            left_s = max(0.0, self.budget_s - start_s - of_ceilings.seconds)
        jobs = self.jobs((case, launch_s.get(case.key), 0) for case in others)
        planned = schedule(jobs, left_s, self.budget_s, self.sampling, comparisons).sampling_s
        costs = [
            (case, job.cost_s(planned.get(job.key, self.sampling.most_s)), job.cost_s(self.sampling.most_s))
            for case, job in zip(others, jobs, strict=True)
        ]
        return Forecast(*_tallies(costs, planned), of_ceilings, frozenset(planned), start_s)

    def _ceilings_cost_s(self, ceilings: Sequence[Case], others: int) -> float:
        """Wall seconds of all visits to these ceilings, between which there are so many other cases."""
        first_s = sum(self.ceiling_cost_s(case) for case in ceilings)
        roofs = [case for case in ceilings if case.role == "roof"]
        between = max(0, self.settings.visits * others - 1)
        looks = 1 + min(SENTINEL_LOOKS, 2 * between) / max(SENTINEL_LOOKS, len(roofs))
        return first_s + looks * sum(map(self.ceiling_again_s, roofs))

    def known(self, case: Case) -> tuple[Hashable, PricedWork, Price]:
        """Kind, work and price of a case, which do not change: made once."""
        if case.key not in self._known:
            work = _work(case, self.device)
            priced = price(work, self.device.kind, self.device.cache_byte, self.settings)
            self._known[case.key] = kind_of(case), work, priced
        return self._known[case.key]


def _work(case: Case, device: Device) -> PricedWork:
    problem, sheet = case.problem, device.datasheet
    least_s = stated_s(problem, sheet)
    peak = sheet.peak_flop_per_s(problem.arithmetic, problem.dtype) if sheet else None
    return PricedWork(
        case.implementation,
        problem.byte,
        case.cache == "cold",
        None if least_s is None else ASSUMED["launch_s"].value + least_s,
        problem.flop / peak if peak else 0.0,
        renews=case.divided,  # by a profiler, after which a worker measures no more
        multiplies=problem.arithmetic == "matrix",
        chooses=case.role == "measurement",
        autotunes="its templates" in problem.implementation(case.implementation).summary,
    )


def _sort(case: Case, first: bool) -> Hashable:
    """Sort of a visit: prices of visits of one sort are wrong by a similar factor."""
    return case.problem.operator, case.implementation, first


def kind_of(case: Case) -> Hashable:
    """Kind of a case: everything it computes but for the numbers."""
    words = {k: v for k, v in case.problem.parameters().items() if isinstance(v, str | bool)}
    return case.problem.operator, case.implementation, case.cache, case.threads, tuple(words.items())


def interleaved(queues: Iterable[Sequence[Case]]) -> Iterator[Case]:
    """The cases of all queues, which take turns, so that a cut at the end leaves out each of them evenly."""
    return (case for turn in zip_longest(*queues) for case in turn if case is not None)


def _tallies(costs: Sequence[tuple[Case, float, float]], planned: Container[str]) -> tuple[Tally, Tally]:
    """(planned, possible) of (case, wall seconds as planned, wall seconds without a budget)."""
    now = [each for each in costs if each[0].key in planned]
    return (
        Tally.of([case for case, *_ in now], sum(cost_s for _, cost_s, _ in now)),
        Tally.of([case for case, *_ in costs], sum(cost_s for *_, cost_s in costs)),
    )
