"""Who is visited when, and how often."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import pytest

from bench.runner.itinerary import itinerary

pytestmark = pytest.mark.alone

CEILINGS = ["roof 1", "roof 2"]


class Account:
    """Counts visits; a case wants as many as `wanted` says."""

    def __init__(self, wanted: Callable[[str], int], begun: dict[str, int] | None = None) -> None:
        self.wanted, self.made = wanted, Counter(begun or {})
        self.order: list[str] = []

    def go(
        self, cases: list[str], visits: int, seed: int = 1, ceilings: list[str] | None = None
    ) -> list[str]:
        going = itinerary(
            CEILINGS if ceilings is None else ceilings,
            cases,
            visits,
            seed,
            self.made.__getitem__,
            lambda case: self.made[case] < self.wanted(case),
            lambda: ["roof 1"] if self.made["roof 1"] else [],
            lambda: sum(self.made[case] for case in cases) / (visits * len(cases)),
        )
        for case in going:
            self.order.append(case)
            self.made[case] += 1
        return self.order


def cases(count: int) -> list[str]:
    return [f"case {i}" for i in range(count)]


@pytest.mark.parametrize("visits", [1, 2, 3, 7])
@pytest.mark.parametrize("count", [0, 1, 2, 31])
def test_each_case_is_visited_as_often_as_asked_and_ceilings_frame_the_run(visits: int, count: int) -> None:
    order = Account(lambda _: visits).go(cases(count), visits)
    made = Counter(order)
    assert all(made[case] == visits for case in cases(count))
    assert order[:2] == CEILINGS and order[-2:] == CEILINGS
    looks = len({visits * count // 4, visits * count // 2, visits * count * 3 // 4} - {0})
    assert made["roof 2"] == 2 and made["roof 1"] == 2 + looks


def test_the_first_visits_are_in_the_order_given_and_a_round_ends_before_the_next_begins() -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    given = cases(40)
    order = [c for c in Account(lambda _: 3).go(given, 3, seed) if c not in CEILINGS]
    rounds = [order[i : i + 40] for i in range(0, 120, 40)]
    assert rounds[0] == given
    assert all(sorted(one) == sorted(given) for one in rounds)
    assert len({tuple(one) for one in rounds}) == 3  # 2 alike of 40! orders: never
    assert order == [c for c in Account(lambda _: 3).go(given, 3, seed) if c not in CEILINGS]
    assert order != [c for c in Account(lambda _: 3).go(given, 3, seed + 1) if c not in CEILINGS]


def test_the_sentinel_is_looked_at_on_the_way() -> None:
    order = Account(lambda _: 2).go(cases(10), 2)
    at = [i for i, case in enumerate(order) if case == "roof 1"]
    assert at == [0, 7, 13, 19, 25]


def test_who_wants_more_gets_it_in_later_rounds_and_nobody_else() -> None:
    order = Account(lambda case: 5 if case == "case 3" else 2).go(cases(6), 2)
    assert Counter(order)["case 3"] == 5
    assert [c for c in order if c not in CEILINGS][12:] == ["case 3"] * 3


def test_who_wants_no_more_is_passed_over() -> None:
    made = Counter(Account(lambda case: 1 if case == "case 0" else 3).go(cases(3), 3))
    assert (made["case 0"], made["case 1"], made["case 2"]) == (1, 3, 3)


def test_a_resumed_run_makes_only_the_visits_that_are_missing() -> None:
    begun = {"roof 1": 1, "roof 2": 1, "case 0": 2, "case 1": 1}
    account = Account(lambda _: 2, begun)
    order = account.go(cases(3), 2)
    assert sorted(c for c in order if c not in CEILINGS) == ["case 1", "case 2", "case 2"]
    first = next(case for case in order if case not in CEILINGS)
    assert first == "case 2"  # the first visit comes before second ones
    assert Counter(order)["roof 2"] == 1  # there already: only the look at the end is missing
    assert order[-2:] == CEILINGS


def test_it_ends_although_somebody_always_wants_more_but_is_not_visited() -> None:
    """A session may refuse a visit that the itinerary proposes."""
    proposed = list(itinerary([], ["a", "b"], 1, 1, lambda _: 0, lambda _: True, lambda: [], lambda: 0.0))
    assert 2 <= len(proposed) <= 6


def test_the_sentinel_is_looked_at_on_the_way_of_a_run_that_ends_early() -> None:
    """Of a hundred cases there is time for eight: looks belong between these, not after them."""
    order: list[str] = []
    seen: Counter[str] = Counter()
    going = itinerary(
        ["roof 1"],
        cases(100),
        1,
        1,
        seen.__getitem__,
        lambda case: seen[case] == 0 and sum(seen[name] for name in cases(100)) < 8,
        lambda: ["roof 1"],
        lambda: sum(seen[name] for name in cases(100)) / 8,
    )
    for case in going:
        order.append(case)
        seen[case] += 1
    assert [at for at, case in enumerate(order) if case == "roof 1"] == [0, 3, 6, 9, 12]
