"""Two versions of the code in turns, case by case, until each case is decided or the time is up.

In each round every undecided case is visited once with either version, one right after the other, in an order
that turns with each round. The logarithm of the ratio of the two times is one observation: what both visits
share, the drift of the machine among it, cancels. On a CPU each round has new worker processes. Where a
process happens to find its memory shifts the times of some cases by a percent or more for as long as it
lives, which two processes that lived through all rounds would show as a difference between the versions.

A case's effect is the trimmed mean of its observations, since a neighbour's burst may spoil a visit by more
than the effect. Its interval is Student's t after Yuen (Biometrika 61, 1974), with a variance moderated by
that of similar cases (Smyth, Stat. Appl. Genet. Mol. Biol. 3, 2004): few rounds may agree by chance.

A case is looked at after the rounds in EARLY and at the end. These looks share FALSE, so that over all of
them a case without a difference is called faster or slower with a chance of at most FALSE; among many cases
each has less, so that all of them together have FALSE_IN_ALL.
`python -m studies.ab` simulates both kinds of error with the noise of committed runs.
"""

from __future__ import annotations

import math
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np

from bench.device.detect import Device
from bench.judge import change
from bench.judge.change import Change, chance
from bench.judge.work_class import WorkClass, work_from_memory
from bench.runner.limits import FEW_CASES, earlier_ceilings, unless_too_quick
from bench.runner.resume import earlier_runs
from bench.runner.run import RESULTS
from bench.runner.supervisor import WorkerSupervisor, visit_to
from bench.runner.worker_process import WorkerDied
from bench.sampling.protocol import protocol
from bench.sampling.publish import student
from bench.spec import DeviceKind
from bench.sweep.load import Case
from bench.worker.visit import VisitResult

FALSE = 0.01
"""Chance that a case without a difference is called faster or slower ..."""
FALSE_IN_ALL = 0.1
"""... and that any is, however many are compared."""
EARLY, MOST_ROUNDS = (4, 6, 9, 13, 19), 2000
"""Rounds after which a case may be decided before the end, and the number of rounds that are made at most: an
hour of a single case on a CPU."""
AT_END = 0.5
"""Share of FALSE that the look at the end has; the early ones share the rest."""
LEAST = 3
"""Rounds without which nothing is said of a case."""
CUT = 0.2
"""Share of the observations that the trimmed mean leaves out at either end."""
OTHERS, FROM_CASES = 4, 3
"""Degrees of freedom that the noise of the other cases counts for, where at least so many cases are alike:
matrix products, or other work, whose times vary several times as much on some machines."""
FIRST_SHARE = {"cpu": 1 / 9, "cuda": 1 / 2}
"""Part of the budget that the first round may take where there are more cases than time. On a CPU the others
take as long; on a GPU most of it is choosing configurations and compiling."""
SAMPLING_S = {"cpu": 0.1, "cuda": 0.4}
"""Most seconds that a visit may sample. Visits differ by more than their samples tell, so many short visits
tell more than a few long ones; a GPU's clock takes longer to settle."""

Side = Literal["old", "new"]
Visiting = Callable[[Case, Side], VisitResult]
"""Visits a case with one version."""
Verdict = change.Verdict | Literal["FAILED", "NEW"]
"""`FAILED`: the new version has no time; `NEW`: only the old one, which may not know the case."""


@dataclass
class Contest:
    """One case with both versions."""

    case: Case
    logs: list[float] = field(default_factory=list)
    """ln(seconds of the new version / seconds of the old one), one for each round."""
    effect: Change | None = None
    """Seconds new / seconds old, with the interval of the last look; None before."""
    verdict: Verdict = "UNDECIDED"
    kind: DeviceKind = "cpu"
    seconds: float | None = None
    """What a launch of the old version took in its last round."""
    failure: str = ""
    """Which version has no time, and why."""
    variance: float | None = None
    """Variance of one of `logs`, by the last look; None before."""
    false: float = FALSE
    """Chance of being called different without a difference."""

    @property
    def work(self) -> WorkClass:
        """Its kind of work: cases of one kind scatter alike."""
        if self.case.cache == "warm":
            return WorkClass.CACHE
        problem = self.case.problem
        return work_from_memory(problem.arithmetic, problem.flop, problem.byte, self.seconds, self.kind)

    def add(self, visit: Visiting, number: int) -> None:
        """Visit the case with both versions in the round of this number, counted from 0."""
        order: tuple[Side, Side] = ("old", "new") if number % 2 == 0 else ("new", "old")
        found = {side: visit(self.case, side) for side in order}
        failures = [f"{side}: {f.status}: {f.reason}" for side, f in found.items() if f.status != "ok"]
        if failures:
            self.verdict = "FAILED" if found["new"].status != "ok" else "NEW"
            self.failure = "; ".join(failures)
        else:
            old_s, new_s = found["old"].median_s, found["new"].median_s
            assert old_s is not None and new_s is not None
            self.seconds = old_s
            self.logs.append(math.log(new_s / old_s))

    def decide(self, others: float | None, share: float, same: float) -> None:
        """Set effect and verdict.

        `others` is the usual variance of one observation, `share` the part of `false` that this look has.
        """
        if self.failure or len(self.logs) < LEAST:
            return
        mean, variance, degrees = _trimmed(self.logs)
        if others is not None:
            variance = (degrees * variance + OTHERS * others / len(self.logs)) / (degrees + OTHERS)
            degrees += OTHERS
        self.variance = variance * len(self.logs)
        half = student(degrees, 1 - share * self.false) * math.sqrt(variance)
        self.effect = Change(mean, half, half, float(chance(mean, math.sqrt(variance), degrees)))
        self.verdict = self.effect.verdict(math.log1p(same), math.log1p(same), share * self.false)


def contests(
    cases: Sequence[Case],
    visit: Visiting,
    renew: Callable[[], None],
    budget_s: float,
    same: float,
    now: Callable[[], float] = time.perf_counter,
    kind: DeviceKind = "cpu",
    as_time_allows: bool = False,
) -> Iterator[Contest]:
    """Each case when it is decided or has failed; the others, when the time is up, as far as they are known.

    None for which there was no time at all. `renew` is called before each round. `same` is the share by which
    two versions may differ and count as the same: less is neither faster nor slower. `as_time_allows`: of
    more than FEW_CASES without the last ones, if a first round of all would take more of the budget than
    FIRST_SHARE.
    """
    until_s = now() + budget_s
    first_until_s = now() + FIRST_SHARE[kind] * budget_s if as_time_allows else math.inf
    every = [Contest(case, kind=kind) for case in cases]
    left = every
    for number in range(MOST_ROUNDS):
        if not left or now() >= until_s:
            break
        renew()
        for count, contest in enumerate(left):
            is_spare = number == 0 and count >= FEW_CASES
            if now() >= (min(first_until_s, until_s) if is_spare else until_s) and (number or count):
                break
            contest.add(visit, number)
        if number == 0:
            left = every = [contest for contest in every if contest.logs or contest.failure]
            for contest in every:
                contest.false = min(FALSE, FALSE_IN_ALL / len(every))
        if number + 1 in EARLY:
            _decide(left, every, (1 - AT_END) / len(EARLY), same)
        yield from (contest for contest in left if contest.verdict != "UNDECIDED")
        left = [contest for contest in left if contest.verdict == "UNDECIDED"]
    _decide(left, every, AT_END, same)
    yield from left


def _decide(left: Sequence[Contest], every: Sequence[Contest], share: float, same: float) -> None:
    noises: dict[WorkClass, list[float]] = defaultdict(list)
    for each in every:
        if len(each.logs) >= LEAST:
            noises[each.work].append(_trimmed(each.logs)[1] * len(each.logs))
    for contest in left:
        alike = noises[contest.work]
        contest.decide(statistics.median(alike) if len(alike) >= FROM_CASES else None, share, same)


def _trimmed(logs: Sequence[float]) -> tuple[float, float, int]:
    """(trimmed mean, its variance, degrees of freedom) of LEAST observations or more."""
    values = np.sort(logs)
    cut = int(CUT * len(values))
    kept = values[cut : len(values) - cut]
    winsorized = float(np.var(np.clip(values, kept[0], kept[-1]), ddof=1))
    variance = (len(values) - 1) * winsorized / (len(kept) * (len(kept) - 1))
    return float(np.mean(kept)), variance, len(kept) - 1


@contextmanager
def versions(device: Device, old: Path, new: Path) -> Iterator[tuple[Visiting, Callable[[], None]]]:
    """(visit, renew) for `contests`: workers that run the code of the checkouts in these two folders."""
    earlier = earlier_ceilings(earlier_runs(RESULTS / device.slug))
    settings, sampling_s = protocol(device.kind, 3), SAMPLING_S[device.kind]
    roots: dict[Side, Path] = {"old": old, "new": new}
    supervisors = {side: WorkerSupervisor(device, root=root) for side, root in roots.items()}

    def visit(case: Case, side: Side) -> VisitResult:
        threads = supervisors[side].threads(case.threads)
        # Not as a first visit, which is checked before it is timed, too: each is checked afterwards.
        asked = visit_to(case, settings, sampling_s, threads, first=False)
        return unless_too_quick(supervisors[side].visit(asked), case, device, earlier)

    def close() -> None:
        for supervisor in supervisors.values():
            supervisor.close()

    def renew() -> None:
        if device.kind == "cpu":  # a GPU's would tune and compile anew
            close()
        for supervisor in supervisors.values():
            supervisor.begin()
        for supervisor in supervisors.values():
            with suppress(WorkerDied):  # its requests will get the reason as their answer
                supervisor.started()

    try:
        yield visit, renew
    finally:
        close()
