"""The account of a run's time, on a clock that the test moves."""

from __future__ import annotations

import pytest

from bench.runner.pace import AGAIN, REPLAN, Pace
from bench.runner.schedule import ONE_VISIT, OVERHEAD_S, SEVERAL_VISITS, Job

pytestmark = pytest.mark.alone

ONCE, OFTEN = ONE_VISIT["cpu"], SEVERAL_VISITS["cpu"]


class Clock:
    def __init__(self) -> None:
        self.at_s = 100.0

    def __call__(self) -> float:
        return self.at_s


def jobs(count: int, visits: int = 1) -> list[Job]:
    return [Job(str(i), 1e-3, visits) for i in range(count)]


def test_without_a_budget_everything_has_room() -> None:
    pace = Pace(None, ONCE, Clock())
    assert pace.left_s() is None
    found = pace.plan(lambda: jobs(5000))
    assert len(found.sampling_s) == 5000 and not found.skipped
    assert pace.has_room(Job("more", 1e3))
    assert pace.left_s() == pytest.approx(found.total_s)


def test_the_roofs_time_is_kept_for_measuring_them_again() -> None:
    clock = Clock()
    pace, without = Pace(100.0, ONCE, clock), Pace(100.0, ONCE, clock)
    clock.at_s += 32.0
    pace.roof_measured(12.0, 2.0)
    pace.roof_measured(20.0, 0.0)
    kept = pace.plan(lambda: jobs(1000))
    assert 66 - AGAIN * 30 - 0.7 < kept.total_s <= 66 - AGAIN * 30  # a visit takes 0.6 s
    assert 67 < without.plan(lambda: jobs(1000)).total_s <= 68
    clock.at_s += 66 - AGAIN * 30 - 0.1
    assert not pace.has_room(Job("more", 1e-3)) and without.has_room(Job("more", 1e-3))


def test_a_case_gets_room_for_all_of_its_visits_or_for_none() -> None:
    one = Pace(20.0, ONCE, Clock()).plan(lambda: jobs(100))
    three = Pace(20.0, OFTEN, Clock()).plan(lambda: jobs(100, 3))
    assert 0 < len(three.sampling_s) < len(one.sampling_s)
    assert set(three.sampling_s) | set(three.skipped) == {str(i) for i in range(100)}
    assert all(OFTEN.least_s <= s <= OFTEN.most_s for s in three.sampling_s.values())
    alone = Pace(None, OFTEN, Clock()).plan(lambda: jobs(1, 3))
    assert alone.sampling_s == {"0": OFTEN.most_s} and OFTEN.most_s < ONCE.most_s
    assert alone.total_s == pytest.approx(3 * (OVERHEAD_S + 4e-3 + OFTEN.most_s))


def test_it_looks_again_every_few_visits() -> None:
    clock = Clock()
    pace = Pace(200.0, ONCE, clock)
    asked: list[int] = []

    def due() -> list[Job]:
        asked.append(1)
        return jobs(400)

    before = pace.plan(due)
    for _ in range(REPLAN):
        assert pace.plan(due) is before
        pace.visited()
        clock.at_s += 2.0
    after = pace.plan(due)
    assert len(asked) == 2
    assert len(after.sampling_s) < len(before.sampling_s)  # there is less time left


def test_it_knows_how_many_visits_are_still_to_come() -> None:
    pace = Pace(None, OFTEN, Clock())
    assert pace.visits_left is None
    assert pace.plan(lambda: jobs(10, 3)).visits == 30
    for made in range(1, REPLAN):
        pace.visited()
        assert pace.visits_left == 30 - made


def test_a_budget_may_begin_later() -> None:
    clock = Clock()
    pace = Pace(50.0, ONCE, clock)
    clock.at_s += 45.0
    pace.begin()
    assert pace.elapsed_s == 0 and pace.left_s() == 50


def test_what_is_left_shrinks_as_time_passes_and_never_below_nothing() -> None:
    clock = Clock()
    pace = Pace(50.0, ONCE, clock)
    assert pace.left_s() == 50
    total_s = pace.plan(lambda: jobs(3)).total_s
    clock.at_s += 1.0
    assert pace.left_s() == pytest.approx(total_s - 1)
    clock.at_s += 1e6
    assert pace.left_s() == 0 and pace.elapsed_s == pytest.approx(1e6 + 1)
