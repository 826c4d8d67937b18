"""What is raised, what is not, and when it ends: histories in which one thing happened (nights_made.py)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bench.case_name import row_name
from bench.judge.history.series import History
from bench.judge.history.steps import LEAST, JudgedHistory, Step, judged
from studies.months import STEP, WITHIN, alarms
from tests.bench.nights_made import QUIET, doubted, made, missing, others, rows_of, slowed, stepped, throttled
from tests.bench.rows import Chance


def quiet(chance: Chance, series: int = 40, nights: int = 30, **more: object) -> History:
    """Hardly any noise: what a rule does on either side of its bar is no matter of luck."""
    return made(chance, series, nights, noise=QUIET, **more)  # type: ignore[arg-type]


def near(night: int) -> object:
    """That night or one beside it: the night before a change may lean to its side by chance."""
    return pytest.approx(night, abs=1)


def only(found: JudgedHistory) -> Step:
    assert len(found.steps) == 1, found.steps
    return found.steps[0]


@pytest.mark.parametrize(("by", "raised"), [(0.0, False), (0.015, False), (0.026, True), (-0.026, True)])
def test_a_series_that_steps_by_more_than_the_floor(chance: Chance, by: float, raised: bool) -> None:
    row = int(chance.choice(others(quiet(chance))))
    found = judged(stepped(quiet(chance), [row], 20, by))
    if not raised:
        assert found.steps == ()
        return
    step = only(found)
    assert (step.kind, step.row, step.began, step.raised) == ("series", row, near(20), near(21))
    assert step.change.low < step.change.ratio < step.change.high and step.change.p < 0.001
    assert step.change.log == pytest.approx(np.log1p(by), abs=0.003)
    assert step.name == row_name(found.history.series.iloc[row])


BACK = 1 / 1.05 - 1
"""What ends a step of 5 %."""
NORMAL = (near(16), near(23))
"""When a change that began on night 15 and stayed is raised, and when it is the new normal."""
AGAIN = (near(32), pytest.approx(38, abs=2))
Steps = list[tuple[int, float, int | None]]
"""Of one series: first night, by how much, and the night before which it ends."""
ONE_SERIES: dict[str, tuple[int, Steps, list[object]]] = {
    "one night alone raises nothing": (30, [(20, 0.5, 21)], []),
    "nor do two on different sides": (30, [(20, 0.2, 21), (21, -0.2, 22)], []),
    "two nights that are back end it": (30, [(15, 0.05, 18)], [(near(16), near(19))]),
    "what stays for a week is the new normal": (30, [(15, 0.05, None)], [NORMAL]),
    "one night at the old level ends nothing": (30, [(15, 0.05, None), (18, BACK, 19)], [NORMAL]),
    "an open change has no end": (30, [(26, 0.05, None)], [(near(27), None)]),
    "going back after a week is a change": (40, [(15, 0.05, 31)], [NORMAL, AGAIN]),
}
"""What happens -> nights, steps, and (raised, ended) of each change."""


@pytest.mark.parametrize(("nights", "steps", "expected"), ONE_SERIES.values(), ids=[*ONE_SERIES])
def test_what_becomes_of_a_change(chance: Chance, nights: int, steps: Steps, expected: list[object]) -> None:
    history = quiet(chance, nights=nights)
    for first, by, until in steps:
        history = stepped(history, [12], first, by, until)
    found = judged(history).steps
    assert [(step.raised, step.ended) for step in found] == expected
    assert all(step.row == 12 for step in found)


def test_a_case_that_is_no_longer_measured_stays_open_and_is_given_up_after_a_month(chance: Chance) -> None:
    history = stepped(quiet(chance, nights=70), [12], 15, 0.05)
    step = only(judged(missing(history, [12], range(18, 70))))
    assert step.raised == near(16) and step.ended is not None and 40 < step.ended <= 60


def test_too_few_nights_before(chance: Chance) -> None:
    """A night is judged from the sixth earlier one on."""
    found = judged(stepped(quiet(chance, nights=9), [12], 2, 0.3))
    assert found.steps == (), "when judging began, most nights had been slow"
    assert not judged(quiet(chance, nights=LEAST)).compared.any()
    assert judged(quiet(chance, nights=LEAST + 1)).compared.all()
    assert only(judged(stepped(quiet(chance, nights=12), [12], LEAST + 1, 0.3))).began == near(LEAST + 1)


def test_nothing_is_compared_with_another_segment(chance: Chance) -> None:
    history = quiet(chance, nights=30, segments=[15])
    assert judged(stepped(history, others(history), 15, 0.3)).steps == ()
    assert only(judged(stepped(quiet(chance, segments=[8]), [12], 20, 0.05))).began == near(20)
    for rows in ([12], rows_of(quiet(chance), "gemm", "triton")):
        step = only(judged(stepped(quiet(chance, segments=[18]), rows, 15, 0.05)))
        assert (step.raised, step.ended) == (near(16), 18)


def test_missing_and_doubted_nights_are_passed_over(chance: Chance) -> None:
    history = stepped(quiet(chance), [12], 15, 0.05)
    assert only(judged(missing(history, [12], [16, 17]))).raised == near(18)
    assert only(judged(doubted(history, [12], [15, 17]))).raised == near(18)
    found = judged(doubted(stepped(quiet(chance), [12], 15, 0.3, until=20), [12], range(15, 20)))
    assert found.steps == () and np.isnan(found.own[12, 15:20]).all()


def test_a_night_that_knows_little_has_a_wide_band(chance: Chance) -> None:
    history = stepped(quiet(chance), [12], 15, 0.05, until=20)
    half = history.half.copy()
    half[12, 15:20] = 0.3
    assert judged(replace(history, half=half)).steps == ()
    half[:] = np.nan
    assert only(judged(replace(history, half=half))).row == 12


def test_constant_values(chance: Chance) -> None:
    """A spread of zero is no excuse for alarms over nothing, nor for a division by it."""
    history = quiet(chance)
    still = replace(history, log_s=np.repeat(history.log_s[:, :1], len(history.nights), axis=1))
    assert judged(still).steps == () == judged(stepped(still, [12], 20, 0.015)).steps
    assert only(judged(stepped(still, [12], 20, 0.03))).raised == near(21)


def test_a_series_with_two_speeds_is_not_news(chance: Chance) -> None:
    """A third of its nights are 10 % slow, as if by dice."""
    history = quiet(chance, 80, 60)
    rows = others(history)[::8]
    two_speeds = slowed(history, rows, 0.1 * (chance.random((len(rows), 60)) < 0.35))
    assert len(judged(two_speeds).steps) <= 8, (
        "in 540 series-nights, of which one in eight follows a slow one"
    )


@pytest.mark.parametrize(
    ("per_class", "which", "by", "kinds"),
    [
        (20, slice(None), 0.0075, []),  # a class moves less than a series before it is raised
        (20, slice(None), 0.0125, ["class"]),
        (20, slice(None, None, 2), 0.04, ["class"]),  # half of a class is what moved
        (5, slice(2, 3), 1.0, ["series"]),  # one member is no class, nor is a quarter of them
        (8, slice(2), 1.0, ["series", "series"]),
        (2, slice(None), 0.05, ["series", "series"]),  # two series are no class
    ],
)
def test_what_is_raised_as_a_class(
    chance: Chance, per_class: int, which: slice, by: float, kinds: list[str]
) -> None:
    history = quiet(chance, 4 * per_class, per_class=per_class)
    members = rows_of(history, "gemm", "triton")[which]
    found = judged(stepped(history, members, 15, by))
    assert [step.kind for step in found.steps] == kinds
    if kinds == ["class"]:
        assert found.steps[0].members == tuple(members) and found.steps[0].name == "gemm triton"
    else:
        assert {step.row for step in found.steps} == ({*members} if kinds else set())


def test_a_class_explains_its_members_but_no_bystander(chance: Chance) -> None:
    history = quiet(chance, 80)
    members, bystander = rows_of(history, "gemm", "triton"), rows_of(history, "activations", "triton")[3]
    late = stepped(stepped(history, members[:-1], 15, 0.04), members[-1:], 17, 0.04)
    found = judged(stepped(late, [bystander], 15, 0.06))
    one, alone = sorted(found.steps, key=lambda step: step.kind)
    assert [(step.kind, step.raised) for step in (one, alone)] == [("class", near(16)), ("series", near(16))]
    assert alone.row == bystander and one.members == tuple(members)


def test_a_member_that_moves_far_more_than_its_class_stands_alone(chance: Chance) -> None:
    history = quiet(chance, 80)
    members = rows_of(history, "gemm", "triton")
    other = stepped(stepped(history, members[:-1], 15, 0.03), members[-1:], 17, 0.5)
    found = judged(other).steps
    assert [(step.kind, step.row) for step in found if step.kind == "series"] == [("series", members[-1])]


def test_a_changed_set_of_members_is_no_change(chance: Chance) -> None:
    """A budget cuts other series every night, and their times are decades apart."""
    history = quiet(chance, 80, 40)
    rows = np.array(others(history))
    for night in range(40):
        history = missing(history, chance.choice(rows, 40, replace=False).tolist(), [night])
    assert judged(history).steps == ()


@pytest.mark.parametrize("bounds", [("memory",), ("core",), ("memory", "core")])
def test_a_throttled_machine_is_one_event(chance: Chance, bounds: tuple[str, ...]) -> None:
    found = judged(throttled(quiet(chance, 80, 45), range(15, 45), 0.12, bounds))
    assert {(step.kind, step.name) for step in found.steps} == {("machine", bound) for bound in bounds}
    ceilings = found.history.series["ceiling"] & (found.history.series["bound"] == found.steps[0].name)
    assert found.steps[0].members == tuple(np.flatnonzero(ceilings)) and found.steps[0].raised == near(16)


def test_a_step_on_throttled_nights_is_still_seen(chance: Chance) -> None:
    history = throttled(stepped(quiet(chance, 80), [20], 15, 0.05), range(15, 20), 0.12)
    steps = judged(history).steps
    assert [(step.row, step.raised) for step in steps if step.kind == "series"] == [(20, near(16))]


def test_odd_ceilings_alone_are_no_machine(chance: Chance) -> None:
    """Neither raise anything nor are taken off the series of their bound."""
    history = quiet(chance, 80)
    memory = np.flatnonzero(history.series["ceiling"] & (history.series["bound"] == "memory"))
    odd = slowed(history, np.ix_(memory, range(15, 20)), 0.12)
    assert judged(odd).steps == ()
    row = rows_of(history, "activations", "triton")[3]
    assert [(step.kind, step.row) for step in judged(stepped(odd, [row], 15, 0.05)).steps] == [
        ("series", row)
    ]


@pytest.mark.parametrize(("series", "nights"), [(0, 0), (0, 5), (5, 0), (5, 1), (5, 2)])
def test_hardly_any_history(chance: Chance, series: int, nights: int) -> None:
    for ceilings in (0, 4):
        found = judged(made(chance, series, nights, ceilings=ceilings))
        assert found.steps == () and found.own.shape == (series + ceilings, nights)


def test_only_earlier_nights_judge_a_night(chance: Chance) -> None:
    """What was said of a night stays true when more nights come, and when only the last ones are judged."""
    history = stepped(made(chance, 60, 40), range(20, 30), 20, 0.05)
    whole, part, last = judged(history), judged(history.until(27)), judged(history.until(27), 18)
    raised = [{(s.kind, s.row, s.began, s.raised) for s in found.steps} for found in (whole, part, last)]
    assert {step for step in raised[0] if step[-1] < 28} == raised[1]
    assert {step for step in raised[1] if step[-1] >= 20} == {step for step in raised[2] if step[-1] >= 20}


# --- simulated months in small: what `python -m studies.months` shows, with room for luck -------------


def test_false_alarms(chance: Chance) -> None:
    """Some 0.03 are raised in 100 series-nights; the bar is 0.25."""
    found = judged(made(chance, 300, 40)).steps
    assert sum(step.kind != "machine" for step in found) / (300 * 34) < 0.0025


@pytest.mark.parametrize(("effect", "least"), [(0.05, 0.65), (0.03, 0.35)])
def test_steps_are_found(chance: Chance, effect: float, least: float) -> None:
    """A tenth of the series step: of +5 % 99 % are found within a week, of +3 % some 85 %."""
    history = made(chance, 200, STEP + WITHIN)
    rows = chance.choice(others(history), 30, replace=False).tolist()
    found = judged(stepped(history, rows, STEP, effect), WITHIN)
    assert alarms(found)[rows, STEP:].any(axis=1).mean() >= least
