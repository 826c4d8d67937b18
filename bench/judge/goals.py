"""Goals of our kernels as predictions that a run can refute: bench/judge/goals.yaml, judged by rows.

A goal is about the figures (`bench.judge.standings`) of the cases of a region on some devices, with a cold
cache: it has a bar for their median, and perhaps one for each of them. Verdicts:

    REACHED    the median's lower end is at the goal or above, and no case is below the least by its interval
    MISSED     the median's upper end is below the goal, or a case is below the least by its interval
    REFUTED    the median's upper end is below the least: what the goal rests on is wrong
    UNDECIDED  the intervals hold a bar
    NO CASE    the run has none of the region
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import yaml
from pydantic import Field, TypeAdapter, model_validator

from bench.judge.claim_rows import selected
from bench.judge.noise import OURS
from bench.judge.standings import REGIONS, CaseFigure, Measure, figures, latest, median_ends, timed
from bench.sweep.claims import ExpectedRange, Select
from bench.sweep.models import List, Strict, Text

if TYPE_CHECKING:
    import pandas as pd

    from bench.judge.frame import DeviceRun

FILE = Path(__file__).with_name("goals.yaml")
Verdict = Literal["REACHED", "MISSED", "REFUTED", "UNDECIDED", "NO CASE"]


class Goal(Strict):
    """What the cases of a region should reach, why, and what would show that the reason is wrong."""

    operator: str
    region: Text = Field(description="In words; of gemm one of bench.judge.standings.REGIONS selects rows")
    devices: List[str] = Field(description="Parts of the names of the devices that it is about")
    where: Select = Field({}, description="Which rows")
    ours: str = Field(OURS, description="Our implementation")
    measure: Measure = Field("ratio", description="Which figure of a case")
    to: List[str] = Field((), description="Of ratio: the opponents; all libraries if none is named")
    median: float = Field(gt=0, description="The median of the cases' figures")
    least: float | None = Field(None, gt=0, description="The least figure of any case")
    rests_on: Text = Field(description="Instruction counts, bytes in flight, published figures")
    refuted_by: Text = Field(description="What a device would show if that were wrong")

    @model_validator(mode="after")
    def _is_in_order(self) -> Goal:
        if self.least is not None and self.least >= self.median:
            raise ValueError(f"least {self.least} is not below median {self.median}")
        if self.to and self.measure != "ratio":
            raise ValueError(f"{self.measure} has no opponent, so `to` is not for it")
        return self

    @property
    def bars(self) -> str:
        """`1.00 (0.95)`: the median, and in brackets the least if there is one."""
        return f"{self.median:.2f}" + (f" ({self.least:.2f})" if self.least is not None else "")

    @property
    def unit(self) -> str:
        """What the figure is a share or a multiple of, in words."""
        if self.measure == "ratio":
            return " or ".join(self.to) if self.to else "best library"
        return {"copy": "of a copy", "peak": "of the datasheet's rate"}[self.measure]

    def about(self, device_name: str) -> bool:
        """Whether it is about a device of this name."""
        return any(part in device_name for part in self.devices)


class GoalOutcome(NamedTuple):
    """What one run says of one goal."""

    goal: Goal
    verdict: Verdict
    figures: tuple[CaseFigure, ...]
    """The cases' figures, the lowest first."""


@cache
def goals() -> tuple[Goal, ...]:
    """Every goal, in the order of the file."""
    return TypeAdapter(tuple[Goal, ...]).validate_python(tuple(yaml.safe_load(FILE.read_text("utf-8"))))


def goal_of(region: str, device_name: str) -> Goal | None:
    """The goal of a region of GEMMs on this device, ours over the library; None if none was set."""
    return next((each for each in goals() if each.region == region and each.about(device_name)), None)


def outcomes(run: DeviceRun) -> Iterator[GoalOutcome]:
    """The outcome of each goal on the run's device."""
    if about := [goal for goal in goals() if goal.about(run.device_name)]:
        rows = latest(timed(run))
        for goal in about:
            yield outcome(goal, rows, run)


def outcome(goal: Goal, rows: pd.DataFrame, run: DeviceRun) -> GoalOutcome:
    """Judge one goal by the sound rows of a run, one for each problem and implementation."""
    case_figures = figures(cases(goal, rows), run, goal.ours, goal.measure, goal.to)
    return GoalOutcome(goal, _verdict(goal, case_figures), case_figures)


def cases(goal: Goal, rows: pd.DataFrame) -> pd.DataFrame:
    """The rows that a goal is about."""
    rows = selected(rows[rows["operator"] == goal.operator], goal.where)
    return rows[rows["region"] == goal.region] if goal.region in REGIONS else rows


def _verdict(goal: Goal, case_figures: Sequence[CaseFigure]) -> Verdict:
    if not case_figures:
        return "NO CASE"
    median, least = ExpectedRange(goal.median, math.inf), ExpectedRange(goal.least or 0.0, math.inf)
    if least.answer(*median_ends(case_figures)) is False:
        return "REFUTED"
    lowest = min(each.low for each in case_figures), min(each.high for each in case_figures)
    answers = median.answer(*median_ends(case_figures)), least.answer(*lowest)
    if False in answers:
        return "MISSED"
    return "REACHED" if all(answers) else "UNDECIDED"
