"""Do the published intervals cover the truth? Our rules of sampling on simulated streams.

`python -m studies coverage`. Per stream and rule, over many repetitions: how many launches it took, how far
the published value is from a launch's true time, how often its interval covers the truth or a flag is raised.

**Truth** is what a user would get from many runs: the median of what the same rule publishes in all the
repetitions. Of two states it is the one that most runs find. The error is that against a single launch at the
level that its run was above for half of the time: so a rule that is the same wrong every time shows.

**What one visit cannot know.** A level that lasts for seconds looks like any other to a visit of half a
second. The rows "alone" show it: there most intervals miss, and no flag says so. Hence no row is judged
alone: a run's repeated cases tell how restless the machine is (bench/judge/within_run.py). The rows "in a
run" are what is published.

What other tools make of real launches, `python -m studies peers` measures.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import MISSING, dataclass
from typing import Any

import numpy as np
from numpy.random import Generator, default_rng

from bench.judge.flags import flags
from bench.judge.noise import published
from bench.judge.within_run import within_run
from bench.sampling.protocol import Protocol, protocol
from bench.sampling.publish import VisitSamples, publish, settled_ones
from bench.sampling.stopping import collect
from bench.store.schema import FIELDS, Measurement
from studies.simulated_streams import RUN_S, STREAMS, Launches, Level, Stream

SEED = 1
"""Of the printed table: it is the same every time."""
ROUND_S = 20.0
"""The visits of a case lie in rounds of this length, one at any time of each."""
MATRIX = {"cache": "cold", "flop": 1, "byte": 1, "arithmetic": "matrix"}
"""Columns of a row that make it a matrix product."""
CLOCK_STEP_HZ, CLOCK_HZ = 15e6, 1.755e9
"""A GPU tells its SM clock in such steps; what it runs at while the level is 1."""
CEILINGS, CEILING_S = 12, 1.2
"""Cases that every run visits first and last, and seconds of a visit to one ..."""
SENTINELS, LOOKS = 2, (0.25, 0.5, 0.75)
"""... and so many of them at these parts of the run too."""


@dataclass(frozen=True)
class Told:
    """What one repetition of a rule publishes, in seconds."""

    value_s: float
    launches: int
    interval_s: tuple[float, float] | None = None
    flags: tuple[str, ...] | None = None
    """Names of the flags that a reader sees; None for a tool that has none."""


class SimulatedRun:
    """One run on a machine with this stream: its level over time, and what is looked at when."""

    def __init__(self, stream: Stream, chance: Generator) -> None:
        """Draw the level from `chance`, which all visits then share."""
        self.stream, self.chance = stream, chance
        self.machine: Level = stream.level(chance)
        self.case: Level = self.machine if stream.follows else np.ones_like
        self.at_s = 0.0 if stream.first else float(chance.uniform(0, RUN_S - ROUND_S))
        """Time of the single visit, seconds from the start of the run."""

    @property
    def typical_level(self) -> float:
        """The level of the case that the run is above for half of its time."""
        return float(np.median(self.case(np.linspace(0, RUN_S, 4001))))

    def launches(self, at_s: float, per_sample: int = 1) -> Launches:
        """The case's launches from then on."""
        return Launches(self.stream, self.case, at_s, per_sample, self.chance)

    def visit(self, at_s: float, settings: Protocol) -> tuple[VisitSamples, int]:
        """(visit, launches)."""
        on_gpu = self.stream.kind == "cuda"
        launches = self.launches(at_s, per_sample(self.stream))
        budget_s = 2 * settings.settle_most_s if on_gpu else 1.0

        def clock_hz() -> float | None:
            level = float(self.machine(np.array([launches.now()]))[0])
            return CLOCK_STEP_HZ * round(CLOCK_HZ / level / CLOCK_STEP_HZ) if on_gpu else None

        step_s = launches.step_s / launches.per_sample
        visit = collect(launches.sample, settings, budget_s, launches.now, step_s, clock_hz=clock_hz)
        return visit, launches.samples * launches.per_sample

    def ceilings(self) -> list[Measurement]:
        """The run's ceilings, visited first, last and some of them in between, which tell how restless it is.

        Their first visits are those after the clock has settled.
        """
        begin_s = 5 * ROUND_S / 4 if self.stream.first else 0.0
        made = []
        for index in range(CEILINGS):
            at_s = [begin_s + CEILING_S * index, RUN_S - CEILING_S * (CEILINGS - index)]
            if index < SENTINELS:
                at_s += [RUN_S * part + CEILING_S * index for part in LOOKS]
            levels = self.machine(np.array(sorted(at_s)))
            medians_s = (levels * (1 + 3e-4 * self.chance.standard_normal(len(at_s)))).tolist()
            made.append(
                row_of(self.stream, [[each_s] for each_s in medians_s], sorted(at_s), f"ceiling {index}")
            )
        return made


def row_of(
    stream: Stream, samples_s: Sequence[Sequence[float]], at_s: Sequence[float], name: str, **columns: Any
) -> Measurement:
    """A row of these visits to a matrix product, the quietest work there is, from a warm cache (no roof)."""
    nothing: dict[str, Any] = {
        field.name: 0 if field.type == "int" else "" for field in FIELDS.values() if field.default is MISSING
    }
    nothing |= MATRIX | {"status": "ok", "cache": "warm", "device_kind": stream.kind, "parameters": name}
    each_s = [sample for visit in samples_s for sample in visit]
    nothing |= {"median_s": float(np.median(each_s)), "samples_s": each_s, "visits": len(samples_s)}
    nothing |= {"visit_samples": [len(visit) for visit in samples_s], "visit_at_s": list(at_s)}
    return Measurement(**nothing | columns)


def per_sample(stream: Stream) -> int:
    """Launches of one of our samples."""
    settings = Protocol()
    return math.ceil(max(settings.least_sample_s, settings.steps * stream.step_s) / stream.launch_s)


def true_noise(stream: Stream, chance: Generator) -> float:
    """Median of a launch's time, as a factor of its nominal time."""
    return float(np.median(stream.noise(chance)(200_000)))


# ---- ours


Look = tuple[VisitSamples, int, float]
"""A visit, its launches, and when it was, seconds from the run's start."""


def _told(
    looks: Sequence[Look], settings: Protocol, run: SimulatedRun, others: Sequence[Measurement] | None
) -> Told:
    """What the row says of these visits, in a run with these other rows; None: alone."""
    kept = [looks[at] for at in settled_ones([visit for visit, _, _ in looks], settings, run.stream.kind)]
    visits = [visit for visit, _, _ in kept]
    said = publish(visits, settings)
    columns = said.columns() | {"settled": 2 * sum(visit.settled for visit in visits) > len(visits)}
    row = row_of(
        run.stream, [visit.samples_s for visit in visits], [at_s for *_, at_s in kept], "it", **columns
    )
    interval_s = said.low_s, said.high_s
    if others is not None:
        row = published(row, within_run([row, *others])[0])
        interval_s = row.low_s or 0.0, row.high_s or math.inf
    return Told(said.median_s, sum(taken for _, taken, _ in looks), interval_s, tuple(flags(row, None)))


def ours(run: SimulatedRun) -> Iterator[tuple[str, Told]]:
    """(name, result) of our protocol with one visit and with several, alone and in a run."""
    kind, others = run.stream.kind, run.ceilings()
    settings = protocol(kind)
    single = [(*run.visit(run.at_s, settings), run.at_s)]
    yield "ours, 1 visit, alone", _told(single, settings, run, None)
    yield "ours, 1 visit, in a run", _told(single, settings, run, others)

    settings = protocol(kind, visits=3)
    several: list[Look] = []
    while len(several) < settings.most_visits:
        begin_s = ROUND_S * len(several)
        at_first = run.stream.first and not several
        at_s = 0.0 if at_first else float(run.chance.uniform(begin_s, begin_s + 0.75 * ROUND_S))
        several.append((*run.visit(at_s, settings), at_s))
        if publish([visit for visit, _, _ in several], settings).stop == "converged":
            break
    yield "ours, 3 to 8 visits, alone", _told(several, settings, run, None)
    yield "ours, 3 to 8 visits, in a run", _told(several, settings, run, others)


# ---- the table


@dataclass(frozen=True)
class CoverageScore:
    """One rule on one stream, over all repetitions. Shares are of the repetitions."""

    stream: str
    rule: str
    launches: float
    """Median number of launches, those of settling included."""
    error: float
    """Median distance from a single launch's true time, as a share of it."""
    error_95: float
    """Its 95th percentile."""
    covered: float | None
    flagged: float | None
    covered_or_flagged: float | None


def simulate(stream: Stream, repetitions: int, seed: int) -> list[CoverageScore]:
    """The rules on one stream, each with the same runs."""
    published: dict[str, list[tuple[Told, float]]] = {}
    place = STREAMS.index(stream) if stream in STREAMS else len(STREAMS)
    launch = true_noise(stream, default_rng([seed, place]))
    for repetition in range(repetitions):
        run = SimulatedRun(stream, default_rng([seed, place, repetition]))
        level_s = stream.launch_s * run.typical_level
        for name, outcome in ours(run):
            published.setdefault(name, []).append((outcome, level_s))
    return [_score(stream.name, name, outcomes, launch) for name, outcomes in published.items()]


def scores(repetitions: int, seed: int) -> Iterator[CoverageScore]:
    """Every rule on every stream, as they come."""
    for stream in STREAMS:
        yield from simulate(stream, repetitions, seed)


def _score(stream: str, rule: str, published: Sequence[tuple[Told, float]], launch: float) -> CoverageScore:
    errors = [abs(outcome.value_s / (level_s * launch) - 1) for outcome, level_s in published]
    truth_s = float(np.median([outcome.value_s for outcome, _ in published]))
    covered = [
        outcome.interval_s[0] <= truth_s <= outcome.interval_s[1]
        for outcome, _ in published
        if outcome.interval_s is not None
    ]
    flagged = [bool(each.flags) for each, _ in published if each.flags is not None]
    either = [a or b for a, b in zip(covered, flagged or [False] * len(covered), strict=True)]
    return CoverageScore(
        stream,
        rule,
        float(np.median([each.launches for each, _ in published])),
        float(np.median(errors)),
        float(np.quantile(errors, 0.95)),
        _share(covered),
        _share(flagged),
        _share(either),
    )


def _share(events: Sequence[bool]) -> float | None:
    return sum(events) / len(events) if events else None


def coverage_lines(scores: Iterable[CoverageScore], repetitions: int, seed: int) -> Iterator[str]:
    """The table, stream by stream as its scores come."""
    yield f"{repetitions} repetitions of each, seed {seed}; truth as studies/interval_coverage.py says"
    head = ("launches", "error", "95 % of", "covered", "flagged", "either")
    stream = ""
    for score in scores:
        if score.stream != stream:
            stream = score.stream
            yield ""
            yield f"{stream:<36}" + "".join(f"{word:>10}" for word in head)
        shares = (score.covered, score.flagged, score.covered_or_flagged)
        errors = "".join(f"{100 * error:>8.2f} %" for error in (score.error, score.error_95))
        yield (
            f"  {score.rule:<34}{score.launches:>10.0f}{errors}"
            + "".join(f"{'-':>10}" if share is None else f"{100 * share:>8.0f} %" for share in shares)
        )
