"""A run's seed, a test's own, and what a run draws from long lists of cases: tests/drawing.py."""

import itertools

import pytest

from tests.drawing import DEEP, SEED, covering, drawn

CASES = list(itertools.product(range(7), "abcd", (True, False)))


def size(case: tuple[int, str, bool]) -> int:
    return case[0]


def letter(case: tuple[int, str, bool]) -> str:
    return case[1]


@pytest.fixture(autouse=True)
def _ordinary(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(DEEP, raising=False)


def test_every_value_of_every_property_is_met_whatever_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(100):
        monkeypatch.setenv(SEED, str(seed))
        cases = covering(CASES, "cases", size, letter)
        assert {size(case) for case in cases} == set(range(7))
        assert {letter(case) for case in cases} == set("abcd")
        assert len(cases) == 7 and cases == sorted(cases, key=CASES.index)


def test_a_seed_draws_the_same_again_and_another_name_draws_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SEED, "5")
    assert drawn(CASES, 7, "one") == drawn(CASES, 7, "one") != drawn(CASES, 7, "other")
    assert covering(CASES, "one", size) == covering(CASES, "one", size) != covering(CASES, "other", size)


def test_a_deep_run_has_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(DEEP, "1")
    assert drawn(CASES, 7, "cases") == covering(CASES, "cases", size) == CASES
