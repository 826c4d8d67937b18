"""What a run visits next, and for how long: the planner alone, on a clock that the test moves."""

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
from bench.runner.comparisons import CaseGroup, comparisons
from bench.runner.forecast import Prices
from bench.runner.merge_visits import visit_row
from bench.runner.planner import LOOKS, NextVisit, Planner
from bench.sampling.protocol import protocol
from bench.store.schema import Measurement
from bench.sweep.load import SWEEPS, Case, load, load_all
from tests.bench.several import SWEEP, gpu
from tests.bench.test_forecast import H100

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
    """A run in which only the clock is real to the planner."""

    planner: Planner
    answer: Answer = quiet
    beside_s: float = 0.0
    """Seconds of a visit beside what its row says it measured."""
    at_s: float = 0.0
    start_s: float = 0.0
    """Seconds that a worker takes to start."""
    is_dead: bool = False
    """Whether a new worker has to start before the next visit."""

    def visit(self) -> tuple[Case, Measurement] | None:
        """The next visit; None if there is none."""
        case = self.planner.next(self.at_s, self.start_s if self.is_dead else 0.0)
        if case is None:
            return None
        if self.is_dead:
            self.at_s, self.is_dead = self.at_s + self.start_s, False
        step = self.planner.step(case, self.at_s)
        facts = self.answer(step) if step.refusal is None else dict(step.refusal)
        planner = self.planner
        row = visit_row(case, planner.device, planner.settings, {**FACTS, **facts, "visit": step.number})
        taken_s = None
        if step.refusal is None:
            taken_s = (row.measure_s or 0.0) + self.beside_s
            self.at_s += taken_s
        planner.visited(case, row, taken_s)
        self.is_dead = row.status == "crashed"
        return case, row

    def run(self) -> list[tuple[Case, Measurement]]:
        """Every visit until the run is over."""
        return list(iter(self.visit, None))


def loaded(folder: Path, name: str, sizes: list[int]) -> list[Case]:
    path = folder / f"{name}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    role = "role: roof\n" if name.startswith("ceilings/") else ""
    path.write_text(role + SWEEP.replace("SIZES", str(sizes)))
    return load(path, kernels.problem, 2, folder).cases


@pytest.fixture
def ceilings(tmp_path: Path) -> list[Case]:
    return loaded(tmp_path, "ceilings/gemm", [64, 96])


@pytest.fixture
def cases(tmp_path: Path) -> list[Case]:
    return loaded(tmp_path, "small", list(range(1, 41)))


def planner(
    cases: list[Case],
    visits: int = 1,
    budget_s: float | None = None,
    seed: int = 1,
    device: Device = GPU,
) -> Planner:
    made = Planner(device, protocol("cuda", visits), budget_s, seed)
    made.plan(cases)
    return made


def others(simulation: Simulation, *statuses: str) -> list[str]:
    """Keys of the visited cases that are no ceilings, of all visits or of those that ended so."""
    return [
        case.key
        for case, row in simulation.run()
        if case.role == "measurement" and (not statuses or row.status in statuses)
    ]


# ---- order


@pytest.mark.parametrize("visits", [1, 3])
@pytest.mark.parametrize("count", [0, 1, 31])
def test_each_case_is_visited_as_often_as_asked_and_ceilings_frame_the_run(
    visits: int, count: int, ceilings: list[Case], cases: list[Case]
) -> None:
    order = [case for case, _ in Simulation(planner([*ceilings, *cases[:count]], visits)).run()]
    made = Counter(case.key for case in order)
    assert all(made[case.key] == visits for case in cases[:count])
    assert order[:2] == ceilings == order[-2:] and made[ceilings[1].key] == 2
    looks = made[ceilings[0].key] - 2
    assert looks == len(LOOKS) if count == 31 else looks <= len(LOOKS)


def test_first_visits_are_in_the_order_given_and_a_round_ends_before_the_next(
    cases: list[Case], seed: int
) -> None:
    keys = [case.key for case in cases]

    def order(seed: int) -> list[str]:
        return others(Simulation(planner(cases, 3, seed=seed)))

    rounds = [order(seed)[i : i + 40] for i in range(0, 120, 40)]
    assert rounds[0] == keys
    assert all(sorted(each) == sorted(keys) for each in rounds)
    assert len({tuple(each) for each in rounds}) == 3  # 2 alike of 40! orders: never
    assert order(seed) == list(itertools.chain(*rounds)) != order(seed + 1)


@pytest.mark.parametrize(("budget_s", "looks"), [(None, LOOKS), (20.0, [0.5])])
def test_sentinels_are_visited_after_each_quarter_of_the_time_or_halfway(
    budget_s: float | None, looks: Sequence[float], ceilings: list[Case], cases: list[Case]
) -> None:
    """Of the time there is: with a budget for a part of the cases, looks belong between these."""
    simulation = Simulation(planner([*ceilings, *cases], 1, budget_s), beside_s=0.5)
    at_s = []
    while (visited := simulation.visit()) is not None:
        if visited[0] == ceilings[0]:
            at_s.append(simulation.at_s)
    shares = [share for each in at_s if 0.1 < (share := each / simulation.at_s) < 0.9]
    # A fifth of 40 visits is REPLAN: for so long what is left is an old guess.
    assert len(shares) == len(looks)
    assert all(abs(share - look) < 0.2 for share, look in zip(shares, looks, strict=True)), shares


def test_cases_that_disagree_get_further_visits_and_no_others(cases: list[Case]) -> None:
    """Of a GPU's visits 10 % apart no median is known."""
    chosen = cases[:6]

    def answer(step: NextVisit) -> dict[str, Any]:
        return timed(1e-3 * (1 + 0.1 * (step.number % 2) * (step.case == chosen[3])))

    order = others(Simulation(planner(chosen, 2), answer))
    made = Counter(order)
    most = protocol("cuda", 2).most_visits
    assert made.pop(chosen[3].key) == most and set(made.values()) == {2}
    assert order[12:] == [chosen[3].key] * (most - 2)


def test_a_case_that_failed_has_no_further_visit_and_one_that_crashed_has_one(cases: list[Case]) -> None:
    wrong, crashed, crashes = cases[:3]

    def answer(step: NextVisit) -> dict[str, Any]:
        if step.case == wrong:
            return {"status": "wrong", "reason": "made so"}
        if step.case == crashes or (step.case == crashed and step.number == 0):
            return {"status": "crashed", "reason": "SIGSEGV"}
        return quiet(step)

    made = Counter(others(Simulation(planner(cases[:5], 3), answer)))
    assert [made[case.key] for case in cases[:5]] == [1, 4, 2, 3, 3]


def test_a_resumed_run_makes_only_the_visits_that_are_missing(
    ceilings: list[Case], cases: list[Case]
) -> None:
    chosen = [*ceilings, *cases[:3]]
    whole = Simulation(planner(chosen, 2))
    before = [whole.visit() for _ in range(4)]  # both ceilings, the first visits of two cases
    resumed = planner(chosen, 2)
    resumed.resume(row for visited in before if visited for row in visited[1:])
    order = [case for case, _ in Simulation(resumed).run()]
    keys = [case.key for case in order if case.role == "measurement"]
    assert keys[0] == cases[2].key, "first visits come before second ones"
    assert Counter(keys) == {cases[0].key: 1, cases[1].key: 1, cases[2].key: 2}
    assert order[-2:] == ceilings and ceilings[1] not in order[:-1]


# ---- time


@pytest.mark.parametrize("visits", [1, 3])
def test_a_case_has_room_for_all_of_its_visits_or_for_none(cases: list[Case], visits: int) -> None:
    made = Counter(others(Simulation(planner(cases, visits, 15.0), beside_s=0.5), "ok"))
    assert 0 < len(made) < 40 and set(made.values()) == {visits}


def test_a_case_that_hangs_says_nothing_of_what_the_others_take(cases: list[Case]) -> None:
    simulation = Simulation(planner(cases, 1, 42.0))

    def answer(step: NextVisit) -> dict[str, Any]:
        hangs = step.case is cases[0]
        simulation.beside_s = 30.0 if hangs else 0.1
        return {"status": "timeout", "reason": "no answer"} if hangs else quiet(step)

    simulation.answer = answer
    assert [row.status for _, row in simulation.run()] == ["timeout"] + ["ok"] * (len(cases) - 1)


@pytest.mark.parametrize("dearer", [pytest.param(1.0, marks=pytest.mark.deep), 2.0])
def test_a_run_keeps_to_its_budget_and_its_spread_whatever_visits_cost(dearer: float) -> None:
    """Cases of every sweep on an H100, which take `dearer` times what is expected: comparisons are whole."""
    loaded = load_all(SWEEPS, kernels.problem, H100.sm_count)
    some: list[Case] = []
    for sweep in loaded:
        able = [case for case in sweep.cases if not case.missing("cuda", H100.capability)]
        some += {"measurement": able[::20], "roof": able}.get(sweep.sweep.role, [])
    budget_s, settings = 100.0, protocol("cuda")
    prices = Prices(H100, settings, budget_s)
    between = [case for case in some if case.role == "measurement"]
    claims = {sweep.name: sweep.sweep.claims for sweep in loaded}
    compared = comparisons(between, claims, prices)
    plan = Planner(H100, settings, budget_s)
    plan.plan(some, compared)
    simulation = Simulation(plan)

    def answer(step: NextVisit) -> dict[str, Any]:
        *_, work, priced = prices.known(step.case)
        launch_s = work.launch_s or 0.0
        making_s = step.is_first * (priced.kind_s + priced.first_s)
        simulation.beside_s = dearer * (priced.beside_s + making_s) + 4 * launch_s
        return timed(launch_s) | {"measure_s": min(step.sampling_s, dearer * (priced.sampling_s or 0.0))}

    simulation.answer = answer
    visited = [(case, row) for case, row in simulation.run() if case.role == "measurement"]
    made = [case for case, row in visited if row.status == "ok"]
    # A comparison that has begun is finished, even if its cases turn out dearer than those before.
    longest_s = max(sum(map(prices.visit_s, each.cases)) for each in compared)
    assert 0.9 * budget_s < simulation.at_s <= budget_s + dearer * longest_s
    assert len(made) < len(between)
    there = {case.key for case in made}
    whole = [each for each in compared if there.issuperset(each.keys)]
    assert there == {key for each in whole for key in each.keys}, "all of a comparison, or nothing"
    skipped = {case.key for case, row in visited if row.status == "skipped"}  # one launch is too long
    refused = [each for each in compared if skipped.intersection(each.keys)]
    assert len(whole) + len(plan.left_out) + len(refused) == len(compared)
    assert len({each.sweep for each in whole}) > 10


def test_the_cases_come_first_however_short_the_budget(tmp_path: Path) -> None:
    """With ceilings that would take ten times as long, of which the first are measured."""
    roofs = loaded(tmp_path, "ceilings/gemm", list(range(1, 41)))
    (only,) = loaded(tmp_path, "small", [64])
    simulation = Simulation(planner([*roofs, only], budget_s=10.0), beside_s=0.9, at_s=5.0)
    made = simulation.run()
    timed_roofs = [case for case, row in made if case.role == "roof" and row.status == "ok"]
    assert [case.key for case, row in made if row.status == "ok" and case == only] == [only.key]
    assert timed_roofs[0] == roofs[0] and len(set(timed_roofs)) < 5 and simulation.at_s <= 10.0
    assert {row.status for case, row in made if case == roofs[-1]} == {"skipped"}
    planned = planner([*roofs, only], budget_s=10.0).forecast(5.0, is_started=True)
    assert planned.planned.cases == 1 and 0 < planned.ceilings.cases < 10 and planned.seconds <= 10.0


@pytest.mark.parametrize("budget_s", [15.0, 20.0, 60.0])
def test_a_budget_is_kept_though_each_visit_kills_the_worker(
    budget_s: float, ceilings: list[Case], cases: list[Case]
) -> None:
    """A start takes longer than ten visits, and each case fails in a way of its own."""

    def answer(step: NextVisit) -> dict[str, Any]:
        is_roof = step.case.role == "roof"
        return quiet(step) if is_roof else {"status": "crashed", "reason": f"SIGSEGV {step.case.key}"}

    whole = planner([*ceilings, *cases], budget_s=budget_s)
    whole.plan([*ceilings, *cases], [CaseGroup(tuple(cases[at : at + 4])) for at in range(0, 40, 4)])
    simulation = Simulation(whole, answer, beside_s=0.1, at_s=5.0, start_s=5.0)
    assert any(row.status == "crashed" for _, row in simulation.run())
    assert simulation.at_s <= 1.1 * budget_s


# ---- what is not worth asking


def test_what_the_device_cannot_run_is_refused_and_costs_nothing(
    ceilings: list[Case], cases: list[Case]
) -> None:
    small = replace(gpu(0), memory_byte=100)
    plan = planner(cases[:2], device=small)
    refusal = {"status": "skipped", "reason": f"needs 0 GB; {small} has 0 GB"}
    assert plan.step(cases[0], 0.0).refusal == refusal
    none = replace(gpu(0), kind="cpu")
    assert plan.visits_left() == 2 and planner(cases, device=none).visits_left() == 0
    assert planner([*ceilings, *cases[:2]]).visits_left() == 2 * len(ceilings) + 2, "roofs twice"


def test_any_order_of_cases_costs_at_most_three_failures_of_a_kind(cases: list[Case], seed: int) -> None:
    random.Random(seed).shuffle(cases)
    simulation = Simulation(planner(cases, 3), lambda step: {"status": "error", "reason": "no tile fits"})
    statuses = Counter(row.status for _, row in simulation.run())
    assert statuses == {"error": 3, "skipped": 37}
    assert len(simulation.planner.failure_limit.lines) == 1
