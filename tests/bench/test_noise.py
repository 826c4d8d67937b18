"""How far a machine moves by itself, from the visits to its cases."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bench.judge.noise import CaseStep, Noise, between_visits
from bench.sampling.publish import Step, estimate, reach
from tests.bench.comparable import timed


def moves(bound: Any, *by: float, undisturbed: bool = True) -> list[CaseStep]:
    return [CaseStep(bound, Step(size, undisturbed)) for size in by]


def test_noise_is_the_95th_percentile_of_its_own_kind() -> None:
    memory, core = [0.001 * k for k in range(21)], [0.01 * k for k in range(21)]
    seen = Noise.seen([*moves("memory", *memory), *moves("core", *core)])
    assert (seen.memory, seen.core) == (pytest.approx(0.019), pytest.approx(0.19)) and seen.count == 42
    assert seen.of("memory") == seen.memory and seen.of("core") == seen.core
    # What a neighbour disturbed does not count ...
    seen = Noise.seen([*moves("core", *core), *moves("core", *[0.5] * 9, undisturbed=False)])
    assert seen.core == pytest.approx(0.19)
    # ... unless there is too little else.
    few = moves("core", *[0.01] * 5)
    seen = Noise.seen([*few, *moves("core", *[0.5] * 9, undisturbed=False)])
    assert seen.core == pytest.approx(0.5)
    # Of a kind that was hardly seen, the most that was seen of any.
    seen = Noise.seen([*few, *moves("memory", 0.02, 0.03)])
    assert (seen.memory, seen.core) == (0.03, 0.03)
    assert Noise.seen([*few, *moves("core", 0.02)]).core == 0.02
    assert Noise.seen(few) == Noise(None, None, 5)


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


def test_visits_that_older_files_hold_as_rows_are_taken_in_their_order(chance: np.random.Generator) -> None:
    first, second, third = (
        replace(timed(chance), visit=number, samples_s=[level_s] * 9, visit_samples=None)
        for number, level_s in enumerate((1.0, 2.0, 8.0))
    )
    assert between_visits([third, first, second]) == pytest.approx([math.log(2), math.log(4)])


def test_noise_is_the_largest_of_few_steps_and_undisturbed_ones_count_first() -> None:
    assert estimate([]) is None and estimate([Step(0.03), Step(0.01)]) == 0.03
    quiet = [Step(0.001)] * 6
    assert estimate([*quiet, *[Step(0.5, undisturbed=False)] * 9]) == 0.001
    assert estimate([*quiet[1:], Step(0.5, undisturbed=False)]) == 0.5
    assert estimate([*quiet * 6, Step(0.4)]) == 0.001  # one that met a neighbour
    assert estimate([*quiet, *[Step(0.4)] * 6]) == 0.4


def test_noise_is_what_95_in_100_steps_do_not_exceed(chance: np.random.Generator) -> None:
    """Of 4,000 steps between normal visits, the 95th percentile scatters by 1.5 %."""
    levels = chance.normal(0, 0.01, (4000, 2))
    noise = estimate(Step(step) for step in np.abs(np.diff(levels, axis=1))[:, 0])
    assert noise == pytest.approx(1.96 * 0.01 * math.sqrt(2), rel=0.1)
    down, up = reach(1.0, math.exp(-0.03), math.exp(0.06), 0.04)
    assert down == pytest.approx(0.05) and up == pytest.approx(math.hypot(0.06, 0.04))
