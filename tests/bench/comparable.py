"""Synthetic runs to be compared: rows as a run leaves them, on machines whose whims are known.

A machine gives the samples of one visit to a case, relative to the case's true time. Each visit is a row of
its own, as in a journal; a run's rows are joined from them as by the harness (bench/runner/merge_visits.py),
so with the noise of that run. A run has ceilings, visited twice at least.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.signal import lfilter

from bench.judge import frame, read_runs
from bench.judge.compare import compare
from bench.judge.comparison import JUDGED, Compared, Comparison, Verdict
from bench.judge.comparison_side import Bound
from bench.runner.merge_visits import join, joined
from bench.sampling.protocol import protocol
from bench.store.schema import Measurement
from tests.bench.rows import again, lasting, stored
from tests.our_sweeps import role

GPU: dict[str, Any] = {
    **{"device": "h100", "device_kind": "cuda", "threads": 1, "implementation": "triton", "driver": "550.1"},
    **{"power_limit_w": 700.0, "ecc": "on", "mig": "off", "persistence": "on"},
}
CPU: dict[str, Any] = {"governor": "performance"}
"""Columns of a row, by the kind of device."""
LIBRARY = GPU | {"implementation": "aten"}
KNOWN = 10
"""Runs of a device after which its own noise between runs is known."""

Floats = npt.NDArray[np.float64]
BYTE = 10**8
FLOP = 10**10
BASE_S = 1e-3
NOTHING = {"flop": 0, "byte": 0, "byte_written": 0, "byte_moved": 0}
SAMPLES = 60
"""Samples of a visit."""
CEILINGS: Sequence[Bound] = ("memory",) * 8 + ("core",) * 7
"""What bounds each ceiling of a run, beside the launch."""


class Seen(NamedTuple):
    """One visit, relative: samples to the true time, and the state of the clock to its usual one."""

    samples: Floats
    slowness: float
    """What a fixed kernel beside the visit takes, over what it usually takes."""


Machine = Callable[[np.random.Generator, Bound, int], Seen]
"""(chance, what bounds the case, how many samples) -> a visit."""


def clean(chance: np.random.Generator, bound: Bound, count: int) -> Seen:
    """Half a percent of noise, and two tenths from visit to visit."""
    level = math.exp(0.002 * chance.standard_normal())
    return Seen(level * np.exp(0.005 * chance.standard_normal(count)), _fixed(chance))


def quiet(chance: np.random.Generator, bound: Bound, count: int) -> Seen:
    """A GPU that holds its clock: three tenths of a percent of noise, and one tenth from visit to visit."""
    level = math.exp(0.001 * chance.standard_normal())
    return Seen(level * np.exp(0.003 * chance.standard_normal(count)), 1.0)


def stragglers(chance: np.random.Generator, bound: Bound, count: int) -> Seen:
    """One sample in twenty takes half as long again."""
    seen = clean(chance, bound, count)
    return seen._replace(samples=seen.samples * np.where(chance.random(count) < 0.05, 1.5, 1.0))


def drifting(chance: np.random.Generator, bound: Bound, count: int) -> Seen:
    """Samples that follow one another: AR(1), r = 0.95, standard deviation 1 %."""
    steps = chance.standard_normal(count) * math.sqrt(1 - 0.95**2)
    steps[0] = chance.standard_normal()
    walk = lfilter([1.0], [1.0, -0.95], steps)
    return Seen(np.exp(0.01 * walk + 0.002 * chance.standard_normal(count)), _fixed(chance))


def two_states(chance: np.random.Generator, bound: Bound, count: int) -> Seen:
    """The cores' clock has two states 9 % apart, one of them for each visit; memory has one speed."""
    seen = clean(chance, bound, count)
    slowness = 1.09 if chance.random() < 0.5 else 1.0
    samples = seen.samples * (slowness if bound == "core" else 1.0)
    return Seen(samples, slowness * _fixed(chance))


def still(chance: np.random.Generator, bound: Bound, count: int) -> Seen:
    """A machine that hardly moves."""
    return Seen(np.exp(1e-4 * chance.standard_normal(count)), 1.0)


def _fixed(chance: np.random.Generator) -> float:
    """The fixed kernel's own noise."""
    return math.exp(0.005 * chance.standard_normal())


def visits_to(
    case: int, seen: Sequence[Seen], bound: Bound = "core", scale: float = 1.0, **changes: Any
) -> list[Measurement]:
    """Rows of these visits to the case of this number, its true time `scale` x BASE_S.

    `asked` is how many visits were asked for; other `changes` are columns by name.
    """
    kind = changes.get("device_kind", "cpu")
    settings = protocol(kind, changes.pop("asked", len(seen)))
    memory = bound == "memory"
    byte = BYTE if memory else BYTE // 100
    columns: dict[str, Any] = {
        **{"run_id": "a", "utc": "2026-11-21T10:00:00.000+00:00", "commit": "4f2a91c"},
        **{"device": "cpu-simulated", "device_name": "Simulated", "device_kind": "cpu", "device_id": "1f"},
        **{"sm_count": 2, "cache_byte": 10**6, "threads": 2, "driver": "6.1", "torch": "2.13.0"},
        **{"triton": "3.7.1", "libraries": "MKL 2024.2", "sweep": "gemm/square", "operator": "gemm"},
        **{"implementation": "onednn", "arithmetic": "vector" if memory else "matrix", "rate": "flop"},
        **{"dtype": "float32", "parameters": json.dumps({"dtype": "float32", "m": case}), "cache": "cold"},
        **{"protocol": settings.hash, "protocol_version": settings.version, "regime": "sustained"},
        **{"clock": "host" if kind == "cpu" else "graph", "fill": "uniform", "seed": 1, "status": "ok"},
        **{"stop": "converged", "settled": True, "settle_s": 0.1, "step_s": 1e-9},
        **{"flop": 0 if memory else FLOP, "byte": byte, "byte_written": byte // 2, "byte_moved": byte},
    }
    columns |= changes
    columns.setdefault("role", role(columns["sweep"]))
    made = []
    for number, visit in enumerate(seen):
        samples_s = visit.samples * scale * BASE_S
        clock = {"sm_clock_hz": 1.9e9 / visit.slowness} if kind == "cuda" else {}
        looked: dict[str, Any] = {"visit": number, "samples_s": samples_s.tolist()}
        looked |= {"median_s": float(np.median(samples_s))}
        made.append(Measurement(**(clock | columns | looked)))
    return made


def row(
    case: int, seen: Sequence[Seen], bound: Bound = "core", scale: float = 1.0, **changes: Any
) -> Measurement:
    """The row of these visits, of a run that has no noise beside it; `changes` as `visits_to` takes them."""
    visits = {name: changes.pop(name) for name in ("asked", "device_kind", "sweep") if name in changes}
    none = {"run_half": 0.0, "noise_visits": 0.0, "noise_runs": 0.0, "noise_by": "history"}
    return replace(join(visits_to(case, seen, bound, scale, **visits)), **none | changes)


def run(
    chance: np.random.Generator,
    machine: Machine,
    cases: int,
    visits: int,
    effect: float = 1.0,
    samples: int = SAMPLES,
    between_runs: float = 0.0,
    earlier: Sequence[Sequence[Measurement]] = (),
    **changes: Any,
) -> list[Measurement]:
    """A run: 16 ceilings with two visits or more, and cases of which every second is at memory's speed.

    The true times of the cases, not of the ceilings, are `effect` x those of another run. In this run each
    case and ceiling keeps a level of its own: off its true time by `between_runs`, standard deviation of ln.
    `earlier` are runs of the device that tell how far its runs differ.
    """

    def looked(case: int, bound: Bound, times: int, scale: float, **more: Any) -> list[Measurement]:
        seen = [machine(chance, bound, samples) for _ in range(times)]
        level = math.exp(between_runs * chance.standard_normal())
        return visits_to(case, seen, bound, level * scale, **({"asked": visits} | changes | more))

    twice = max(2, visits)
    made = looked(10**6 - 1, "core", 2, 1e-3, sweep="ceilings/launch", **NOTHING)
    for number, bound in enumerate(CEILINGS):
        # Quicker than the cases, so that none of these is above the roof.
        quicker, sweep = (1 / 1.12, "ceilings/stream") if bound == "memory" else (1 / 1.3, "ceilings/gemm")
        made += looked(10**6 + number, bound, twice, quicker, sweep=sweep)
    for case in range(cases):
        if case % 2:
            made += looked(case, "memory", visits, effect, sweep="stream/sizes")
        else:
            made += looked(case, "core", visits, effect, sweep="gemm/square")
    return joined(made, earlier)


def runs_of(rows: Sequence[Measurement]) -> list[frame.DeviceRun]:
    """The runs of these rows as a result file gives them back, without the disk."""
    return read_runs.runs(stored(rows))


def timed(
    chance: np.random.Generator,
    scale: float = 1.0,
    machine: Machine = still,
    visits: int = 3,
    bound: Any = "core",
    case: int = 0,
    **changes: Any,
) -> Measurement:
    """A row of one case, on a GPU unless said otherwise, of a run that had no noise of its own."""
    columns = (CPU if changes.get("device_kind") == "cpu" else GPU) | changes
    seen = [machine(chance, bound, 60) for _ in range(visits)]
    return row(case, seen, bound, scale, **columns)


def compared(before: Sequence[Measurement], after: Sequence[Measurement], *across: str) -> Comparison:
    """These rows held against others, which are the run `b`."""
    return compare(runs_of(before), runs_of(again(after, run_id="b")), across)


def judged(before: Measurement, after: Measurement, *across: str) -> Compared:
    """The verdict on one case. Nothing is known of the runs but these two rows."""
    (found,) = compared([before], [after], *across).cases
    return found


# ---- verdicts on many pairs of runs

CASES = 60
"""Cases of a run, beside its ceilings."""


class Shares(NamedTuple):
    """Verdicts on the cases (without ceilings) of many pairs of runs."""

    counts: Counter[Verdict]
    """Of the comparable cases."""

    @property
    def comparable(self) -> int:
        """Cases with a verdict on their times."""
        return self.counts.total()

    def of(self, *verdicts: Verdict) -> float:
        """Share of the comparable ones."""
        return sum(self.counts[verdict] for verdict in verdicts) / self.comparable


def shares(
    chance: np.random.Generator,
    machine: Machine,
    visits: int,
    effect: float,
    pairs: int,
    kind: str = "cpu",
    between_runs: float = 0.0,
    earlier: int = 0,
) -> Shares:
    """The verdicts over so many pairs of runs of CASES cases each, the second run slower by `effect`.

    `earlier`: so many runs of the device tell how far its runs differ; otherwise that is as usual.
    """
    facts: dict[str, Any] = {"device_kind": kind, "between_runs": between_runs}
    facts["earlier"] = [run(chance, machine, 8, 1, implementation="cublas", **facts) for _ in range(earlier)]
    counts: Counter[Verdict] = Counter()
    for _ in range(pairs):
        before = run(chance, machine, CASES, visits, **facts)
        after = run(chance, machine, CASES, visits, 1 + effect, run_id="b", **facts)
        found = compare(runs_of(before), runs_of(after))
        counts.update(one.verdict for one in found.of(*JUDGED) if role(one.case.sweep) == "measurement")
    return Shares(counts)


def slowed(one: Measurement, factor: float, ceilings: float = 1.0) -> Measurement:
    """So many times as long as the case or the ceiling took."""
    return lasting(one, factor if one.role == "measurement" else ceilings)


def verdicts(found: Comparison) -> set[tuple[str, str]]:
    """Verdicts and reasons of the cases that are no ceilings."""
    return {(one.verdict, one.reason) for one in found.cases if one.role == "measurement"}
