"""What a budget chooses."""

from __future__ import annotations

import random

import pytest

from bench.runner.schedule import ONE_VISIT, OVERHEAD_S, Job, schedule

LEAST_CASE_S, MOST_CASE_S = ONE_VISIT["cpu"]


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
    assert 10 / (LEAST_CASE_S + 0.3) < len(found.sampling_s) < 10 / LEAST_CASE_S
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


def test_compiling_and_tuning_are_paid_once_however_many_visits_there_are() -> None:
    job = Job("a", None, visits=3, beside_s=1.0, first_s=5.0, expected_s=0.5)
    assert job.cost_s(9.0) == pytest.approx(5.0 + 3 * (1.0 + 0.5))
