"""Two versions of the code in turns, case by case, until each case is decided or the time is up.

In each round every undecided case is visited once with either version, one right after the other, in an order
that turns with each round. The logarithm of the ratio of such two times is one observation: what both share,
the machine's drift among it, cancels. After each round the mean has an interval of Student's t. A case is
looked at up to LOOKS times, and each look may be wrong with a LOOKS-th of FALSE, so that over all of them a
case without a difference is called faster or slower with a chance of at most FALSE.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from bench.device.detect import Device
from bench.runner.rows import SEED
from bench.runner.supervisor import WorkerSupervisor, measure_request
from bench.sampling.protocol import protocol
from bench.sweep.load import Case

FALSE = 0.01
"""Chance that a case without a difference is called faster or slower."""
SAMPLING_S = 0.4
"""Most seconds that a visit may sample: many short visits in turns tell more than a few long ones."""
FIRST_LOOK, LOOKS = 4, 12
"""Observations before the first look at a case, and the number of looks, one after each further one."""

Visit = Callable[[Case, bool], Mapping[str, Any]]
"""Visits a case, whose result is to be checked or not; gives the columns that a worker answers."""
Verdict = Literal["faster", "slower", "same", "undecided", "failed"]


@dataclass
class Contest:
    """One case with both versions."""

    case: Case
    same: float
    """Share by which two versions may differ and count as the same."""
    logs: list[float] = field(default_factory=list)
    """ln(seconds of the new version / seconds of the old one), one for each round."""
    halves: list[float] = field(default_factory=list)
    """Half of the 95 % interval of each of these, by the two visits' own."""
    failure: str = ""
    """Which version has no time, and why."""

    @property
    def effect(self) -> tuple[float, float, float]:
        """(ratio, low, high): new over old, with an interval that may be looked at so often; NaN before."""
        n = len(self.logs)
        if n < FIRST_LOOK:
            return math.nan, math.nan, math.nan
        from scipy import stats

        factor = float(stats.t.ppf(1 - FALSE / LOOKS / 2, n - 1))
        mean = float(np.mean(self.logs))
        # Few observations may agree by chance: their own noise is the least that they have.
        own = float(np.sqrt(np.mean(np.square(self.halves)))) / 1.96
        half = factor * max(float(np.std(self.logs, ddof=1)), own) / math.sqrt(n)
        return math.exp(mean), math.exp(mean - half), math.exp(mean + half)

    @property
    def verdict(self) -> Verdict:
        """What is known by now."""
        if self.failure:
            return "failed"
        _, low, high = self.effect
        if low > 1:
            return "slower" if high > 1 + self.same else "same"
        if high < 1:
            return "faster" if low < 1 - self.same else "same"
        return "same" if low > 1 - self.same and high < 1 + self.same else "undecided"

    @property
    def is_over(self) -> bool:
        """Whether further rounds would change nothing, or may not."""
        return self.verdict != "undecided" or len(self.logs) >= FIRST_LOOK + LOOKS - 1


def contests(
    cases: Sequence[Case],
    old: Visit,
    new: Visit,
    budget_s: float,
    same: float,
    now: Callable[[], float] = time.perf_counter,
) -> Iterator[Contest]:
    """Each case when it is over, or, when the time is up, as far as it is known."""
    began_s = now()
    left = [Contest(case, same) for case in cases]
    number = 0
    while left and now() - began_s < budget_s:
        for contest in list(left):
            if now() - began_s >= budget_s:
                break
            _round(contest, old, new, number)
            if contest.is_over:
                left.remove(contest)
                yield contest
        number += 1
    yield from left


def _round(contest: Contest, old: Visit, new: Visit, number: int) -> None:
    """Visit a case with both versions, and add what came of it."""
    sides = {"old": old, "new": new}
    facts = {
        name: sides[name](contest.case, number == 0)
        for name in (("old", "new") if number % 2 == 0 else ("new", "old"))
    }
    failures = [f"{n}: {f['status']}: {f.get('reason', '')}" for n, f in facts.items() if f["status"] != "ok"]
    if failures:
        contest.failure = "; ".join(failures)
        return
    contest.logs.append(math.log(facts["new"]["median_s"] / facts["old"]["median_s"]))
    contest.halves.append(math.hypot(*(_half(fact) for fact in facts.values())))


def _half(facts: Mapping[str, Any]) -> float:
    """Half of a visit's own 95 % interval, |ln|; 0 if it has none."""
    low_s, high_s = facts.get("low_s"), facts.get("high_s")
    return math.log(high_s / low_s) / 2 if low_s and high_s and low_s > 0 else 0.0


@contextmanager
def version(device: Device, root: Path) -> Iterator[Visit]:
    """Visits by a worker that runs the code of the checkout in `root`."""
    settings = protocol(device.kind, 3)
    supervisor = WorkerSupervisor(device, SEED, root=root)

    def visit(case: Case, is_first: bool) -> Mapping[str, Any]:
        threads = supervisor.threads(case.threads)
        request = measure_request(case, settings, None, SAMPLING_S, threads, is_first)
        return supervisor.answer(request, SAMPLING_S)

    try:
        yield visit
    finally:
        supervisor.close()
