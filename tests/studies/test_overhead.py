"""What the parent costs: the arithmetic, on clocks that are told what to say."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, NamedTuple, cast
from unittest.mock import MagicMock

import pytest

from kernels import problem
from studies import harness_overhead


class Clock:
    at_s = 0.0

    def perf_counter(self) -> float:
        return self.at_s


class Row(NamedTuple):
    status: str = "ok"
    setup_s: float | None = None
    check_s: float | None = None
    measure_s: float | None = None


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    told = Clock()
    monkeypatch.setattr(harness_overhead, "time", told)
    return told


@pytest.fixture
def seeded(seed: int) -> random.Random:
    return random.Random(seed)


class Takes:
    """Something whose every call takes the next of these times; it may be a worker or a journal."""

    def __init__(self, clock: Clock, seconds: list[float]) -> None:
        self.clock, self.seconds, self.calls = clock, iter(seconds), 0

    def ask(self, request: dict[str, Any], deadline_s: float) -> dict[str, Any]:
        self.clock.at_s += next(self.seconds)
        return {}

    def append(self, row: Row) -> None:
        self.clock.at_s += next(self.seconds)


def test_every_request_is_timed_but_the_first(clock: Clock, seeded: random.Random) -> None:
    seconds = [100.0, *(seeded.uniform(1e-4, 1e-2) for _ in range(harness_overhead.TIMES))]
    found = harness_overhead.requests_s(cast(Any, Takes(clock, seconds)))
    assert found == pytest.approx(seconds[1:], rel=1e-6)


def test_every_row_is_timed(clock: Clock, seeded: random.Random) -> None:
    seconds = [seeded.uniform(1e-4, 1e-2) for _ in range(harness_overhead.TIMES)]
    found = harness_overhead.rows_s(cast(Any, Takes(clock, seconds)), cast(Any, Row()))
    assert found == pytest.approx(seconds)


class Session:
    """Walks through visits that take their own time and some more; then the budget is spent."""

    def __init__(self, clock: Clock, visits: list[tuple[Row, float]]) -> None:
        self.clock, self.visits = clock, visits

    @property
    def elapsed_s(self) -> float:
        return self.clock.at_s

    def walk(self) -> Iterator[tuple[None, Row]]:
        for row, more_s in self.visits:
            self.clock.at_s += more_s + sum(filter(None, (row.setup_s, row.check_s, row.measure_s)))
            yield None, row


def test_what_a_row_accounts_for_is_no_overhead(clock: Clock, seeded: random.Random) -> None:
    more_s = [seeded.uniform(1e-4, 1e-2) for _ in range(20)]
    spent = [[seeded.uniform(0, 0.1) for _ in range(3)] for _ in more_s]
    visits = [(Row("ok", *parts), more) for parts, more in zip(spent, more_s, strict=True)]
    refused = [(Row("skipped"), 0.5)] * 3
    found = harness_overhead.visits_s(cast(Any, Session(clock, [*visits[:10], *refused, *visits[10:]])))
    assert found == pytest.approx(more_s[1:])


def test_it_ends_with_the_budget(clock: Clock) -> None:
    visits = [(Row("ok", 0.0, 0.0, harness_overhead.BUDGET_S / 3), 0.001)] * 100
    timed = harness_overhead.visits_s(cast(Any, Session(clock, visits)))
    assert len(timed) == 2  # of three, without the first


def test_the_spread_is_the_median_and_the_95th_percentile_in_milliseconds() -> None:
    assert harness_overhead._spread([1e-3 * i for i in range(101)]) == "50.00 ms (p95 95.00)"


def test_a_machine_too_slow_to_tell_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a worker, a session and a journal that do nothing."""
    nothing = MagicMock()
    nothing.return_value.walk.return_value = ()
    monkeypatch.setattr(harness_overhead, "Worker", nothing)
    monkeypatch.setattr(harness_overhead, "Session", nothing)
    (line,) = harness_overhead.parent_overhead(problem)
    assert line == "the parent's cost is not known: fewer than two visits ended within 15 s"
