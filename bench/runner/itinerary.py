"""In which order cases are visited, and how often. Pure arithmetic: who asks keeps the account.

Ceilings first. Then the first visit of every case in the order given, and each further visit in an order of
its own, drawn from the run's seed: what drifts meets all cases alike, and the visits of one case lie far
apart. Cases that want more (see visits.py) get it in further rounds. After each quarter of the run's
time those ceilings that serve as sentinels are looked at again: with the looks at the ends that is enough to
see a drift (validation/interval_coverage.py). Last of all comes every ceiling, since a roof is what
was reached at either end of the run.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

LOOKS = (0.25, 0.5, 0.75)
"""Shares of the run after which the sentinels are looked at."""

Case = TypeVar("Case")


def itinerary(
    ceilings: Sequence[Case],
    cases: Sequence[Case],
    visits: int,
    seed: int,
    made: Callable[[Case], int],
    wants: Callable[[Case], bool],
    sentinels: Callable[[], Sequence[Case]],
    done: Callable[[], float],
) -> Iterator[Case]:
    """The case to visit next, until none is left; it has been visited when the next is asked for.

    `made` tells how many visits a case has had (a resumed run begins with some), `wants` whether another
    would tell more and there is time for it; `sentinels` are asked for when their turn comes, since only what
    was measured can tell which will do. `done` tells which share of the run is over, 0 to 1.
    """
    chance = random.Random(seed)
    yield from (case for case in ceilings if made(case) == 0)
    looks = list(LOOKS)
    for turn in range(visits):
        for case in cases if turn == 0 else chance.sample(cases, len(cases)):
            if looks and done() >= looks[0]:
                looks.pop(0)
                yield from sentinels()
            if made(case) <= turn and wants(case):
                yield case
    while some := [case for case in chance.sample(cases, len(cases)) if wants(case)]:
        before = [made(case) for case in some]
        yield from (case for case in some if wants(case))
        if [made(case) for case in some] == before:  # nobody was visited: nobody will be
            break
    yield from ceilings
