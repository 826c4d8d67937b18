"""A run's seed, a test's own, and what a run draws from long lists of cases: tests/drawing.py."""

import itertools

import pytest

from tests.drawing import DEEP, PLAIN_SEED, SEED, begin_run, covering, drawn, run_seed

CASES = list(itertools.product(range(7), "abcd", (True, False)))


def size(case: tuple[int, str, bool]) -> int:
    return case[0]


def letter(case: tuple[int, str, bool]) -> str:
    return case[1]


@pytest.fixture(autouse=True)
def _ordinary(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(DEEP, raising=False)


@pytest.mark.parametrize(
    ("given", "deep", "seeds"), [("", False, {PLAIN_SEED}), ("7", False, {7}), ("7", True, {7})]
)
def test_plain_runs_share_one_seed_and_one_that_is_given_counts(
    given: str, deep: bool, seeds: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert seeds_of_runs(given, deep, monkeypatch) == seeds


def test_deep_runs_draw_a_seed_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three that are one seed are drawn once in 2^64."""
    assert len(seeds_of_runs("", True, monkeypatch)) > 1


def seeds_of_runs(given: str, deep: bool, monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """The seeds of three runs that begin where the environment has this seed, or none."""
    seeds = set()
    for _ in range(3):
        monkeypatch.setenv(DEEP, "")
        monkeypatch.setenv(SEED, given)
        if not given:
            monkeypatch.delenv(SEED)
        begin_run(deep)
        seeds.add(run_seed())
    return seeds


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
