"""The within-run interval: where another visit of the same run would find a case, and how sure its median is.

It holds what differs from visit to visit and nothing of what moves a whole run, so it is the one for whatever
compares rows of one run: claims, implementations, shares of a roof. How to use it, `WithinRun.half` of two
rows being a and b: the 95 % interval of ln(time / other time) is that +- hypot(a, b), and its standard error
hypot(a, b) / 1.96; of one row the interval is median_s x exp(+-half). `DeviceRun.within` has it for each row
of any file, new or old, and `DeviceRun.columns` as `run_low_s`, `run_high_s`, `run_half` and `run_by`. (Rows
of different runs are compared by `low_s` and `high_s`, which hold the noise between runs, too.)

The scatter of a case's visits (ln of their medians) is moderated by the usual one of the run's other cases of
the same kind of work, which counts as PRIOR_FREEDOM degrees of freedom (Smyth, Stat. Appl. Genet. Mol. Biol.
3, 2004): two visits may agree by chance. Visits less than a fifth of the run apart are one moment: what they
share is not known. Where no case of a run was visited in two moments nothing tells, and the usual spread of
the kind of work is assumed (`run_by`), or that of the visit's own samples if it is wider.

With one visit of each case left out it holds that visit of the measurements of committed nights and tours in
92 to 96 % (the runs of even order, on which PRIOR_FREEDOM was chosen) and 93 to 97 % (the others).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np

from bench.judge.flags import disturbances
from bench.judge.noise import STEP, own_interval, usual_spread
from bench.judge.work_class import WorkClass, work_of
from bench.sampling.protocol import protocol
from bench.sampling.publish import median_of, student
from bench.store.schema import Measurement

MOMENT = 0.2
"""Share of the run's length; visits that are nearer to one another are one moment."""
PRIOR_FREEDOM = 2
"""Degrees of freedom that the scatter of the run's other cases counts as."""
LEAST_FREEDOM = 4
"""Degrees of freedom from which a kind of work speaks for itself; with fewer all of the run's cases do."""


LEAST_VARIANCE = 1e-6
"""That of visits, ln, which agree by chance or by the clock's step: a tenth of a percent."""


class WithinRun(NamedTuple):
    """How far off the time of a row may be within its run: half of each 95 % interval, natural logarithm."""

    visit: float
    """Between the row's median and that of another visit."""
    half: float
    """Between the row's median and the level of the case in this run: narrower the more visits there are."""
    by: Literal["visits", "assumed"]
    """Whether visits of the run tell it, or only what such work usually does."""

    def columns(self, median_s: float) -> dict[str, float | str]:
        """The columns of a row with this median."""
        ends = {"run_low_s": median_s * math.exp(-self.visit), "run_high_s": median_s * math.exp(self.visit)}
        return {**ends, "run_half": self.half, "run_by": self.by}


def within_run(rows: Sequence[Measurement]) -> list[WithinRun | None]:
    """The within-run interval of each row of one run; None for a row without a time.

    A row that was published with it is taken at its word.
    """
    by_case: dict[str, list[float]] = defaultdict(list)
    here = [row for row in rows if not row.measured_in]
    length_s = max((at_s for row in here for at_s in row.visit_at_s or ()), default=0.0)
    for row in here:
        if row.is_timed:
            by_case[row.case] += moments(row, length_s)
    known: list[WithinRun | None] = []
    scatter: Mapping[WorkClass | None, float] | None = None
    for row in rows:
        if not row.is_timed:
            known.append(None)
        elif (published := _published(row)) is not None:
            known.append(published)
        else:
            scatter = scatter if scatter is not None else _scatter(rows, by_case)
            known.append(_within(row, by_case[row.case] or moments(row, length_s), scatter))
    return known


def moments(row: Measurement, run_s: float) -> list[float]:
    """ln(median seconds) at each moment of a run of this length at which a timed row was visited, in order.

    Visits nearer than MOMENT of the run to the first of a moment belong to it. Where a row does not say when
    its visits were, each is a moment.
    """
    visits = [math.log(median_of(part)) for part in row.visit_samples_s] or [math.log(row.median_s or 1.0)]
    at_s = row.visit_at_s or []
    if len(at_s) != len(visits):
        return visits
    together: list[list[float]] = []
    began_s = -math.inf
    for visit_s, log in sorted(zip(at_s, visits, strict=True)):
        if visit_s - began_s >= MOMENT * run_s:
            together.append([])
            began_s = visit_s
        together[-1].append(log)
    return [float(np.mean(each)) for each in together]


def _published(row: Measurement) -> WithinRun | None:
    if row.run_half is None or row.run_high_s is None or row.median_s is None:
        return None
    by: Literal["visits", "assumed"] = "assumed" if row.run_by == "assumed" else "visits"
    return WithinRun(math.log(row.run_high_s / row.median_s), row.run_half, by)


def _scatter(
    rows: Iterable[Measurement], by_case: Mapping[str, Sequence[float]]
) -> dict[WorkClass | None, float]:
    """Kind of work -> the usual variance of a case's visits (ln); None -> that of all kinds together.

    It is the geometric mean over cases, less the bias of so few visits: one case between two speeds makes no
    other case's interval wider. What was disturbed counts only if all was.
    """
    from scipy import special  # slow to import

    repeated = {row.case: row for row in rows if len(by_case.get(row.case, ())) > 1}
    calm = {case: row for case, row in repeated.items() if not disturbances(row)}
    of_work: dict[WorkClass | None, list[Sequence[float]]] = defaultdict(list)
    for case, row in (calm or repeated).items():
        for work in (work_of(row), None):
            of_work[work].append(by_case[case])
    usual = {}
    for work, cases in of_work.items():
        freedom = np.array([len(logs) - 1 for logs in cases])
        if work is None or freedom.sum() >= LEAST_FREEDOM:
            variances = np.maximum([np.var(logs, ddof=1) for logs in cases], LEAST_VARIANCE)
            unbiased = np.log(variances) - special.digamma(freedom / 2) + np.log(freedom / 2)
            usual[work] = math.exp(np.average(unbiased, weights=freedom))
    return usual


def _within(row: Measurement, logs: Sequence[float], scatter: Mapping[WorkClass | None, float]) -> WithinRun:
    settings = protocol("cuda" if row.device_kind == "cuda" else "cpu", len(logs))
    assert row.median_s is not None
    least = max(settings.floor, (row.step_s or 0.0) / row.median_s)
    if len(logs) == 1 and row.samples_s and math.isfinite(high_s := own_interval(row)[1]):
        least = max(least, math.log(high_s / row.median_s))
    variance = scatter.get(work_of(row), scatter.get(None))
    if variance is None:
        deviation, freedom = usual_spread(row).visits / STEP, math.inf
    else:
        freedom = PRIOR_FREEDOM + len(logs) - 1
        squares = PRIOR_FREEDOM * variance + len(logs) * float(np.var(logs))
        deviation = math.sqrt(squares / freedom)
    errors = student(freedom, settings.confidence)
    half = errors * deviation / math.sqrt(len(logs))
    visit = errors * deviation * math.sqrt(1 + 1 / len(logs))
    return WithinRun(max(least, visit), max(least, half), "assumed" if variance is None else "visits")
