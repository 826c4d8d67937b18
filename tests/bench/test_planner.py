"""What a run of ten minutes on an H100 visits, and that it keeps to its time when prices were wrong."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any, cast

import pytest

import kernels
from bench.cli.list_cases import of_datasheet, planned
from bench.device.datasheet import datasheets
from bench.runner import pace as paces
from bench.runner import session as sessions
from bench.runner.planner import CEILING_SHARE, PROBE_SHARE, Forecast, Planner
from bench.runner.session import Session
from bench.sampling.protocol import protocol
from bench.sweep.load import SWEEPS, Case, Loaded, load_all
from tests.our_sweeps import role

H100 = of_datasheet(next(sheet for sheet in datasheets() if sheet.slug == "h100_sxm5"))


@pytest.fixture(scope="module")
def loaded() -> list[Loaded]:
    return load_all(SWEEPS, kernels.problem, H100.sm_count)


@pytest.fixture(scope="module")
def cases(loaded: list[Loaded]) -> list[Case]:
    every = [case for sweep in loaded for case in sweep.cases]
    return [case for case in every if not case.missing("cuda", H100.capability)]


@pytest.fixture(scope="module")
def ten_minutes(cases: list[Case]) -> tuple[Planner, Forecast]:
    planner = Planner(H100, protocol("cuda"), 600.0)
    planner.limit_ceilings(cases)
    others = [case for case in cases if case.role == "measurement"]
    ordered = [others[index] for index in planner.ordered(others)]
    return planner, planner.forecast([*(case for case in cases if case.role != "measurement"), *ordered])


def test_ten_minutes_on_an_h100_visit_1500_cases_of_30_sweeps(
    ten_minutes: tuple[Planner, Forecast], cases: list[Case]
) -> None:
    _, found = ten_minutes
    assert found.planned.cases + found.ceilings.cases >= 1500
    assert found.planned.sweeps >= 30 and found.planned.sweeps == found.possible.sweeps
    assert 0.95 * 600 < found.seconds <= 600
    assert found.all_s > 3600
    # each operator, and of each sweep something
    assert all(of_it.cases > 0 for of_it, _ in found.by_operator.values())
    assert sum(of_it.cases for of_it, _ in found.by_operator.values()) == found.planned.cases
    assert all(count > 0 for count, _ in found.by_family.values())


def test_ceilings_take_their_share_of_ten_minutes_and_roofs_can_settle_in_it(
    ten_minutes: tuple[Planner, Forecast], cases: list[Case]
) -> None:
    planner, found = ten_minutes
    assert found.ceilings.seconds <= CEILING_SHARE * 600
    roofs = [case for case in cases if case.role == "roof"]
    settings = planner.settings
    least_s = (settings.light_window_s or 0.0) + settings.settle_windows * settings.settle_window_s
    assert all(settings.settle_share * planner.ceiling_s(case) >= least_s for case in roofs)
    unlimited = Planner(H100, settings, None)
    unlimited.limit_ceilings(cases)
    assert not unlimited.left_out and unlimited.ceiling_s(roofs[0]) == 3.0


def test_a_short_budget_leaves_probes_out_evenly_and_no_roof(cases: list[Case]) -> None:
    planner = Planner(H100, protocol("cuda"), 120.0)
    planner.limit_ceilings(cases)
    ceilings = [case for case in cases if case.role != "measurement"]
    probes = [case for case in ceilings if case.role != "roof"]
    kept = [case for case in probes if case.key not in planner.left_out]
    assert {case.sweep for case in kept} == {case.sweep for case in probes}
    assert sum(planner.ceiling_cost_s(case) for case in kept) <= PROBE_SHARE * 120
    assert planner.left_out < {case.key for case in probes}
    assert planner.forecast(ceilings).ceilings.cases == len(ceilings) - len(planner.left_out)


def test_a_kind_that_is_compiled_pays_once(cases: list[Case]) -> None:
    planner = Planner(H100, protocol("cuda"), 600.0)
    kind = [
        case for case in cases if case.sweep == "gemm/tile_quantization" and case.implementation == "triton"
    ]
    first, second, *_ = planner.jobs((case, None, 0) for case in kind)
    assert first.first_s > second.first_s > 0
    planner.visited(kind[0], True, first.beside_s + first.first_s, None)
    (again,) = planner.jobs([(kind[1], None, 0)])
    assert again.first_s == pytest.approx(second.first_s)
    (later,) = Planner(H100, protocol("cuda", 3), None).jobs([(kind[0], None, 1)])
    assert later.first_s == 0 and later.visits == 2


def test_prices_follow_what_visits_took(cases: list[Case]) -> None:
    planner = Planner(H100, protocol("cuda"), 600.0)
    every = [case for case in cases if case.sweep == "gemm/square"]
    asked = [(case, None, 0) for case in every]
    before = planner.jobs(asked)
    for case, job in zip(every[:60], before, strict=False):
        planner.visited(case, True, 2 * (job.beside_s + job.first_s), 3 * (job.expected_s or 0.0))
    after = planner.jobs(asked)
    for job, dearer in list(zip(before, after, strict=True))[60:]:
        assert dearer.beside_s == pytest.approx(2 * job.beside_s, rel=0.3)
        assert dearer.expected_s == pytest.approx(3 * (job.expected_s or 0.0), rel=0.3)


def test_the_plan_is_printed_with_every_assumption(loaded: list[Loaded]) -> None:
    text = "\n".join(planned(H100, [sweep for sweep in loaded if "softmax" in sweep.name], 60.0, 1))
    assert "of 2 of 2 sweeps" in text and "(--bench-budget inf)" in text
    assert "tuning" not in text.partition("assumed")[0] and "power_settle_s" in text


# ---- a whole run, on a clock that the worker moves


class Clock:
    """Stands in for the module `time`."""

    def __init__(self) -> None:
        self.at_s = 0.0

    def perf_counter(self) -> float:
        return self.at_s


class Worker:
    """Answers at once; the clock says that it took `dearer` times what the planner expects."""

    starting_s, hello = 0.0, {"torch": "1", "triton": "2", "libraries": "none"}

    def __init__(self, clock: Clock, planner: Planner, cases: list[Case], dearer: float) -> None:
        self.clock, self.planner, self.dearer = clock, planner, dearer
        self.cases = {(case.implementation, case.problem, case.cache): case for case in cases}

    def threads(self, asked: str) -> None:
        return None

    def answer(self, request: dict[str, Any], sampling_s: float) -> dict[str, Any]:
        problem = kernels.problem(request["operator"])(**request["parameters"])
        case = self.cases[request["implementation"], problem, request["cache"]]
        *_, work, priced = self.planner.known(case)
        launch_s = work.launch_s or 0.0
        measure_s = min(sampling_s, self.dearer * (priced.sampling_s or 0.0))
        beside_s = self.dearer * (priced.beside_s + request["first"] * (priced.kind_s + priced.first_s))
        self.clock.at_s += beside_s + measure_s + 4 * launch_s
        return {
            "status": "ok",
            "median_s": launch_s,
            "low_s": launch_s,
            "high_s": launch_s,
            "samples_s": [launch_s] * 12,
            "stop": "converged",
            "settled": True,
            "launches": 1,
            "measure_s": measure_s,
            "clock": "graph",
            "fill": "none",
        }

    def close(self) -> None:
        pass


@pytest.fixture
def some(cases: list[Case]) -> list[Case]:
    """A twentieth of the cases, of every sweep, and the roofs: an ordinary run in little."""
    by_sweep = itertools.groupby(cases, key=lambda case: case.sweep)
    kept = [
        list(of)[:: 20 if role(sweep) == "measurement" else 1]
        for sweep, of in by_sweep
        if role(sweep) in ("measurement", "roof")
    ]
    return [case for of in kept for case in of]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    made = Clock()
    monkeypatch.setattr(sessions, "time", made)
    monkeypatch.setattr(sessions, "device_lock", lambda *_: nullcontext(""))
    monkeypatch.setattr(paces.Pace.__init__, "__defaults__", (made.perf_counter,))
    assert time.perf_counter() != made.at_s
    return made


@pytest.mark.parametrize("dearer", [1.0, 2.0])
def test_a_run_keeps_to_its_budget_and_its_spread_whatever_visits_cost(
    dearer: float, some: list[Case], clock: Clock, tmp_path: Path
) -> None:
    budget_s = 100.0
    run = Session(H100, tmp_path, budget_s)
    others = [case for case in some if case.role == "measurement"]
    ordered = [others[index] for index in run.planner.ordered(others)]
    run.open()
    run.plan([*(case for case in some if case.role != "measurement"), *ordered])
    run._worker = cast(Any, Worker(clock, run.planner, some, dearer))
    made = [case for case, row in run.walk() if row.status == "ok" and case.role == "measurement"]
    run.interrupted()
    assert 0.9 * budget_s < clock.at_s <= 1.03 * budget_s
    assert len(made) < len(others)
    assert {case.sweep for case in made} == {case.sweep for case in others}, "something of every sweep"
    jobs = Planner(H100, run.protocol, budget_s).jobs((case, None, 0) for case in others)
    cheap = {job.key for job in jobs if job.cost_s(0.0) < 0.4}
    visited, possible = (Counter(c.sweep for c in every if c.key in cheap) for every in (made, others))
    cut_short = [visited[sweep] for sweep in possible if visited[sweep] < possible[sweep]]
    assert len(cut_short) > 10 and max(cut_short) - min(cut_short) <= 3, "as many of each as of another"
