"""Planner of a run: which case is visited next, and for how long. Pure: no pytest, no worker, no clock.

A planner knows the cases, the rows of the visits made and their cost; callers pass the elapsed seconds.
Ceilings are visited first; in a short run after the first visits of the cases. These are made comparison by
comparison (comparisons.py), as far as there is time: one that was started is completed. Each further round of
visits has an order of its own, drawn from the run's seed: a drift affects all alike, and the visits of one
case lie far apart, while cases that are compared stay next to each other, every other round in reverse. Cases
that need more visits (rows.py) get them in further rounds. After each quarter of the run's time, of a GPU's
short run halfway, the ceilings that serve as sentinels are visited again: with the visits at the ends that is
enough to see a drift (studies/interval_coverage.py). Last of all come the roofs again, since a roof is the
best that was reached at either end of the run.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bench.device.detect import Device
from bench.model.ceilings import Ceilings, condition
from bench.runner.comparisons import CaseGroup
from bench.runner.failure_limit import FailureLimit
from bench.runner.forecast import CEILINGS_MOST, Forecast, Prices, again_s, impossible, predicted_s
from bench.runner.merge_visits import SEED, wants_another
from bench.runner.price import ASSUMED
from bench.runner.schedule import Job, Schedule, launch_limit_s, schedule
from bench.sampling.protocol import Protocol
from bench.store.schema import Measurement
from bench.sweep.load import Case

LOOKS = (0.25, 0.5, 0.75)
"""Shares of the run after which the sentinels are visited."""
SHORT_S = 300.0
"""A GPU's run of less is looked at only halfway: the clock must settle for 3 s for each look at a product."""
LATEST = 1.05
"""Times the budget: no visit begins that is expected to end later."""
REPLAN = 8
"""Visits between two schedules of the time that is left."""


@dataclass(frozen=True)
class NextVisit:
    """The next visit to a case."""

    case: Case
    number: int
    """Number of visits before this one."""
    refusal: Mapping[str, Any] | None
    """Columns status and reason if the worker gets no request; None if it does."""
    sampling_s: float = 0.0
    """Wall seconds that the visit may sample, settling included."""
    is_first: bool = True
    """Whether its result has not been checked yet."""


class Planner:
    """Chooses the visits of one run on one device."""

    def __init__(self, device: Device, settings: Protocol, budget_s: float | None, seed: int = SEED) -> None:
        """`budget_s`: wall seconds for the whole run, None for no limit; `seed` draws the order of visits."""
        self.device, self.settings, self.budget_s, self.seed = device, settings, budget_s, seed
        self.prices = Prices(device, settings, budget_s)
        self._cases: dict[str, Case] = {}
        self.comparisons: Sequence[CaseGroup] = ()
        """What is measured whole or not at all, in the order of the first visits."""
        self._begun: tuple[str, ...] = ()
        """Keys of the comparison whose first visits are being made."""
        self._able: list[str] = []
        """Keys of the cases that this device can run."""
        self._ceilings_until_s = math.inf
        """Elapsed seconds after which no ceiling gets its first visit."""
        self._order: Iterator[Case] | None = None
        self._rows: dict[str, list[Measurement]] = {}
        """Key of a case -> the rows of its visits."""
        self.failure_limit = FailureLimit()
        self._launch_s: dict[str, float | None] = {}
        """Key of a case -> predicted seconds of a launch; emptied when a ceiling is measured."""
        self._elapsed_s = self._scheduled_at_s = self._again_s = self._restart_s = 0.0
        self._expected_s = self._taken_s = 0.0
        """Wall seconds of the first visits to ceilings, as expected and as they were."""
        self._schedule: Schedule | None = None
        self._until_replan = 0

    # ---- what is known

    def plan(self, cases: Iterable[Case], comparisons: Sequence[CaseGroup] | None = None) -> None:
        """Set the cases that may be visited; if they are not compared, in the order of their first visits."""
        self._cases = {case.key: case for case in cases}
        others = [case for case in self._cases.values() if case.role == "measurement"]
        self.comparisons = [CaseGroup((case,)) for case in others] if comparisons is None else comparisons
        self._able = [key for key, case in self._cases.items() if not self.missing(case)]
        self._order = None

    @property
    def _able_ceilings(self) -> list[Case]:
        """The ceilings that this device can run and for which there is room."""
        able = (self._cases[key] for key in self._able if key not in self.prices.left_out)
        return [case for case in able if case.role != "measurement"]

    def _limit_ceilings(self, elapsed_s: float) -> None:
        """Leave out the ceilings without a row for which the other cases leave no time."""
        rest = [case for key, case in self._cases.items() if key not in self._rows]
        self.prices.limit_ceilings(rest, elapsed_s)
        most_s = math.inf if self.prices.is_short else self.prices.ceilings_most_s
        self._ceilings_until_s = elapsed_s + most_s

    def resume(self, rows: Iterable[Measurement]) -> None:
        """Add visits that were made before this planner began: they are not made again, and cost nothing."""
        for row in rows:
            self._rows.setdefault(row.case, []).append(row)

    def visited(self, case: Case, row: Measurement, taken_s: float | None = None) -> None:
        """Add a visit. `taken_s`: its wall seconds without starting a worker; None if it was not timed."""
        self._rows.setdefault(row.case, []).append(row)
        self.failure_limit.saw(case, row)
        if row.role != "measurement":
            self._launch_s = {}
        if taken_s is None:
            return
        sampled_s = row.measure_s or 0.0
        if case.role == "measurement":
            if row.status in ("crashed", "timeout"):  # their seconds tell nothing about other visits
                self._until_replan = 0
            else:
                beside_s = taken_s - sampled_s - 4 * (row.median_s or 0.0)
                self.prices.visited(
                    case, row.visit == 0, beside_s, row.measure_s if row.status == "ok" else None
                )
            self._until_replan -= 1
        elif row.visit == 0:
            self._expected_s += self.prices.ceiling_cost_s(case)
            self._taken_s += taken_s
            if case.role == "roof":
                self._again_s += again_s(taken_s - sampled_s, sampled_s)

    @property
    def rows(self) -> list[Measurement]:
        """The row of every visit so far."""
        return [row for rows in self._rows.values() for row in rows]

    def missing(self, case: Case) -> str:
        """Why this device cannot run the case; empty if it can."""
        return case.missing(self.device.kind, self.device.capability)

    # ---- the next visit

    def next(self, elapsed_s: float, restart_s: float = 0.0) -> Case | None:
        """The case to visit now, `elapsed_s` after the run began; None if the run is over.

        `restart_s`: seconds that pass before a visit can begin, since a new worker has to start.
        """
        self._elapsed_s, self._restart_s = elapsed_s, restart_s
        if self._order is None:
            self._limit_ceilings(elapsed_s)
            self._order = self._itinerary()
        for case in self._order:
            if self._is_due(case) and not self._is_too_late(case):
                return case
        return None

    def _is_due(self, case: Case) -> bool:
        """Whether a case that the itinerary names has no row, or one that another visit may improve."""
        rows = self._rows.get(case.key)
        if rows is None or case.role not in ("measurement", "roof"):
            return rows is None
        return rows[-1].status in ("ok", "crashed")

    def _is_too_late(self, case: Case) -> bool:
        """Whether a visit to this case would end too long after the budget; what is refused takes no time."""
        if self.budget_s is None or (case.key not in self._rows and self._refusal(case) is not None):
            return False
        is_first = case.key not in self._rows
        price = self.prices.ceiling_cost_s if is_first else self.prices.ceiling_again_s
        cost_s = self.prices.visit_s(case) if case.role == "measurement" else price(case)
        return self._ends_s(cost_s) > LATEST * self.budget_s

    def _ends_s(self, cost_s: float) -> float:
        """When a visit of this price is expected to end, by what those to ceilings took."""
        dearer = max(1.0, self._taken_s / self._expected_s) if self._expected_s else 1.0
        return self._elapsed_s + self._restart_s + dearer * cost_s

    def step(self, case: Case, elapsed_s: float) -> NextVisit:
        """The visit to this case that is due `elapsed_s` after the run began."""
        self._elapsed_s = elapsed_s
        rows = self._rows.get(case.key, [])
        refusal = None if rows else self._refusal(case)
        if refusal is not None:
            return NextVisit(case, 0, refusal)
        if case.role != "measurement":
            sampling_s = self.prices.ceiling_s(case)
        else:
            sampling_s = self._scheduled().sampling_s.get(case.key, self.prices.sampling.least_s)
        is_first = not any(row.status == "ok" for row in rows)
        return NextVisit(case, len(rows), None, sampling_s, is_first)

    def _itinerary(self) -> Iterator[Case]:
        """The visits in order. Each case must have been visited before the next one is taken."""
        chance = random.Random(self.seed)
        ceilings = [case for case in self._cases.values() if case.role != "measurement"]
        cases = [case for case in self._cases.values() if case.role == "measurement"]
        is_short = self.prices.is_short
        if not is_short:
            yield from (case for case in ceilings if self._count(case) == 0)
        self._scheduled()
        due = LOOKS[1:2] if self.device.kind == "cuda" and (self.budget_s or SHORT_S) < SHORT_S else LOOKS
        looks = [look for look in due if look > self._share_done()]  # at this time they have just been made
        for turn in range(self.settings.visits):
            for case in self._round(turn, chance):
                if looks and self._share_done() >= looks[0]:
                    looks.pop(0)
                    yield from self._sentinels(ceilings)
                if self._count(case) == 0 or (self._count(case) <= turn and self._wants(case)):
                    yield case
            if turn == 0 and is_short:
                yield from (case for case in ceilings if self._count(case) == 0)
        while wanting := [case for case in chance.sample(cases, len(cases)) if self._wants(case)]:
            before = [self._count(case) for case in wanting]
            yield from (case for case in wanting if self._wants(case))
            if [self._count(case) for case in wanting] == before:  # none was visited, and none will be
                break
        yield from ceilings

    def _round(self, turn: int, chance: random.Random) -> Iterator[Case]:
        """The cases of a round of visits in order; in the first one only those for which there is time."""
        drawn = self.comparisons if turn == 0 else chance.sample(self.comparisons, len(self.comparisons))
        for comparison in drawn:
            if turn == 0:
                left_out = self._scheduled().left_out
                if any(key in left_out and key not in self._rows for key in comparison.keys):
                    continue
                self._begun = comparison.keys
            cases = comparison.cases if turn % 2 == 0 else comparison.cases[::-1]
            yield from (case for case in cases if turn == 0 or case.key in self._rows)
        self._begun = ()

    @property
    def left_out(self) -> list[CaseGroup]:
        """The comparisons that were not measured, or not whole, since there was no time."""
        unvisited = {key for key in self._able if key not in self._rows}
        unvisited -= {key for key in unvisited if self.failure_limit.reason(self._cases[key])}
        return [each for each in self.comparisons if not unvisited.isdisjoint(each.keys)]

    def _count(self, case: Case) -> int:
        return len(self._rows.get(case.key, ()))

    def _wants(self, case: Case) -> bool:
        """Whether another visit would improve the result, and there is time for it."""
        rows = self._rows.get(case.key, [])
        if not rows or not wants_another(rows, self.settings):
            return False
        if len(rows) < self.settings.visits:
            return case.key not in self._scheduled().left_out
        (job,) = self.prices.jobs([(case, self._launch_s.get(case.key), len(rows))])
        spare_s = self._spare_s()
        return spare_s is None or replace(job, visits=1).cost_s(self.prices.sampling.least_s) <= spare_s

    def _sentinels(self, ceilings: Iterable[Case]) -> list[Case]:
        """The first ceiling of arithmetic and the first of memory that have a time."""
        sentinels: dict[bool, Case] = {}
        for case in ceilings:
            rows = self._rows.get(case.key)
            if rows and rows[-1].status == "ok" and case.problem.byte and case.threads == "all":
                sentinels.setdefault(case.problem.flop > 0, case)
        return list(sentinels.values())

    def _refusal(self, case: Case) -> Mapping[str, Any] | None:
        """Status and reason of a case without a request to the worker; None if it has one."""
        if refusal := impossible(case, self.device):
            return refusal
        if reason := self.failure_limit.reason(case):
            return {"status": "skipped", "reason": reason}
        if case.role == "measurement":
            reason = self._scheduled().refused.get(case.key, "")
        elif (
            case.key in self.prices.left_out
            or self._ends_s(self.prices.ceiling_cost_s(case)) > self._ceilings_until_s
        ):
            reason = f"left out: the budget of {self.budget_s:g} s has no room for it"
        else:
            limit_s = launch_limit_s(self.budget_s)
            launch_s = predicted_s(case, self.device, self._ceilings(case.threads))
            if launch_s is not None and launch_s > 1.5 * limit_s:
                reason = (
                    f"one launch is predicted to take {launch_s:.2g} s; the budget allows {limit_s:.2g} s"
                )
        return {"status": "skipped", "reason": reason} if reason else None

    def _ceilings(self, threads: str) -> Ceilings:
        """The ceilings measured so far in this run with a cold cache and `threads`, `all` or `one`."""
        wanted = condition("cold", threads)
        return Ceilings.of(row for row in self.rows if condition(row.cache, row.threads_asked) == wanted)

    # ---- time

    def _scheduled(self) -> Schedule:
        """The schedule: which cases have room and how long each may sample; remade every few visits."""
        if self._schedule is None or self._until_replan <= 0:
            sampling = self.prices.sampling
            fresh = [[key for key in each.keys if key not in self._rows] for each in self.comparisons]
            self._schedule = schedule(
                self._due(), self._spare_s(), self.budget_s, sampling, fresh, self._begun
            )
            self._scheduled_at_s, self._until_replan = self._elapsed_s, REPLAN
        return self._schedule

    def _due(self) -> list[Job]:
        """Jobs for the visits still due, with those of cases that were visited before first."""
        if not self._launch_s:
            roofs = {threads: self._ceilings(threads) for threads in ("all", "one")}
            self._launch_s = {
                key: predicted_s(case, self.device, roofs[case.threads])
                for key in self._able
                if (case := self._cases[key]).role == "measurement"
            }
        begun, fresh = [], []
        for key, launch_s in self._launch_s.items():
            case, rows = self._cases[key], self._rows.get(key)
            if self.failure_limit.reason(case):  # it will be skipped, which takes no time
                continue
            if rows is None:
                fresh.append((case, launch_s, 0))
            elif rows[-1].status == "ok" and len(rows) < self.settings.visits:
                begun.append((case, launch_s, len(rows)))
        return self.prices.jobs([*begun, *fresh])

    def _spare_s(self) -> float | None:
        """Seconds of the budget that are neither spent nor reserved for the roofs at the end."""
        if self.budget_s is None:
            return None
        # Dear ceilings are not measured again at the cost of cases.
        kept_s = min(self._again_s, max(0.0, CEILINGS_MOST * self.budget_s - self._taken_s))
        if self.prices.is_short:  # the ceilings are still to come
            fresh = (case for case in self._able_ceilings if self._count(case) == 0)
            kept_s += sum(map(self.prices.ceiling_cost_s, fresh))
        return max(0.0, self.budget_s - self._elapsed_s - self._restart_s - kept_s)

    def _share_done(self) -> float:
        """The share of the run's time that is over, 0 to 1; 0 while that is unknown."""
        left_s = self.left_s(self._elapsed_s)
        return 0.0 if left_s is None else self._elapsed_s / max(1e-9, self._elapsed_s + left_s)

    def left_s(self, elapsed_s: float) -> float | None:
        """About how many seconds the run will go on; None while that is unknown."""
        if self._schedule is not None:
            return max(0.0, self._schedule.total_s - (elapsed_s - self._scheduled_at_s))
        return None if self.budget_s is None else max(0.0, self.budget_s - elapsed_s)

    def visits_left(self) -> int:
        """About how many visits are to come: two to each roof, one to other ceilings, and those with room."""
        looks = sum(max(0, 1 + (case.role == "roof") - self._count(case)) for case in self._able_ceilings)
        if self._schedule is None:
            others = sum(self._cases[key].role == "measurement" for key in self._able)
            return looks + self.settings.visits * others
        return looks + max(0, self._schedule.visits - (REPLAN - self._until_replan))

    def forecast(self, elapsed_s: float, is_started: bool = False) -> Forecast:
        """The forecast of this run, before its first visit, or of the rest of it.

        `is_started`: whether its worker is.
        """
        self._elapsed_s = elapsed_s
        left_s = self._spare_s() if self._launch_s else None
        start_s = elapsed_s if is_started else max(elapsed_s, ASSUMED["start_s"].value)
        if self._order is None:
            self._limit_ceilings(start_s)
        keys = [each.keys for each in self.comparisons]
        return self.prices.forecast(list(self._cases.values()), self._launch_s, left_s, keys, start_s)
