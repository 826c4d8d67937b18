"""What nights tell by chance: of a run of them, of a few, change points, and how often whole months err."""

from __future__ import annotations

import numpy as np
import pytest

from bench.judge.history.change_points import change_points
from bench.judge.history.detector import judged
from bench.judge.history.rolling import HELD, LEAST, WINDOW, Window
from bench.judge.history.run_probability import LOOK_BACK, Chance
from studies.months import STEP, WITHIN, alarms, months, repeated, table
from tests.bench.nights_made import Noise, made, missing, others, rows_of, stepped


def counted(chance: np.random.Generator, odd: float) -> Chance:
    found = Chance(0.05)
    for _ in range(40):
        found.count(scores(chance, 2000, odd)[:, 0])
    return found


def scores(chance: np.random.Generator, rows: int, odd: float) -> np.ndarray:
    out = chance.standard_normal((rows, LOOK_BACK))
    return out + (chance.random(out.shape) < odd) * chance.uniform(3, 8, out.shape)


@pytest.mark.parametrize("odd", [0.0, 0.05, 0.15])
@pytest.mark.parametrize("slower", [True, False])
def test_no_run_is_rarer_than_it_is(chance: np.random.Generator, odd: float, slower: bool) -> None:
    """Of 100,000 quiet runs one in a thousand is told as that rare, or fewer; 130 are five deviations off."""
    found = counted(chance, odd)
    p = found.run(scores(chance, 100_000, odd), np.full(100_000, slower)).p
    told = int((p <= 0.002).sum())
    assert 10 < told < 130, told


def test_each_side_has_its_own_counts(chance: np.random.Generator) -> None:
    """Where slow nights are frequent, two of them say little; two fast ones say much."""
    found = counted(chance, 0.15)
    run = np.full((1, LOOK_BACK), 0.1)
    run[0, -2:] = 4.0
    slow, fast = found.run(run, np.array([True])).p[0], found.run(-run, np.array([False])).p[0]
    assert slow > 0.02 and fast < 0.001


def test_what_was_long_ago_is_forgotten(chance: np.random.Generator) -> None:
    """After a calm half of a year slow nights are frequent for six weeks: two of them say little."""
    found = Chance(0.05)
    for night in range(220):
        found.count(scores(chance, 2000, 0.0 if night < 180 else 0.15)[:, 0])
    run = np.full((1, LOOK_BACK), 0.1)
    run[0, -2:] = 4.0
    assert found.run(run, np.array([True])).p[0] > 0.02


def test_the_longer_the_rarer(chance: np.random.Generator) -> None:
    found = counted(chance, 0.05)
    run = np.zeros((LOOK_BACK, LOOK_BACK))
    for nights in range(LOOK_BACK):
        run[nights, LOOK_BACK - nights :] = 3.5
    p = found.run(run, np.ones(LOOK_BACK, dtype=bool)).p
    assert (np.diff(p[1:6]) < 0).all(), p
    assert p[1] > 0.05, "one night alone is nothing"


def test_nights_with_a_quiet_one_between_are_rare_together(chance: np.random.Generator) -> None:
    """No two of them running are far out, so it is their sum that says it; and only on its own side."""
    found = counted(chance, 0.0)
    run = np.array([[1.5, 1.5, 0.2, 1.5, 1.5, 0.2, 1.5]])
    slower = np.array([True])
    assert found.run(run, slower).p[0] < 0.02
    assert found.run(-run, slower).p[0] == 1.0


def test_what_is_unknown_is_no_run(chance: np.random.Generator) -> None:
    run = np.full((1, LOOK_BACK), np.nan)
    run[0, -1] = 20.0
    found = counted(chance, 0.0).run(run, np.array([True]))
    assert found.p[0] == 1.0 and found.length[0] == 0


def test_the_window_is_the_last_twenty_of_what_counts(chance: np.random.Generator) -> None:
    window = Window(2)
    values = chance.standard_normal((2, 50))
    for night in range(50):
        window.push(np.where([True, night % 2 == 0], values[:, night], np.nan), night)
    usual = window.usual()
    assert usual.nights.tolist() == [WINDOW, WINDOW]
    assert usual.centre == pytest.approx([np.median(values[0, 30:]), np.median(values[1, 10::2])])
    window.until[0], window.since[1] = 50 - HELD, 40
    usual = window.usual()
    assert usual.nights.tolist() == [WINDOW, 5]
    assert usual.centre[0] == pytest.approx(np.median(values[0, 16:36]))
    window.forget([1], 46)
    assert window.usual().nights[1] == 3
    window.restart(50)
    assert np.isnan(window.usual().centre).all()


def test_a_spread_leans_on_what_is_usual(chance: np.random.Generator) -> None:
    """Of six nights no row looks nearly as calm as its own median deviation has it."""
    window, alone = Window(500), Window(500)
    for night in range(LEAST):
        values = 0.01 * chance.standard_normal(500)
        window.push(values, night)
        alone.push(np.where(np.arange(500) == 0, 0.0, values), night)
    sigma = window.usual().sigma
    assert sigma.min() > 0.005 and np.median(sigma) == pytest.approx(0.01, rel=0.2)
    assert alone.usual().sigma[0] > 0.005, "no spread at all"


# --- change points: placed where they are, and not where one night was odd -------------------------

SIGMA = 0.005


def level(chance: np.random.Generator, nights: int) -> np.ndarray:
    return SIGMA * chance.standard_normal(nights) - 7.0


@pytest.mark.parametrize("by", [0.1, -0.1])
def test_a_step_is_placed(chance: np.random.Generator, by: float) -> None:
    values = level(chance, 100)
    where = int(chance.integers(10, 90))
    values[where:] += by
    assert any(abs(point - where) <= 1 for point in change_points(values))
    values[min(where + 5, 95) :] = np.nan
    assert any(abs(point - where) <= 1 for point in change_points(values)), "five nights later it is seen"


def test_quiet_series_have_hardly_any(chance: np.random.Generator) -> None:
    """In 30,000 series-nights without an odd one hardly any; at half the penalty some 34."""
    assert sum(len(change_points(level(chance, 100))) for _ in range(300)) < 10


def test_a_step_of_two_deviations_is_seen_after_ten_nights(chance: np.random.Generator) -> None:
    """In three of four series; at twice the penalty in one of four."""
    seen = 0
    for _ in range(200):
        values = level(chance, 60)
        values[50:] += 1.9 * SIGMA
        seen += any(abs(point - 50) <= 5 for point in change_points(values))
    assert seen > 100


def test_odd_nights_are_no_change(chance: np.random.Generator) -> None:
    found = 0
    for _ in range(30):
        values = level(chance, 60)
        values[chance.choice(np.arange(5, 55, 8), 3, replace=False)] += 0.3
        found += len(change_points(values))
    assert found < 15, "of 90 odd nights"


def test_levels_of_two_segments_are_not_compared(chance: np.random.Generator) -> None:
    values, segments = 0.001 * level(chance, 60), [0] * 30 + [1] * 30
    values[30:] += 0.1
    values[45:] += 0.1
    found = change_points(values, segments)
    assert 30 not in found and 45 in found
    assert 30 in change_points(values)


def test_gaps_are_passed_over(chance: np.random.Generator) -> None:
    values = level(chance, 60)
    values[40:] += 0.2
    values[[3, 20, 38, 39, 40, 41]] = np.nan
    assert 42 in change_points(values)


@pytest.mark.parametrize("nights", [0, 1, 2, 5])
def test_too_few_nights(chance: np.random.Generator, nights: int) -> None:
    assert change_points(level(chance, nights)) == []


def test_constant_values() -> None:
    assert change_points(np.zeros(50)) == []
    assert change_points(np.full(50, np.nan)) == []
    assert change_points(np.repeat([0.0, 0.1], 25)) == [25]


def test_as_many_segments_as_nights() -> None:
    with pytest.raises(ValueError, match="3 segments for 4 nights"):
        change_points(np.zeros(4), [0, 0, 0])


# --- simulated months in small: what `python -m studies.months` shows, with room for luck -------------


def test_false_alarms(chance: np.random.Generator) -> None:
    """Some 0.05 are raised in 100 series-nights; the bar is 0.5, ten times as many."""
    raised = 0
    for _ in range(3):
        raised += sum(step.kind != "machine" for step in judged(made(chance, 300, 50)).steps)
    assert raised / (3 * 300 * 44) < 0.0025


def test_young_histories_cry_wolf_no_more_often(chance: np.random.Generator) -> None:
    raised = sum(len(judged(made(chance, 1500, 14)).steps) for _ in range(3))
    assert raised / (3 * 1500 * 8) < 0.0025


def test_steps_are_found(chance: np.random.Generator) -> None:
    """A tenth of the series step: of 60 such +5 % steps 99 % are found, of +3 % some 85 %.

    Far fewer now and then: where two of the four ceilings are odd at once, two nights running, it is the
    machine that seems to have moved, and all others with it.
    """
    for effect, least in ((0.05, 0.65), (0.03, 0.35)):
        caught = []
        for _ in range(2):
            history = made(chance, 300, STEP + WITHIN)
            rows = chance.choice(others(history), 30, replace=False).tolist()
            found = judged(stepped(history, rows, STEP, effect))
            caught += alarms(found)[rows, STEP:].any(axis=1).tolist()
        assert np.mean(caught) >= least, effect


def test_one_of_three_thousand(chance: np.random.Generator) -> None:
    history = made(chance, 3000, STEP + WITHIN)
    row = int(chance.choice(others(history)))
    found = judged(stepped(history, [row], STEP, 0.08))
    assert any(step.row == row and step.kind == "series" and step.raised >= STEP for step in found.steps)


def test_a_class_is_found_in_two_nights_and_raises_no_members(chance: np.random.Generator) -> None:
    history = made(chance, 200, STEP + WITHIN)
    members = rows_of(history, "gemm", "triton")
    steps = judged(stepped(history, members, STEP, 0.05)).steps
    classes = [step for step in steps if step.name == "gemm triton" and step.raised >= STEP]
    assert classes[0].raised <= STEP + 2 and len(classes[0].members) >= 12
    assert sum(step.kind == "series" and step.row in members and step.raised >= STEP for step in steps) <= 2


@pytest.mark.deep
def test_the_table(chance: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("studies.months.SERIES", 40)
    lines = list(table(int(chance.integers(1000)), 1, Noise()))
    told = {
        line[:32].strip(): [float(word.rstrip("%")) for word in line[32:].split()] for line in lines[2:-1]
    }
    assert told["ours: series alone"][0] < 1.0 < told["previous run > 5 %"][0]
    assert told["ours: whole, all stepping"][3] > 90


def test_nights_of_real_runs_are_drawn_whole(chance: np.random.Generator) -> None:
    """What one night did to all series, a simulated night does to all; and they spread as the real ones."""
    real = missing(made(chance, 30, 9), [10], range(8))
    real = repeated(real)
    assert len(real.series) == 37
    month = months(chance, None, real)
    departed = real.log_s - np.median(real.log_s, axis=1, keepdims=True)
    drawn = (month.log_s - np.median(real.log_s, axis=1, keepdims=True)) / np.sqrt(9 / 8)
    for night in range(50):
        assert np.isclose(departed, drawn[:, night : night + 1]).all(axis=0).any()
    assert len(month.nights) == 50 and len({night.segment for night in month.nights}) == 1
