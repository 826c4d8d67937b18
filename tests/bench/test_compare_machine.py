"""Two runs compared: what the machine as a whole explains, and how seldom a verdict errs."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from bench.judge.comparison import Comparison, Verdict
from bench.judge.work_class import WorkClass, work_of
from bench.store.schema import Measurement
from tests.bench.comparable import (
    CASES,
    CPU,
    KNOWN,
    LIBRARY,
    Machine,
    clean,
    compared,
    drifting,
    judged,
    quiet,
    run,
    shares,
    slowed,
    stragglers,
    timed,
    two_states,
    verdicts,
)
from tests.bench.rows import Chance, lasting, with_ends, with_interval
from tests.drawing import drawn, is_deep

# --- the machine as a whole -------------------------------------------------------------------------


MOVED = {
    ("UNDECIDED", f"the machine's {what} may have moved as far")
    for what in ("matrix multiplications", "memory")
}


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_a_machine_that_became_slower_explains_its_cases_and_is_told(chance: Chance, kind: str) -> None:
    """The cases of A and B have nothing to do with it: the kernels are as good. The machine is not."""
    machine = (LIBRARY if kind == "cuda" else CPU) | {"implementation": "aten", "device_kind": kind}
    a = run(chance, quiet, 12, 3, **machine)
    by = 1.5 if kind == "cpu" else 1.1  # beyond what a CPU calls the same

    def slower(cases: float, ceilings: float) -> list[Measurement]:
        return [slowed(one, cases, ceilings) for one in a]

    found = compared(a, slower(by, by))
    assert verdicts(found) == MOVED and found.exit_code == 1
    (shift,) = found.shifts.values()
    assert math.exp(shift.by) == pytest.approx(by) and shift.ceilings == 16 and shift.is_sure
    # What is slower still is the kernel's own, and so is what did not follow a machine that became faster.
    assert verdicts(compared(a, slower(1.5 * by, by))) == {("SLOWER", "")}
    found = compared(a, slower(1 / by, 1 / by))
    assert verdicts(found) == MOVED and found.exit_code == 0
    # Other libraries are no other machine, and kernels of ours may have changed themselves.
    for changes in ({"torch": "2.14.0"}, {"libraries": "cuBLAS 13.1"}):
        found = compared(a, [replace(one, **changes) for one in slower(by, by)])
        assert verdicts(found) == {("SLOWER", "")} and not found.shifts
    ours = ([replace(one, implementation="triton") for one in rows] for rows in (a, slower(by, by)))
    assert verdicts(compared(*ours)) == {("SLOWER", "")}


@pytest.mark.parametrize(("factor", "code"), [(1.1, 1), (1 / 1.1, 3), (1.005, 3)])
def test_a_machine_that_became_slower_counts_though_no_row_is_sure(
    chance: Chance, factor: float, code: int
) -> None:
    """Sixteen ceilings that each know nothing, and all moved by as much."""
    a = [with_interval(one, 0.5) for one in run(chance, quiet, 4, 3, **LIBRARY)]
    found = compared(a, [lasting(one, factor) for one in a])
    assert {each.verdict for each in (*found.cases, *found.means)} == {"UNDECIDED"}
    assert found.exit_code == code


def test_a_few_ceilings_are_no_machine(chance: Chance) -> None:
    a = run(chance, quiet, 4, 3, **LIBRARY)
    places = [place for place, one in enumerate(a) if one.role != "measurement"]
    whole, memory = (
        ("UNDECIDED", f"the machine{part} may have moved as far") for part in (" as a whole", "'s memory")
    )
    for count, expected in ((5, {("SLOWER", "")}), (6, {whole, memory})):  # the first is of launching
        few = [one for place, one in enumerate(a) if place not in places[count:]]
        assert verdicts(compared(few, [lasting(one, 1.1) for one in few])) == expected


def test_a_machine_whose_memory_alone_became_slower(chance: Chance) -> None:
    """A neighbour takes the bandwidth and leaves the cores: a case is held against ceilings of its kind."""
    a, b = run(chance, quiet, 12, 3, **LIBRARY), run(chance, quiet, 12, 3, **LIBRARY)

    def changed(memory: float, matrix: float) -> Comparison:
        """Memory's ceilings take 1.5 times as long, the cases so many times."""
        factors = {True: (memory, 1.5), False: (matrix, 1.0)}
        return compared(a, [slowed(each, *factors[work_of(each) == WorkClass.MEMORY]) for each in b])

    found = changed(1.5, 1.1)
    told = {(case.case.sweep, case.verdict) for case in found.cases if case.role == "measurement"}
    assert told == {("stream/sizes", "UNDECIDED"), ("gemm/square", "SLOWER")}
    assert list(found.machine) == ["the machine's memory"] and found.exit_code == 1
    assert math.exp(found.machine["the machine's memory"].by) == pytest.approx(1.5, rel=0.01)
    # What became slower by more, or did not follow the memory, is the kernels' own.
    assert verdicts(changed(1.8, 1.0)) >= {("SLOWER", "")}
    assert changed(1.0, 1.0).exit_code == 1, "the machine is slower whatever the cases did"


@pytest.mark.parametrize("side", [0, 1])
def test_of_two_runs_the_one_that_knows_more_of_the_machine_speaks_for_both(
    chance: Chance, side: int
) -> None:
    pair = [replace(timed(chance, scale), noise_visits=0.001, noise_runs=0.001) for scale in (1.0, 1.2)]
    assert judged(*pair).verdict == "SLOWER"
    pair[side] = with_ends(replace(pair[side], noise_runs=0.15), 0.86, 1.17)
    assert judged(*pair).verdict == "UNDECIDED"


@pytest.mark.parametrize(("kind", "verdict"), [("cpu", "UNDECIDED"), ("cuda", "SLOWER")])
def test_runs_of_a_cpu_that_are_hours_apart_differ_by_more(chance: Chance, kind: str, verdict: str) -> None:
    noise = {"noise_visits": 0.001, "noise_runs": 0.02, "sm_clock_hz": None}
    before, after = (
        with_interval(timed(chance, scale, device_kind=kind, **noise), 0.02) for scale in (1.0, 1.05)
    )
    for clock, told in (("10:50", "SLOWER"), ("11:30", verdict)):
        assert judged(before, replace(after, utc=f"2026-11-21T{clock}:00.000+00:00")).verdict == told


def test_of_two_devices_neither_speaks_for_the_other(chance: Chance) -> None:
    """How restless one card's runs are says nothing of another's: its interval stays its own."""
    known = {"noise_visits": 0.001, "noise_runs": 0.001}
    before = with_interval(timed(chance, **known), 0.004)
    after = with_interval(timed(chance, 1.3, device="b200", **known | {"noise_runs": 0.12}), 0.12)
    found = judged(before, after, "device")
    assert found.effect is not None and math.log(found.effect.high / found.effect.ratio) < 0.13


# --- how often it errs ------------------------------------------------------------------------------


MACHINES = [
    (kind, machine, visits)
    for kind in ("cpu", "cuda")
    for machine in (quiet, clean, stragglers, drifting, two_states)
    for visits in (1, 3)
]
EFFECTS = [
    *(("cuda", quiet, 0.0, "SAME", 0.5), ("cuda", quiet, 0.05, "SLOWER", 0.95)),
    *(("cuda", clean, -0.05, "FASTER", 0.95), ("cpu", clean, 0.3, "SLOWER", 0.9)),
    ("cpu", clean, -0.25, "FASTER", 0.9),
]
SEED = 20261122
"""What follows is counted on fixed streams: with others a share may be met or missed by luck."""


@pytest.mark.parametrize(
    ("kind", "machine", "visits"),
    drawn(MACHINES, 2, "the same code"),
    ids=lambda of: getattr(of, "__name__", of),
)
def test_the_same_code_twice(kind: str, machine: Machine, visits: int) -> None:
    """At most one false verdict in two hundred cases."""
    pairs = 7 if is_deep() else 4
    found = shares(np.random.default_rng(SEED), machine, visits, 0.0, pairs, kind)
    assert found.comparable == pairs * CASES
    assert found.of("FASTER", "SLOWER") <= 0.005


@pytest.mark.parametrize(("kind", "machine", "effect", "verdict", "least"), drawn(EFFECTS, 2, "effects"))
def test_what_is_there_is_found(
    kind: str, machine: Machine, effect: float, verdict: Verdict, least: float
) -> None:
    """Three visits; a GPU whose earlier runs told how far they differ, by a level of its own in each case."""
    known = {"between_runs": 0.001, "earlier": KNOWN} if kind == "cuda" else {}
    pairs = 3 if is_deep() else 2
    found = shares(np.random.default_rng(SEED), machine, 3, effect, pairs, kind, **known)  # type: ignore[arg-type]
    assert found.of(verdict) >= least
    assert found.of(*{"FASTER", "SLOWER"} - {verdict}) <= 0.005
