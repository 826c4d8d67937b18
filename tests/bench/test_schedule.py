"""What a budget chooses."""

from __future__ import annotations

import itertools
import random
from collections import Counter

import pytest

from bench.runner.schedule import DEAR_SHARE, ONE_VISIT, OVERHEAD_S, Job, Place, order, rounds, schedule

LEAST_CASE_S, MOST_CASE_S = ONE_VISIT["cpu"]


def jobs(count: int, launch_s: float | None = 1e-3) -> list[Job]:
    return [Job(str(i), launch_s) for i in range(count)]


def test_without_a_budget_everything_runs_at_full_length() -> None:
    found = schedule(jobs(30, 5.0), None, None)
    assert len(found.sampling_s) == 30 and not found.skipped
    assert min(found.sampling_s.values()) >= MOST_CASE_S


def test_time_left_over_is_shared_out() -> None:
    few, many = schedule(jobs(10), 60, 60), schedule(jobs(100), 60, 60)
    assert min(few.sampling_s.values()) > min(many.sampling_s.values()) >= LEAST_CASE_S
    assert few.total_s <= 60 and many.total_s <= 60


def test_too_slow_a_launch_is_refused_with_both_numbers() -> None:
    found = schedule([Job("slow", 3.0), Job("quick", 1e-3)], 100, 120)
    assert list(found.sampling_s) == ["quick"]
    assert found.skipped["slow"] == "one launch is predicted to take 3 s; a budget of 120 s allows 0.1 s"


def test_nothing_known_is_no_reason_to_refuse() -> None:
    assert len(schedule(jobs(3, None), 100, 120).sampling_s) == 3


def test_what_does_not_fit_is_left_out_from_the_end() -> None:
    found = schedule(jobs(50), 10, 120)
    assert list(found.sampling_s) == [str(i) for i in range(len(found.sampling_s))]
    assert 10 / (LEAST_CASE_S + 0.3) < len(found.sampling_s) < 10 / LEAST_CASE_S
    assert set(found.skipped.values()) == {"left out: the budget of 120 s has no room for it"}


def test_nothing_left_leaves_everything_out() -> None:
    assert schedule(jobs(3), 0.0, 120).sampling_s == {}
    assert schedule([], 10, 10).total_s == 0


def test_the_shares_never_exceed_what_is_left() -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
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


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 17, 100])
def test_any_prefix_of_the_rounds_is_an_even_spread(count: int) -> None:
    """The middle, then both ends, then the widest gap each time."""
    found = rounds([Place("sweep", "kind", "line")] * count)
    assert found[count // 2] == 0
    assert all(found[end] == 1 for end in {0, count - 1} - {count // 2})
    assert sorted(found)[3:] == list(range(2, count - 1))
    for last in range(1, count):
        kept = [i for i in range(count) if found[i] <= last]
        gaps = [b - a for a, b in itertools.pairwise(kept)]
        assert not gaps or max(gaps) <= 2 * min(gaps) + 1


def test_every_kind_and_every_sweep_comes_before_a_second_line_of_either() -> None:
    places = [
        Place("gemm/square", "float32", "float32 n=1"),
        Place("gemm/square", "float32", "float32 n=2"),  # a second line of the same kind
        Place("gemm/square", "float64", "float64 n=1"),
        Place("gemm/square", "float32", "float32 n=3"),
        Place("gemm/wide", "float32", "float32 n=9"),  # a kind there is already, but a new sweep
        Place("gemm/wide", "float64", "float64 n=9"),
    ]
    late = [0, 1, 0, 2, 0, 1]
    assert rounds(places * 2) == [each + 1 for each in late] + late  # an end, and what counts as the middle
    assert rounds([]) == []


def test_sweeps_take_turns_within_a_round() -> None:
    """Whenever time runs out, no sweep is more than a case ahead of another that has as many left."""
    places = [Place(sweep, f"{sweep} {k}", f"{sweep} {k}") for sweep in "abc" for k in range(3)] * 3
    found = order(places)
    assert sorted(found) == list(range(len(places)))
    turn = rounds(places)
    assert [turn[i] for i in found] == sorted(turn)
    for last in range(1, len(found)):
        done = Counter(places[i].sweep for i in found[:last])
        assert max(done[s] for s in "abc") - min(done[s] for s in "abc") <= 1
    assert order([]) == []


def test_points_that_are_blocks_of_their_own_are_one_line() -> None:
    """Rows shrink while columns grow: nothing moves with x alone."""
    places = [Place("sweep", kind, f"{kind} rows={64 >> i}") for i in range(5) for kind in ("a", "b")]
    assert rounds(places) == [1, 1, 2, 2, 0, 0, 3, 3, 1, 1]


def test_lines_take_turns() -> None:
    first, second = (Place("sweep", kind, kind) for kind in ("float32", "float64"))
    assert rounds([first, second, first, second, first]) == [1, 1, 0, 0, 1]


def test_dear_cases_get_their_share_of_the_time_and_half_of_it_later() -> None:
    cheap = [Place(sweep, sweep, f"{sweep} {i}", "library", 0.3) for sweep in "ab" for i in range(4000)]
    dear = [Place(sweep, sweep, f"{sweep} {i}", "tuned", 2.0) for sweep in "abc" for i in range(500)]
    places = [*cheap, *dear]
    found = order(places)
    assert sorted(found) == list(range(len(places)))
    assert sorted(places[i].sweep for i in found[:3]) == ["a", "b", "c"], "something of every sweep first"
    spent_s = {True: 0.0, False: 0.0}
    at_s: dict[float, float] = {}
    for index in found:
        spent_s[places[index].implementation == "tuned"] += places[index].cost_s
        at_s[sum(spent_s.values())] = spent_s[True]
    by_then = {
        limit_s: max(s for total_s, s in at_s.items() if total_s <= limit_s) for limit_s in (500, 1500)
    }
    assert by_then[500] == pytest.approx(500 * DEAR_SHARE, rel=0.05)
    assert by_then[1500] - by_then[500] == pytest.approx(1000 / 2, rel=0.05)


def test_within_a_sweep_implementations_get_the_same_time() -> None:
    places = [
        Place("a", name, f"{name} {i}", name, cost)
        for name, cost in (("x", 1.0), ("y", 1.4))
        for i in range(90)
    ]
    first = [places[index] for index in order(places)[:60]]
    x_s, y_s = (sum(place.cost_s for place in first if place.kind == name) for name in "xy")
    assert x_s == pytest.approx(y_s, abs=2.0)


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
