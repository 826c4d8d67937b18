"""The noise of a row's time: what it would differ by at another visit and in another run.

The 95 % interval of a row has three parts: within its visits (from their samples: bench/sampling/publish.py),
between the visits of a run, and between runs. Of the first two the wider counts, the third is added as
squares. Few rows are visited often enough to tell the second for themselves, and none is in two runs at once.
So each kind of work has a usual spread of both. A run says by its repeated cases how much more, or less, than
usual each kind varied on this machine, and earlier runs of the device how far its runs differ: the usual
spreads are multiplied by these factors, kind by kind. A virtual machine whose memory changes between two
speeds may multiply matrices as steadily as ever.

The usual spreads of a CPU are those of runs of two virtual machines with 2 cores (results/reference/nights
and fresh_nights; `python -m studies.noise_by_kind DIR` shows
what they cover), but for small kernels, of which those runs have none: theirs are assumed. From hour to hour
such a machine's level may move by more, which `compare` tells from the ceilings.

Those of a GPU are published ones: in Vidur's tables several runs timed the same launches. They were chosen
on its A100s alone (`python -m studies published_repeats FOLDER`), hold what several cards of a kind differ
by, and are those of a launch alone, read in whole microseconds. On GPUs that were not looked at they cover
91 to 100 % of an A40's pairs of runs and 95 % or more of an H100's products, but only 77 % of its other work
from memory, and next to none of two runs of an RTX 3090 at another speed. Assumed are those of launches,
HOURS_APART and CALMEST. A device's own runs replace them, and where none has, `compare` and `claims` say
whose they are.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from bench.format import share_text
from bench.judge.comparability import FACTS, value
from bench.judge.work_class import WorkClass, work_of
from bench.model.ceilings import visit_medians_s
from bench.sampling.protocol import protocol
from bench.sampling.publish import MedianSpread, VisitSamples, publish, publish_ceiling
from bench.store.schema import Measurement

USUAL: Mapping[str, Mapping[WorkClass, MedianSpread]] = {
    "cpu": {
        WorkClass.COMPUTE: MedianSpread(0.035, 0.035),
        WorkClass.MEMORY: MedianSpread(0.055, 0.08),
        WorkClass.SMALL: MedianSpread(0.08, 0.1),
        WorkClass.CACHE: MedianSpread(0.05, 0.12),
        WorkClass.LAUNCH: MedianSpread(0.07, 0.04),
    },
    "cuda": {
        WorkClass.COMPUTE: MedianSpread(0.028, 0.031),
        WorkClass.MEMORY: MedianSpread(0.018, 0.020),
        WorkClass.SMALL: MedianSpread(0.025, 0.024),
        WorkClass.CACHE: MedianSpread(0.031, 0.030),
        WorkClass.LAUNCH: MedianSpread(0.05, 0.03),  # assumed
    },
}
"""Kind of device -> by how much medians differ, 95 times in 100, from visit to visit and, beyond that, from
run to run."""
HOUR_S = 3600.0
"""Runs that began farther apart than this ..."""
HOURS_APART: Mapping[str, float] = {"cpu": 2.0, "cuda": 1.0}
"""... differ by so many times the noise between runs. Of a CPU by the committed runs of a Xeon in an evening
and the next night: 3 covers no more of their pairs, and with 1.5 one of 112 is a false alarm. Of a GPU
nothing has been measured."""
OURS = "triton"
"""How the names of our own implementations begin."""
ALIKE = tuple(fact for fact in FACTS if fact.name != "commit")
"""Facts that two runs must share for their difference to be noise. The commit is that of our own kernels."""
QUANTILE = 0.95
"""Share of a run's steps that its factor reaches: interpolated, or of twenty one odd step would decide."""
PRIOR_STEPS = 3
"""How many steps the assumption that a machine varies as much as usual weighs as much as."""
LEAST_STEPS = 4
"""Steps of a kind of work from which it has a factor of its own."""
STEP = 1.96 * math.sqrt(2)
"""Standard deviations of a visit that 95 in 100 steps between two visits do not exceed ..."""
MIDDLE_STEP = 0.6745 / 1.96
"""... and the part of such a step that half of them do not exceed, by the normal distribution."""
MOST_BETWEEN_RUNS = 3.0
"""Times the usual noise between runs that a run's own visits are taken to imply at most."""
CALMEST: Mapping[str, float] = {"cpu": 0.4, "cuda": 0.1}
"""Kind of device -> the least factor: a run that happened to be calm does not say that the next one will be.
Of a GPU, whose usual spreads hold what several cards differ by, it is less (assumed); between runs it takes
ten of its own."""


class Repeated(NamedTuple):
    """A case that was visited several times in one run."""

    work: WorkClass
    medians_s: Sequence[float]
    """The median of each visit, seconds, in time order."""
    undisturbed: bool
    """Whether no neighbour, heat or quota is to blame for any of them."""


@dataclass(frozen=True)
class Noise:
    """The noise of one run on one device."""

    kind: str
    """Kind of device: cpu | cuda."""
    factor: float = 1.0
    """Times the usual spread, for kinds of work without a factor of their own."""
    steps: int = 0
    """How many steps between visits that follows from."""
    factors: Mapping[WorkClass, float] = field(default_factory=dict)
    """Kind of work -> times its usual spread, where LEAST_STEPS steps or more of its own say so."""
    typical: Mapping[WorkClass, float] = field(default_factory=dict)
    """The same by the middle one of its steps, which a few that are far off do not move."""
    runs_factors: Mapping[WorkClass, float] = field(default_factory=dict)
    """Kind of work -> times its usual spread between runs, by earlier runs of the device."""

    def of(self, row: Measurement) -> MedianSpread:
        """The spread of a row of this run."""
        usual, work = usual_spread(row), work_of(row)
        visits = usual.visits * self.factors.get(work, self.factor)
        # That a run's visits agree does not say that the next run will agree with it.
        factor = self.typical.get(work, self.factor)
        runs = self.runs_factors.get(work, min(max(factor, 1.0), MOST_BETWEEN_RUNS))
        return MedianSpread(visits, runs * usual.runs, self.typical.get(work, 0.0) * usual.visits / STEP)

    @property
    def text(self) -> str:
        """How far visits to the same case differed, by kind of work; empty if no visits say so."""
        usual = USUAL.get(self.kind, USUAL["cpu"])
        spreads = {work: factor * usual[work].visits for work, factor in self.factors.items()}
        known = [work for work in WorkClass if work in spreads]
        return ", ".join(f"{work.text} {share_text(math.expm1(spreads[work]))}" for work in known)

    @classmethod
    def seen(cls, kind: str, cases: Iterable[Repeated]) -> Noise:
        """How much a machine varied by its repeated cases; disturbed ones count if a kind has no others."""
        by_work: dict[WorkClass, list[Repeated]] = defaultdict(list)
        for case in cases:
            if len(case.medians_s) > 1:
                by_work[case.work].append(case)
        steps = {}
        for work, repeated in by_work.items():
            usual = USUAL.get(kind, USUAL["cpu"])[work].visits
            calm = [case for case in repeated if case.undisturbed]
            medians_s = [np.log(case.medians_s) for case in calm or repeated]
            steps[work] = [step / usual for logs in medians_s for step in np.abs(np.diff(logs)).tolist()]
        every = [step for of_work in steps.values() for step in of_work]
        if not every:
            return cls(kind)
        least = _calmest(kind)
        factors = {work: _factor(of, least) for work, of in steps.items() if len(of) >= LEAST_STEPS}
        typical = {
            work: _factor([step / MIDDLE_STEP for step in steps[work]], least, 0.5) for work in factors
        }
        return cls(kind, _factor(every, least), len(every), factors, typical)


def _factor(steps: Sequence[float], least: float, quantile: float = QUANTILE) -> float:
    """Factor by which these steps exceed a machine's usual variation: 1 if 95 in 100 are no larger.

    A noisy run raises the factor at once; a quiet one lowers it as evidence grows, down to `least`.
    """
    seen = float(np.quantile(steps, quantile))
    return max(least, seen, (len(steps) * seen + PRIOR_STEPS) / (len(steps) + PRIOR_STEPS))


def _calmest(kind: str, changes: float = math.inf) -> float:
    """The least factor of a kind of device, by so many changes from one run to the next.

    What many cases of two runs differ by has one cause, and says less than as many runs.
    """
    least = CALMEST.get(kind, CALMEST["cpu"])
    return max(least, min(CALMEST["cpu"], 1 / (1 + changes)))


def between_runs(runs: Iterable[Iterable[Measurement]]) -> dict[WorkClass, float]:
    """Times the usual spread between runs that those of a device, in time order, show, by kind of work.

    Only libraries' kernels count, each from one run to the next that measured it under the same conditions:
    what was changed in between is no noise.
    """
    steps: dict[WorkClass, list[float]] = defaultdict(list)
    changes: dict[WorkClass, set[int]] = defaultdict(set)
    before: dict[tuple[Any, ...], Measurement] = {}
    kind = "cpu"
    for number, run in enumerate(runs):
        now = {
            (row.case, *(value(row, fact) for fact in ALIKE)): row
            for row in run
            if row.is_timed
            and not row.visit
            and row.source is None
            and row.measured_in is None  # it is in that run, too
            and not row.implementation.startswith(OURS)
        }
        for key in now.keys() & before.keys():
            row, other = now[key], before[key]
            assert row.median_s and other.median_s
            apart = math.log(row.median_s / other.median_s)
            # What differs from visit to visit is in the interval already, and is only a part of this.
            visits = math.hypot(_visits_half(row), _visits_half(other))
            step = math.sqrt(max(0.0, apart**2 - visits**2) / 2) / usual_spread(row).runs
            steps[work_of(row)].append(step)
            changes[work_of(row)].add(number)
            kind = row.device_kind
        before |= now  # shards, and runs of other sweeps, lie between two runs of the same cases
    return {
        work: _factor(of_work, _calmest(kind, len(changes[work])))
        for work, of_work in steps.items()
        if len(of_work) >= LEAST_STEPS
    }


PUBLISHED = (
    "by published runs on A100s (launches: assumed), not this device's: earlier runs in its folder replace it"
)
"""Whose the noise between runs of such rows is, in texts."""


def is_published(row: Measurement) -> bool:
    """Whether the noise between runs of a row is other people's: no earlier runs of its GPU told any.

    It is theirs to the digit unless the row's own run was restless, or the device's runs say more or less.
    """
    runs = usual_spread(row).runs if row.noise_runs is None else row.noise_runs
    return row.device_kind == "cuda" and math.isclose(runs, usual_spread(row).runs)


def usual_spread(row: Measurement) -> MedianSpread:
    """The usual spread of a row's work; on a kind of device that nobody has measured, that on a CPU."""
    return USUAL.get(row.device_kind, USUAL["cpu"])[work_of(row)]


def _visits_half(row: Measurement) -> float:
    """The noise between visits in the row's median, |ln|: by its own account, else what is usual."""
    if row.noise_visits is not None:
        return row.noise_visits
    return usual_spread(row).over(row.visits or 1).visits


def noise_of(
    rows: Iterable[Measurement], disturbed: Iterable[bool], earlier: Iterable[Iterable[Measurement]] = ()
) -> Noise:
    """The noise of the run that these rows, at least one, are of; which of them were `disturbed`, in order.

    `earlier` are the rows of earlier runs of the device, if any, in time order. Older files hold the visits
    to a ceiling as rows of their own, and a journal those to every case.
    """
    by_case: dict[str, list[tuple[Measurement, bool]]] = defaultdict(list)
    kind = "cpu"
    for row, spoiled in zip(rows, disturbed, strict=True):
        kind = row.device_kind
        if row.is_timed and row.settled is not False and row.measured_in is None:
            by_case[row.case].append((row, spoiled))
    repeated = []
    for looks in by_case.values():
        sound = [look for look in looks if not look[1]]
        # Of a case that was disturbed once, the other visits tell what the machine did by itself.
        taken = sound if sum(len(visit_medians_s(row)) for row, _ in sound) > 1 else looks
        taken = sorted(taken, key=lambda look: look[0].visit)
        medians_s = [median_s for row, _ in taken for median_s in visit_medians_s(row)]
        repeated.append(Repeated(work_of(taken[0][0]), medians_s, taken == sound))
    return replace(Noise.seen(kind, repeated), runs_factors=between_runs(earlier))


def visit_count(row: Measurement) -> int:
    """Visits whose samples the row publishes; 1 if it does not say."""
    return max(1, len(row.visit_samples or ()))


def interval(row: Measurement, noise: Noise) -> tuple[float, float] | None:
    """(low, high) in seconds: the row's 95 % interval with all its noise; None if it has none.

    A row that was published with it is taken at its word. That of an older one is made from its samples, and
    one without samples (imported) has what its interval says and the noise of the device.
    """
    if row.low_s is None or row.high_s is None or row.median_s is None:
        return None
    if not 0 < row.low_s <= row.median_s <= row.high_s < math.inf:
        return None
    if row.noise_runs is not None:
        return row.low_s, row.high_s
    if row.samples_s:
        low_s, high_s = own_interval(row, noise.of(row))
        return (low_s, high_s) if math.isfinite(high_s) else None
    return noise.of(row).over(1).widen(row.median_s, row.low_s, row.high_s)


def own_interval(row: Measurement, spread: MedianSpread | None = None) -> tuple[float, float]:
    """(low, high) in seconds by a row's samples, with this noise; 0 and infinite where there are too few."""
    settings = protocol("cuda" if row.device_kind == "cuda" else "cpu", visit_count(row))
    visits = [
        VisitSamples(tuple(part.tolist()), True, 0.0, "converged", row.step_s or 0.0)
        for part in row.visit_samples_s
    ]
    publishing = publish if row.role == "measurement" else publish_ceiling
    own = publishing(visits, settings, spread, outvoted="earlier" in (row.set_aside or ()))
    return own.low_s, own.high_s


def usual_half(row: Measurement) -> float:
    """How wide the interval of a row is by noise alone, |ln|: by its own account, else by what is usual."""
    if row.noise_visits is not None and row.noise_runs is not None:
        return MedianSpread(row.noise_visits, row.noise_runs).half
    return usual_spread(row).over(visit_count(row)).half
