"""The seed of a run of the tests, and parametrisations of which a run draws a few by it.

Every plain run has the same seed, so that nobody's `make test` is a lottery. `make test-deep` (pytest --deep)
runs all cases, with random numbers of its own; ROOFBENCH_SEED=N draws by N.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

SEED = "ROOFBENCH_SEED"
"""Environment variable of the run's seed; processes of xdist and children inherit it."""
PLAIN_SEED = 0
"""The seed of every plain run."""
DEEP = "ROOFBENCH_DEEP"
"""Environment variable that is 1 in a run of all cases."""

Case = TypeVar("Case")


def begin_run(deep: bool) -> None:
    """Choose the run's seed, unless the environment has one: the plain one, or in a deep run a random one."""
    if deep:
        os.environ[DEEP] = "1"
    own = random.SystemRandom().randrange(2**32) if is_deep() else PLAIN_SEED
    os.environ.setdefault(SEED, str(own))


def run_seed() -> int:
    """The run's seed, on which all that is random in a test depends."""
    return int(os.environ[SEED])


def is_deep() -> bool:
    """Whether this run tests all cases."""
    return os.environ.get(DEEP) == "1"


def drawn(cases: Sequence[Case], count: int, of: str) -> list[Case]:
    """`count` of these cases by the run's seed, in their order; all of them in a deep run.

    `of` names what is drawn, so that two lists of equal length are drawn independently.
    """
    if is_deep() or count >= len(cases):
        return list(cases)
    return [cases[index] for index in sorted(_chance(of).sample(range(len(cases)), count))]


def covering(cases: Sequence[Case], of: str, *properties: Callable[[Case], Hashable]) -> list[Case]:
    """A few cases by the run's seed, in their order, that have every value of every property between them.

    So whatever the seed, a run meets each size, each data type, each layout. The first to be drawn is any of
    the cases, with equal chances; then one of those that bring most of what is missing. All cases in a deep
    run. `of` is what `drawn` takes.
    """
    if is_deep():
        return list(cases)
    values = [{(place, value(case)) for place, value in enumerate(properties)} for case in cases]
    missing = set().union(*values)
    shuffled = _chance(of).sample(range(len(cases)), len(cases))
    kept: list[int] = []
    while missing:
        kept.append(max(shuffled, key=lambda index: len(values[index] & missing)) if kept else shuffled[0])
        missing -= values[kept[-1]]
    return [cases[index] for index in sorted(kept)]


def _chance(of: str) -> random.Random:
    return random.Random(f"{os.environ.get(SEED, '')} {of}")
