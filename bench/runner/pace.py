"""How fast a run may go: shares its time among the cases that are left, again and again as it goes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from bench.runner.schedule import Job, Range, Schedule, schedule

AGAIN = 0.3
"""Of what building and checking a roof took at first, what it takes again: its memory is touched by then."""
REPLAN = 8
"""Visits between two looks at the time that is left."""


class Pace:
    """The account of one run's time."""

    def __init__(
        self, budget_s: float | None, sampling: Range, now: Callable[[], float] = time.perf_counter
    ) -> None:
        """`budget_s` wall seconds for the run (None: no limit), from now; `sampling` of each visit."""
        self.budget_s, self.sampling, self._now = budget_s, sampling, now
        self._began = now()
        self._schedule: Schedule | None = None
        self._planned_at_s = 0.0
        self._until_replan = 0
        self.again_s = 0.0
        """Kept for measuring the roofs again at the end."""

    def begin(self) -> None:
        """The budget's time runs from now on."""
        self._began = self._now()

    @property
    def elapsed_s(self) -> float:
        """Wall seconds since the run began."""
        return self._now() - self._began

    def visited(self) -> None:
        """A visit is over."""
        self._until_replan -= 1

    def roof_measured(self, taken_s: float, sampled_s: float) -> None:
        """A roof's first visit took so long, sampling included: it will be measured again at the end."""
        self.again_s += again_s(taken_s - sampled_s, sampled_s)

    def plan(self, jobs: Callable[[], Sequence[Job]]) -> Schedule:
        """Who may run for how long; `jobs` are asked for when it is time to look again."""
        if self._schedule is None or self._until_replan <= 0:
            self._schedule = schedule(jobs(), self.spare_s(), self.budget_s, self.sampling)
            self._planned_at_s = self.elapsed_s
            self._until_replan = REPLAN
        return self._schedule

    @property
    def visits_left(self) -> int | None:
        """Of the visits that were planned, those still to come; None before there is a plan."""
        if self._schedule is None:
            return None
        return max(0, self._schedule.visits - (REPLAN - self._until_replan))

    def has_room(self, job: Job) -> bool:
        """Whether there is time for visits that were not planned."""
        spare_s = self.spare_s()
        return spare_s is None or job.cost_s(self.sampling.least_s) <= spare_s

    def left_s(self) -> float | None:
        """About how many seconds the run will go on; None while nothing is known."""
        if self._schedule is not None:
            return max(0.0, self._schedule.total_s - (self.elapsed_s - self._planned_at_s))
        return None if self.budget_s is None else max(0.0, self.budget_s - self.elapsed_s)

    @property
    def done(self) -> float:
        """The share of the run that is over, by time, 0 to 1; 0 while nothing is known."""
        left_s = self.left_s()
        return 0.0 if left_s is None else self.elapsed_s / max(1e-9, self.elapsed_s + left_s)

    def spare_s(self) -> float | None:
        """Of the budget, what is neither spent nor kept for the roofs at the end."""
        return None if self.budget_s is None else max(0.0, self.budget_s - self.elapsed_s - self.again_s)


def again_s(beside_s: float, sampled_s: float) -> float:
    """Wall seconds of measuring a roof again, from what building and checking it, and sampling, took."""
    return AGAIN * beside_s + sampled_s
