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


def single(table: pd.DataFrame) -> pd.DataFrame:
    return table[table["kind"] == "series"]


def test_a_quiet_history_has_no_movers_and_all_columns(quiet: History) -> None:
    table = movers(seen(judged(quiet)))
    assert table.empty and tuple(table.columns) == COLUMNS


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(("members", "half", "kind"), [(1, HALF, "series"), (20, HALF / 2, "class")])
def test_both_sides_of_the_band(quiet: History, sign: int, members: int, half: float, kind: str) -> None:
    rows = rows_of(quiet, "gemm", "triton")[:members]
    for share, listed in ((0.8, []), (1.2, [kind])):
        moved = stepped(quiet, rows, 20, float(np.expm1(sign * share * half)))
        assert list(movers(seen(judged(moved)))["kind"]) == listed, share


def test_every_number_of_a_mover(quiet: History, chance: np.random.Generator) -> None:
    row, began, by = rows_of(quiet, "gemm", "triton")[5], 22, float(chance.uniform(0.2, 0.5))
    moved = stepped(quiet, [row], began, by)
    (one,) = single(movers(seen(judged(moved, [step(moved, row, began, np.log1p(by))])))).to_dict("records")
    before_s = float(np.exp(np.median(quiet.log_s[row])))
    assert one["row"] == row and (one["operator"], one["implementation"]) == ("gemm", "triton")
    assert one["before_s"] == pytest.approx(before_s, rel=0.003)
    assert one["now_s"] == pytest.approx(before_s * (1 + by), rel=0.003)
    assert one["moved_s"] == pytest.approx(one["now_s"] - one["before_s"])
    assert one["effect"] == pytest.approx(by, abs=0.006)
    assert one["noise"] == pytest.approx(np.expm1(HALF))
    assert one["over_noise"] == pytest.approx(np.log1p(one["effect"]) / HALF)
    assert (one["since"], one["commit"]) == (moved.nights[began].utc[:10], moved.nights[began].commit)
    assert one["state"] == "open"


def test_the_most_time_comes_first_not_the_largest_share(quiet: History) -> None:
    rows = rows_of(quiet, "gemm", "triton")[:3]
    log_s = quiet.log_s.copy()
    log_s[rows] += np.log([1.0, 1e-3, 1e3])[:, None] - log_s[rows].mean(1, keepdims=True)
    moved = stepped(stepped(replace(quiet, log_s=log_s), rows[:2], 20, 0.5), rows[2:], 20, -0.1)
    table = single(movers(seen(judged(moved))))
    assert list(table["row"]) == [rows[2], rows[0], rows[1]]
    assert list(np.sign(table["moved_s"])) == [-1, 1, 1]


def test_nothing_moves_across_segments(chance: np.random.Generator) -> None:
    history = made(chance, 40, NIGHTS, noise=QUIET, segments=(20,))
    rows = rows_of(history, "gemm", "triton")
    assert movers(seen(judged(stepped(history, rows, 20, 0.5)))).empty
    assert not movers(seen(judged(stepped(history, rows, 25, 0.5)))).empty


def test_only_the_nights_shown_count(quiet: History) -> None:
    row = rows_of(quiet, "gemm", "triton")[0]
    moved = judged(stepped(quiet, [row], 10, 0.3))
    assert list(single(movers(seen(moved)))["row"]) == [row]
    assert movers(seen(moved, first=12)).empty


def test_an_open_step_from_before_the_nights_shown_is_held_against_what_was_before_it(quiet: History) -> None:
    row = rows_of(quiet, "gemm", "triton")[0]
    moved = stepped(quiet, [row], 20, 0.3)
    (one,) = movers(seen(judged(moved, [step(moved, row, 20, np.log(1.3))]), first=25)).to_dict("records")
    assert one["effect"] == pytest.approx(0.3, abs=0.01) and one["since"] == moved.nights[20].utc[:10]


def test_doubted_and_missing_nights_tell_no_level(quiet: History) -> None:
    row = rows_of(quiet, "gemm", "triton")[0]
    late = range(NIGHTS - 4, NIGHTS)
    moved = stepped(quiet, [row], NIGHTS - 4, 0.5)
    assert list(single(movers(seen(judged(moved))))["row"]) == [row]
    assert movers(seen(judged(doubted(moved, [row], late)))).empty
    assert movers(seen(judged(missing(moved, [row], late)))).empty


def test_the_level_now_is_that_since_the_step_not_of_three_nights(quiet: History) -> None:
    row = rows_of(quiet, "gemm", "triton")[0]
    moved = stepped(stepped(quiet, [row], 20, 0.3), [row], 28, 1.0)  # two odd nights at the end
    (one,) = single(movers(seen(judged(moved, [step(moved, row, 20, np.log(1.3))])))).to_dict("records")
    assert one["effect"] == pytest.approx(0.3, abs=0.01)


def test_a_step_that_recovered_is_no_mover(quiet: History) -> None:
    row = rows_of(quiet, "gemm", "triton")[0]
    moved = stepped(quiet, [row], 15, 0.3, until=28)
    back = step(moved, row, 15, np.log(1.3), ended=29, ending="recovered")
    assert movers(seen(judged(moved, [back]))).empty


def test_a_class_is_told_by_its_median_member_and_its_sum_of_seconds(quiet: History) -> None:
    rows = rows_of(quiet, "gemm", "triton")
    alone = movers(seen(judged(stepped(quiet, rows[:1], 20, 4.0))))
    assert list(alone["kind"]) == ["series"]
    moved = stepped(quiet, rows, 20, 0.1)
    of_class = ConfirmedChange("class", "gemm triton", 1, 20, 21, None, None, np.log(1.1), HALF, tuple(rows))
    table = movers(seen(judged(moved, [of_class])))
    assert (table["state"] == "open").all() and (table["since"] == moved.nights[20].utc[:10]).all()
    (one,) = table[table["kind"] == "class"].to_dict("records")
    members = single(table)
    assert sorted(members["row"]) == rows and one["name"] == "gemm triton"
    assert one["moved_s"] == pytest.approx(members["moved_s"].sum())
    assert one["effect"] == pytest.approx(0.1, abs=0.003)
    assert one["over_noise"] == pytest.approx(np.log1p(one["effect"]) / (HALF / 2))


def test_a_ceiling_is_called_one_and_belongs_to_no_class(quiet: History) -> None:
    table = movers(seen(judged(stepped(quiet, [0, 2, 4, 6], 20, 0.2))))
    assert list(table["kind"]) == ["ceiling"] * 4 and sorted(table["row"]) == [0, 2, 4, 6]
    series = quiet.series.copy()
    series.loc[series["ceiling"], ["operator", "implementation"]] = ["gemm", "triton"]
    moved = stepped(replace(quiet, series=series), rows_of(quiet, "gemm", "triton"), 20, 0.2)
    table = movers(seen(judged(stepped(moved, range(8), 20, 0.2))))
    (of_class,) = table[table["kind"] == "class"].to_dict("records")
    assert of_class["moved_s"] == pytest.approx(single(table)["moved_s"].sum())


def test_too_few_nights_are_no_movers(quiet: History) -> None:
    for nights in (1, 2, 3):
        assert movers(seen(judged(cut(stepped(quiet, range(48), 1, 0.5), range(nights))))).empty
