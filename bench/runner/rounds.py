"""Rounds of a run: which case is visited next, and for how long. Pure: no pytest, no worker, no clock.

The ceilings come first. Then each round begins the comparisons for which there is time, whole, and visits
again what was begun before, in an order of its own: what is compared stays together, and repetitions lie
most of a round apart. No comparison begins unless the budget holds a second visit to everything begun; three
visits are the rule. What is left narrows the widest intervals, those of claims first. The roofs come last
again: a roof is the best that was reached at either end of the run.

Nothing forecasts what a visit costs: it is taken to cost what earlier ones took (`Prices`).
"""

from __future__ import annotations

import math
import random
from bisect import insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.device.detect import Device
from bench.judge.flags import disturbances
from bench.judge.within_run import within_run
from bench.runner.comparisons import CaseGroup
from bench.runner.failure_limit import FailureLimit
from bench.runner.limits import PRECISION, impossible
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


class Prices:
    """Wall seconds that visits are taken to cost: what earlier ones took, without starting a worker."""

    def __init__(self) -> None:
        self._first_s: dict[tuple[str, str, str], float] = {}
        """Kind of a case -> the least that a first visit to such a case took."""
        self._last: dict[str, tuple[float, float, bool]] = {}
        """Key of a case -> what its last visit took beside sampling, and for it; whether it was the first."""
        self._beside_s: list[float] = []
        """What visits took beside sampling, in ascending order."""

    def learn(self, case: Case, measure_s: float, taken_s: float, least_s: float = 0.0) -> None:
        """Take in a visit that took so long, `measure_s` of it sampling, as the next will for `least_s`."""
        is_first = case.key not in self._last
        if is_first:
            self._first_s[_kind(case)] = min(taken_s, self._first_s.get(_kind(case), taken_s))
        self._last[case.key] = taken_s - measure_s, max(measure_s, least_s), is_first
        insort(self._beside_s, taken_s - measure_s)

    def again_s(self, case: Case) -> float:
        """Of another visit to a case; 0 if it has not been visited."""
        beside_s, measure_s, is_first = self._last.get(case.key, (0.0, 0.0, False))
        # What was compiled, or chosen, is there the next time.
        return measure_s + (min(beside_s, self._usual_beside_s) if is_first else beside_s)

    def next_s(self, case: Case) -> float:
        """Of the next visit to the case. 0 while nothing is known: a ceiling tells nothing of other cases.

        Of a first one the least that such took: one that compiled for all tells little, and a mistake costs
        no more than what it is too little for one comparison.
        """
        if case.key in self._last:
            return self.again_s(case)
        of_role = (seconds for (role, *_), seconds in self._first_s.items() if role == case.role)
        return self._first_s.get(_kind(case), min(of_role, default=0.0))

    def second_s(self, case: Case, sampling_s: float) -> float:
        """Of the second visit to a case that has none, if it samples so long."""
        return min(self.next_s(case), self._usual_beside_s + sampling_s)

    @property
    def usual_s(self) -> float:
        """Of one more visit to any of the cases visited so far; 0 while there is none."""
        measured_s = sum(measure_s for _, measure_s, _ in self._last.values())
        return self._usual_beside_s + measured_s / max(1, len(self._last))

    @property
    def _usual_beside_s(self) -> float:
        return self._beside_s[len(self._beside_s) // 2] if self._beside_s else 0.0


def _kind(case: Case) -> tuple[str, str, str]:
    """Cases of one kind take about as long to build, compile and check."""
    return case.role, case.problem.operator, case.implementation


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
        self.device, self.settings, self.precision = device, settings, precision
        self.budget_s = math.inf if budget_s is None else budget_s
        self._chance = random.Random(seed)
        self.failure_limit = FailureLimit()
        self._prices = Prices()
        self._rows: dict[str, list[Measurement]] = {}
        """Key of a case -> the rows of its visits."""
        self._ceilings_s = 0.0
        """Wall seconds of the first visits to ceilings."""
        self._elapsed_s = self._restart_s = 0.0
        self.plan((), ())

    def plan(self, ceilings: Iterable[Case], comparisons: Sequence[CaseGroup]) -> None:
        """Set what may be visited: ceilings, and what is measured whole or not at all, in that order."""
        self._ceilings, self.comparisons = list(ceilings), comparisons
        self._cases = {case.key: case for each in comparisons for case in each.cases}
        self._claimed = {key for each in comparisons if each.claim is not None for key in each.keys}
        self._itinerary = self._visits()

    def resume(self, rows: Iterable[Measurement]) -> None:
        """Add visits that were made before this run began: they are not made again, and cost nothing."""
        for row in rows:
            self._rows.setdefault(row.case, []).append(row)

    def visited(self, case: Case, row: Measurement, taken_s: float | None = None) -> None:
        """Add a visit. `taken_s`: its wall seconds without starting a worker; None if it was not timed."""
        if case.role != "measurement" and case.key not in self._rows:
            self._ceilings_s += taken_s or 0.0
        self._rows.setdefault(row.case, []).append(row)
        self.failure_limit.saw(case, row)
        if taken_s is not None and row.status not in ("crashed", "timeout", "skipped"):  # broken off
            least_s = LAUNCHES * (row.median_s or 0.0)  # which the first visit to what is slow did not know
            self._prices.learn(case, row.measure_s or 0.0, taken_s, least_s)

    @property
    def rows(self) -> list[Measurement]:
        """The row of every visit so far."""
        return [row for rows in self._rows.values() for row in rows]

    @property
    def left_out(self) -> list[CaseGroup]:
        """The comparisons that were not measured, or not whole, since there was no time."""
        return [
            each
            for each in self.comparisons
            if any(not self.failure_limit.reason(case) for case in self._unvisited(each))
        ]

    # ---- the order

    def next(self, elapsed_s: float, restart_s: float = 0.0) -> NextVisit | None:
        """The visit to make now, `elapsed_s` after the run began; None if the run is over.

        `restart_s`: seconds that pass before a visit can begin, since a new worker has to start.
        """
        self._elapsed_s, self._restart_s = elapsed_s, restart_s
        case = next((case for case in self._itinerary if not self._is_too_late(case)), None)
        if case is None:
            return None
        rows = self._rows.get(case.key, [])
        if (refusal := self._refusal(case)) is not None:
            return NextVisit(case, 0, refusal)
        return NextVisit(case, len(rows), None, self._sampling_s(case), not any(map(_is_ok, rows)))

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
        yield from self._roofs()

    def _unvisited(self, comparison: CaseGroup) -> list[Case]:
        return [case for case in comparison.cases if case.key not in self._rows]

    def _roofs(self) -> list[Case]:
        """The roofs that have a time."""
        return [case for case in self._ceilings if case.role == "roof" and self._is_timed(case)]

    def _has_room(self, comparison: CaseGroup) -> bool:
        """Whether the budget holds two visits to these cases, after a second one to all that was begun."""
        fresh = [case for case in self._unvisited(comparison) if self._refusal(case) is None]
        begun = ((self._cases.get(key), rows) for key, rows in self._rows.items())
        once = (case for case, rows in begun if case and len(rows) == 1 and _is_ok(rows[0]))
        cost_s = sum(map(self._prices.again_s, once)) + sum(map(self._prices.next_s, fresh))
        cost_s += sum(self._prices.second_s(case, self._sampling_s(case)) for case in fresh)
        return not fresh or cost_s <= self._spare_s()

    def _due(self) -> list[Case]:
        """The cases that are visited again in this round.

        While any lack visits, those with the fewest; then those with the widest intervals, as far as there is
        time.
        """
        begun = [case for key, case in self._cases.items() if key in self._rows]
        if lacking := [case for case in begun if self._lacks_visits(case)]:
            fewest = min(len(self._rows[case.key]) for case in lacking)
            return [case for case in lacking if len(self._rows[case.key]) == fewest]
        timed = [case for case in begun if self._is_timed(case)]
        within = within_run([join(self._rows[case.key]) for case in timed])
        widths = {
            case.key: interval.half
            for case, interval in zip(timed, within, strict=True)
            if interval and interval.half > self.precision
            if len(self._rows[case.key]) < self.settings.most_visits
        }
        kept, spent_s, spare_s = set[str](), 0.0, self._spare_s()
        for key in sorted(widths, key=lambda key: (key not in self._claimed, -widths[key])):
            spent_s += self._prices.again_s(self._cases[key])
            if spent_s <= spare_s:
                kept.add(key)
        return [case for case in begun if case.key in kept]

    def _lacks_visits(self, case: Case) -> bool:
        """Whether the case has fewer visits than every case should have."""
        rows = self._rows[case.key]
        if rows[-1].status == "crashed":  # an earlier case may have left the worker broken
            return sum(row.status == "crashed" for row in rows) == 1
        if not _is_ok(rows[-1]):
            return False
        sound, wanted = [row for row in rows if _is_ok(row) and not disturbances(row)], self.settings.visits
        return len(rows) < wanted or (len(sound) < wanted and len(rows) < wanted + EXTRA_VISITS)

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
        round_s, theirs_s = (sum(map(self._prices.next_s, cases)) for cases in (due, sentinels.values()))
        return [] if round_s < SENTINEL_ROUND * theirs_s else list(sentinels.values())

    def _is_timed(self, case: Case) -> bool:
        return (rows := self._rows.get(case.key, [])) != [] and _is_ok(rows[-1])

    # ---- one visit

    def _sampling_s(self, case: Case) -> float:
        if case.role != "measurement":
            return CEILING_S[self.device.kind]["roof" if case.role == "roof" else "probe"]
        least_s, most_s = SAMPLING_S[self.device.kind]
        share = SAMPLING_SHARE / MOMENTS / max(1, len(self._cases))
        *_, last_s = (0.0, *(row.median_s or 0.0 for row in self._rows.get(case.key, ())))
        return max(least_s, min(most_s, share * self.budget_s), LAUNCHES * last_s)

    def _refusal(self, case: Case) -> Mapping[str, Any] | None:
        """Status and reason of a first visit without a request to the worker; None if it has one."""
        if case.key in self._rows:
            return None
        if refusal := impossible(case, self.device):
            return refusal
        reason = self.failure_limit.reason(case)
        if not reason and case.role != "measurement" and not self._ceiling_has_room(case):
            reason = f"left out: the budget of {self.budget_s:g} s has no room for it"
        return {"status": "skipped", "reason": reason} if reason else None

    def _ceiling_has_room(self, case: Case) -> bool:
        """Whether both visits to this ceiling fit into the ceilings' share of the budget."""
        twice_s = self._prices.next_s(case) + self._prices.second_s(case, self._sampling_s(case))
        most_s = CEILINGS_SHARE * self.budget_s if self.comparisons else math.inf
        return self._ceilings_s + self._roofs_s() + twice_s <= most_s

    # ---- time

    def _roofs_s(self) -> float:
        """Expected wall seconds of the last visits, those to the roofs."""
        return sum(map(self._prices.again_s, self._roofs()))

    def _spare_s(self) -> float:
        """Seconds of the budget that are neither spent nor kept for the roofs at the end."""
        return self.budget_s - self._elapsed_s - self._restart_s - self._roofs_s()

    def _is_too_late(self, case: Case) -> bool:
        """Whether a visit to this case would end too long after the budget; what is refused takes no time."""
        kept_s = self._roofs_s() if case.role == "measurement" else 0.0
        late_s = self._elapsed_s + self._restart_s + self._prices.next_s(case) + kept_s
        return late_s > LATEST * self.budget_s and self._refusal(case) is None

    def left(self, elapsed_s: float) -> tuple[int, float]:
        """About how many visits are to come, those that only narrow intervals apart, and their seconds."""
        count = sum(max(0, self.settings.visits - len(self._rows.get(key, ()))) for key in self._cases)
        count += sum((case.key not in self._rows) + (case.role == "roof") for case in self._ceilings)
        return count, min(count * self._prices.usual_s, max(0.0, self.budget_s - elapsed_s))


def _is_ok(row: Measurement) -> bool:
    return row.status == "ok"
