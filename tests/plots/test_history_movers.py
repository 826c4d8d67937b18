"""The movers table: what left its band within the last segment, by how much, and since when."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from bench.judge.history.detector import ConfirmedChange
from bench.judge.history.series import History
from plots.history.movers import COLUMNS, movers
from tests.bench.nights_made import QUIET, doubted, made, missing, rows_of, stepped
from tests.plots.judged_made import HALF, cut, judged, seen, step

NIGHTS = 30


@pytest.fixture
def quiet(chance: np.random.Generator) -> History:
    """8 ceilings; 20 gemm triton, 20 activations triton; 0.1 % noise."""
    return made(chance, 40, NIGHTS, noise=QUIET)


@pytest.fixture
def gemm(quiet: History) -> list[int]:
    return rows_of(quiet, "gemm", "triton")


def moved(history: History, *steps: ConfirmedChange, first: int = 0) -> pd.DataFrame:
    return movers(seen(judged(history, steps), first))


def single(table: pd.DataFrame) -> pd.DataFrame:
    return table[table["kind"] == "series"]


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(("members", "half", "kind"), [(1, HALF, "series"), (20, HALF / 2, "class")])
def test_both_sides_of_the_band(
    quiet: History, gemm: list[int], sign: int, members: int, half: float, kind: str
) -> None:
    for share, listed in ((0.8, []), (1.2, [kind])):
        history = stepped(quiet, gemm[:members], 20, float(np.expm1(sign * share * half)))
        assert list(moved(history)["kind"]) == listed, share


def test_every_number_of_a_mover(quiet: History, gemm: list[int], chance: np.random.Generator) -> None:
    row, began, by = gemm[5], 22, float(chance.uniform(0.2, 0.5))
    history = stepped(quiet, [row], began, by)
    table = single(moved(history, step(history, row, began, np.log1p(by))))
    (one,) = table.to_dict("records")
    before_s = float(np.exp(np.median(quiet.log_s[row])))
    assert tuple(table.columns) == COLUMNS
    assert one["row"] == row and (one["operator"], one["implementation"]) == ("gemm", "triton")
    assert one["before_s"] == pytest.approx(before_s, rel=0.003)
    assert one["now_s"] == pytest.approx(before_s * (1 + by), rel=0.003)
    assert one["moved_s"] == pytest.approx(one["now_s"] - one["before_s"])
    assert one["effect"] == pytest.approx(by, abs=0.006)
    assert one["noise"] == pytest.approx(np.expm1(HALF))
    assert one["over_noise"] == pytest.approx(np.log1p(one["effect"]) / HALF)
    assert (one["since"], one["commit"]) == (history.nights[began].utc[:10], history.nights[began].commit)
    assert one["state"] == "open"


def test_the_most_time_comes_first_not_the_largest_share(quiet: History, gemm: list[int]) -> None:
    rows = gemm[:3]
    log_s = quiet.log_s.copy()
    log_s[rows] += np.log([1.0, 1e-3, 1e3])[:, None] - log_s[rows].mean(1, keepdims=True)
    history = stepped(stepped(replace(quiet, log_s=log_s), rows[:2], 20, 0.5), rows[2:], 20, -0.1)
    table = single(moved(history))
    assert list(table["row"]) == [rows[2], rows[0], rows[1]]
    assert list(np.sign(table["moved_s"])) == [-1, 1, 1]


def test_nothing_moves_across_segments(chance: np.random.Generator) -> None:
    history = made(chance, 40, NIGHTS, noise=QUIET, segments=(20,))
    rows = rows_of(history, "gemm", "triton")
    assert moved(stepped(history, rows, 20, 0.5)).empty and not moved(stepped(history, rows, 25, 0.5)).empty


def test_only_sound_nights_that_are_shown_count(quiet: History, gemm: list[int]) -> None:
    table = moved(quiet)
    assert table.empty and tuple(table.columns) == COLUMNS
    rows, late = gemm[:1], range(NIGHTS - 4, NIGHTS)
    early, tonight = (stepped(quiet, rows, night, 0.4) for night in (10, NIGHTS - 4))
    assert [list(single(moved(one))["row"]) for one in (early, tonight)] == [rows, rows]
    assert moved(early, first=12).empty
    assert moved(doubted(tonight, rows, late)).empty and moved(missing(tonight, rows, late)).empty
    for nights in (1, 2, 3):
        assert moved(cut(stepped(quiet, range(48), 1, 0.5), range(nights))).empty


@pytest.mark.parametrize(
    ("steps", "first", "effect", "since"),
    [
        ([(20, 0.3, None, None)], 25, 0.3, 20),  # open since before the nights shown: against what was before
        ([(20, 0.3, None, None), (28, 1.0, None, "unseen")], 0, 0.3, 20),  # the last two nights are odd
        ([(2, 0.3, 11, "accepted"), (20, 0.3, None, None)], 0, 1.3**2 - 1, 20),  # before is before the first
        ([(15, 0.3, 29, "recovered"), (28, 1 / 1.3 - 1, None, "unseen")], 0, None, 0),
    ],
)
def test_levels_are_those_before_the_first_step_and_since_the_newest(
    quiet: History,
    gemm: list[int],
    steps: list[tuple[int, float, int | None, str | None]],
    first: int,
    effect: float | None,
    since: int,
) -> None:
    history = quiet
    for night, by, *_ in steps:
        history = stepped(history, gemm[:1], night, by)
    known = [
        step(history, gemm[0], night, np.log1p(by), ended=ended, ending=ending)
        for night, by, ended, ending in steps
        if ending != "unseen"
    ]
    found = moved(history, *known, first=first).to_dict("records")
    assert len(found) == (effect is not None)
    for one in found:
        assert one["effect"] == pytest.approx(effect, abs=0.02)
        assert one["since"] == history.nights[since].utc[:10]


def test_a_class_is_told_by_its_median_member_and_its_sum_of_seconds(quiet: History, gemm: list[int]) -> None:
    assert list(moved(stepped(quiet, gemm[:1], 20, 4.0))["kind"]) == ["series"]
    history = stepped(quiet, gemm, 20, 0.1)
    of_class = ConfirmedChange("class", "gemm triton", 1, 20, 21, None, None, np.log(1.1), HALF, tuple(gemm))
    table = moved(history, of_class)
    assert (table["state"] == "open").all() and (table["since"] == history.nights[20].utc[:10]).all()
    (one,) = table[table["kind"] == "class"].to_dict("records")
    members = single(table)
    assert sorted(members["row"]) == gemm and one["name"] == "gemm triton"
    assert one["moved_s"] == pytest.approx(members["moved_s"].sum())
    assert one["effect"] == pytest.approx(0.1, abs=0.003)
    assert one["over_noise"] == pytest.approx(np.log1p(one["effect"]) / (HALF / 2))


def test_a_ceiling_is_called_one_and_belongs_to_no_class(quiet: History, gemm: list[int]) -> None:
    table = moved(stepped(quiet, [0, 2, 4, 6], 20, 0.2))
    assert list(table["kind"]) == ["ceiling"] * 4 and sorted(table["row"]) == [0, 2, 4, 6]
    series = quiet.series.copy()
    series.loc[series["ceiling"], ["operator", "implementation"]] = ["gemm", "triton"]
    table = moved(stepped(replace(quiet, series=series), [*gemm, *range(8)], 20, 0.2))
    (of_class,) = table[table["kind"] == "class"].to_dict("records")
    assert of_class["moved_s"] == pytest.approx(single(table)["moved_s"].sum())
