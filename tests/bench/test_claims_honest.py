"""How often verdicts are wrong where the truth is known, and what makes an interval wide enough for that."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from bench.store.schema import Measurement
from studies.honest_claims import BEYOND, NAMES, TIMES, counted, machines
from tests.bench.claims_made import KINDS, bounds, claim, judged, knees, timed
from tests.bench.rows import again, with_interval
from tests.drawing import drawn
from tests.plots.synthetic import H100, ceilings

RUNS = 8
LUCK = 1e-6 / len(NAMES)
"""Chance that a test fails by: each is one of so many that may."""
MACHINES = {machine.name: machine for machine in machines()}


def most(share: float) -> int:
    """How many of RUNS an event of this chance happens in, hardly ever exceeded."""
    return int(stats.binom.isf(LUCK, RUNS, share))


def least(share: float) -> int:
    """The same, hardly ever fallen short of."""
    return int(stats.binom.ppf(LUCK, RUNS, share))


@pytest.mark.parametrize("name", drawn(NAMES, 1, "honest claims on a GPU"))
def test_on_a_quiet_gpu_few_verdicts_are_wrong_and_three_percent_are_seen(name: str, seed: int) -> None:
    found = counted(seed, MACHINES["GPU, quiet"], RUNS, [name])[name]
    for beyond in BEYOND:
        assert found.wrong(beyond) * RUNS <= most(0.05), (seed, beyond, found.at)
    for beyond in (-0.03, 0.03):
        assert found.right(beyond) * RUNS >= least(0.9) > 0, (seed, beyond, found.at)


@pytest.mark.parametrize("name", drawn(TIMES, 1, "honest claims on a CPU"))
@pytest.mark.parametrize("machine", drawn([name for name in MACHINES if name.startswith("CPU")], 1, "CPUs"))
def test_with_the_noise_of_measured_runs_few_verdicts_are_wrong(machine: str, name: str, seed: int) -> None:
    found = counted(seed, MACHINES[machine], RUNS, [name])[name]
    for beyond in BEYOND:
        assert found.wrong(beyond) * RUNS <= most(0.05), (seed, beyond, found.at)


OF_RUN: dict[str, Any] = {"run_half": 0.04, "noise_visits": 0.04, "noise_runs": 0.0}
"""Columns of a row whose interval holds all noise of its run already, and is not noisier than that."""


def several(half: float, times: int, apart: float = 0.0) -> list[Measurement]:
    """Rows of four layouts that are alike, but that one is slower by `apart` and all have noise of `half`."""
    chance = np.random.default_rng(times)
    slower = {"NN": 0.0, "NT": 0.0, "TN": 0.0, "TT": apart}
    return [
        timed(1e-3 * m * np.exp(chance.normal(by, half / 1.96)), half=half, m=m, layout=layout, **OF_RUN)
        for m in range(256, 256 + 8 * times, 8)
        for layout, by in slower.items()
    ]


def test_what_noise_alone_adds_to_a_spread_is_in_its_interval() -> None:
    """However many lines there are: each is wrong in the same direction."""
    nothing = judged(claim("spread", "above 1.02"), several(0.04, 100))
    assert nothing.verdict == "UNDECIDED" and nothing.effect.low < 1.01 < 1.03 < nothing.effect.value
    apart = judged(claim("spread", "above 1.2"), several(0.04, 100, apart=0.3))
    assert apart.verdict == "SUPPORTED" and apart.effect.low > 1.3
    quiet = judged(claim("spread", "below 1.02"), several(0.001, 100))
    assert quiet.verdict == "SUPPORTED"


def test_a_line_without_one_of_its_rows_has_no_spread() -> None:
    """Else the rest would be narrower than the whole, by chance or because the slowest row is in doubt."""
    rows = several(0.001, 20, apart=0.3)
    slowest = [index for index, each in enumerate(rows) if '"TT"' in each.parameters]
    spoilt = [dataclasses.replace(each, settled=index not in slowest[:15]) for index, each in enumerate(rows)]
    found = judged(claim("spread", "above 1.3"), spoilt)
    assert (found.verdict, found.effect.clusters, found.suspect) == ("SUPPORTED", 5, 15)


def test_imported_rows_have_no_noise_that_could_be_added_to_their_spread() -> None:
    rows = again(several(0.04, 20), low_s=None, high_s=None, source="x")
    effect = judged(claim("spread", "above 1"), rows).effect
    assert np.log(effect.value / effect.low) == pytest.approx(np.log(effect.high / effect.value))


@pytest.mark.parametrize(("operator", "sides"), [("stream", ("memory",)), ("gemm", ("compute",))])
def test_what_is_not_known_of_a_roof_is_in_what_is_held_against_it(
    operator: str, sides: tuple[str, ...], chance: np.random.Generator
) -> None:
    """Of the term that it bounds only, and of the ridge."""

    def effects(half: float) -> list[tuple[float, float]]:
        made = [*bounds(chance, 0.0), *knees(chance, 0.0)]
        of_roof = [
            with_interval(each, half) if each.operator == operator else each for each in ceilings(H100)
        ]
        asked = [claim("bound", "above 0", bound={"by": by}, where={"n": 8}) for by in ("memory", "compute")]
        asked.append(claim("knee", "above 0", knee={"x": "n", "to": "ridge"}))
        of = [each.effect for each in judged(asked, made, roofs=of_roof)]
        return [(float(np.log(each.value / each.low)), float(np.log(each.high / each.value))) for each in of]

    before, after = effects(0.0), effects(0.1)
    for place, term in enumerate(("memory", "compute", "ridge")):
        wider = [by - was for by, was in zip(after[place], before[place], strict=True)]
        if term in sides or term == "ridge":
            assert all(0.05 < by < 0.15 for by in wider), (term, wider)
        else:
            assert wider == pytest.approx([0.0, 0.0]), (term, wider)


@pytest.mark.parametrize(("kind", "sides"), [("bound", 1), ("knee", 2)])
def test_the_level_of_a_run_is_as_unsure_for_many_rows_as_for_one(
    kind: str, sides: int, chance: np.random.Generator
) -> None:
    """Where rows are not held against others of the run that it moved as far."""
    rows = again(KINDS[kind][0](chance, 0.0), run_half=0.0, noise_visits=0.0, noise_runs=0.1)
    effect = judged(claim(kind, "above 0"), rows).effect
    assert effect.clusters >= 8
    assert 0.1 < np.log(effect.high / effect.value) / math.sqrt(sides) < 0.12
    assert 0.1 < np.log(effect.value / effect.low) / math.sqrt(sides) < 0.12
