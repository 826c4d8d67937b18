"""The noise between runs, and the published interval: what another run of the same machine would find.

It is the within-run interval (bench/judge/within_run.py) and, as squares, what runs of the device differ by
beyond their visits: by its own earlier runs if it has any (`noise_by` is history), and by those of the case
alone if these differed by more; else what such work usually does (assumed); in either case RESTLESS times the
scatter of the run's own visits if that is more: a machine that is restless for minutes is so for hours.

The usual spreads of a CPU are those of runs of two virtual machines with 2 cores (results/reference/nights,
quiet_tours and tours; `python -m studies.noise_by_kind DIR` shows what they cover), chosen on every second
pair of their runs; that of small kernels on all, the other half having shown it too small. From hour to hour
such a machine's level may move by more, which `compare` tells from the ceilings.

Those of a GPU are published ones: in Vidur's tables several runs timed the same launches. They were chosen
on its A100s alone (studies/README.md has the table), hold what several cards of a kind differ
by, and are those of a launch alone, read in whole microseconds. On GPUs that were not looked at they cover
91 to 100 % of an A40's pairs of runs and 95 % or more of an H100's products, but only 77 % of its other work
from memory, and next to none of two runs of an RTX 3090 at another speed. Those of launches, and HOURS_APART,
are assumed. Where no run of the device replaces them, `compare` and `claims` say whose they are.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from bench.judge.comparability import FACTS, value
from bench.judge.work_class import WorkClass, work_of
from bench.store.schema import Measurement

if TYPE_CHECKING:
    from bench.judge.within_run import WithinRun


class Spread(NamedTuple):
    """By how much medians differ, 95 times in 100: natural logarithms."""

    visits: float
    """From one visit of a run to another."""
    runs: float
    """From one run to another, beyond that."""


USUAL: Mapping[str, Mapping[WorkClass, Spread]] = {
    "cpu": {
        WorkClass.COMPUTE: Spread(0.035, 0.02),
        WorkClass.MEMORY: Spread(0.055, 0.135),
        WorkClass.SMALL: Spread(0.08, 0.2),
        WorkClass.CACHE: Spread(0.05, 0.16),
        WorkClass.LAUNCH: Spread(0.07, 0.06),
    },
    "cuda": {
        WorkClass.COMPUTE: Spread(0.028, 0.031),
        WorkClass.MEMORY: Spread(0.018, 0.020),
        WorkClass.SMALL: Spread(0.025, 0.024),
        WorkClass.CACHE: Spread(0.031, 0.030),
        WorkClass.LAUNCH: Spread(0.05, 0.03),  # assumed
    },
}
"""Kind of device -> kind of work -> its usual spread."""
HOUR_S = 3600.0
"""Runs that began farther apart than this ..."""
HOURS_APART: Mapping[str, float] = {"cpu": 2.0, "cuda": 1.0}
"""... differ by so many times the noise between runs. Of a CPU by the committed runs of a Xeon in an evening
and the next night: 3 covers no more of their pairs, and with 1.5 one of 112 is a false alarm. Of a GPU
nothing has been measured."""
RESTLESS = 1.5
"""Standard deviations of a run's visits that runs differ by at least: the least with which the interval of a
ratio holds 95 % of each kind of work in each folder, on every second pair of the committed runs."""
OURS = "triton"
"""How the names of our own implementations begin."""
ALIKE = tuple(fact for fact in FACTS if fact.name != "commit")
"""Facts that two runs must share for their difference to be noise. The commit is that of our own kernels."""
QUANTILE = 0.95
"""Share of the cases that what is said of two runs holds for."""
LEAST_CASES = 4
"""Cases of a kind of work in two runs from which they tell how far runs differ."""
STEP = 1.96 * math.sqrt(2)
"""Standard deviations of a visit that 95 in 100 steps between two visits do not exceed."""
PUBLISHED = (
    "by published runs on A100s (launches: assumed), not this device's: earlier runs in its folder replace it"
)
"""Whose the noise between runs of such rows is, in texts."""


class BetweenRuns(NamedTuple):
    """What a row's time differs by in another run, beyond what visits of one run differ by."""

    half: float
    """Half of a 95 % interval, natural logarithm."""
    by: Literal["history", "assumed"]
    """Whether earlier runs of the device tell it, or only what such work usually does."""


def usual_spread(row: Measurement) -> Spread:
    """That of a row's work; on a kind of device that nobody has measured, that on a CPU."""
    return USUAL.get(row.device_kind, USUAL["cpu"])[work_of(row)]


def between_runs(row: Measurement, within: WithinRun, history: Mapping[str, float]) -> BetweenRuns:
    """The noise between runs of a row: by the `history` of its device, else assumed."""
    half, least = history.get(work_of(row)), RESTLESS * within.scatter
    if half is not None:
        return BetweenRuns(max(half, history.get(row.case, 0.0), least), "history")
    return BetweenRuns(max(usual_spread(row).runs, least), "assumed")


def published(
    row: Measurement, within: WithinRun | None, history: Mapping[str, float] | None = None
) -> Measurement:
    """The row with both of its intervals; as it is if it has no time, or too few samples to tell."""
    if within is None or row.median_s is None:
        return row
    by = math.exp(within.visit)
    columns: dict[str, Any] = {"run_low_s": row.median_s / by, "run_high_s": row.median_s * by}
    columns |= {"run_half": within.half, "run_by": within.by}
    if _is_known(row):
        runs = between_runs(row, within, history or {})
        factor = math.exp(math.hypot(within.half, runs.half))
        columns |= {"low_s": row.median_s / factor, "high_s": row.median_s * factor}
        columns |= {"noise_visits": within.usual, "noise_runs": runs.half, "noise_by": runs.by}
    return replace(row, **columns)


def interval(row: Measurement, within: WithinRun | None) -> tuple[float, float, BetweenRuns] | None:
    """(how far below its median the published interval ends, how far above: ln; its noise between runs).

    None if it has none. A row that was published with both of its intervals is taken at its word; that of an
    older one is made anew from its visits. One without samples (imported) has the wider of what it says and
    the usual, and the noise between runs.
    """
    if within is None or row.median_s is None or not _is_known(row):
        return None
    down = up = 0.0
    if row.low_s is not None and row.high_s is not None:
        down, up = math.log(row.median_s / row.low_s), math.log(row.high_s / row.median_s)
    if row.run_half is not None and row.noise_runs is not None and row.low_s is not None:
        return down, up, BetweenRuns(row.noise_runs, "history" if row.noise_by == "history" else "assumed")
    runs = between_runs(row, within, {})
    down, up = (within.half if row.samples_s else max(within.half, end) for end in (down, up))
    return math.hypot(down, runs.half), math.hypot(up, runs.half), runs


def _is_known(row: Measurement) -> bool:
    """Whether anything tells how far off a row may be: its samples, or that several visits were made."""
    if row.low_s is None or row.high_s is None or row.median_s is None:
        return bool(row.samples_s) and (row.visits or 1) > 1
    return 0 < row.low_s <= row.median_s <= row.high_s < math.inf


def usual_half(row: Measurement) -> float:
    """How wide the interval of a row is by noise alone, |ln|: by its own account, else by what is usual."""
    if row.noise_visits is not None and row.noise_runs is not None:
        return math.hypot(row.noise_visits, row.noise_runs)
    usual = usual_spread(row)
    return math.hypot(usual.visits / math.sqrt(max(1, (row.visits or 1) - 1)), usual.runs)


def is_published(row: Measurement) -> bool:
    """Whether the noise between runs of a row is other people's: no earlier runs of its GPU told any."""
    return row.device_kind == "cuda" and (row.noise_runs is None or row.noise_by == "assumed")


def history(runs: Iterable[Iterable[Measurement]]) -> dict[str, float]:
    """What the runs of a device, in time order, differ by, 95 times in 100: kind of work -> ln.

    And case -> the same of it alone: what jumped between two states before will do so again.

    Only libraries' kernels count, each from one run to the next that measured it under the same conditions:
    what was changed in between is no noise. What the cases of two runs differ by has one cause, so each two
    count once, and what is usual counts as one more: that a machine is restless is believed at once, that it
    is calm the more of its runs say so.
    """
    steps: dict[WorkClass, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    of_case: dict[str, list[float]] = defaultdict(list)
    before: dict[tuple[Any, ...], Measurement] = {}
    kind = "cpu"
    for number, run in enumerate(runs):
        now = {(row.case, *(value(row, fact) for fact in ALIKE)): row for row in run if _counts(row)}
        for key in now.keys() & before.keys():
            row, other = now[key], before[key]
            assert row.median_s and other.median_s
            apart = math.log(row.median_s / other.median_s)
            # What differs from visit to visit is in the interval already, and is only a part of this.
            visits = math.hypot(*(each.run_half or 0.0 for each in (row, other)))
            step = math.sqrt(max(0.0, apart**2 - visits**2) / 2)
            steps[work_of(row)][number].append(step)
            of_case[row.case].append(step)
            kind = row.device_kind
        before |= now  # runs of other sweeps lie between two runs of the same cases
    kinds: dict[str, float] = {}
    for work, by_run in steps.items():
        if sum(map(len, by_run.values())) >= LEAST_CASES:
            each = [float(np.quantile(of_run, QUANTILE)) for of_run in by_run.values()]
            drawn = (sum(each) + USUAL.get(kind, USUAL["cpu"])[work].runs) / (len(each) + 1)
            kinds[work] = max(float(np.mean(each)), drawn)  # drawn down from the usual
    cases = {case: float(np.quantile(of, QUANTILE)) for case, of in of_case.items()}
    return kinds | cases if kinds else {}


def _counts(row: Measurement) -> bool:
    """Whether a row tells how far runs differ; one taken from another run is in that run, too."""
    own = row.source is None and row.measured_in is None and not row.visit
    return row.is_timed and own and not row.implementation.startswith(OURS)
