"""What visits are expected to take, what a budget chooses of them, and the plan of an H100's ten minutes."""

from __future__ import annotations

import random

import pytest

import kernels
from bench.cli.list_cases import of_datasheet, planned
from bench.device.datasheet import datasheets
from bench.runner.forecast import PROBE_SHARE, Forecast, Prices
from bench.runner.price import ASSUMED
from bench.runner.schedule import ONE_VISIT, Job, schedule
from bench.sampling.protocol import protocol
from bench.sweep.load import SWEEPS, Case, Loaded, load_all

H100 = of_datasheet(next(sheet for sheet in datasheets() if sheet.slug == "h100_sxm5"))
ONCE = protocol("cuda")


@pytest.fixture(scope="module")
def loaded() -> list[Loaded]:
    return load_all(SWEEPS, kernels.problem, H100.sm_count)


@pytest.fixture(scope="module")
def cases(loaded: list[Loaded]) -> list[Case]:
    every = [case for sweep in loaded for case in sweep.cases]
    return [case for case in every if not case.missing("cuda", H100.capability)]


@pytest.fixture(scope="module")
def ten_minutes(cases: list[Case]) -> tuple[Prices, Forecast]:
    prices = Prices(H100, protocol("cuda"), 600.0)
    prices.limit_ceilings(cases)
    return prices, prices.forecast(cases)


def test_ten_minutes_on_an_h100_are_planned_to_their_end(ten_minutes: tuple[Prices, Forecast]) -> None:
    _, found = ten_minutes
    assert 0.95 * 600 < found.seconds <= 600 < 3600 < found.all_s
    assert len(found.keys) == found.planned.cases


def test_a_short_budget_leaves_probes_out_evenly_and_no_roof(cases: list[Case]) -> None:
    prices = Prices(H100, protocol("cuda"), 120.0)
    prices.limit_ceilings(cases)
    ceilings = [case for case in cases if case.role != "measurement"]
    probes = [case for case in ceilings if case.role != "roof"]
    kept = [case for case in probes if case.key not in prices.left_out]
    assert {case.sweep for case in kept} == {case.sweep for case in probes}
    assert sum(prices.ceiling_cost_s(case) for case in kept) <= PROBE_SHARE * 120
    assert prices.left_out < {case.key for case in probes}
    assert prices.forecast(ceilings).ceilings.cases == len(ceilings) - len(prices.left_out)


def test_the_plan_is_printed(loaded: list[Loaded]) -> None:
    cases = [
        case for sweep in loaded if sweep.name in ("softmax/length", "softmax/rows") for case in sweep.cases
    ]
    text = "\n".join(planned(H100, cases, {}, Prices(H100, protocol("cuda"), 60.0)))
    assert "of 2 of 2 sweeps" in text and "(--bench-budget inf)" in text


@pytest.mark.parametrize(
    ("sweep", "name", "of_kind", "of_case"),
    [
        *(("gemm/square", "cublas", "", ""), ("gemm/tile_quantization", "cublaslt-256x128", "", "")),
        ("softmax/rows", "aten", "", ""),
        ("softmax/rows", "triton", "first_question_s", "question_s"),
        ("gemm/square", "triton", "first_question_s", "product_question_s"),
        ("gemm/tile_quantization", "triton-256x128", "program_s", ""),
        *(("ceilings/launch", "triton", "program_s", ""), ("ceilings/one_sm", "triton", "program_s", "")),
        ("softmax/rows", "inductor", "", "inductor_s"),
        ("gemm/bulk_copies", "inductor", "", "max_autotune_s"),
    ],
)
def test_who_compiles_and_tunes_pays_for_it_and_libraries_do_not(
    cases: list[Case], sweep: str, name: str, of_kind: str, of_case: str
) -> None:
    case = next(case for case in cases if (case.sweep, case.implementation) == (sweep, name))
    *_, found = Prices(H100, ONCE, None).known(case)
    assert (found.kind_s, found.first_s) == tuple(
        ASSUMED[key].value if key else 0 for key in (of_kind, of_case)
    )


# ---- what a budget chooses


def jobs(count: int, launch_s: float | None = 1e-3) -> list[Job]:
    return [Job(str(i), launch_s) for i in range(count)]


def test_too_slow_a_launch_is_refused_with_both_numbers() -> None:
    found = schedule([Job("slow", 3.0), Job("quick", 1e-3)], 100, 120)
    assert list(found.sampling_s) == ["quick"]
    assert found.refused["slow"] == "one launch is predicted to take 3 s; a budget of 120 s allows 0.1 s"


def test_what_does_not_fit_is_left_out_from_the_end() -> None:
    found = schedule(jobs(50), 10, 120)
    assert list(found.sampling_s) == [str(i) for i in range(len(found.sampling_s))]
    assert 10 / (ONE_VISIT["cpu"].least_s + 0.3) < len(found.sampling_s) < 10 / ONE_VISIT["cpu"].least_s
    assert found.left_out == {str(i) for i in range(50)} - found.sampling_s.keys()


def test_the_shares_never_exceed_what_is_left(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(50):
        some = [
            Job(
                str(i),
                10 ** chance.uniform(-6, -0.8),
                beside_s=chance.uniform(0, 1),
                first_s=chance.choice([0.0, 2.0]),
                expected_s=chance.choice([None, 0.3]),
            )
            for i in range(100)
        ]
        left_s = chance.uniform(0, 200)
        assert schedule(some, left_s, 120).total_s <= left_s + 1e-6


def test_a_comparison_has_room_for_all_of_its_cases_or_for_none(seed: int) -> None:
    """Cases stand in several; what is left of one that has begun is never left out."""
    chance = random.Random(seed)
    for _ in range(50):
        waiting = jobs(60)
        keys = [job.key for job in waiting]
        compared = [chance.sample(keys, chance.randint(1, 9)) for _ in range(12)]
        begun = chance.sample(keys, 5)
        found = schedule(waiting, chance.uniform(0, 30), 120, comparisons=compared, begun=begun)
        assert found.sampling_s.keys() | found.left_out == set(keys)
        assert found.left_out.isdisjoint(found.sampling_s) and found.left_out.isdisjoint(begun)
        whole = [keys for keys in compared if found.left_out.isdisjoint(keys)]
        alone = set(keys) - {key for keys in compared for key in keys}
        assert set(found.sampling_s) <= alone.union(begun, *whole)
