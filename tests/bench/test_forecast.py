"""What visits are expected to take, what a budget chooses of them, and the plan of an H100's ten minutes."""

from __future__ import annotations

import random

import pytest

import kernels
from bench.cli.list_cases import of_datasheet, planned
from bench.device.datasheet import datasheets
from bench.runner.forecast import CEILING_SHARE, PROBE_SHARE, Forecast, Prices
from bench.runner.price import ASSUMED, LearnedPrices, PricedWork, is_bound_by_power, price, slots_of
from bench.runner.schedule import ONE_VISIT, OVERHEAD_S, Job, schedule
from bench.sampling.protocol import protocol
from bench.sweep.load import SWEEPS, Case, Loaded, load_all

H100 = of_datasheet(next(sheet for sheet in datasheets() if sheet.slug == "h100_sxm5"))
L2 = 50 * 2**20
ONCE = protocol("cuda")
LIGHT = PricedWork("cublas", 80 * 2**20, True, 28e-6, 1e-6)


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
    assert sum(of_it.cases for of_it, _ in found.by_operator.values()) == found.planned.cases
    assert sum(count for count, _ in found.by_family.values()) == found.planned.cases


def test_ceilings_take_their_share_of_ten_minutes_and_roofs_can_settle_in_it(
    ten_minutes: tuple[Prices, Forecast], cases: list[Case]
) -> None:
    prices, found = ten_minutes
    assert found.ceilings.seconds <= CEILING_SHARE * 600
    roofs = [case for case in cases if case.role == "roof"]
    settings = prices.settings
    least_s = (settings.light_window_s or 0.0) + settings.settle_windows * settings.settle_window_s
    for case in roofs:
        longest_s = settings.settle_most_s if is_bound_by_power(prices.known(case)[1]) else least_s
        assert settings.settle_share * prices.ceiling_s(case) >= longest_s
    unlimited = Prices(H100, settings, None)
    unlimited.limit_ceilings(cases)
    assert not unlimited.left_out and unlimited.ceiling_s(roofs[0]) == 3.0


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


def test_a_kind_that_is_compiled_pays_once(cases: list[Case]) -> None:
    prices = Prices(H100, protocol("cuda"), 600.0)
    kind = [
        case for case in cases if case.sweep == "gemm/tile_quantization" and case.implementation == "triton"
    ]
    first, second, *_ = prices.jobs((case, None, 0) for case in kind)
    assert first.first_s > second.first_s > 0
    prices.visited(kind[0], True, first.beside_s + first.first_s, None)
    (again,) = prices.jobs([(kind[1], None, 0)])
    assert again.first_s == pytest.approx(second.first_s)
    (later,) = Prices(H100, protocol("cuda", 3), None).jobs([(kind[0], None, 1)])
    assert later.first_s == 0 and later.visits == 2


def test_prices_follow_what_visits_took(cases: list[Case]) -> None:
    prices = Prices(H100, protocol("cuda"), 600.0)
    every = [case for case in cases if case.sweep == "gemm/square"]
    asked = [(case, None, 0) for case in every]
    before = prices.jobs(asked)
    for case, job in zip(every[:60], before, strict=False):
        prices.visited(case, True, 2 * (job.beside_s + job.first_s), 3 * (job.expected_s or 0.0))
    after = prices.jobs(asked)
    for job, dearer in list(zip(before, after, strict=True))[60:]:
        assert dearer.beside_s == pytest.approx(2 * job.beside_s, rel=0.3)
        assert dearer.expected_s == pytest.approx(3 * (job.expected_s or 0.0), rel=0.3)


def test_the_plan_is_printed(loaded: list[Loaded]) -> None:
    cases = [
        case for sweep in loaded if sweep.name in ("softmax/length", "softmax/rows") for case in sweep.cases
    ]
    text = "\n".join(planned(H100, cases, {}, Prices(H100, protocol("cuda"), 60.0)))
    assert "of 2 of 2 sweeps" in text and "(--bench-budget inf)" in text


# ---- the price of a visit


def sampling_s(work: PricedWork, visits: int = 1) -> float:
    found = price(work, "cuda", L2, protocol("cuda", visits)).sampling_s
    assert found is not None
    return found


def test_a_quiet_case_takes_one_short_window_and_the_least_timed_work() -> None:
    assert ONCE.light_window_s is not None
    assert sampling_s(LIGHT) == pytest.approx(ONCE.light_window_s + ONCE.least_timed_s)
    assert sampling_s(LIGHT) == pytest.approx(0.25)


def test_only_what_is_bound_by_power_pays_for_seconds_of_settling() -> None:
    heavy = LIGHT._replace(flop_s=20e-6)
    assert is_bound_by_power(heavy) and not is_bound_by_power(LIGHT)
    assert sampling_s(heavy) - sampling_s(LIGHT) == pytest.approx(ASSUMED["power_settle_s"].value)
    assert sampling_s(heavy, visits=3) == sampling_s(LIGHT, visits=3) < 0.3  # kept loaded in between


def test_a_dozen_samples_are_needed_however_long_they_are() -> None:
    assert sampling_s(LIGHT._replace(launch_s=0.05)) > 12 * 2 * 0.05  # two slots of the ring each


def test_a_small_case_pays_for_the_many_slots_of_its_ring() -> None:
    small = LIGHT._replace(byte=1000, launch_s=2e-6)
    assert slots_of(small, L2, ONCE) == ONCE.most_slots and slots_of(LIGHT, L2, ONCE) == 3
    assert slots_of(small._replace(cold=False), L2, ONCE) == 1
    difference_s = price(small, "cuda", L2, ONCE).beside_s - price(LIGHT, "cuda", L2, ONCE).beside_s
    assert difference_s == pytest.approx((ONCE.most_slots - 3) * ASSUMED["slot_s"].value)
    ours, copy = (price(small._replace(implementation=name), "cuda", L2, ONCE) for name in ("triton", "aten"))
    # Building takes 122 to 396 us of the host, and each of two or three captures 13 to 72 us.
    assert 122e-6 + 2 * 13e-6 < (ours.beside_s - copy.beside_s) / ONCE.most_slots < 396e-6 + 3 * 72e-6


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


def test_a_product_pays_for_the_programs_that_its_question_compiles_and_for_inductors_templates() -> None:
    """Six candidates are three new programs, 0.4 s of a core each; Inductor times a dozen templates."""
    ours = LIGHT._replace(implementation="triton")
    seconds = [price(ours._replace(multiplies=one), "cuda", L2, ONCE).first_s for one in (True, False)]
    assert seconds[0] > seconds[1]
    tuned = LIGHT._replace(implementation="inductor", autotunes=True)
    assert price(tuned, "cuda", L2, ONCE).first_s >= 10 * price(tuned, "cpu", L2, protocol("cpu")).first_s


def test_a_cpu_samples_for_as_long_as_it_may() -> None:
    assert price(LIGHT, "cpu", L2, protocol("cpu")) == (0.0, 0.0, OVERHEAD_S, None, None)
    compiled = price(LIGHT._replace(implementation="inductor"), "cpu", L2, protocol("cpu"))
    assert compiled == (0.0, ASSUMED["inductor_s"].value, OVERHEAD_S, None, None)


def test_what_is_learned_of_all_visits_holds_for_a_kind_not_seen_yet() -> None:
    learned = LearnedPrices()
    assert learned.shares()("any") == 1
    for _ in range(100):
        learned.visited("aten", 0.1, 0.2)
    shares = learned.shares()
    assert shares("aten") == pytest.approx(2, rel=0.05) and shares("triton") == pytest.approx(2, rel=0.05)


# ---- what a budget chooses


def jobs(count: int, launch_s: float | None = 1e-3) -> list[Job]:
    return [Job(str(i), launch_s) for i in range(count)]


def test_too_slow_a_launch_is_refused_with_both_numbers() -> None:
    found = schedule([Job("slow", 3.0), Job("quick", 1e-3)], 100, 120)
    assert list(found.sampling_s) == ["quick"]
    assert found.refused["slow"] == "one launch is predicted to take 3 s; a budget of 120 s allows 0.1 s"


def test_nothing_known_is_no_reason_to_refuse() -> None:
    assert len(schedule(jobs(3, None), 100, 120).sampling_s) == 3


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


def test_a_comparison_that_does_not_fit_leaves_its_time_to_a_smaller_one() -> None:
    found = schedule(jobs(30), 5.0, 120, comparisons=[[str(i) for i in range(25)], ["26", "27"]])
    assert found.sampling_s.keys() == {"25", "26", "27", "28", "29"}


def test_a_case_that_is_refused_leaves_the_rest_of_its_comparison() -> None:
    found = schedule([Job("slow", 3.0), Job("quick", 1e-3)], 100, 120, comparisons=[["slow", "quick"]])
    assert list(found.sampling_s) == ["quick"] and list(found.refused) == ["slow"] and not found.left_out


def test_what_is_expected_to_be_done_soon_is_priced_so_and_limited_otherwise() -> None:
    """The most that a visit may take is no price."""
    found = schedule([Job(str(i), 1e-5, expected_s=0.25) for i in range(100)], 60, 600, ONE_VISIT["cuda"])
    assert len(found.sampling_s) == 100 and found.total_s == pytest.approx(
        100 * (0.25 + OVERHEAD_S), rel=0.01
    )
    assert set(found.sampling_s.values()) == {ONE_VISIT["cuda"].most_s}
    short = schedule([Job("one", 1e-5, expected_s=0.25)], 60, 120, ONE_VISIT["cuda"])
    assert short.sampling_s == {"one": 2.0}, "a sixtieth of the budget"


def test_jobs_say_what_is_bound_by_power(cases: list[Case]) -> None:
    """A large product has the longest limit, though it is expected to end soon; a small one has not."""
    prices = Prices(H100, protocol("cuda"), 120.0)
    asked = [case for case in cases if case.sweep == "gemm/square" and case.implementation == "cublas"]
    found = schedule(prices.jobs((case, None, 0) for case in asked), None, 120.0, prices.sampling)
    limits_s = {
        case.problem.m: found.sampling_s[case.key] for case in asked if case.problem.dtype == "float16"
    }
    assert limits_s[min(limits_s)] == 2.0 and limits_s[max(limits_s)] == ONE_VISIT["cuda"].most_s


def test_compiling_and_tuning_are_paid_once_however_many_visits_there_are() -> None:
    job = Job("a", None, visits=3, beside_s=1.0, first_s=5.0, expected_s=0.5)
    assert job.cost_s(9.0) == pytest.approx(5.0 + 3 * (1.0 + 0.5))
