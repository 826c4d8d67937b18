"""Goals of our kernels as predictions that a run can refute: bench/judge/goals.yaml, judged by rows.

A goal is about the cases of a region on some devices, and one of three figures of each case:

    ratio   seconds of an opponent / seconds of ours; the opponent is the fastest of those named, which may
            be others of ours, or of all libraries if none is
    copy    (bytes that any implementation must move / seconds) / bandwidth of a copy in the same run
    peak    (FLOP / seconds) / the datasheet's dense rate of matrix products of this data type

Only times with a cold cache count that no flag makes suspect. Each figure has an interval, of the rows' own
combined; the median's interval here goes from the median of the lower ends to that of the upper ends, which
is wider than the median's own. Verdicts:

    REACHED    the median's lower end is at the goal or above, and no case is below the least by its interval
    MISSED     the median's upper end is below the goal, or a case is below the least by its interval
    REFUTED    the median's upper end is below the least: what the goal rests on is wrong
    UNDECIDED  the intervals hold a bar
    NO CASE    the run has none of the region
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import yaml
from pydantic import Field, TypeAdapter, model_validator

from bench.judge.claim_rows import claim_rows, selected
from bench.judge.gemm_regions import REGIONS, region
from bench.judge.noise import OURS
from bench.spec import Dtype
from bench.sweep.claims import Select
from bench.sweep.models import List, Strict, Text

if TYPE_CHECKING:
    import pandas as pd

    from bench.judge.frame import Run

FILE = Path(__file__).with_name("goals.yaml")
Verdict = Literal["REACHED", "MISSED", "REFUTED", "UNDECIDED", "NO CASE"]
Measure = Literal["ratio", "copy", "peak"]


class Goal(Strict):
    """What the cases of a region should reach, why, and what would show that the reason is wrong."""

    operator: str
    region: Text = Field(description="In words; of gemm one of bench.judge.gemm_regions.REGIONS selects rows")
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


@dataclass(frozen=True)
class Outcome:
    """What one run says of one goal."""

    goal: Goal
    verdict: Verdict
    cases: int
    median: float
    """Of the cases' figures, NaN without a case; so are `low` and `high`, the ends of its interval."""
    low: float
    high: float
    least: float
    least_case: str
    """The parameters of the case with the lowest figure, as JSON."""


@cache
def goals() -> tuple[Goal, ...]:
    """Every goal, in the order of the file."""
    return TypeAdapter(tuple[Goal, ...]).validate_python(tuple(yaml.safe_load(FILE.read_text("utf-8"))))


def outcomes(run: Run) -> Iterator[Outcome]:
    """Of each goal that is about the run's device."""
    about = [goal for goal in goals() if goal.about(run.device_name)]
    rows = claim_rows([run]) if about else None
    if rows is None:
        return
    rows = rows[(rows["cache"] == "cold") & ~rows["suspect"]]
    # The same problem in two sweeps is one problem; its latest row counts.
    rows = rows.drop_duplicates(["operator", "parameters", "implementation"], keep="last")
    for goal in about:
        yield outcome(goal, rows, run)


def outcome(goal: Goal, rows: pd.DataFrame, run: Run) -> Outcome:
    """Judge one goal by the sound rows of a run, one for each problem and implementation."""
    rows = selected(rows[rows["operator"] == goal.operator], goal.where)
    if goal.operator == "gemm" and goal.region in REGIONS:
        rows = rows[[region(json.loads(text)) == goal.region for text in rows["parameters"]]]
    figures = _figures(goal, rows, run)
    if not figures:
        return Outcome(goal, "NO CASE", 0, math.nan, math.nan, math.nan, math.nan, "")
    values, halves = np.array([one[0] for one in figures]), np.array([one[1] for one in figures])
    lows, highs = values * np.exp(-halves), values * np.exp(halves)
    low, high = float(np.median(lows)), float(np.median(highs))
    worst = int(np.argmin(values))
    return Outcome(
        goal,
        _verdict(goal, low, high, lows, highs),
        len(figures),
        float(np.median(values)),
        low,
        high,
        float(values[worst]),
        figures[worst][2],
    )


def _verdict(goal: Goal, low: float, high: float, lows: Sequence[float], highs: Sequence[float]) -> Verdict:
    least = goal.least or 0.0
    if high < least:
        return "REFUTED"
    if high < goal.median or min(highs) < least:
        return "MISSED"
    return "REACHED" if low >= goal.median and min(lows) >= least else "UNDECIDED"


def _figures(goal: Goal, rows: pd.DataFrame, run: Run) -> list[tuple[float, float, str]]:
    """(figure, half of its interval as a logarithm, parameters) of each case."""
    found = []
    for parameters, here in rows.groupby("parameters", sort=False):
        ours = here[here["implementation"] == goal.ours]
        if ours.empty:
            continue
        own = ours.iloc[-1]
        half = _half(own)
        if goal.measure == "ratio":
            names = here["implementation"]
            others = here[names.isin(goal.to) if goal.to else ~names.str.startswith(OURS)]
            if others.empty:
                continue
            best = others.iloc[int(others["median_s"].to_numpy().argmin())]
            figure, half = best["median_s"] / own["median_s"], math.hypot(half, _half(best))
        elif goal.measure == "copy":
            figure = own["byte"] / own["median_s"] / (run.roof("cold").copy_byte_per_s or math.nan)
        else:
            figure = own["flop"] / own["median_s"] / _dense_rate(run, own["dtype"])
        if not math.isnan(figure):
            found.append((float(figure), half, str(parameters)))
    return found


def _half(row: pd.Series) -> float:
    """Half of the interval of a row's time; without one anything is possible, and nothing is decided."""
    half = float(row["half"])
    return math.inf if math.isnan(half) else half


def _dense_rate(run: Run, dtype: Dtype) -> float:
    """FLOP/s of the datasheet; NaN if it has none for this type."""
    sheet = run.datasheet
    return (sheet.peak_flop_per_s("matrix", dtype) if sheet else None) or math.nan
