"""Do the published intervals cover the truth? Rules of sampling on simulated streams, side by side.

`python -m bench coverage`. Per stream and rule, over many repetitions: how many launches it took, how far the
published value is from a launch's true time, how often its interval covers the truth or a flag is raised.

**Truth** is the time at the median of the level over the whole run, times the median of the noise. Where the
level stays or settles that is the median that an endless measurement finds; of two states it is the one that
the run is in for longer. (The median of a mixture of both lies at the edge of one of them, where hardly any
launch is: judged by that one, the processor with two speeds is covered or flagged in 84 and 92 % of the runs,
with one visit and with several; the GPU's two states always.) The error is that against a single launch.
Coverage is judged for what a rule claims to know, the median of its samples: ours are batches of launches,
back to back, which stragglers make up to 0.3 % longer than a launch.

**What one visit cannot know.** A level that lasts for seconds looks like any other to a visit of half a
second. The rows "alone" show it: there most intervals miss, and no flag says so. Hence no row is judged
alone. On a CPU a fixed kernel beside each visit tells the machine's speed then, and its usual one. On a GPU,
whose clock depends on the kernel, the run's repeated cases tell how far a visit may be off (`noise`). The
rows "in a run" are what is published.

The other tools' rules are written anew from their sources. Their clocks are perfect here. They print no
interval of what they publish; the standard error's is that on which it stops.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import MISSING, dataclass, replace
from typing import Any

import numpy as np
from numpy.random import Generator, default_rng

from bench.judge.flags import flags
from bench.sampling.protocol import Protocol, protocol
from bench.sampling.publish import Floats, Step, Visit, estimate, publish, steps
from bench.sampling.stopping import collect
from bench.spec import DeviceKind
from bench.store.schema import FIELDS, Measurement
from bench.validation.simulated_streams import RUN_S, STREAMS, Launches, Level, Stream

SEED = 1
"""Of the printed table: it is the same every time."""
MOST_LAUNCHES = 40_000
"""Other tools' rules get no more."""
ROUND_S = 20.0
"""The visits of a case lie in rounds of this length, one at any time of each."""
SENTINEL_S = 1e-4
"""Seconds of the fixed kernel beside a CPU's visits ..."""
SENTINEL_NOISE = 0.01
"""... and how far it scatters, as a share."""
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
    per_sample: int = 1


class Run:
    """One run on a machine with this stream: its level over time, and what is looked at when."""

    def __init__(self, stream: Stream, chance: Generator) -> None:
        """Draw the level from `chance`, which all visits then share."""
        self.stream, self.chance = stream, chance
        self.machine: Level = stream.level(chance)
        self.case: Level = self.machine if stream.follows else np.ones_like
        self.at_s = 0.0 if stream.first else float(chance.uniform(0, RUN_S - ROUND_S))
        """When a single visit is made."""

    @property
    def typical_level(self) -> float:
        """The level of the case that the run is above for half of its time."""
        return float(np.median(self.case(np.linspace(0, RUN_S, 4001))))

    @property
    def typical_state_s(self) -> float | None:
        """Median seconds of the fixed kernel over the run; None where there is none."""
        if not self.stream.sentinel:
            return None
        return SENTINEL_S * float(np.median(self.machine(np.linspace(0, RUN_S, 401))))

    def launches(self, at_s: float, per_sample: int = 1) -> Launches:
        """The case's launches from then on."""
        return Launches(self.stream, self.case, at_s, per_sample, self.chance)

    def visit(self, at_s: float, settings: Protocol) -> tuple[Visit, float | None, int]:
        """(visit, change of the fixed kernel's time from before to after, launches)."""
        stream = self.stream
        launches = self.launches(at_s, per_sample(stream))
        budget_s = 1.0 if stream.sentinel else 2 * settings.settle_most_s

        def clock_hz() -> float | None:
            level = float(self.machine(np.array([launches.now()]))[0])
            return None if stream.sentinel else CLOCK_STEP_HZ * round(CLOCK_HZ / level / CLOCK_STEP_HZ)

        before_s = self._state_s(at_s)
        step_s = launches.step_s / launches.per_sample
        found = collect(launches.sample, settings, budget_s, launches.now, step_s, clock_hz=clock_hz)
        taken = launches.samples * launches.per_sample
        if not stream.sentinel:
            return found, None, taken
        after_s = self._state_s(launches.now())
        moved = abs(after_s - before_s) / min(after_s, before_s)
        return replace(found, state_s=(before_s + after_s) / 2), moved, taken

    def _state_s(self, at_s: float) -> float:
        scatter = 1 + SENTINEL_NOISE * float(self.chance.standard_normal())
        return SENTINEL_S * scatter * float(self.machine(np.array([at_s]))[0])

    def noise(self) -> float | None:
        """What the run's ceilings, visited first, last and some of them in between, tell of it.

        Their first visits are those after the clock has settled: an unsettled one counts for nothing.
        """
        begin_s = 5 * ROUND_S / 4 if self.stream.first else 0.0
        seen: list[Step] = []
        for index in range(CEILINGS):
            at_s = [begin_s + CEILING_S * index, RUN_S - CEILING_S * (CEILINGS - index)]
            if index < SENTINELS:
                at_s += [RUN_S * part + CEILING_S * index for part in LOOKS]
            levels = self.machine(np.array(sorted(at_s)))
            medians_s = levels * (1 + 3e-4 * self.chance.standard_normal(len(at_s)))
            seen += [Step(by) for by in steps(medians_s.tolist())]
        return estimate(seen)


def per_sample(stream: Stream) -> int:
    """Launches of one of our samples."""
    settings = Protocol()
    return math.ceil(max(settings.least_sample_s, settings.steps * Launches.step_s) / stream.launch_s)


def true_noise(stream: Stream, batch: int, chance: Generator) -> float:
    """Median of the mean of a batch of launches, as a factor of a launch's nominal time."""
    draws = max(20_000, 200_000 // batch)
    return float(np.median(stream.noise(chance)(draws * batch).reshape(draws, batch).mean(axis=1)))


# ---- other tools' rules: of each launch's seconds, in order


def do_bench(each_s: Floats) -> Told:
    """Triton: as many launches as fit into 100 ms by an estimate from five; their mean."""
    count = max(1, int(0.1 / each_s[:5].mean()))
    return Told(float(each_s[:count].mean()), len(each_s[:count]))


def least(each_s: Floats) -> Told:
    """Inductor: a hundred launches, or those that fit into 25 ms; the quickest."""
    count = max(1, min(100, int(0.025 / each_s[:5].mean())))
    return Told(float(each_s[:count].min()), count)


def _running(each_s: Floats) -> tuple[Floats, Floats, Floats]:
    """(mean, standard deviation over the mean, seconds) of the first 1, 2, 3 ... launches."""
    count = np.arange(1, len(each_s) + 1)
    spent_s = np.cumsum(each_s)
    mean = spent_s / count
    square = np.maximum(np.cumsum(each_s**2) / count - mean**2, 0)
    return mean, np.sqrt(square * count / np.maximum(count - 1, 1)) / mean, spent_s


def stdrel(each_s: Floats) -> Told:
    """nvbench: half a second at least, until the spread is below 0.5 % or no longer changes; the mean."""
    mean, noise, spent_s = _running(each_s)
    allowed = int(np.searchsorted(spent_s, 15.0))
    sums, squares = (np.concatenate([[0.0], np.cumsum(values)]) for values in (noise, noise**2))
    for index in range(10, min(len(each_s), allowed)):
        if spent_s[index] <= 0.5:
            continue
        if noise[index] < 0.005:
            return Told(float(mean[index]), index + 1)
        if index > 74 and (index + 1) % 16 == 0:
            begin = max(10, index - 511)
            window = index + 1 - begin
            average = (sums[index + 1] - sums[begin]) / window
            variance = (squares[index + 1] - squares[begin]) / window - average**2
            if variance < (0.05 * average) ** 2:
                return Told(float(mean[index]), index + 1)
    return Told(float(mean[allowed - 1]), allowed)


def standard_error(each_s: Floats) -> Told:
    """hipBLASLt's --adaptive and others: until the mean's 99 % interval is within 0.5 %; the mean."""
    mean, noise, spent_s = _running(each_s)
    share = 2.576 * noise / np.sqrt(np.arange(1, len(each_s) + 1))
    narrow = np.flatnonzero((share[29::10] <= 0.005) & (spent_s[29::10] > 0.05))
    last = 29 + 10 * int(narrow[0]) if len(narrow) else len(each_s) - 1
    value_s, half_s = float(mean[last]), float(share[last] * mean[last])
    return Told(value_s, last + 1, (value_s - half_s, value_s + half_s))


OTHERS: tuple[tuple[str, Callable[[Floats], Told]], ...] = (
    ("do_bench, mean of 100 ms", do_bench),
    ("Inductor, least of 100", least),
    ("nvbench stdrel, mean", stdrel),
    ("standard error 0.5 %, mean", standard_error),
)


# ---- ours


def _told(
    found: Sequence[tuple[Visit, float | None, int]],
    settings: Protocol,
    run: Run,
    noise: float | None,
    in_run: bool,
) -> Told:
    """What the row says of these visits; in its run, or alone."""
    visits = [visit for visit, _, _ in found]
    typical_s = run.typical_state_s if in_run else None
    row = publish(visits, settings, typical_s, noise if in_run else None)
    kept = [visits[index] for index in row.kept]
    moved = [moved for index in row.kept if (moved := found[index][1]) is not None]
    columns = {
        "status": "ok",
        "cache": "warm",  # no roof is asked
        **row.columns(),
        "settled": all(visit.settled for visit in kept),
        "samples_s": [sample for visit in kept for sample in visit.samples_s],
        "visit_samples": [len(visit.samples_s) for visit in kept],
        "sentinel_moved": max(moved, default=None),
    }
    required = [field for field in FIELDS.values() if field.default is MISSING]
    nothing: dict[str, Any] = {field.name: 0 if field.type == "int" else "" for field in required}
    raised = tuple(flags(Measurement(**(nothing | columns)), None))
    launches = sum(taken for _, _, taken in found)
    return Told(row.median_s, launches, (row.low_s, row.high_s), raised, per_sample(run.stream))


def ours(run: Run) -> Iterator[tuple[str, Told]]:
    """(name, what is told) of our protocol with one visit and with several, alone and in a run."""
    kind: DeviceKind = "cpu" if run.stream.sentinel else "cuda"
    noise = run.noise()
    settings = protocol(kind)
    one = [run.visit(run.at_s, settings)]
    yield "ours, 1 visit, alone", _told(one, settings, run, noise, in_run=False)
    yield "ours, 1 visit, in a run", _told(one, settings, run, noise, in_run=True)

    settings = protocol(kind, visits=3)
    several: list[tuple[Visit, float | None, int]] = []
    while len(several) < settings.most_visits:
        begin_s = ROUND_S * len(several)
        at_first = run.stream.first and not several
        at_s = 0.0 if at_first else float(run.chance.uniform(begin_s, begin_s + 0.75 * ROUND_S))
        several.append(run.visit(at_s, settings))
        visits = [visit for visit, _, _ in several]
        if publish(visits, settings).stop == "converged":
            break
    yield "ours, 3 to 8 visits, alone", _told(several, settings, run, noise, in_run=False)
    yield "ours, 3 to 8 visits, in a run", _told(several, settings, run, noise, in_run=True)


# ---- the table


@dataclass(frozen=True)
class Score:
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


def simulate(stream: Stream, repetitions: int, seed: int, with_others: bool = True) -> list[Score]:
    """The rules on one stream, each with the same runs; without other tools' if so wished."""
    published: dict[str, list[tuple[Told, float]]] = {}
    place = STREAMS.index(stream) if stream in STREAMS else len(STREAMS)
    batch = per_sample(stream)
    noise = {size: true_noise(stream, size, default_rng([seed, place])) for size in {1, batch}}
    for repetition in range(repetitions):
        run = Run(stream, default_rng([seed, place, repetition]))
        level_s = stream.launch_s * run.typical_level
        rules = list(ours(run))
        if with_others:
            each_s = run.launches(run.at_s).each_s(MOST_LAUNCHES)
            rules = [(name, rule(each_s)) for name, rule in OTHERS] + rules
        for name, outcome in rules:
            published.setdefault(name, []).append((outcome, level_s))
    return [_score(stream.name, name, outcomes, noise) for name, outcomes in published.items()]


def scores(repetitions: int, seed: int) -> Iterator[Score]:
    """Every rule on every stream, as they come."""
    for stream in STREAMS:
        yield from simulate(stream, repetitions, seed)


def _score(stream: str, rule: str, published: Sequence[tuple[Told, float]], noise: dict[int, float]) -> Score:
    errors = [abs(each.value_s / (level_s * noise[1]) - 1) for each, level_s in published]
    covered = [
        each.interval_s[0] <= level_s * noise[each.per_sample] <= each.interval_s[1]
        for each, level_s in published
        if each.interval_s is not None
    ]
    flagged = [bool(each.flags) for each, _ in published if each.flags is not None]
    either = [a or b for a, b in zip(covered, flagged or [False] * len(covered), strict=True)]
    return Score(
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


def coverage_lines(scores: Iterable[Score], repetitions: int, seed: int) -> Iterator[str]:
    """The table, stream by stream as its scores come."""
    yield f"{repetitions} repetitions of each, seed {seed}; truth as bench/validation says"
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
