"""The within-run interval: where another visit of the same run would find a case, and how sure its median is.

It holds what differs from visit to visit and nothing of what moves a whole run, so it is the one for whatever
compares rows of one run: claims, implementations, shares of a roof. How to use it, `WithinRun.half` of two
rows being a and b: the 95 % interval of ln(time / other time) is that +- hypot(a, b), or, narrower,
`half_of_ratio`; of one row it is median_s x exp(+-half). `DeviceRun.within` has it for each row of any file,
new or old, and `DeviceRun.columns` as `run_low_s`, `run_high_s`, `run_half` and `run_by`. (Between rows of
different runs there is the noise between runs, too.)

The scatter of a case's visits (ln of their medians) is moderated by the usual one of the run's other cases of
the same kind of work, which counts as PRIOR_FREEDOM degrees of freedom (Smyth, Stat. Appl. Genet. Mol. Biol.
3, 2004): two visits may agree by chance. Visits less than a fifth of the run apart are one moment: what they
share is not known. Where no case of a run was visited in two moments nothing tells, and the usual spread of
the kind of work is assumed (`run_by`), or that of the visit's own samples if it is wider.

With one visit of each measurement left out it holds that visit in 94.2 % of 3,090 (`python -m
studies.noise_by_kind`; committed nights and fresh nights 97, quiet tours 95, tours of a noisy hour 93 %;
PRIOR_FREEDOM was chosen on the runs of even order, and the others agreed within 0.1 %).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np

from bench.format import share_text
from bench.judge.flags import disturbances
from bench.judge.noise import STEP, usual_spread
from bench.judge.work_class import WorkClass, work_of
from bench.sampling.protocol import protocol
from bench.sampling.publish import interval, median_of, student
from bench.store.schema import Measurement

MOMENT = 0.2
"""Share of the run's length; visits that are nearer to one another are one moment."""
PRIOR_FREEDOM = 2
"""Degrees of freedom that the scatter of the run's other cases counts as."""
LEAST_FREEDOM = 4
"""Degrees of freedom from which a kind of work speaks for itself; with fewer all of the run's cases do."""


LEAST_VARIANCE = 1e-7
"""That of visits, ln, which agree by chance or by the clock's step: three hundredths of a percent."""


class WithinRun(NamedTuple):
    """How far off the time of a row may be within its run: half of each 95 % interval, natural logarithm."""

    visit: float
    """Between the row's median and that of another visit."""
    half: float
    """Between the row's median and the level of the case in this run: narrower the more visits there are."""
    by: Literal["visits", "assumed"]
    """Whether visits of the run tell it, or only what such work usually does."""
    usual: float
    """`half` as the run's other cases of the kind of work have it, whatever this row's visits say."""
    scatter: float
    """Standard deviation of visits to such work in this run; 0 where only the row's columns are known."""
    freedom: float
    """Degrees of freedom of `half`; infinite where it is assumed."""


def within_run(rows: Sequence[Measurement]) -> list[WithinRun | None]:
    """The within-run interval of each row of one run; None for a row without a time.

    A row without its samples that was published with it is taken at its word.
    """
    here = [row for row in rows if row.is_timed and not row.measured_in]
    length_s = max((at_s for row in here for at_s in row.visit_at_s or ()), default=0.0)
    by_case: dict[str, list[float]] = defaultdict(list)
    for row in here:
        by_case[row.case] += moments(row, length_s)
    scatter = _scatter(here, by_case)
    return [
        (_told(row) or _within(row, by_case[row.case] or moments(row, length_s), scatter))
        if row.is_timed
        else None
        for row in rows
    ]


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


def _told(row: Measurement) -> WithinRun | None:
    """What the columns of a row say of it."""
    if row.samples_s or row.run_half is None or row.run_high_s is None or row.median_s is None:
        return None
    by: Literal["visits", "assumed"] = "assumed" if row.run_by == "assumed" else "visits"
    visit = math.log(row.run_high_s / row.median_s)
    freedom = math.inf if by == "assumed" else PRIOR_FREEDOM + (row.visits or 1) - 1
    return WithinRun(visit, row.run_half, by, row.noise_visits or row.run_half, 0.0, freedom)


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
    count = len(logs)
    own = float(np.var(logs)) if count > 1 else 0.0
    variance = scatter.get(work_of(row), scatter.get(None))
    if variance is None:
        usual = deviation = usual_spread(row).visits / STEP
        freedom = math.inf
    else:
        freedom = PRIOR_FREEDOM + count - 1
        usual = math.sqrt(variance)
        deviation = math.sqrt((PRIOR_FREEDOM * variance + count * own) / freedom)
    errors, shrinks = student(freedom, settings.confidence), 1 / math.sqrt(count)
    least = max(settings.floor, (row.step_s or 0.0) / row.median_s)
    if count == 1 and row.samples_s:
        low_s, high_s = interval(row.samples_s, settings, row.step_s or 0.0)[1:]
        if 0 < low_s and high_s < math.inf:
            least = max(least, math.log(high_s / low_s) / 2)
    return WithinRun(
        max(least, errors * deviation * math.sqrt(1 + 1 / count)),
        max(least, errors * deviation * shrinks),
        "assumed" if variance is None else "visits",
        max(settings.floor, errors * usual * shrinks),
        0.0 if variance is None else usual,
        freedom,
    )


def half_of_ratio(one: WithinRun, other: WithinRun) -> float:
    """Half of the 95 % interval of the ratio of two medians, ln (Welch, Biometrika 34, 1947).

    Two scatters are known better than one: the quantile of Student's t is smaller than that of either.
    """
    squares = [(each.half / student(each.freedom, 0.95)) ** 2 for each in (one, other)]
    unsure = sum(square**2 / each.freedom for square, each in zip(squares, (one, other), strict=True))
    return student(sum(squares) ** 2 / unsure if unsure else math.inf, 0.95) * math.sqrt(sum(squares))


def scatter_text(rows: Iterable[tuple[Measurement, WithinRun | None]]) -> str:
    """How far visits to the same case differed, by kind of work; empty if no visits say so."""
    of_work = {work_of(row): within.scatter for row, within in rows if within and within.scatter}
    known = [work for work in WorkClass if work in of_work]
    return ", ".join(f"{work.text} {share_text(math.expm1(STEP * of_work[work]))}" for work in known)
