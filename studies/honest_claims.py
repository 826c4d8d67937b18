"""How often the judge of claims is wrong, where the truth is known: `python -m studies.honest_claims`.

A simulated run holds ceilings and rows for each kind of test (tests/bench/claims_made.py) whose true effects
are known. Each visit draws its samples from a machine, visits become rows as they always do
(bench/runner/merge_visits.py), and the judge gets the rows. Of each effect it is asked about five bars: the
effect itself, and bars that the effect is 1 % and 3 % above or below.

An effect at the bar is neither above nor below it, so any decision is wrong there. Beyond the bar the
opposite word is wrong. UNDECIDED is never wrong, and never right.

The machines are GPUs that are quiet, drift or change their clock (simulated), and the committed runs of CPUs.
A row on one of these takes the visits of a row that was measured there: their samples, over what the case
takes in the middle of all runs of that commit. The level of the run, the median of the visits next in time,
is that of the time of the simulated visit, not that of the measured one.

    python -m studies.honest_claims [SEED [RUNS A MACHINE]]
"""

from __future__ import annotations

import dataclasses
import math
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bench.judge.claims import Declared, judge
from bench.judge.flags import SUSPECT
from bench.judge.read_runs import read, runs
from bench.judge.work_class import WorkClass, work_of
from bench.model.ceiling import visit_medians_s
from bench.model.roofline import row_terms
from bench.runner.merge_visits import joined
from bench.sampling.protocol import protocol
from bench.store.schema import Measurement
from bench.sweep.claims import Claim
from studies.simulated_streams import RUN_S, Level, slow_drift, steady, two_states
from tests.bench.claims_made import KINDS, timed, truth
from tests.plots.synthetic import H100, ceilings

Floats = npt.NDArray[np.float64]
REFERENCE = Path(__file__).parents[1] / "results/reference"
BEYOND = (-0.03, -0.01, 0.0, 0.01, 0.03)
"""How far the effect is beyond the bar, as a share of the bar."""
ROUNDS = 3
"""Visits of a row, one in each third of the run; a row of a replayed run has as many as it had there."""
EARLIER = 10
"""Runs of a GPU before the one that is judged."""
NEAR = 5
"""Visits next in time whose median is the level of a replayed run."""
MOST_SAMPLES = 100
"""Most samples of a visit that are replayed."""
SENTINELS = (2, 10)
"""The ceilings that are visited five times: the first of memory, and of arithmetic."""
SHARES = 1000
"""Rows of which a share is taken: 3 % beyond the bar is not to be told from fewer."""


LEFT_OUT = SUSPECT - {"noisy", "above_roof"}
"""Flags that are raised beside a row's samples: they are not raised anew where these are replayed."""


class Visit(NamedTuple):
    """One visit, relative to what its case takes."""

    at: float
    """Time, as a share of the run."""
    samples: Floats


Whims = Callable[[WorkClass, Sequence[float]], list[Visit]]
"""(kind of work, when a row may be visited, shares of the run) -> the visits to it."""


class Machine(NamedTuple):
    """What runs are made on."""

    name: str
    kind: str
    """Of device: cpu | cuda."""
    run: Callable[[np.random.Generator], Whims]
    """The whims of one run."""


# ---- machines


def simulated(level: Callable[[np.random.Generator], Level], chance: np.random.Generator) -> Whims:
    """A level over the run, a row's own 0.1 % in it, another 0.1 % from visit to visit, 0.3 % of jitter."""
    of_run = level(chance)

    def visits(work: WorkClass, at: Sequence[float]) -> list[Visit]:
        own = 0.001 * chance.standard_normal()
        return [
            Visit(
                time,
                float(of_run(np.array([time * RUN_S]))[0])
                * np.exp(own + 0.001 * chance.standard_normal() + 0.003 * chance.standard_normal(40)),
            )
            for time in at
        ]

    return visits


Donors = Mapping[WorkClass, Sequence[Sequence[Visit]]]
"""Kind of work -> rows of a run -> their visits, relative to what their cases take."""


@cache
def donors(folder: Path) -> list[Donors]:
    """Of each run of one machine, the rows of cases that several runs of the same commit measured.

    Rows that were disturbed, or had not settled, the judge leaves out, too. The runs without a commit have
    slowdowns that were written into them.
    """
    seconds: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    measured = read(sorted(folder.glob("*.parquet")))
    timed_rows = [
        [
            row
            for row, names in zip(run.rows, run.flags, strict=True)
            if row.is_timed and row.samples_s and row.commit and LEFT_OUT.isdisjoint(names)
        ]
        for run in measured
    ]
    for of_run in timed_rows:
        for row in of_run:
            seconds[row.case, row.protocol, row.commit].append(float(np.median(visit_medians_s(row))))
    found: list[Donors] = []
    for of_run in timed_rows:
        end_s = max((max(row.visit_at_s or [0.0]) for row in of_run), default=0.0)
        by_work: dict[WorkClass, list[list[Visit]]] = defaultdict(list)
        for row in of_run:
            of_case = seconds[row.case, row.protocol, row.commit]
            if end_s and row.visit_at_s and len(of_case) > 1:
                by_work[work_of(row)].append(_visits(row, float(np.median(of_case)), end_s))
        if len(by_work[WorkClass.COMPUTE]) > NEAR and len(by_work[WorkClass.MEMORY]) > NEAR:
            found.append(by_work)
    return found


def _visits(row: Measurement, usual_s: float, end_s: float) -> list[Visit]:
    parts = [np.asarray(part, dtype=np.float64)[:MOST_SAMPLES] / usual_s for part in row.visit_samples_s]
    at = [at_s / end_s for at_s in row.visit_at_s or ()]
    outvoted = visit_medians_s(row)[: -len(parts)]  # of these only the medians were kept
    shape = parts[0] / float(np.median(parts[0])) / usual_s
    before = [
        Visit(at[0] * (index + 0.5) / len(outvoted), shape * median_s)
        for index, median_s in enumerate(outvoted)
    ]
    return [*before, *map(Visit, at, parts)]


def replayed(folder: Path, chance: np.random.Generator) -> Whims:
    """One of the runs of this machine, its rows at other times."""
    by_run = donors(folder)
    of_run = by_run[int(chance.integers(len(by_run)))]
    level = {work: _level(rows) for work, rows in of_run.items()}

    def visits(work: WorkClass, at: Sequence[float]) -> list[Visit]:
        rows = of_run.get(work) or of_run[WorkClass.MEMORY]  # few of these runs have small kernels
        level_of = level.get(work) or level[WorkClass.MEMORY]
        donor = rows[int(chance.integers(len(rows)))]
        times = [*at, *chance.random(max(0, len(donor) - len(at)))]
        times = sorted(chance.permutation(times)[: len(donor)].tolist())
        return [
            Visit(time, visit.samples * math.exp(level_of(time) - level_of(visit.at)))
            for time, visit in zip(times, donor, strict=True)
        ]

    return visits


def _level(rows: Iterable[Sequence[Visit]]) -> Callable[[float], float]:
    """ln of how far off a run was at a time: the median of the visits next to it."""
    visits = [visit for row in rows for visit in row]
    at = np.array([visit.at for visit in visits])
    off = np.log([float(np.median(visit.samples)) for visit in visits])
    return lambda time: float(np.median(off[np.argsort(np.abs(at - time))[:NEAR]]))


def machines() -> list[Machine]:
    """Those of the table."""
    folders = sorted({path.parent for path in REFERENCE.glob("**/cpu-*/*.parquet")})
    folders = [folder for folder in folders if len(list(folder.glob("*.parquet"))) > 1]  # pairs are wanted
    return [
        Machine("GPU, quiet", "cuda", partial(simulated, steady)),
        Machine("GPU, 2 % up and down", "cuda", partial(simulated, slow_drift)),
        Machine("GPU, two clocks 3 % apart", "cuda", partial(simulated, two_states(0.03, 20.0))),
        *(
            Machine(f"CPU, {folder.relative_to(REFERENCE).parts[0]}", "cpu", partial(replayed, folder))
            for folder in folders
        ),
    ]


# ---- rows


class Family(NamedTuple):
    """Rows with one true effect, and the test that asks for it."""

    rows: Sequence[Measurement]
    """Each as it is in truth."""
    test: Mapping[str, Any]
    """Name of the kind of test -> the test, as a claim has it."""
    effect: float


TIMES = (
    "ratio", "ratio, memory", "slope", "slope, memory", "spread", "spread, memory", "spread of nothing",
    "spread of nothing, memory", "bound", "jumps", "knee", "knee, ridge",
)  # fmt: skip
"""Families of rows whose times are judged: matrix products but for `memory`, which is any other work."""
NAMES = (*TIMES, "share")
"""All of them. What a share counts has no noise, and hangs on no machine."""


def family(name: str, chance: np.random.Generator) -> Family:
    """The one of this name."""
    kind, _, of = name.partition(", ")
    rows: Iterable[Measurement]
    if kind == "spread of nothing":
        kind, effect = "spread", 1.0
        rows = (
            timed(1e-6 * m, m=m, layout=how)
            for m in range(256, 4096, 256)
            for how in ("NN", "NT", "TN", "TT")
        )
    elif kind == "share":
        effect = 0.95
        holds = chance.random(SHARES) < effect
        rows = (timed(1e-1, k=4000 + k, kernels="gmma" if hold else "simt") for k, hold in enumerate(holds))
    else:
        rows, effect = KINDS[kind][0](chance, 0.0), truth(kind)
    made, test = list(rows), KINDS[kind][1]
    if of == "memory":
        made = [dataclasses.replace(row, arithmetic="vector") for row in made]
    elif of == "ridge":
        effect, test = effect * test["to"] / _ridge(made), test | {"to": "ridge"}
    return Family(made, {kind: test}, effect)


def _ridge(rows: Sequence[Measurement]) -> float:
    """FLOP for each byte, in truth."""
    (roofs,) = runs(ceilings(H100))
    terms = [(row, *row_terms(row, roofs.roof_of(row))[1:]) for row in rows]
    return float(
        np.median([row.flop / row.byte * memory_s / compute_s for row, memory_s, compute_s in terms])
    )


def rows_of(chance: np.random.Generator, machine: Machine, made: Mapping[str, Family]) -> list[Measurement]:
    """The rows of one run, ceilings included. Of a GPU earlier runs tell how far its runs differ."""
    settings = protocol("cpu" if machine.kind == "cpu" else "cuda", ROUNDS)
    facts: dict[str, Any] = {
        "device_kind": machine.kind,
        "clock": "host" if machine.kind == "cpu" else "graph",
    }
    facts |= {"protocol": settings.hash, "protocol_version": settings.version, "regime": "sustained"}

    def visits(whims: Whims, row: Measurement, at: Sequence[float]) -> Iterator[Measurement]:
        for number, (time, samples) in enumerate(whims(work_of(row), at)):
            samples_s = (row.median_s or math.nan) * samples
            looked: dict[str, Any] = {"visit": number, "samples_s": samples_s.tolist(), "step_s": 0.0}
            looked |= {"median_s": float(np.median(samples_s)), "visit_at_s": [time * RUN_S]}
            yield dataclasses.replace(row, low_s=None, high_s=None, run_half=None, **facts, **looked)

    def roofs(whims: Whims) -> list[Measurement]:
        sentinel = (0.0, 0.25, 0.5, 0.75, 1.0)
        at = [sentinel if index in SENTINELS else (0.0, 1.0) for index, _ in enumerate(ceilings(H100))]
        return [
            look for row, times in zip(ceilings(H100), at, strict=True) for look in visits(whims, row, times)
        ]

    earlier = [joined(roofs(machine.run(chance))) for _ in range(EARLIER if machine.kind == "cuda" else 0)]
    whims = machine.run(chance)
    of_run = roofs(whims)
    every = [
        dataclasses.replace(row, sweep=f"gemm/{name}") for name, family in made.items() for row in family.rows
    ]
    orders = [chance.permutation(len(every)) for _ in range(ROUNDS)]
    for place, row in enumerate(every):
        at = [(number + order[place] / len(every)) / ROUNDS for number, order in enumerate(orders)]
        of_run += visits(whims, row, at[:1] if "share" in row.sweep else at)
    return joined(of_run, earlier)


# ---- verdicts


def verdicts(
    chance: np.random.Generator, machine: Machine, names: Sequence[str]
) -> Iterator[tuple[str, float, str]]:
    """(family, how far beyond the bar, verdict) of one run that measures these families."""
    made = {name: family(name, chance) for name in names}
    found = runs(rows_of(chance, machine, made))
    declared = [
        Declared(f"gemm/{name}", (f"gemm/{name}",), [_claim(each, beyond) for beyond in BEYOND])
        for name, each in made.items()
    ]
    for judged, beyond in zip(judge(found, declared), BEYOND * len(made), strict=True):
        yield judged.declared.name.removeprefix("gemm/"), beyond, judged.verdict


def _claim(of: Family, beyond: float) -> Claim:
    """That the effect is above a bar that it is this share beyond."""
    expect = f"above {of.effect / (1 + beyond):.6f}"
    return Claim.model_validate({"id": "MM-01", "says": "x", **of.test, "expect": expect})


class Counts:
    """Verdicts of many runs on one family."""

    def __init__(self) -> None:
        self.at: dict[float, Counter[str]] = defaultdict(Counter)

    def wrong(self, *beyond: float) -> float:
        """Share of the verdicts at these distances that are wrong."""
        wrong = sum(
            self.at[each][word]
            for each in beyond
            for word, is_wrong in (("SUPPORTED", each <= 0), ("CONTRADICTED", each >= 0))
            if is_wrong
        )
        return wrong / sum(self.at[each].total() for each in beyond)

    def right(self, *beyond: float) -> float:
        """Share of the verdicts at these distances that are right."""
        right = sum(self.at[each]["SUPPORTED" if each > 0 else "CONTRADICTED"] for each in beyond)
        return right / sum(self.at[each].total() for each in beyond)


def counted(seed: int, machine: Machine, repetitions: int, names: Sequence[str]) -> dict[str, Counts]:
    """Family -> the verdicts of so many runs."""
    counts: dict[str, Counts] = defaultdict(Counts)
    for repetition in range(repetitions):
        chance = np.random.default_rng([seed, repetition])
        for name, beyond, word in verdicts(chance, machine, names):
            counts[name].at[beyond][word] += 1
    return counts


def table(seed: int, repetitions: int) -> Iterator[str]:
    """A line for each machine and family, and one for all families of a machine together."""
    yield f"seed {seed}, {repetitions} runs a machine"
    yield ""
    yield "| machine | test | wrong: at the bar | 1 % beyond | 3 % beyond | right: 1 % beyond | 3 % beyond |"
    yield "|---|---|---|---|---|---|---|"
    for place, machine in enumerate(machines()):
        found = counted(seed, machine, repetitions, TIMES if place else NAMES)
        shares = {
            name: [of.wrong(0.0), *(part(-by, by) for part in (of.wrong, of.right) for by in (0.01, 0.03))]
            for name, of in found.items()
        }
        shares["all"] = np.mean(list(shares.values()), axis=0).tolist()
        for name, of_name in shares.items():
            yield f"| {machine.name} | {name} | " + " | ".join(f"{share:.1%}" for share in of_name) + " |"


if __name__ == "__main__":
    given = [int(text) for text in sys.argv[1:]]
    for line in table(*given, *(0, 60)[len(given) :]):
        print(line, flush=True)
