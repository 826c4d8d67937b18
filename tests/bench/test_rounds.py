"""What a run visits next, and for how long: its rounds alone, on a clock that the test moves."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import kernels
from bench.device.detect import Device
from bench.runner.comparisons import CaseGroup
from bench.runner.merge_visits import visit_row
from bench.runner.rounds import CEILINGS_SHARE, LATEST, NextVisit, Rounds
from bench.sampling.protocol import protocol
from bench.store.schema import Measurement
from bench.sweep.claims import Claim
from bench.sweep.load import Case, load
from tests.bench.several import SWEEP, gpu, planned

FACTS: dict[str, Any] = {"run_id": "r", "commit": "c", "threads": 1}
GPU = gpu(0)
Answer = Callable[[NextVisit], dict[str, Any]]


def quiet(step: NextVisit) -> dict[str, Any]:
    """A visit of a tenth of a second that agrees with every other."""
    return timed(1e-3)


def timed(median_s: float) -> dict[str, Any]:
    facts: dict[str, Any] = {"status": "ok", "clock": "graph", "stop": "converged", "settled": True}
    facts |= {"median_s": median_s, "samples_s": [median_s] * 20, "low_s": median_s, "high_s": median_s}
    return facts | {"measure_s": 0.1, "launches": 1}


@dataclass
class Simulation:
    """A run in which only the clock is real to the rounds."""

    rounds: Rounds
    answer: Answer = quiet
    beside_s: float = 0.0
    """Seconds of a visit beside what its row says it measured."""
    first_s: float = 0.0
    """The same of first visits, in addition: compiling."""
    at_s: float = 0.0
    start_s: float = 0.0
    """Seconds that a worker takes to start."""
    is_dead: bool = False
    """Whether a new worker has to start before the next visit."""

    def visit(self) -> tuple[Case, Measurement] | None:
        """The next visit; None if there is none."""
        step = self.rounds.next(self.at_s, self.start_s if self.is_dead else 0.0)
        if step is None:
            return None
        case = step.case
        if self.is_dead:
            self.at_s, self.is_dead = self.at_s + self.start_s, False
        facts = self.answer(step) if step.refusal is None else dict(step.refusal)
        taken_s = None
        if step.refusal is None:
            taken_s = facts.get("measure_s", 0.0) + self.beside_s + self.first_s * (step.number == 0)
            self.at_s += taken_s
            facts |= {"visit_at_s": [self.at_s]}
        rounds = self.rounds
        row = visit_row(case, rounds.device, rounds.settings, {**FACTS, **facts, "visit": step.number})
        rounds.visited(case, row, taken_s)
        self.is_dead = row.status == "crashed"
        return case, row

    def run(self) -> list[tuple[Case, Measurement]]:
        """Every visit until the run is over."""
        return list(iter(self.visit, None))

    def timed(self) -> Counter[str]:
        """How often each case, ceilings apart, is visited and has a time, by key, once the run is over."""
        made = [case.key for case, row in self.run() if case.role == "measurement" and row.status == "ok"]
        return Counter(made)


def loaded(folder: Path, name: str, sizes: list[int], implementation: str = "cublas") -> list[Case]:
    path = folder / f"{name}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    role = "role: roof\n" if name.startswith("ceilings/") else ""
    path.write_text(role + SWEEP.replace("SIZES", str(sizes)).replace("cublas", implementation))
    return load(path, kernels.problem, 2, folder).cases


@pytest.fixture
def ceilings(tmp_path: Path) -> list[Case]:
    return loaded(tmp_path, "ceilings/gemm", [64, 96])


@pytest.fixture
def cases(tmp_path: Path) -> list[Case]:
    return loaded(tmp_path, "small", list(range(1, 41)))


def rounds(
    cases: list[Case],
    visits: int = 3,
    budget_s: float | None = None,
    seed: int = 1,
    device: Device = GPU,
    compared: Sequence[CaseGroup] | None = None,
) -> Rounds:
    made = Rounds(device, protocol("cuda", visits), budget_s, seed=seed)
    planned(made, cases, compared)
    return made


# ---- order


@pytest.mark.parametrize("count", [0, 1, 31])
def test_each_case_is_visited_three_times_and_ceilings_frame_the_run(
    count: int, ceilings: list[Case], cases: list[Case]
) -> None:
    order = [case for case, _ in Simulation(rounds([*ceilings, *cases[:count]])).run()]
    made = Counter(case.key for case in order)
    assert all(made[case.key] == 3 for case in cases[:count])
    assert order[:2] == ceilings == order[-2:] and made[ceilings[1].key] == 2
    assert made[ceilings[0].key] - 2 == (2 if count == 31 else 0), "a sentinel, in long rounds"


def test_a_round_ends_before_the_next_and_repetitions_lie_most_of_a_round_apart(
    cases: list[Case], seed: int
) -> None:
    def order(seed: int) -> list[str]:
        return [case.key for case, _ in Simulation(rounds(cases, 3, seed=seed)).run()]

    made = order(seed)
    turns = [made[i : i + 40] for i in range(0, 120, 40)]
    assert turns[0] == [case.key for case in cases], "first visits are in the order given"
    assert all(sorted(each) == sorted(turns[0]) for each in turns)
    assert len({tuple(each) for each in turns}) == 3  # two alike of so many orders: never
    assert order(seed) == made != order(seed + 1)
    for key in turns[0]:
        at = [place for place, each in enumerate(made) if each == key]
        assert min(b - a for a, b in itertools.pairwise(at)) >= 30 == 0.75 * 40


def test_what_is_compared_stays_together(cases: list[Case], seed: int) -> None:
    compared = [CaseGroup(tuple(cases[at : at + 4])) for at in range(0, 40, 4)]
    made = [case.key for case, _ in Simulation(rounds(cases, 3, seed=seed, compared=compared)).run()]
    groups = [frozenset(made[at : at + 4]) for at in range(0, 120, 4)]
    assert Counter(groups) == {frozenset(each.keys): 3 for each in compared}


def test_what_is_left_narrows_what_disagrees_and_what_decides_a_claim_comes_first(cases: list[Case]) -> None:
    """Of visits 10 % apart no median is known."""
    claim = {"id": "MM-01", "says": "s", "expect": "below 1", "slope": {"x": "n"}}
    compared = [CaseGroup((case,)) for case in cases[:9]]
    compared[7] = CaseGroup((cases[7],), Claim.model_validate(claim))

    def answer(step: NextVisit) -> dict[str, Any]:
        apart = {cases[3]: 0.2, cases[7]: 0.1}.get(step.case, 0.0)
        return timed(1e-3 * (1 + apart * (step.number % 2)))

    unlimited = Simulation(rounds(cases[:9], compared=compared), answer)
    order = [case.key for case, _ in unlimited.run()]
    made = Counter(order)
    assert made[cases[3].key] == made[cases[7].key] > 3
    assert {made[case.key] for case in (*cases[:3], cases[8])} == {3}
    short = Simulation(rounds(cases[:9], budget_s=2.95, compared=compared), answer, at_s=0.1)
    made = Counter(case.key for case, _ in short.run())
    assert (made[cases[3].key], made[cases[7].key]) == (3, 4)


def test_a_case_that_failed_has_no_further_visit_and_one_that_crashed_has_one(cases: list[Case]) -> None:
    wrong, crashed, crashes = cases[:3]

    def answer(step: NextVisit) -> dict[str, Any]:
        if step.case == wrong:
            return {"status": "wrong", "reason": "made so"}
        if step.case == crashes or (step.case == crashed and step.number == 0):
            return {"status": "crashed", "reason": "SIGSEGV"}
        return quiet(step)

    made = Counter(case.key for case, _ in Simulation(rounds(cases[:5]), answer).run())
    assert [made[case.key] for case in cases[:5]] == [1, 4, 2, 3, 3]


def test_a_visit_that_the_machine_disturbed_is_made_again_once(cases: list[Case]) -> None:
    def answer(step: NextVisit) -> dict[str, Any]:
        return quiet(step) | {"steal": 0.5 * (step.case == cases[1])}

    made = Counter(case.key for case, _ in Simulation(rounds(cases[:3], 1), answer).run())
    assert [made[case.key] for case in cases[:3]] == [1, 2, 1]


def test_a_resumed_run_makes_only_the_visits_that_are_missing(
    ceilings: list[Case], cases: list[Case]
) -> None:
    chosen = [*ceilings, *cases[:3]]
    whole = Simulation(rounds(chosen, 2))
    before = [whole.visit() for _ in range(4)]  # both ceilings, the first visits of two cases
    resumed = rounds(chosen, 2)
    resumed.resume(row for visited in before if visited for row in visited[1:])
    order = [case for case, _ in Simulation(resumed).run()]
    keys = [case.key for case in order if case.role == "measurement"]
    assert keys[0] == cases[2].key, "first visits come before second ones"
    assert Counter(keys) == {cases[0].key: 1, cases[1].key: 1, cases[2].key: 2}
    assert order[-2:] == ceilings and ceilings[1] not in order[:-1]


# ---- time


@pytest.mark.parametrize("first_s", [0.0, 1.0])
@pytest.mark.parametrize("budget_s", [15.0, 30.0, 60.0])
def test_no_case_is_published_from_one_visit_where_the_budget_allows_two(
    cases: list[Case], budget_s: float, first_s: float
) -> None:
    """Whether compiling makes first visits dearer or not; and none of the budget is left while cases wait."""
    simulation = Simulation(rounds(cases, budget_s=budget_s), beside_s=0.5, first_s=first_s)
    made = simulation.timed()
    assert made and min(made.values()) >= 2 and simulation.at_s <= LATEST * budget_s
    assert len(made) == 40 or simulation.at_s > budget_s - 3 * (0.6 + first_s)


def test_a_comparison_is_measured_whole_or_not_at_all(cases: list[Case], seed: int) -> None:
    chance = random.Random(seed)
    compared = [CaseGroup(tuple(chance.sample(cases, chance.randint(1, 9)))) for _ in range(12)]
    simulation = Simulation(rounds(cases, budget_s=20.0, compared=compared), beside_s=0.5)
    made = set(simulation.timed())
    whole = [each for each in compared if made.issuperset(each.keys)]
    assert 0 < len(whole) < 12 and made == {key for each in whole for key in each.keys}
    assert simulation.rounds.left_out == [each for each in compared if each not in whole]


@pytest.mark.parametrize(("hangs", "seconds"), [(True, 30.0), (False, 20.0)])
def test_one_dear_visit_does_not_shut_out_the_others(cases: list[Case], hangs: bool, seconds: float) -> None:
    simulation = Simulation(rounds(cases, budget_s=90.0))

    def answer(step: NextVisit) -> dict[str, Any]:
        simulation.beside_s = seconds if step.case is cases[0] else 0.1
        return {"status": "timeout", "reason": "no"} if hangs and step.case is cases[0] else quiet(step)

    simulation.answer = answer
    assert len(simulation.timed()) == len(cases) - hangs


def test_dear_ceilings_do_not_shut_out_the_cases(ceilings: list[Case], cases: list[Case]) -> None:
    """On a busy machine a copy of half a gigabyte takes ten times as long as a small product."""
    compared = [CaseGroup(tuple(cases[:5]))]
    simulation = Simulation(rounds([*ceilings, *cases[:5]], budget_s=60.0, compared=compared))

    def answer(step: NextVisit) -> dict[str, Any]:
        simulation.beside_s = 10.0 if step.case.role == "roof" else 0.5
        return quiet(step)

    simulation.answer = answer
    assert len(simulation.timed()) == 5


def test_ceilings_take_a_quarter_of_the_budget_and_the_cases_have_the_rest(tmp_path: Path) -> None:
    """Of ceilings that would take ten times as long the first are measured, at both ends of the run."""
    roofs = loaded(tmp_path, "ceilings/gemm", list(range(1, 41)))
    some = loaded(tmp_path, "small", [64, 65, 66])
    simulation = Simulation(rounds([*roofs, *some], budget_s=40.0), beside_s=0.9)
    made = [(case, row.status) for case, row in simulation.run()]
    looks = Counter(case.key for case, status in made if case.role == "roof" and status == "ok")
    assert looks == {case.key: 2 for case in roofs[:5]} and 2 * 5 * 1.0 <= CEILINGS_SHARE * 40
    assert (roofs[-1], "skipped") in made and simulation.at_s <= 40.0
    assert [status for case, status in made if case == some[0]].count("ok") >= 3


@pytest.mark.parametrize("budget_s", [15.0, 20.0, 60.0])
def test_a_budget_is_kept_though_each_visit_kills_the_worker(
    budget_s: float, ceilings: list[Case], cases: list[Case]
) -> None:
    """A start takes longer than ten visits, and each case fails in a way of its own."""

    def answer(step: NextVisit) -> dict[str, Any]:
        is_roof = step.case.role == "roof"
        return quiet(step) if is_roof else {"status": "crashed", "reason": f"SIGSEGV {step.case.key}"}

    compared = [CaseGroup(tuple(cases[at : at + 4])) for at in range(0, 40, 4)]
    whole = rounds([*ceilings, *cases], budget_s=budget_s, compared=compared)
    simulation = Simulation(whole, answer, beside_s=0.1, at_s=5.0, start_s=5.0)
    assert any(row.status == "crashed" for _, row in simulation.run())
    assert simulation.at_s <= 1.1 * budget_s


def test_a_visit_to_a_cpu_samples_its_share_of_the_budget_within_limits(tmp_path: Path) -> None:
    cases = loaded(tmp_path, "small", list(range(1, 41)), "onednn")
    device, settings, sampled = replace(GPU, kind="cpu", capability=None), protocol("cpu", 3), []
    for budget_s in (1.0, 150.0, None):
        made = Rounds(device, settings, budget_s)
        planned(made, cases)
        due = made.next(0.0)
        sampled.append(due and due.sampling_s)
    assert sampled == [0.15, pytest.approx(0.6), 1.0] and 0.6 == 0.8 * 150 / 40 / 5
    slow = Simulation(rounds(cases[:1], device=device), lambda step: timed(0.5))
    slow.visit()
    due = slow.rounds.next(1.0)
    assert due and due.sampling_s == 8.0, "room for 16 launches"


def test_what_is_left_to_do_shrinks_to_nothing(ceilings: list[Case], cases: list[Case]) -> None:
    simulation = Simulation(rounds([*ceilings, *cases[:4]], budget_s=1e3))
    left = [simulation.rounds.left(0.0)[0]]
    while simulation.visit() is not None:
        left.append(simulation.rounds.left(simulation.at_s)[0])
    assert left[0] == 2 * 2 + 3 * 4 and left[1:3] == [15, 14] and left == sorted(left, reverse=True)


# ---- what is not worth asking


def test_what_the_device_cannot_run_is_refused_and_costs_nothing(cases: list[Case]) -> None:
    small = replace(gpu(0), memory_byte=100)
    refusal = {"status": "skipped", "reason": f"needs 0 GB; {small} has 0 GB"}
    due = rounds(cases[:2], device=small).next(0.0)
    assert due and due.refusal == refusal


def test_any_order_of_cases_costs_at_most_three_failures_of_a_kind(cases: list[Case], seed: int) -> None:
    random.Random(seed).shuffle(cases)
    simulation = Simulation(rounds(cases, 3), lambda step: {"status": "error", "reason": "no tile fits"})
    statuses = Counter(row.status for _, row in simulation.run())
    assert statuses == {"error": 3, "skipped": 37}
    assert len(simulation.rounds.failure_limit.lines) == 1
