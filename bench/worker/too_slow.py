"""Refuses a case of which one launch would take too long: by a small problem first, then by its own launch.

A refusal rests on the quickest of several readings, and on a second one that agrees with it. A neighbour, or
a host that is interrupted, makes a reading longer and never shorter.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bench.spec import Problem
    from bench.worker.buffer_ring import BufferRing
    from bench.worker.clock import Clock
    from bench.worker.measure_case import Bench
    from bench.worker.visit import Visit

    Slots = Callable[[Problem, int], BufferRing]

SMALL = 8
"""A small problem reaches a fraction of a large one's rate, down to one in so many (assumed)."""
LEAST_S = 1e-3
"""A small problem that takes less than this refuses nothing: it may have timed the host's launch alone."""
LOOK_S, MOST_READINGS = 1.0, 10
"""Readings go on for so many seconds, two at least, and at most so many."""
AGREE = 1.5
"""Two readings agree if neither is longer than this many times the other (assumed)."""


class TooSlow(Exception):
    """The case cannot be measured within its limits; the message says why."""


def probe(bench: Bench, clock: Clock, slots: Slots, problem: Problem, visit: Visit) -> None:
    """Time a small problem of the kind; TooSlow if a launch of this one would take far over `visit.launch_s`.

    The host's clock may clear a problem, as it counts the launch itself too. Only the clock by which the case
    will be timed may refuse it.
    """
    small, most_s = problem.probe(), SMALL * visit.launch_s
    key = (problem.operator, visit.implementation, problem.dtype)
    known = bench.probed_flop_per_s.get(key, 0.0)
    if problem.flop <= SMALL * small.flop or problem.flop <= most_s * known:
        return
    single = slots(small, 1)
    limit_s = max(LEAST_S, most_s * small.flop / problem.flop)
    readings_s = [single.warm_launch_s()]
    if readings_s[0] > limit_s:
        clock = bench.clock_for(single.launches[0], clock)
        readings_s = _readings_s(clock.batch(single.calls, False), limit_s)
    rate = small.flop / readings_s[0] if readings_s[0] > LEAST_S else math.inf
    bench.probed_flop_per_s[key] = max(known, rate)
    if _are_above(readings_s, limit_s):
        raise TooSlow(
            f"{small} took {_two(readings_s)} s by the {clock.name} clock, {1e-9 * rate:.3g} GFLOP/s, so one "
            f"launch of this would take about {problem.flop / rate:.2g} s; "
            f"the budget allows {visit.launch_s:.2g} s"
        )


def first_launch_s(single: BufferRing, limit_s: float) -> float:
    """Wall seconds of a launch of slot 0 that need not compile any more; TooSlow if `limit_s` is less."""
    single.launch_s()
    readings_s = _readings_s(single.launch_s, limit_s)
    if _are_above(readings_s, limit_s):
        raise TooSlow(f"launches took {_two(readings_s)} s here; the budget allows {limit_s:.2g} s")
    return readings_s[0]


def _readings_s(read: Callable[[], float], limit_s: float) -> list[float]:
    """Readings in ascending order, until one is within the limit or the quickest two above it agree."""
    taken_s: list[float] = []
    while len(taken_s) < MOST_READINGS and (sum(taken_s) < LOOK_S or not _agree(taken_s)):
        taken_s = sorted([*taken_s, read()])
        if taken_s[0] <= limit_s:
            break
    return taken_s


def _agree(ascending_s: Sequence[float]) -> bool:
    return len(ascending_s) > 1 and ascending_s[1] <= AGREE * ascending_s[0]


def _are_above(ascending_s: Sequence[float], limit_s: float) -> bool:
    """Whether the quickest two agree that the limit is exceeded."""
    return ascending_s[0] > limit_s and _agree(ascending_s)


def _two(ascending_s: Sequence[float]) -> str:
    return " and ".join(f"{seconds:.3g}" for seconds in ascending_s[:2])
