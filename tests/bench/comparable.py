"""Synthetic runs to be compared: rows as a run leaves them, on machines whose whims are known.

A machine gives the samples of one visit to a case, relative to the case's true time. Rows are made of visits
as the harness makes them (bench/sampling/stopping.py: publish). A run has ceilings, visited twice at least.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.signal import lfilter

from bench.judge import frame
from bench.judge.compare import Compared, compare
from bench.judge.noise import Bound
from bench.sampling.protocol import protocol
from bench.sampling.publish import Step, Visit, estimate, publish, steps
from bench.store.schema import Measurement
from tests.bench.rows import stored
from tests.our_sweeps import role

GPU: dict[str, Any] = {
    **{"device": "h100", "device_kind": "cuda", "threads": 1, "implementation": "triton", "driver": "550.1"},
    **{"power_limit_w": 700.0, "ecc": "on", "mig": "off", "persistence": "on"},
}
CPU: dict[str, Any] = {"governor": "performance"}
"""Columns of a row, by the kind of device."""

Floats = npt.NDArray[np.float64]
BYTE = 10**8
FLOP = 10**10
BASE_S = 1e-3
NOTHING = {"flop": 0, "byte": 0, "byte_written": 0, "byte_moved": 0}
SAMPLES = 60
"""Samples of a visit."""


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


def row(
    case: int,
    visits: Sequence[Seen],
    bound: Bound = "core",
    scale: float = 1.0,
    typical: float | None = None,
    noise: float | None = None,
    **changes: Any,
) -> Measurement:
    """A row of these visits, of the case of this number, its true time `scale` x BASE_S.

    `typical` is the slowness that was usual in the run, `noise` what its visits differ by. `changes` are
    columns by name.
    """
    kind = changes.get("device_kind", "cpu")
    settings = protocol(kind, changes.pop("asked", len(visits)))
    taken = [
        Visit(
            tuple((one.samples * scale * BASE_S).tolist()),
            True,
            0.1,
            "converged",
            1e-9,
            one.slowness if kind == "cpu" else None,
        )
        for one in visits
    ]
    found = publish(taken, settings, typical if kind == "cpu" else None, noise)
    kept = [visits[place] for place in found.kept]
    known = math.isfinite(found.high_s)
    slowness = float(np.mean([one.slowness for one in kept]))
    memory = bound == "memory"
    byte = BYTE if memory else BYTE // 100
    sentinels = {"sentinel_before_s": 1e-4 * slowness, "sentinel_after_s": 1e-4 * slowness}
    columns: dict[str, Any] = {
        **{"run_id": "a", "utc": "2026-11-21T10:00:00.000+00:00", "commit": "4f2a91c"},
        **{"device": "cpu-simulated", "device_name": "Simulated", "device_kind": "cpu", "device_id": "1f"},
        **{"sm_count": 2, "cache_byte": 10**6, "threads": 2, "driver": "6.1", "torch": "2.13.0"},
        **{"triton": "3.7.1", "libraries": "MKL 2024.2", "sweep": "gemm/square", "operator": "gemm"},
        **{"implementation": "onednn", "arithmetic": "vector" if memory else "matrix", "rate": "flop"},
        **{"dtype": "float32", "parameters": json.dumps({"dtype": "float32", "m": case}), "cache": "cold"},
        **{"protocol": settings.hash, "protocol_version": settings.version, "regime": settings.regime},
        **{"clock": "host" if kind == "cpu" else "graph", "fill": "uniform", "seed": 1, "status": "ok"},
        **{"median_s": found.median_s, "low_s": found.low_s if known else None},
        **{"high_s": found.high_s if known else None, "stop": found.stop, "settled": True},
        "samples_s": [sample for place in found.kept for sample in taken[place].samples_s],
        **{"visits": len(kept), "visit_samples": [len(one.samples) for one in kept]},
        **{"flop": 0 if memory else FLOP, "byte": byte, "byte_written": byte // 2, "byte_moved": byte},
        **(sentinels if kind == "cpu" else {"sm_clock_hz": 1.9e9 / slowness}),
        **({} if len(kept) == len(taken) else _aside(taken, found.kept)),
    }
    columns |= changes
    return Measurement(**({"role": role(columns["sweep"])} | columns))


def _aside(taken: Sequence[Visit], kept: Sequence[int]) -> dict[str, Any]:
    others = [one for place, one in enumerate(taken) if place not in kept]
    medians = [float(np.median(one.samples_s)) for one in others]
    return {"set_aside": ["earlier"] * len(others), "set_aside_s": medians}


def run(
    chance: np.random.Generator,
    machine: Machine,
    cases: int,
    visits: int,
    effect: float = 1.0,
    samples: int = SAMPLES,
    **changes: Any,
) -> list[Measurement]:
    """A run: 16 ceilings with two visits or more, and cases of which every second is at memory's speed.

    The true times of the cases, not of the ceilings, are `effect` x those of another run.
    """

    def looked(bound: Bound, times: int) -> list[Seen]:
        return [machine(chance, bound, samples) for _ in range(times)]

    bounds: list[Bound] = ["memory" if case % 2 else "core" for case in range(cases)]
    seen = [looked(bound, visits) for bound in bounds]
    ceilings: list[Bound] = ["memory"] * 8 + ["core"] * 7
    seen_ceilings = [looked(bound, max(2, visits)) for bound in ceilings]
    typical = float(np.median([one.slowness for found in [*seen, *seen_ceilings] for one in found]))
    levels = [[float(np.median(one.samples)) for one in found] for found in [*seen, *seen_ceilings]]
    noise = estimate(Step(by) for medians in levels for by in steps(medians))
    common: dict[str, Any] = {"typical": typical, "asked": visits} | changes
    rows = [row(10**6 - 1, looked("core", 2), scale=1e-3, sweep="ceilings/launch", **common, **NOTHING)]
    for number, (bound, found) in enumerate(zip(ceilings, seen_ceilings, strict=True)):
        # Quicker than the cases, so that none of these is above the roof.
        quicker, sweep = (1 / 1.12, "ceilings/stream") if bound == "memory" else (1 / 1.3, "ceilings/gemm")
        rows.append(row(10**6 + number, found, bound, quicker, sweep=sweep, **common))
    for case, (bound, found) in enumerate(zip(bounds, seen, strict=True)):
        sweep = "stream/sizes" if bound == "memory" else "gemm/square"
        rows.append(row(case, found, bound, effect, noise=noise, sweep=sweep, **common))
    return rows


def runs_of(rows: Sequence[Measurement]) -> list[frame.Run]:
    """The runs of these rows as a result file gives them back, without the disk."""
    return frame.runs(stored(rows))


def timed(
    chance: np.random.Generator,
    scale: float = 1.0,
    machine: Machine = still,
    visits: int = 3,
    bound: Any = "core",
    case: int = 0,
    **changes: Any,
) -> Measurement:
    """A row of one case, on a GPU unless said otherwise."""
    kind = CPU if changes.get("device_kind") == "cpu" else GPU
    seen = [machine(chance, bound, 60) for _ in range(visits)]
    return row(case, seen, bound, scale, **(kind | changes))


def with_interval(one: Measurement, share: float) -> Measurement:
    assert one.median_s is not None
    return replace(one, low_s=one.median_s * (1 - share), high_s=one.median_s * (1 + share))


def both(*rows: Measurement) -> list[Measurement]:
    return [replace(one, run_id="b") for one in rows]


def without_time(one: Measurement, status: str, reason: str = "it says why") -> Measurement:
    gone = dict.fromkeys(("median_s", "low_s", "high_s", "samples_s", "stop", "settled"))
    return replace(one, status=status, reason=reason, clock="", **gone)  # type: ignore[arg-type]


def judged(before: Measurement, after: Measurement, *across: str) -> Compared:
    """The verdict on one case. Nothing is known of the runs but these two rows."""
    (found,) = compare(runs_of([before]), runs_of([replace(after, run_id="b")]), across).cases
    return found
