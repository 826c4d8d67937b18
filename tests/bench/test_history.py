"""What is raised, what is not, and when it ends: histories in which one thing happened (nights_made.py)."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

import numpy as np
import pytest

from bench.case_name import row_name
from bench.judge.history.detector import CLASS_FLOOR, FLOOR, ConfirmedChange, JudgedHistory, judged
from bench.judge.history.monitor import GONE, HOLDS
from bench.judge.history.rolling import LEAST
from bench.judge.history.series import History
from tests.bench.nights_made import (
    QUIET,
    doubted,
    made,
    missing,
    others,
    rows_of,
    slowed,
    stepped,
    throttled,
)
from tests.bench.rows import Chance


def quiet(chance: Chance, series: int = 40, nights: int = 30, **more: object) -> History:
    """Hardly any noise: what a rule does on either side of its bar is no matter of luck."""
    return made(chance, series, nights, noise=QUIET, **more)  # type: ignore[arg-type]


def near(night: int) -> object:
    """That night or one beside it: the night before a change may lean to its side by chance."""
    return pytest.approx(night, abs=1)


ACCEPTED = (near(16), near(16 + HOLDS), "accepted")
"""When a change that began on night 15 and stayed is raised, and how it ends."""


def only(found: JudgedHistory) -> ConfirmedChange:
    assert len(found.steps) == 1, found.steps
    return found.steps[0]


def test_nothing_changed(chance: Chance) -> None:
    assert judged(quiet(chance, 200, 40)).steps == ()


@pytest.mark.parametrize(("by", "raised"), [(0.015, False), (0.026, True), (-0.026, True), (-0.015, False)])
def test_a_series_that_steps_by_more_than_the_floor(chance: Chance, by: float, raised: bool) -> None:
    row = int(chance.choice(others(quiet(chance))))
    found = judged(stepped(quiet(chance), [row], 20, by))
    if not raised:
        assert found.steps == ()
        return
    step = only(found)
    assert (step.kind, step.row, step.began, step.raised) == ("series", row, near(20), near(21))
    assert step.effect == pytest.approx(np.log1p(by), abs=0.003)
    assert step.noise == pytest.approx(FLOOR, rel=0.5)
    assert step.name == row_name(found.history.series.iloc[row])


BACK = 1 / 1.05 - 1
"""What ends a step of 5 %."""
Steps = list[tuple[int, float, int | None]]
"""Of one series: first night, by how much, and the night before which it ends."""
ONE_SERIES: dict[str, tuple[int, Steps, list[object]]] = {
    "one night alone raises nothing": (30, [(20, 0.5, 21)], []),
    "nor do two on different sides": (30, [(20, 0.2, 21), (21, -0.2, 22)], []),
    "what goes away has recovered": (30, [(15, 0.05, 18)], [(near(16), near(19), "recovered")]),
    "what stays for a week is the new normal": (30, [(15, 0.05, None)], [ACCEPTED]),
    "one night at the old level ends nothing": (30, [(15, 0.05, None), (18, BACK, 19)], [ACCEPTED]),
    "one at the end of the week neither": (30, [(15, 0.05, None), (20, BACK, 21)], [ACCEPTED]),
    # Too small a change by itself, right after a large one has become the new normal.
    "nights of an ended change are no evidence": (40, [(15, 0.05, None), (25, 0.014, None)], [ACCEPTED]),
    "an open change has no end": (30, [(26, 0.05, None)], [(near(27), None, None)]),
}
"""What happens -> nights, steps, and (raised, ended, ending) of each change."""


@pytest.mark.parametrize(("nights", "steps", "expected"), ONE_SERIES.values(), ids=[*ONE_SERIES])
def test_what_becomes_of_a_change(chance: Chance, nights: int, steps: Steps, expected: list[object]) -> None:
    history = quiet(chance, nights=nights)
    for first, by, until in steps:
        history = stepped(history, [12], first, by, until)
    found = judged(history).steps
    assert [(step.raised, step.ended, step.ending) for step in found] == expected
    assert all(step.row == 12 for step in found)


def test_a_case_that_is_no_longer_measured_is_waited_for_a_month(chance: Chance) -> None:
    history = stepped(quiet(chance, nights=60), [12], 15, 0.05)
    step = only(judged(missing(history, [12], range(17, 60))))
    assert (step.raised, step.ended, step.ending) == (near(16), near(16 + GONE), "gone")
    later = only(judged(missing(history, [12], range(20, 60))))
    assert (later.ended, later.ending) == (19 + GONE, "gone"), "since it was last measured"
    back = only(judged(missing(history, [12], range(17, 16 + GONE))))
    assert (back.raised, back.ending) == (near(16), "accepted")


def test_the_effect_of_a_change_that_went_away_is_that_of_its_nights(chance: Chance) -> None:
    assert 0.02 < only(judged(stepped(quiet(chance), [12], 15, 0.05, until=18))).effect < 0.055


@pytest.mark.parametrize("back", [18, 20])
def test_two_nights_at_the_old_level_end_a_change(chance: Chance, back: int) -> None:
    two_nights = stepped(stepped(quiet(chance), [12], 15, 0.05), [12], back, BACK, until=back + 2)
    first, *_ = judged(two_nights).steps
    assert (first.ended, first.ending) == (back + 1, "recovered")


def test_the_level_is_the_old_one_for_as_long_as_a_change_is_open(chance: Chance) -> None:
    found = judged(stepped(quiet(chance), [12], 15, 0.05))
    step, level = only(found), found.series.centre[12]
    assert step.ended is not None and step.ended - step.raised == HOLDS
    assert level[step.ended] - level[14] == pytest.approx(0.0, abs=0.003)
    assert level[step.ended + 1] - level[14] == pytest.approx(np.log1p(0.05), abs=0.003)


def test_going_back_after_a_week_is_a_change_again(chance: Chance) -> None:
    steps = judged(stepped(quiet(chance, nights=40), [12], 15, 0.05, until=31)).steps
    assert [(step.began, step.raised, step.effect > 0) for step in steps] == [
        (near(15), near(16), True),
        (near(31), near(32), False),
    ]


def test_too_few_nights_before(chance: Chance) -> None:
    """A night is judged from the sixth earlier one on."""
    found = judged(stepped(quiet(chance, nights=12), [12], 2, 0.3))
    assert found.steps == (), "when judging began, most nights had been slow"
    assert np.isnan(found.series.high[:, LEAST - 1]).all()
    assert not np.isnan(found.series.high[:, LEAST]).any()
    assert only(judged(stepped(quiet(chance, nights=12), [12], LEAST, 0.3))).began == LEAST


def test_short_are_the_series_that_tonight_could_not_judge(chance: Chance) -> None:
    history = missing(quiet(chance, nights=10), [12, 13], range(5))
    assert np.flatnonzero(judged(history).short).tolist() == [12, 13]
    assert judged(quiet(chance, nights=LEAST - 1)).short.all()
    assert not judged(quiet(chance, nights=LEAST)).short.any()


def test_nothing_is_held_against_another_segment(chance: Chance) -> None:
    history = quiet(chance, nights=30, segments=[15])
    found = judged(stepped(history, others(history), 15, 0.3))
    assert found.steps == ()
    assert np.isnan(found.series.centre[:, 15 : 15 + LEAST]).all()
    assert only(judged(stepped(quiet(chance, segments=[8]), [12], 20, 0.05))).began == 20


def test_a_segment_ends_what_is_open(chance: Chance) -> None:
    for rows in ([12], rows_of(quiet(chance), "gemm", "triton")):
        step = only(judged(stepped(quiet(chance, segments=[18]), rows, 15, 0.05)))
        assert (step.raised, step.ended, step.ending) == (near(16), 18, "segment")


def test_two_nights_running_are_the_last_two_usable(chance: Chance) -> None:
    history = stepped(quiet(chance), [12], 15, 0.05)
    assert only(judged(missing(history, [12], [16, 17]))).raised == near(18)
    step = only(judged(doubted(history, [12], [15, 17])))
    assert (step.began, step.raised) == (near(16), near(18))


def test_a_doubted_night_is_no_evidence(chance: Chance) -> None:
    history = doubted(stepped(quiet(chance), [12], 15, 0.3, until=20), [12], range(15, 20))
    found = judged(history)
    assert found.steps == ()
    assert np.isnan(found.series.log[12, 15:20]).all()


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
    unknown = replace(still, half=np.full_like(still.half, np.nan))
    with np.errstate(divide="raise", invalid="raise"):
        assert only(judged(stepped(unknown, [12], 20, 0.03))).raised == near(21)


def test_a_series_with_two_speeds_is_not_news(chance: Chance) -> None:
    """A third of its nights are 10 % slow, as if by dice; a third speed is news, if seldom at once."""
    seen = 0
    for _ in range(5):
        history = quiet(chance, 80, 60)
        rows = others(history)[::8]
        two_speeds = slowed(history, rows, 0.1 * (chance.random((len(rows), 60)) < 0.35))
        raised = len(judged(two_speeds).steps)
        assert raised <= 25, "in 540 series-nights, of which one in eight follows a slow one"
        found = judged(stepped(two_speeds, rows[:1], 50, 0.5)).steps
        seen += any(step.row == rows[0] and step.effect > 0.2 for step in found)
    assert seen >= 2


def test_a_class_hides_its_members_but_no_bystander(chance: Chance) -> None:
    history = quiet(chance, 80)
    members, bystander = rows_of(history, "gemm", "triton"), rows_of(history, "activations", "triton")[3]
    found = judged(stepped(stepped(history, members, 15, 0.03), [bystander], 15, 0.06))
    one, alone = sorted(found.steps, key=lambda step: step.kind)
    assert [(step.kind, step.raised) for step in (one, alone)] == [("class", near(16)), ("series", near(16))]
    assert alone.row == bystander
    assert one.name == "gemm triton" and found.classes.iloc[one.row]["count"] == 20
    assert one.members == tuple(members)
    assert (one.ended, one.ending) == (near(16 + HOLDS), "accepted")


def test_a_class_that_recovers_lets_its_members_be(chance: Chance) -> None:
    history = quiet(chance, 80, 40)
    members = rows_of(history, "gemm", "triton")
    slow = stepped(history, members, 15, 0.03, until=19)
    step = only(judged(slow))
    assert (step.kind, step.ended, step.ending) == ("class", near(20), "recovered")
    again = judged(stepped(slow, members[:1], 30, 0.05)).steps
    assert [(step.kind, step.row, step.raised) for step in again[1:]] == [("series", members[0], near(31))]


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
        assert found.steps[0].members == tuple(members)
        assert found.steps[0].noise == pytest.approx(CLASS_FLOOR, rel=0.5)
    else:
        assert {step.row for step in found.steps} == ({*members} if kinds else set())
    assert np.isnan(found.by_class.log).all() == (per_class == 2)


def test_a_member_that_moves_far_more_than_its_class_stands_alone(chance: Chance) -> None:
    history = quiet(chance, 80)
    members = rows_of(history, "gemm", "triton")
    late = stepped(stepped(history, members, 15, 0.03), members[4:5], 18, 0.5)
    assert [step.kind for step in judged(late).steps] == ["class"], "it is hidden for as long as its class is"
    other = stepped(stepped(history, members[:-1], 15, 0.03), members[-1:], 17, 0.5)
    found = judged(other).steps
    assert [step.kind for step in found] == ["class", "series"] and found[0].raised in (15, 16, 17)
    assert found[1].row == members[-1] and members[-1] not in found[0].members


def test_a_member_that_follows_its_class_joins_it(chance: Chance) -> None:
    history = quiet(chance, 80)
    members = rows_of(history, "gemm", "triton")
    follows = stepped(stepped(history, members[:-1], 15, 0.04), members[-1:], 17, 0.04)
    assert only(judged(follows)).members == tuple(members)


def test_a_changed_set_of_members_is_no_change(chance: Chance) -> None:
    """A budget cuts other series every night, and their times are decades apart."""
    history = quiet(chance, 80, 40)
    rows = np.array(others(history))
    for night in range(40):
        history = missing(history, chance.choice(rows, 40, replace=False).tolist(), [night])
    found = judged(history)
    assert found.steps == ()
    assert not np.isnan(found.by_class.high[:, 15:]).any()


@pytest.mark.parametrize("bounds", [("memory",), ("core",), ("memory", "core")])
def test_a_throttled_machine_is_one_event(chance: Chance, bounds: tuple[str, ...]) -> None:
    found = judged(throttled(quiet(chance, 80, 45), range(15, 45), 0.12, bounds))
    assert [(step.kind, step.name, step.raised, step.ending) for step in found.steps] == [
        ("machine", bound, near(16), "accepted")
        for bound in sorted(bounds, key=[s.name for s in found.steps].index)
    ]
    assert {step.name for step in found.steps} == set(bounds)
    ceilings = found.history.series["ceiling"] & (found.history.series["bound"] == found.steps[0].name)
    assert found.steps[0].members == tuple(np.flatnonzero(ceilings))


def test_one_throttled_night_is_nothing(chance: Chance) -> None:
    """Unless the night before leaned the same way by chance, which then is the machine's matter alone."""
    for nights in ([15], [15, 17], [29]):
        found = [judged(throttled(quiet(chance, 80), nights, 0.12)).steps for _ in range(7)]
        assert sum(not steps for steps in found) >= 5
        assert {step.kind for steps in found for step in steps} <= {"machine"}


def test_a_machine_that_recovers(chance: Chance) -> None:
    found = judged(throttled(quiet(chance, 80, 40), range(15, 19), 0.12))
    assert [(step.kind, step.ended, step.ending) for step in found.steps] in (
        [("machine", near(20), "recovered")],
        [("machine", near(20), "recovered")] * 2,
    )


def test_a_step_on_a_throttled_night_is_still_seen(chance: Chance) -> None:
    history = throttled(stepped(quiet(chance, 80), [20], 15, 0.05), range(15, 20), 0.12)
    found = [step for step in judged(history).steps if step.kind != "machine"]
    assert [(step.row, step.raised) for step in found] == [(20, near(16))]
    assert found[0].effect == pytest.approx(np.log1p(0.05), abs=0.006)


def odd_ceilings(history: History, nights: range, by: float = 0.12) -> History:
    """Three of the four ceilings of memory take longer; nothing else does."""
    return stepped(history, [0, 2, 4], nights.start, by, until=nights.stop)


def test_odd_ceilings_alone_are_no_slower_machine(chance: Chance) -> None:
    """Nothing is raised, nothing is taken off the other series, and a step among these is seen."""
    history = odd_ceilings(quiet(chance, 80, 30), range(15, 20))
    found = judged(history)
    assert found.steps == ()
    rows = others(history)
    assert np.abs(found.series.log - history.log_s)[rows].max() < 0.005
    row = rows_of(history, "activations", "triton")[3]
    step = only(judged(stepped(history, [row], 15, 0.05)))
    assert (step.kind, step.row, step.raised) == ("series", row, near(16))


def test_odd_ceilings_with_the_series_of_their_bound_are_a_slower_machine(chance: Chance) -> None:
    history = odd_ceilings(quiet(chance, 80, 30), range(15, 20))
    memory = np.flatnonzero((history.series["bound"] == "memory") & ~history.series["ceiling"])
    for rows, kinds in ((memory, ["machine"]), (memory[: len(memory) // 4], [])):
        found = judged(stepped(history, rows.tolist(), 15, 0.12, until=20))
        assert [step.kind for step in found.steps if step.kind == "machine"] == kinds


def test_of_a_bound_with_few_series_the_ceilings_decide(chance: Chance) -> None:
    history = odd_ceilings(quiet(chance, 2, 30, per_class=2), range(15, 20))
    assert [step.kind for step in judged(history).steps] == ["machine"]


def on_days(history: History, rows: list[int], days: tuple[int, ...], by: float, until: int = 999) -> History:
    """These series take (1 + by) times as long on these weekdays, up to the night `until`."""
    weekdays = [datetime.fromisoformat(night.utc).weekday() for night in history.nights[:until]]
    return slowed(history, np.ix_(rows, np.flatnonzero(np.isin(weekdays, days))), by)


@pytest.mark.parametrize("days", [(5, 6), (6,), (0, 1, 2, 3, 4)])
def test_weekdays_that_differ_are_expected_to(chance: Chance, days: tuple[int, ...]) -> None:
    """After nine weeks a step of about the same size is found as it is without a pattern.

    By chance a series stands out on a weekend even then: of 40 series in four weeks, fewer than one.
    """
    history = quiet(chance, 40, 90)
    rows = others(history)
    weekly = on_days(history, rows, days, 0.03)
    alarms = judged(weekly).steps
    assert sum(step.raised >= 63 for step in alarms) <= 3
    assert not [step for step in alarms if step.kind == "class" and step.raised >= 35], "members learn, too"
    row = int(chance.choice(rows))
    steps = [s for s in judged(stepped(weekly, [row], 70, 0.04)).steps if s.row == row]
    (step,) = [s for s in steps if s.kind == "series" and s.raised in range(70, 77)]
    assert step.effect == pytest.approx(np.log1p(0.04), abs=0.01)


def test_a_pattern_that_ends_is_forgotten_in_three_weeks(chance: Chance) -> None:
    history = quiet(chance, 40, 150)
    ended = on_days(history, others(history), (5, 6), 0.03, until=90)
    assert not [step for step in judged(ended).steps if step.effect > 0 or step.raised >= 112]


def test_another_segment_has_its_own_weekdays(chance: Chance) -> None:
    history = quiet(chance, 40, 90, segments=[70])
    rows = others(history)
    weekly = on_days(history, rows, (5, 6), 0.03, until=70)
    found = judged(weekly)
    corrected = np.abs(found.series.log - weekly.log_s)[rows]
    assert (corrected[:, 63:70] > 0.02).any() and (corrected[:, 70:] < 0.01).all()


def test_without_a_pattern_no_weekday_is_expected_to_differ(chance: Chance) -> None:
    history = made(chance, 200, 120)
    found = judged(history)
    rows = others(history)
    taken = np.abs(found.series.log - np.where(history.doubted, np.nan, history.log_s))[rows]
    assert (taken > 0.003).mean() < 0.02


def test_two_speeds_are_no_pattern(chance: Chance) -> None:
    history = quiet(chance, 80, 120)
    rows = others(history)
    history = slowed(history, rows, 0.1 * (chance.random((len(rows), 120)) < 0.35))
    found = judged(history)
    assert (np.abs(found.series.log - history.log_s)[rows] > 0.003).mean() < 0.02


def test_noise_of_the_ceilings_is_taken_off_nothing(chance: Chance) -> None:
    history = quiet(chance, 80, 40)
    ceilings = np.flatnonzero(history.series["ceiling"])
    history = slowed(history, ceilings, 0.01 * chance.standard_normal((len(ceilings), 40)))
    rows = others(history)
    taken = (history.log_s - judged(history).series.log)[rows][:, 15:]
    assert np.abs(taken).mean() < 0.003, "a median of four ceilings moves by some 0.5 %"


def test_ceilings_raise_nothing_of_their_own(chance: Chance) -> None:
    found = judged(stepped(quiet(chance, 80, 60), [0], 15, 0.3))
    assert found.steps == ()
    assert not np.isnan(found.series.high[0, 40:]).any(), "and are held against their new level after a while"
    assert found.series.centre[0, 59] - found.series.centre[0, 14] == pytest.approx(np.log1p(0.3), abs=0.01)


def test_a_machine_without_ceilings(chance: Chance) -> None:
    history = quiet(chance, 40, ceilings=0)
    assert only(judged(stepped(history, [12], 15, 0.05))).kind == "series"


@pytest.mark.parametrize(("series", "nights"), [(0, 0), (0, 5), (5, 0), (5, 1), (5, 2)])
def test_hardly_any_history(chance: Chance, series: int, nights: int) -> None:
    for ceilings in (0, 4):
        found = judged(made(chance, series, nights, ceilings=ceilings))
        assert found.steps == ()
        assert found.short.tolist() == [True] * (series + ceilings)
        assert found.series.log.shape == (series + ceilings, nights)


def test_rows_in_any_order_are_judged_alike(chance: Chance) -> None:
    history = stepped(made(chance, 60, 40), [20, 30, 40], 20, 0.06)
    order = chance.permutation(len(history.series))
    mixed = replace(
        history,
        series=history.series.iloc[order].set_axis(chance.permutation(len(order)), axis=0),
        **{name: getattr(history, name)[order] for name in ("log_s", "half", "doubted")},
    )
    one, other = judged(history), judged(mixed)
    assert {(s.kind, s.name, s.began, s.raised, s.ended) for s in one.steps} == {
        (s.kind, s.name, s.began, s.raised, s.ended) for s in other.steps
    }
    np.testing.assert_allclose(one.series.high[order], other.series.high, atol=1e-12)


def test_only_earlier_nights_judge_a_night(chance: Chance) -> None:
    """What was said of a night stays true when more nights come."""
    history = stepped(made(chance, 100, 40), range(20, 30), 20, 0.05)
    shorter = replace(
        history,
        nights=history.nights[:28],
        log_s=history.log_s[:, :28],
        half=history.half[:, :28],
        doubted=history.doubted[:, :28],
    )
    whole, part = judged(history), judged(shorter)
    assert {(s.kind, s.row, s.began, s.raised) for s in whole.steps if s.raised < 28} == {
        (s.kind, s.row, s.began, s.raised) for s in part.steps
    }
    np.testing.assert_array_equal(whole.series.high[:, :28], part.series.high)


def test_steps_come_in_the_order_they_were_raised(chance: Chance) -> None:
    history = quiet(chance, 80)
    for row, night, by in ((60, 20, 0.04), (30, 15, 0.04), (50, 15, 0.09)):
        history = stepped(history, [row], night, by)
    assert [step.row for step in judged(history).steps] == [50, 30, 60]
