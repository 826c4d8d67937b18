"""What a budget chooses."""

from __future__ import annotations

import itertools
import random

import pytest

from bench.schedule import LEAST_CASE_S, MOST_CASE_S, Job, schedule


def jobs(lines: int, points: int, launch_s: float | None = 1e-3) -> list[Job]:
    return [Job(f"{a}.{b}", "s", str(a), launch_s) for a in range(lines) for b in range(points)]


def test_without_a_budget_everything_runs_at_full_length() -> None:
    found = schedule(jobs(3, 10, 5.0), None, None)
    assert len(found.budget_s) == 30 and not found.skipped
    assert min(found.budget_s.values()) >= MOST_CASE_S


def test_time_left_over_is_shared_out() -> None:
    few, many = schedule(jobs(1, 10), 60, 60), schedule(jobs(10, 10), 60, 60)
    assert min(few.budget_s.values()) > min(many.budget_s.values()) > LEAST_CASE_S
    assert sum(many.budget_s.values()) <= 60


def test_too_slow_a_launch_is_refused_with_both_numbers() -> None:
    found = schedule([Job("slow", "s", "l", 3.0), Job("quick", "s", "l", 1e-3)], 100, 120)
    assert list(found.budget_s) == ["quick"]
    assert found.skipped["slow"] == ("one launch is predicted to take 3 s; a budget of 120 s allows 0.2 s")


def test_nothing_known_is_no_reason_to_refuse() -> None:
    assert len(schedule(jobs(1, 3, None), 100, 120).budget_s) == 3


@pytest.mark.parametrize("left_s", [1.0, 3.0, 10.0, 19.0])
def test_a_small_budget_keeps_an_even_spread_and_the_ends(left_s: float) -> None:
    found = schedule(jobs(4, 17), left_s, 120)
    kept = [[b for b in range(17) if f"{a}.{b}" in found.budget_s] for a in range(4)]
    assert len(found.budget_s) + len(found.skipped) == 68
    counts = [len(line) for line in kept]
    assert max(counts) - min(counts) <= 1
    for line in kept:
        if len(line) >= 2:
            assert line[0] == 0 and line[-1] == 16
            gaps = [b - a for a, b in itertools.pairwise(line)]
            assert max(gaps) <= 2 * min(gaps) + 1
    assert "room for" in next(iter(found.skipped.values()))


def test_the_shares_never_exceed_what_is_left() -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    chance = random.Random(seed)
    for _ in range(50):
        some = [Job(str(i), "s", str(i % 5), 10 ** chance.uniform(-6, -0.8)) for i in range(100)]
        left_s = chance.uniform(0, 200)
        assert sum(schedule(some, left_s, 120).budget_s.values()) <= left_s + 1e-6


def test_no_jobs_no_schedule() -> None:
    assert schedule([], 10, 10).budget_s == {}
