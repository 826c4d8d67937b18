"""Rounds of a run: which case is visited next, and for how long. Pure: no pytest, no worker, no clock.

The ceilings come first. Then each round begins the comparisons for which there is time, whole, and visits
again what was begun before, in an order of its own: what is compared stays together, and repetitions lie
most of a round apart. No comparison begins unless the budget holds a second visit to everything begun; three
visits are the rule. What is left narrows the widest intervals, those of claims first. The roofs come last
again: a roof is the best that was reached at either end of the run.

There is no model of what a visit costs. It is taken to cost what the last one to the same case took, and that
to a case without any what first visits to its implementation took so far.
"""

from __future__ import annotations

import random
from bisect import insort
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.device.detect import Device
from bench.judge.flags import disturbances
from bench.judge.within_run import within_run
from bench.model.ceilings import Ceilings, condition
from bench.runner.comparisons import CaseGroup
from bench.runner.failure_limit import FailureLimit
from bench.runner.limits import PRECISION, impossible, launch_limit_s, predicted_s
from bench.runner.merge_visits import SEED, join
from bench.sampling.protocol import Protocol
from bench.spec import DeviceKind
from bench.store.schema import Measurement
from bench.sweep.load import Case

SAMPLING_S: Mapping[DeviceKind, tuple[float, float]] = {"cpu": (0.15, 1.0), "cuda": (7.0, 7.0)}
"""Least and most wall seconds that a visit may sample, settling included. Visits differ by more than their
samples tell, so several short ones tell more than one long one. A GPU's visit ends as soon as its clock has
settled: within 0.3 s in a rehearsal, on no GPU yet, and after seconds at the power limit, whatever the
budget."""
SAMPLING_SHARE, MOMENTS = 0.8, 5
"""Share of the budget that so many visits to each case may sample, between those limits. More are not
worth it: visits nearer than a fifth of the run are one moment of it (bench/judge/within_run.py)."""
CEILING_S: Mapping[DeviceKind, Mapping[str, float]] = {
    "cpu": {"roof": 0.6, "probe": 0.2},
    "cuda": {"roof": 7.0, "probe": 0.3},
}
"""The same of a visit to a ceiling, by its role."""
LAUNCHES = 16
"""Launches that sampling needs, settling included, for an interval to be known."""
CEILINGS_SHARE = 0.25
"""Largest share of the budget for both visits to the ceilings, where there are other cases."""
SENTINEL_ROUND = 5.0
"""Times the cost of the sentinels that a round takes which begins with a visit to them."""
LATEST = 1.02
"""Times the budget: no visit begins that is expected to end later."""
BLOCKS = 4
"""Parts of a round within which comparisons are shuffled: a case's visits lie 3/4 of a round apart."""
EXTRA_VISITS = 1
"""Visits beyond those wanted, to make up for disturbed ones."""


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


class Rounds:
    """Chooses the visits of one run on one device."""

    def __init__(
        self,
        device: Device,
        settings: Protocol,
        budget_s: float | None,
        precision: float = PRECISION,
        seed: int = SEED,
    ) -> None:
        """`budget_s`: wall seconds of the whole run, None for no limit; `precision`: half-width, a share."""
        self.device, self.settings, self.budget_s, self.precision = device, settings, budget_s, precision
        self._chance = random.Random(seed)
        self.failure_limit = FailureLimit()
        self.comparisons: Sequence[CaseGroup] = ()
        """What is measured whole or not at all, in the order of the first visits."""
        self._ceilings: list[Case] = []
        self._cases: dict[str, Case] = {}
        """Key -> case, ceilings apart, in the order of the comparisons."""
        self._claimed: set[str] = set()
        """Keys of the cases that decide a claim."""
        self._rows: dict[str, list[Measurement]] = {}
        """Key of a case -> the rows of its visits."""
        self._again_s: dict[str, float] = {}
        """Key of a case -> wall seconds that another visit is taken to cost."""
        self._first_s: dict[Hashable, float] = {}
        """Kind of a case -> the least wall seconds that a first visit to such a case took."""
        self._beside_s: list[float] = []
        """Wall seconds of visits without their sampling, in ascending order."""
        self._ceilings_s = 0.0
        """Wall seconds of the first visits to ceilings."""
        self._launch_s: dict[str, float | None] = {}
        """Key of a case -> predicted seconds of a launch; emptied when a ceiling is measured."""
        self._roofs: dict[str, Ceilings] = {}
        """Threads, `all` or `one` -> the ceilings measured so far with a cold cache; likewise."""
        self._elapsed_s = self._restart_s = 0.0
        self._itinerary: Iterator[Case] | None = None

    # ---- what is known

    def plan(self, cases: Iterable[Case], comparisons: Sequence[CaseGroup] | None = None) -> None:
        """Set the cases that may be visited; if they are not compared, in the order of their first visits."""
        every = {case.key: case for case in cases}.values()
        self._ceilings = [case for case in every if case.role != "measurement"]
        others = [case for case in every if case.role == "measurement"]
        self.comparisons = [CaseGroup((case,)) for case in others] if comparisons is None else comparisons
        self._cases = {case.key: case for each in self.comparisons for case in each.cases}
        self._claimed = {key for each in self.comparisons if each.claim is not None for key in each.keys}
        self._itinerary = None

    def resume(self, rows: Iterable[Measurement]) -> None:
        """Add visits that were made before this run began: they are not made again, and cost nothing."""
        for row in rows:
            self._rows.setdefault(row.case, []).append(row)

    def visited(self, case: Case, row: Measurement, taken_s: float | None = None) -> None:
        """Add a visit. `taken_s`: its wall seconds without starting a worker; None if it was not timed."""
        is_first = case.key not in self._rows
        self._rows.setdefault(row.case, []).append(row)
        self.failure_limit.saw(case, row)
        if row.role != "measurement":
            self._launch_s, self._roofs = {}, {}
        if taken_s is None or row.status in ("crashed", "timeout"):  # which tell nothing of other visits
            return
        if is_first:
            self._first_s[_kind(case)] = min(taken_s, self._first_s.get(_kind(case), taken_s))
            self._ceilings_s += taken_s * (case.role != "measurement")
        beside_s = taken_s - (row.measure_s or 0.0)
        insort(self._beside_s, beside_s)
        if is_first:  # what was compiled, or chosen, is there the next time
            beside_s = min(beside_s, self._usual_beside_s())
        self._again_s[case.key] = beside_s + (row.measure_s or 0.0)

    @property
    def rows(self) -> list[Measurement]:
        """The row of every visit so far."""
        return [row for rows in self._rows.values() for row in rows]

    def missing(self, case: Case) -> str:
        """Why this device cannot run the case; empty if it can."""
        return case.missing(self.device.kind, self.device.capability)

    @property
    def left_out(self) -> list[CaseGroup]:
        """The comparisons that were not measured, or not whole, since there was no time."""
        return [
            each
            for each in self.comparisons
            if any(not (self.missing(c) or self.failure_limit.reason(c)) for c in self._unvisited(each))
        ]

    # ---- the order

    def next(self, elapsed_s: float, restart_s: float = 0.0) -> Case | None:
        """The case to visit now, `elapsed_s` after the run began; None if the run is over.

        `restart_s`: seconds that pass before a visit can begin, since a new worker has to start.
        """
        self._elapsed_s, self._restart_s = elapsed_s, restart_s
        if self._itinerary is None:
            self._itinerary = self._visits()
        return next((case for case in self._itinerary if not self._is_too_late(case)), None)

    def _visits(self) -> Iterator[Case]:
        """The visits in order. Each case must have been visited before the next one is taken."""
        yield from (case for case in self._ceilings if case.key not in self._rows)
        made = -1
        while made < (made := sum(map(len, self._rows.values()))):
            for comparison in self.comparisons:
                if self._has_room(comparison):
                    yield from self._unvisited(comparison)
            if due := self._due():
                yield from self._sentinels(due)
                yield from self._shuffled(due)
        yield from (case for case in self._ceilings if case.role == "roof" and self._is_timed(case))

    def _unvisited(self, comparison: CaseGroup) -> list[Case]:
        return [case for case in comparison.cases if case.key not in self._rows]

    def _has_room(self, comparison: CaseGroup) -> bool:
        """Whether the budget holds two visits to these cases, after a second one to all that was begun."""
        fresh = [case for case in self._unvisited(comparison) if self._refusal(case) is None]
        if self.budget_s is None or not (fresh and self._first_s):
            return True
        cost_s = sum(map(self._cost_s, fresh))
        if self.settings.visits > 1:
            once = (key for key, (row, *more) in self._rows.items() if row.role == "measurement" and not more)
            cost_s += sum(map(self._second_s, fresh)) + sum(self._again_s.get(key, 0.0) for key in once)
        return cost_s <= self._spare_s()

    def _due(self) -> list[Case]:
        """The cases that are visited again in this round.

        While any lack visits, those with the fewest; then those with the widest intervals, as far as there is
        time.
        """
        begun = [case for key, case in self._cases.items() if key in self._rows]
        if lacking := [case for case in begun if self._lacks_visits(case)]:
            fewest = min(len(self._rows[case.key]) for case in lacking)
            return [case for case in lacking if len(self._rows[case.key]) == fewest]
        widths = {key: half for key, half in self._half_widths(begun).items() if half > self.precision}
        order = sorted(widths, key=lambda key: (key not in self._claimed, -widths[key]))
        kept, spent_s, spare_s = set[str](), 0.0, self._spare_s()
        for key in order:
            spent_s += self._again_s.get(key, 0.0)
            if spent_s <= spare_s:
                kept.add(key)
        return [case for case in begun if case.key in kept]

    def _lacks_visits(self, case: Case) -> bool:
        """Whether the case has fewer visits than every case should have."""
        rows = self._rows[case.key]
        if rows[-1].status == "crashed":  # an earlier case may have left the worker broken
            return sum(row.status == "crashed" for row in rows) == 1
        if rows[-1].status != "ok":
            return False
        sound = [row for row in rows if row.status == "ok" and not disturbances(row)]
        wanted = self.settings.visits
        return len(rows) < wanted or (len(sound) < wanted and len(rows) < wanted + EXTRA_VISITS)

    def _half_widths(self, begun: Sequence[Case]) -> dict[str, float]:
        """Key -> half of the interval within the run, of the cases that may be visited again."""
        if self.settings.visits == 1:
            return {}
        timed = [case.key for case in begun if self._is_timed(case)]
        rows = [join(self._rows[key]) for key in timed]
        return {
            key: within.half
            for key, within in zip(timed, within_run(rows), strict=True)
            if within and len(self._rows[key]) < self.settings.most_visits
        }

    def _shuffled(self, due: Sequence[Case]) -> Iterator[Case]:
        """These cases in the order of a round: comparisons whole and shuffled within each part of it."""
        wanted, groups = {case.key: case for case in due}, list[list[Case]]()
        for each in self.comparisons:
            if group := [case for key in each.keys if (case := wanted.pop(key, None))]:
                groups.append(group)
        size = -(-len(groups) // BLOCKS)
        for begin in range(0, len(groups), size):
            block = groups[begin : begin + size]
            for group in self._chance.sample(block, len(block)):
                yield from group if self._chance.random() < 0.5 else group[::-1]

    def _sentinels(self, due: Sequence[Case]) -> list[Case]:
        """The first roof of arithmetic and of memory, which tell of a drift; none in a short round."""
        sentinels: dict[bool, Case] = {}
        for case in self._ceilings:
            if self._is_timed(case) and case.problem.byte and case.threads == "all":
                sentinels.setdefault(case.problem.flop > 0, case)
        is_short = sum(map(self._cost_s, due)) < SENTINEL_ROUND * sum(map(self._cost_s, sentinels.values()))
        return [] if is_short else list(sentinels.values())

    def _is_timed(self, case: Case) -> bool:
        return (rows := self._rows.get(case.key, [])) != [] and rows[-1].status == "ok"

    # ---- one visit

    def step(self, case: Case, elapsed_s: float) -> NextVisit:
        """The visit to this case that is due `elapsed_s` after the run began."""
        self._elapsed_s = elapsed_s
        rows = self._rows.get(case.key, [])
        refusal = None if rows else self._refusal(case)
        if refusal is not None:
            return NextVisit(case, 0, refusal)
        is_first = not any(row.status == "ok" for row in rows)
        return NextVisit(case, len(rows), None, self._sampling_s(case), is_first)

    def _sampling_s(self, case: Case) -> float:
        if case.role != "measurement":
            return CEILING_S[self.device.kind]["roof" if case.role == "roof" else "probe"]
        least_s, most_s = SAMPLING_S[self.device.kind]
        visits = MOMENTS * len(self._cases)
        share_s = most_s if self.budget_s is None else SAMPLING_SHARE * self.budget_s / max(1, visits)
        rows = self._rows.get(case.key)
        launch_s = rows[-1].median_s if rows else self._predicted_s(case)
        return max(least_s, min(most_s, share_s), LAUNCHES * (launch_s or 0.0))

    def _refusal(self, case: Case) -> Mapping[str, Any] | None:
        """Status and reason of a case without a request to the worker; None if it has one."""
        if refusal := impossible(case, self.device):
            return refusal
        reason, limit_s = self.failure_limit.reason(case), launch_limit_s(self.budget_s)
        launch_s = 0.0 if reason else self._predicted_s(case) or 0.0
        if not reason and case.role != "measurement" and not self._ceiling_has_room(case):
            reason = f"left out: the budget of {self.budget_s:g} s has no room for it"
        elif launch_s > limit_s:
            reason = f"one launch is predicted to take {launch_s:.2g} s; the budget allows {limit_s:.2g} s"
        return {"status": "skipped", "reason": reason} if reason else None

    def _ceiling_has_room(self, case: Case) -> bool:
        """Whether both visits to this ceiling fit into the ceilings' share of the budget."""
        if self.budget_s is None or not (self._first_s and self.comparisons):
            return True
        spent_s = self._ceilings_s + self._roofs_s()
        return spent_s + self._cost_s(case) + self._second_s(case) <= CEILINGS_SHARE * self.budget_s

    def _predicted_s(self, case: Case) -> float | None:
        """Least seconds of one launch, by the ceilings measured so far; None if they do not tell."""
        if case.key not in self._launch_s:
            if case.threads not in self._roofs:
                wanted = condition("cold", case.threads)
                rows = (row for row in self.rows if condition(row.cache, row.threads_asked) == wanted)
                self._roofs[case.threads] = Ceilings.of(rows)
            self._launch_s[case.key] = predicted_s(case, self.device, self._roofs[case.threads])
        return self._launch_s[case.key]

    # ---- time

    def _cost_s(self, case: Case) -> float:
        """Expected wall seconds of the next visit to the case.

        Of a first one the least that such took: one that compiled for all tells little, and a mistake costs
        no more than what it is too little for one comparison.
        """
        if case.key in self._again_s:
            return self._again_s[case.key]
        known_s = self._first_s.get(_kind(case))
        return min(self._first_s.values(), default=0.0) if known_s is None else known_s

    def _second_s(self, case: Case) -> float:
        """Expected wall seconds of the second visit to a case that has none."""
        return min(self._cost_s(case), self._usual_beside_s() + self._sampling_s(case))

    def _usual_beside_s(self) -> float:
        """The middle one of what visits took without their sampling, wall seconds."""
        return self._beside_s[len(self._beside_s) // 2] if self._beside_s else 0.0

    def _roofs_s(self) -> float:
        """Expected wall seconds of the last visits, those to the roofs."""
        return sum(self._again_s.get(case.key, 0.0) for case in self._ceilings if case.role == "roof")

    def _spare_s(self) -> float:
        """Seconds of the budget that are neither spent nor kept for the roofs at the end."""
        if self.budget_s is None:
            return float("inf")
        return self.budget_s - self._elapsed_s - self._restart_s - self._roofs_s()

    def _is_too_late(self, case: Case) -> bool:
        """Whether a visit to this case would end too long after the budget; what is refused takes no time."""
        if self.budget_s is None or (case.key not in self._rows and self._refusal(case) is not None):
            return False
        spare_s = self._spare_s() if case.role == "measurement" else self._spare_s() + self._roofs_s()
        return self._cost_s(case) > spare_s + (LATEST - 1) * self.budget_s

    def left(self, elapsed_s: float) -> tuple[int, float]:
        """About how many visits are to come, those that only narrow intervals apart, and their seconds."""
        due = [(case, 1) for case in self._ceilings if case.key not in self._rows]
        due += [(case, 1) for case in self._ceilings if case.role == "roof"]
        wanted = self.settings.visits
        due += [(case, max(0, wanted - len(self._rows.get(key, ())))) for key, case in self._cases.items()]
        count, beside_s, seconds = sum(number for _, number in due), self._usual_beside_s(), 0.0
        for case, number in due:
            known_s = self._again_s.get(case.key)
            seconds += number * (beside_s + self._sampling_s(case) if known_s is None else known_s)
        return count, seconds if self.budget_s is None else min(seconds, max(0.0, self.budget_s - elapsed_s))


def _kind(case: Case) -> Hashable:
    """Cases of one kind take about as long to build, compile and check."""
    return case.role, case.problem.operator, case.implementation
