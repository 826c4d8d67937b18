"""The noise of a row's time: what it would differ by at another visit and in another run.

The 95 % interval of a row has three parts: within its visits (from their samples: bench/sampling/publish.py),
between the visits of a run, and between runs. Of the first two the wider counts, the third is added as
squares. Few rows are visited often enough to tell the second for themselves, and none is in two runs at once.
So each kind of work has a usual spread of both. A run says by its repeated cases how restless the machine was
beside that, and earlier runs of the device how far its runs differ: the usual spreads are multiplied by these
two factors.

The kind of work follows from what is measured, not from what is presumed to bound it: on a CPU many
activations stay well below the memory's speed and are as restless as it.

The usual spreads of a CPU are those of ten runs of a virtual machine with 2 cores within ten minutes
(results/reference/nights; `python -m bench coverage RESULT...` shows what they cover). From hour to hour such
a machine's level may move by more, which `compare` tells from the ceilings. Those of a GPU are assumed: none
has been measured yet.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from bench.judge.comparability import FACTS, value
from bench.sampling.protocol import protocol
from bench.sampling.publish import Spread, Visit, publish, publish_ceiling

if TYPE_CHECKING:
    from bench.store.schema import Measurement

Work = Literal["matrix", "memory", "cache", "launch"]
"""Matrix products; other work from memory; any work from a warm cache that holds it; empty launches."""

USUAL: Mapping[str, Mapping[Work, Spread]] = {
    "cpu": {
        "matrix": Spread(0.035, 0.015),
        "memory": Spread(0.055, 0.07),
        "cache": Spread(0.05, 0.12),
        "launch": Spread(0.07, 0.04),
    },
    "cuda": {
        "matrix": Spread(0.006, 0.003),
        "memory": Spread(0.005, 0.002),
        "cache": Spread(0.006, 0.003),
        "launch": Spread(0.05, 0.03),
    },
}
"""Kind of device -> by how much medians differ, 95 times in 100, from visit to visit and, beyond that, from
run to run."""
HOUR_S = 3600.0
"""Runs that began farther apart than this ..."""
HOURS_APART: Mapping[str, float] = {"cpu": 3.0, "cuda": 1.0}
"""... differ by so many times the noise between runs. Of a CPU by the eight committed runs of an evening and
the next night: 2.7 times, rounded up. Of a GPU nothing has been measured."""
OURS = "triton"
"""How the names of our own implementations begin."""
ALIKE = tuple(fact for fact in FACTS if fact.name != "commit")
"""Facts that two runs must share for their difference to be noise. The commit is that of our own kernels."""
QUANTILE = 0.95
"""Share of a run's steps that its factor reaches: interpolated, or of twenty one odd step would decide."""
PRIOR_STEPS = 3
"""How many steps the assumption that a machine is as restless as usual weighs as much as."""
CALMEST = 0.4
"""The least factor: a run that happened to be calm does not say that the next one will be."""


class Repeated(NamedTuple):
    """A case that was visited several times in one run."""

    work: Work
    medians_s: Sequence[float]
    """Of each visit, seconds, in time order."""
    undisturbed: bool
    """Whether no neighbour, heat or quota is to blame for any of them."""


@dataclass(frozen=True)
class Noise:
    """The noise of one run on one device."""

    kind: str
    """Of device: cpu | cuda."""
    factor: float = 1.0
    """Times the usual spread."""
    steps: int = 0
    """How many steps between visits that follows from."""
    runs_factor: float | None = None
    """Times the usual spread between runs, by earlier runs of the device; None: without them, `factor`."""

    def of(self, row: Measurement) -> Spread:
        """The spread of a row of this run."""
        usual = _usual(row)
        runs_factor = self.factor if self.runs_factor is None else self.runs_factor
        return Spread(self.factor * usual.visits, runs_factor * usual.runs)

    @classmethod
    def seen(cls, kind: str, cases: Iterable[Repeated]) -> Noise:
        """How restless a machine was by its repeated cases; disturbed ones count if there are no others."""
        repeated = [case for case in cases if len(case.medians_s) > 1]
        calm = [case for case in repeated if case.undisturbed]
        steps = [
            step / USUAL.get(kind, USUAL["cpu"])[case.work].visits
            for case in calm or repeated
            for step in np.abs(np.diff(np.log(case.medians_s))).tolist()
        ]
        return cls(kind, _factor(steps), len(steps)) if steps else cls(kind)


def _factor(steps: Sequence[float]) -> float:
    """How restless a machine was that made these steps: 1 if 95 in 100 of them are no more than usual.

    That it was restless is believed at once, that it was calm the more steps say so.
    """
    seen = float(np.quantile(steps, QUANTILE))
    return max(CALMEST, seen, (len(steps) * seen + PRIOR_STEPS) / (len(steps) + PRIOR_STEPS))


def between_runs(runs: Iterable[Iterable[Measurement]]) -> float | None:
    """Times the usual spread between runs that those of a device, in time order, show; None if no case tells.

    Only libraries' kernels count, each from one run to the next that measured it under the same conditions:
    what was changed in between is no noise.
    """
    steps: list[float] = []
    before: dict[tuple[Any, ...], Measurement] = {}
    for run in runs:
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
            steps.append(math.sqrt(max(0.0, apart**2 - visits**2) / 2) / _usual(row).runs)
        before |= now  # shards, and runs of other sweeps, lie between two runs of the same cases
    return _factor(steps) if steps else None


def _usual(row: Measurement) -> Spread:
    """The usual spread of a row's work; on a kind of device that nobody has measured, that on a CPU."""
    return USUAL.get(row.device_kind, USUAL["cpu"])[work_of(row)]


def _visits_half(row: Measurement) -> float:
    """The noise between visits in the row's median, |ln|: by its own account, else what is usual."""
    if row.noise_visits is not None:
        return row.noise_visits
    return _usual(row).over(row.visits or 1).visits


def work_of(row: Measurement) -> Work:
    """The kind of work that a row measured."""
    if not row.flop and not row.byte:
        return "launch"
    if row.cache == "warm" and row.byte <= row.cache_byte:
        return "cache"
    return "matrix" if row.arithmetic == "matrix" else "memory"


def noise_of(
    rows: Iterable[Measurement],
    disturbed: Iterable[bool],
    earlier: Iterable[Iterable[Measurement]] = (),
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
    return replace(Noise.seen(kind, repeated), runs_factor=between_runs(earlier))


def visit_medians_s(row: Measurement) -> list[float]:
    """Median seconds of each visit to a case, in time order; first those that later ones outvoted.

    They are not published, but the machine did run at that speed. Visits that were disturbed stay out.
    """
    outvoted = [
        float(median_s)
        for why, median_s in zip(row.set_aside or (), row.set_aside_s or (), strict=False)
        if why == "earlier" and median_s > 0
    ]
    return [*outvoted, *(statistics.median(part.tolist()) for part in row.visit_samples_s)]


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
    low_s, high_s = row.low_s, row.high_s
    if row.samples_s:
        settings = protocol("cuda" if row.device_kind == "cuda" else "cpu", visit_count(row))
        visits = [
            Visit(tuple(part.tolist()), True, 0.0, "converged", row.step_s or 0.0)
            for part in row.visit_samples_s
        ]
        own = (publish if row.role == "measurement" else publish_ceiling)(visits, settings)
        if not math.isfinite(own.high_s):
            return None
        low_s, high_s = own.low_s, own.high_s
    count = 1 if "earlier" in (row.set_aside or ()) else visit_count(row)
    return noise.of(row).over(count).widen(row.median_s, low_s, high_s)


def usual_half(row: Measurement) -> float:
    """How wide the interval of a row is by noise alone, |ln|: by its own account, else by what is usual."""
    if row.noise_visits is not None and row.noise_runs is not None:
        return Spread(row.noise_visits, row.noise_runs).half
    return _usual(row).over(visit_count(row)).half
