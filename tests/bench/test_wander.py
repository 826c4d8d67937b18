"""How far a machine moves by itself, from the visits to its cases."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bench.judge.wander import Moved, Wander, between_visits
from tests.bench.comparable import timed

pytestmark = pytest.mark.alone


def moves(bound: Any, *by: float, undisturbed: bool = True) -> list[Moved]:
    return [Moved(bound, undisturbed, one) for one in by]


def test_wander_is_the_95th_percentile_of_its_own_kind() -> None:
    memory, core = [0.001 * k for k in range(21)], [0.01 * k for k in range(21)]
    seen = Wander.seen([*moves("memory", *memory), *moves("core", *core)])
    assert (seen.memory, seen.core) == (pytest.approx(0.019), pytest.approx(0.19)) and seen.count == 42
    assert seen.of("memory") == seen.memory and seen.of("core") == seen.core
    # What a neighbour disturbed does not count ...
    seen = Wander.seen([*moves("core", *core), *moves("core", *[0.5] * 9, undisturbed=False)])
    assert seen.core == pytest.approx(0.19)
    # ... unless there is too little else.
    few = moves("core", *[0.01] * 5)
    seen = Wander.seen([*few, *moves("core", *[0.5] * 9, undisturbed=False)])
    assert seen.core == pytest.approx(0.5)
    # Of a kind that was hardly seen, the most that was seen of any.
    seen = Wander.seen([*few, *moves("memory", 0.02, 0.03)])
    assert (seen.memory, seen.core) == (0.03, 0.03)
    assert Wander.seen([*few, *moves("core", 0.02)]).core == 0.02
    assert Wander.seen(few) == Wander(None, None, 5)


def test_visits_that_were_outvoted_count_and_disturbed_ones_do_not(chance: np.random.Generator) -> None:
    one = timed(chance, visits=2)
    aside = {"set_aside": ["earlier", "contended", "earlier"], "set_aside_s": [2e-3, 9e-3, 4e-3]}
    found = between_visits([replace(one, **aside)])
    assert found == [
        pytest.approx(math.log(2)),
        pytest.approx(math.log(4), rel=1e-3),
        pytest.approx(0.0, abs=1e-3),
    ]
    assert len(between_visits([one])) == 1 and between_visits([replace(one, visit_samples=None)]) == []
