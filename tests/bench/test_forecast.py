"""What a run of ten minutes on an H100 is expected to visit, and that prices follow what visits took."""

from __future__ import annotations

import pytest

import kernels
from bench.cli.list_cases import of_datasheet, planned
from bench.device.datasheet import datasheets
from bench.runner.forecast import CEILING_SHARE, PROBE_SHARE, Forecast, Prices
from bench.sampling.protocol import protocol
from bench.sweep.load import SWEEPS, Case, Loaded, load_all

H100 = of_datasheet(next(sheet for sheet in datasheets() if sheet.slug == "h100_sxm5"))


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
    assert all(settings.settle_share * prices.ceiling_s(case) >= least_s for case in roofs)
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


def test_the_plan_is_printed_with_every_assumption(loaded: list[Loaded]) -> None:
    cases = [
        case for sweep in loaded if sweep.name in ("softmax/length", "softmax/rows") for case in sweep.cases
    ]
    text = "\n".join(planned(H100, cases, {}, Prices(H100, protocol("cuda"), 60.0)))
    assert "of 2 of 2 sweeps" in text and "(--bench-budget inf)" in text
    assert "tuning" not in text.partition("assumed")[0] and "power_settle_s" in text
