"""Nights on an axis of dates: in their order, at their time, none covering another."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from plots.history.view import APART, calendar, moment

START = datetime(2026, 3, 1, 3, 30, tzinfo=UTC)


def utc(*hours: float) -> list[str]:
    return [(START + timedelta(hours=float(one))).isoformat() for one in hours]


def test_regular_nights_stand_at_their_own_time() -> None:
    for nights in (1, 2, 7, 60, 365, 1000):
        found = calendar(utc(*(24 * i for i in range(nights))))
        assert found.spread == 0 and not found.remark(), nights
        assert [moment(x) for x in found.x[:5]] == [START + timedelta(days=i) for i in range(min(nights, 5))]


def test_nights_never_overlap_and_never_change_order(chance: np.random.Generator) -> None:
    for _ in range(50):
        n = int(chance.integers(2, 60))
        hours = np.sort(chance.choice([0, 1, 24, 25, 500, 501, 2000], n) + chance.integers(0, 2, n) / 60)
        found = calendar(utc(*hours))
        apart = np.diff(found.x)
        span = float(found.x[-1] - found.x[0])
        assert (apart > 0).all() and float(apart.min()) >= 0.3 * min(APART, 0.5 / n) * span
        assert found.together == (hours[0] == hours[-1])


def test_two_nights_of_one_time_are_told_and_stay_near() -> None:
    found = calendar(utc(0, 24, 48, 48, 72))
    assert found.spread == 1 and "1 night stands" in found.remark()
    assert 0 < found.x[3] - found.x[2] < 0.1 and found.x[4] - found.x[2] == pytest.approx(1)


def test_nights_all_of_one_time_stand_in_their_order() -> None:
    found = calendar(utc(5, 5, 5))
    assert found.together and not found.remark()
    assert found.ticks(8) == ([found.x[0]], ["08:30"], "2026-03-01")


def test_ticks_are_inside_distinct_and_say_all_of_the_date() -> None:
    for hours in ((0, 1, 2), (0, 30), (0, 24 * 6), (0, 24 * 50), (0, 24 * 300), (0, 24 * 2000)):
        found = calendar(utc(*hours))
        places, labels, common = found.ticks(8)
        assert 2 <= len(places) == len(set(labels)) <= 16 or hours[-1] > 24 * 365, hours
        assert all(found.x[0] <= one <= found.x[-1] for one in places)
        assert "2026" in common
        assert hours[-1] <= 24 * 365 or common.startswith("2026 to 20")


def test_a_place_is_its_time_to_the_second(chance: np.random.Generator) -> None:
    seconds = np.sort(chance.choice(10**8, 100, replace=False)).tolist()
    found = calendar([(START + timedelta(seconds=one)).isoformat() for one in seconds[:2]])
    assert [moment(x) for x in found.x] == [START + timedelta(seconds=one) for one in seconds[:2]]
    for one in seconds:
        (x,) = calendar([(START + timedelta(seconds=one)).isoformat()]).x
        assert moment(float(x)) == START + timedelta(seconds=one)


def test_shares_run_from_0_to_1() -> None:
    found = calendar(utc(0, 24))
    low, high = found.limits
    assert (found.share(low), found.share(high)) == (0.0, 1.0) and 0 < found.share(found.x[0]) < 0.1
