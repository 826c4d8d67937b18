"""What visits are expected to take, and what is learned from those that were made."""

from __future__ import annotations

import pytest

from bench.runner.price import ASSUMED, LearnedPrices, PricedWork, is_bound_by_power, price, slots_of
from bench.runner.schedule import OVERHEAD_S
from bench.sampling.protocol import protocol

L2 = 50 * 2**20
ONCE = protocol("cuda")
LIGHT = PricedWork("cublas", 80 * 2**20, True, 28e-6, 1e-6)


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


@pytest.mark.parametrize(
    ("name", "of_kind", "of_case"),
    [
        *(("cublas", 0.0, 0.0), ("cublaslt-256x128", 0.0, 0.0), ("aten", 0.0, 0.0)),
        ("triton", ASSUMED["first_question_s"].value, ASSUMED["question_s"].value),
        ("triton-stream-k", ASSUMED["first_question_s"].value, ASSUMED["question_s"].value),
        ("triton-256x128", ASSUMED["program_s"].value, 0.0),
        ("inductor", 0.0, ASSUMED["inductor_s"].value),
    ],
)
def test_who_compiles_and_tunes_pays_for_it_and_libraries_do_not(
    name: str, of_kind: float, of_case: float
) -> None:
    found = price(LIGHT._replace(implementation=name), "cuda", L2, ONCE)
    assert (found.kind_s, found.first_s) == (of_kind, of_case)


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
