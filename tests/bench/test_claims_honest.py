"""How often verdicts are wrong where the truth is known, and what makes an interval wide enough for that."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from scipy import stats

from bench.store.schema import Measurement
from studies.honest_claims import BEYOND, NAMES, TIMES, counted, machines
from tests.bench.claims_made import KINDS, asked, claim, judged, timed, truth
from tests.bench.rows import again, with_interval
from tests.drawing import drawn, is_deep
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


# A share wants a thousand rows, ten seconds: deep runs have it.
@pytest.mark.parametrize("name", drawn(NAMES if is_deep() else TIMES, 1, "honest claims on a GPU"))
def test_on_a_quiet_gpu_few_verdicts_are_wrong_and_three_percent_are_seen(name: str, seed: int) -> None:
    found = counted(seed, MACHINES["GPU, quiet"], RUNS, [name])[name]
    for beyond in BEYOND:
        assert found.wrong(beyond) * RUNS <= most(0.05), (seed, beyond, found.at)
    for beyond in (-0.03, 0.03):
        assert found.right(beyond) * RUNS >= least(0.9) > 0, (seed, beyond, found.at)


@pytest.mark.deep  # a run of each can be no more than wrong throughout, which the GPU's finds
@pytest.mark.parametrize("name", TIMES)
@pytest.mark.parametrize("machine", [name for name in MACHINES if name.startswith("CPU")])
def test_with_the_noise_of_measured_runs_few_verdicts_are_wrong(machine: str, name: str, seed: int) -> None:
    found = counted(seed, MACHINES[machine], RUNS, [name])[name]
    for beyond in BEYOND:
        assert found.wrong(beyond) * RUNS <= most(0.05), (seed, beyond, found.at)


def several(half: float, times: int, apart: float = 0.0) -> list[Measurement]:
    """Rows of four layouts that are alike, but that one is slower by `apart` and all have noise of `half`."""
    chance = np.random.default_rng(times)
    slower = {"NN": 0.0, "NT": 0.0, "TN": 0.0, "TT": apart}
    return [
        timed(1e-3 * m * np.exp(chance.normal(by, half / 1.96)), half=half, m=m, layout=layout)
        for m in range(256, 256 + 8 * times, 8)
        for layout, by in slower.items()
    ]


def test_what_noise_alone_adds_to_a_spread_decides_nothing() -> None:
    """However many lines there are: each is wrong in the same direction."""
    nothing = judged(claim("spread", "above 1.02"), several(0.04, 100))
    assert (nothing.verdict, nothing.effect.holding) == ("UNDECIDED", 0) and nothing.effect.value > 1.03
    apart = judged(claim("spread", "above 1.2"), several(0.04, 100, apart=0.3))
    assert apart.verdict == "SUPPORTED"
    quiet = judged(claim("spread", "below 1.02"), several(0.001, 100))
    assert quiet.verdict == "SUPPORTED"


def test_a_line_without_one_of_its_rows_has_no_spread() -> None:
    """Else the rest would be narrower than the whole, by chance or because the slowest row is in doubt."""
    rows = several(0.001, 20, apart=0.3)
    slowest = [index for index, each in enumerate(rows) if '"TT"' in each.parameters]
    spoilt = [dataclasses.replace(each, settled=index not in slowest[:15]) for index, each in enumerate(rows)]
    found = judged(claim("spread", "above 1.3"), spoilt)
    assert (found.verdict, found.effect.lines, found.suspect) == ("SUPPORTED", 5, 15)


HELD: dict[str, tuple[str, dict[str, Any]]] = {
    "memory": ("bound", {"by": "memory"}),
    "compute": ("bound", {"by": "compute"}),
    "ridge": ("knee", {"x": "n", "to": "ridge"}),
}
"""What rows may be held against -> kind and content of the test."""


@pytest.mark.parametrize("against", HELD)
def test_what_is_not_known_of_a_roof_decides_nothing(against: str, chance: np.random.Generator) -> None:
    """Of the term that it bounds only, and of the ridge: the bar is 5 % below the least of the lines."""
    kind, test = HELD[against]
    made = again(KINDS[kind][0](chance, 0.0), noise_visits=0.0, noise_runs=0.0)

    def found(expect: str, operator: str = "", half: float = 0.0) -> Any:
        roofs = [with_interval(each, half) if each.operator == operator else each for each in ceilings(H100)]
        return judged(asked(expect, **{kind: test}), made, roofs=roofs)

    bar = f"above {0.95 * found('above 0').effect.low:.6f}"
    assert found(bar).verdict == "SUPPORTED"
    for operator, term in {"stream": "memory", "gemm": "compute"}.items():
        least = found(bar, operator, 0.1).effect
        assert (least.holding < least.lines) == (against in (term, "ridge")), operator


@pytest.mark.parametrize(
    ("kind", "verdict"), [("bound", "UNDECIDED"), ("knee", "UNDECIDED"), ("slope", "SUPPORTED")]
)
def test_the_level_of_a_run_is_as_unsure_for_many_rows_as_for_one(
    kind: str, verdict: str, chance: np.random.Generator
) -> None:
    """Where rows are not held against others of the run that it moved as far."""
    bar = claim(kind, f"above {0.95 * truth(kind):.4f}")
    for runs_apart, word in ((0.0, "SUPPORTED"), (0.1, verdict)):
        rows = again(KINDS[kind][0](chance, 0.0), noise_visits=0.0, noise_runs=runs_apart)
        assert judged(bar, rows).verdict == word
