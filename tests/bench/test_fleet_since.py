"""Since when a unit is worse: what is seen, dated, and left alone."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import numpy as np
import pandas as pd
import pytest

from bench.fleet.since import ENOUGH, NIGHTS, Series, Worse, histories, since
from bench.judge.history.series import Floats
from tests.drawing import run_seed

SEED = run_seed()
NOISE = 0.001
"""Bounded, and far below what is asked for, so that luck decides nothing."""


def quiet(nights: int) -> Floats:
    return np.asarray(np.random.default_rng(SEED).uniform(-NOISE, NOISE, nights))


def stepped(nights: int, *steps: tuple[int, float]) -> Floats:
    """Quiet nights, from each of these on slower by so much more."""
    values = quiet(nights)
    for night, by in steps:
        values[night:] += by
    return values


@pytest.mark.parametrize(
    ("values", "by", "nights"),
    [
        (stepped(30, (20, 0.05)), 0.05, 10),
        (stepped(60, (20, 0.05), (40, 0.05)), 0.1, 40),  # what lasts begins with its first step
        (np.where(np.isin(range(40), [5, 21, 22, 33]), np.nan, stepped(40, (20, 0.05))), 0.05, 17),
    ],
)
def test_a_step_is_dated_and_measured(values: Floats, by: float, nights: int) -> None:
    assert since(values) == Worse(20, pytest.approx(by, abs=2 * NOISE), nights)


@pytest.mark.parametrize(
    "values",
    [
        stepped(60),
        stepped(60, (20, 0.05), (40, -0.05)),  # it recovered
        stepped(60, (30, -0.05)),  # it got better
        stepped(60, (30, 0.02)),  # too little
        stepped(30 + NIGHTS - 1, (30, 0.05)),  # too short a time
        stepped(ENOUGH - 1, (3, 0.05)),  # too few nights
    ],
)
def test_these_are_not_worse(values: Floats) -> None:
    assert since(values) is None


def times(effect: Floats, hours: Sequence[float] = (2.0,)) -> pd.DataFrame:
    """Rows of units [units, nights] in two cases; what the whole fleet does moves on its twelfth night."""
    rows = []
    for unit, of_unit in enumerate(effect):
        for night, own in enumerate(of_unit):
            began = datetime(2026, 3, 1, tzinfo=UTC) + timedelta(days=night, hours=hours[unit % len(hours)])
            for case in ("square", "tall"):
                fleet = 0.3 * (night >= 12)
                row = {"unit": f"u{unit}", "case": case, "class": "compute", "together": False}
                rows.append(row | {"utc": began.isoformat(), "log_s": own + fleet + len(case)})
    return pd.DataFrame([row for row in rows if np.isfinite(row["log_s"])])


def test_the_fleet_as_a_whole_is_no_units_fault() -> None:
    effect = np.stack([quiet(30) for _ in range(8)])
    effect[3, 15:] += 0.06
    past = histories(times(effect))
    assert list(past.worse) == [Series("u3", "compute", False)]
    assert past.dates[past.worse[Series("u3", "compute", False)].night] == "2026-03-16"


def test_a_unit_that_joins_the_fleet_changes_nothing() -> None:
    effect = np.stack([quiet(30) for _ in range(9)])
    effect[5:, :15] = np.nan
    effect[5:] += 0.1
    assert not histories(times(effect)).worse


@pytest.mark.parametrize("first", [10.0, 22.0])
def test_no_hour_cuts_a_night_in_two(first: float) -> None:
    effect = np.stack([quiet(12) for _ in range(8)])
    past = histories(times(effect, hours=(first, first + 1.5, first + 2.5, first + 4.0)))
    assert len(past.dates) == 12
    assert all(np.isfinite(values).all() for values in past.effect.values())


def test_of_few_units_nothing_is_said() -> None:
    effect = np.stack([quiet(30) for _ in range(3)])
    effect[0, 15:] += 0.1
    past = histories(times(effect))
    assert past.can_tell and not past.worse and not past.effect
