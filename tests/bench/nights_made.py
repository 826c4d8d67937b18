"""Synthetic months: histories whose every whim is known, as `bench.judge.history.series` would read them.

`made` gives quiet nights with the noise of a real machine; each of the other functions returns a copy with
one thing done to it, so that a test says what happened in the order in which it happened:

    history = doubted(stepped(made(chance), [12], 30, 0.05), [12], [31])
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pandas as pd

from bench.judge.comparability import Difference
from bench.judge.history.series import Floats, History, Night
from bench.store.schema import RunKey

FIRST = datetime(2026, 1, 1, 2, 0, tzinfo=UTC)
CLASSES = tuple(
    (operator, implementation, bound)
    for implementation in ("triton", "aten", "inductor", "cublas", "triton-persistent")
    for operator, bound in (
        *(("gemm", "core"), ("activations", "memory"), ("batchnorm", "memory")),
        *(("pooling", "memory"), ("linear", "core"), ("softmax", "memory")),
    )
)
"""Operator, implementation, what bounds it; taken in this order, round again if that is not enough."""


@dataclass(frozen=True)
class Noise:
    """What a series does with nothing changed; the defaults are what a GPU box is taken to do."""

    between: float = 0.01
    """Standard deviation of ln(median seconds) between nights."""
    within: float = 0.004
    """Of the samples of one night."""
    samples: int = 30
    outliers: float = 0.05
    """Share of a series' nights that are slower by one of `outlying`."""
    outlying: tuple[float, float] = (0.03, 0.08)
    bounded: bool = False
    """Whether no night is farther out than 1.7 standard deviations, so that luck raises nothing."""

    @property
    def half(self) -> float:
        """Half of the 95 % interval of a night's median, ln."""
        return 1.96 * 1.2533 * self.within / float(np.sqrt(self.samples))

    def drawn(self, chance: np.random.Generator, series: int, nights: int) -> Floats:
        """[series, nights] departures from the true time, ln."""
        shape = (series, nights)
        if self.bounded:
            return np.asarray(np.sqrt(3) * self.between * chance.uniform(-1, 1, shape))
        own = self.between * chance.standard_normal(shape) + self.half / 1.96 * chance.standard_normal(shape)
        odd = np.log1p(chance.uniform(*self.outlying, shape)) * (chance.random(shape) < self.outliers)
        return np.asarray(own + odd)


QUIET = Noise(between=0.001, within=0.001, outliers=0.0, bounded=True)
"""Hardly any, for tests of the rules' bars."""


def made(
    chance: np.random.Generator,
    series: int = 40,
    nights: int = 30,
    *,
    per_class: int = 20,
    ceilings: int = 8,
    noise: Noise | None = None,
    segments: Sequence[int] = (),
) -> History:
    """`ceilings` ceilings (half of them memory's, they come first), then `series` series in classes of
    `per_class`; at each night of `segments` the driver changes.
    """
    noise = noise or Noise()
    table = pd.DataFrame(
        [_ceiling(which, "memory" if which % 2 == 0 else "core") for which in range(ceilings)]
        + [_series(which, per_class) for which in range(series)],
        columns=COLUMNS,
    )
    shape = (len(table), nights)
    base = np.log(10 ** chance.uniform(-5, -2, (len(table), 1)))
    return History(
        device="h100-80gb-hbm3",
        device_name="NVIDIA H100 80GB HBM3",
        unit="1f2e3d4c5b6a7988",
        nights=tuple(_night(which, segments, len(table)) for which in range(nights)),
        series=table,
        log_s=base + noise.drawn(chance, *shape),
        half=np.full(shape, noise.half),
        doubted=np.zeros(shape, dtype=np.bool_),
    )


def slowed(history: History, where: object, by: Floats | float) -> History:
    """What is there in `log_s` takes (1 + by) times as long."""
    log_s = history.log_s.copy()
    log_s[where] += np.log1p(by)  # type: ignore[index]
    return replace(history, log_s=log_s)


def stepped(
    history: History, rows: Collection[int], night: int, by: float, until: int | None = None
) -> History:
    """These series take (1 + by) times as long from this night on, up to the night `until` (not included)."""
    return slowed(history, (list(rows), slice(night, until)), by)


def missing(history: History, rows: Collection[int], nights: Collection[int]) -> History:
    """These series have no time on these nights (a budget cut them, they failed)."""
    where = np.ix_(list(rows), list(nights))
    log_s, half = history.log_s.copy(), history.half.copy()
    log_s[where] = half[where] = np.nan
    return replace(history, log_s=log_s, half=half, doubted=history.doubted & ~np.isnan(log_s))


def doubted(history: History, rows: Collection[int], nights: Collection[int]) -> History:
    """A flag casts doubt on these series on these nights."""
    flags = history.doubted.copy()
    flags[np.ix_(list(rows), list(nights))] = True
    return replace(history, doubted=flags & ~np.isnan(history.log_s))


def throttled(
    history: History, nights: Collection[int], by: float, bounds: Collection[str] = ("memory", "core")
) -> History:
    """The whole machine takes (1 + by) times as long on these nights, or what one bound's speed decides."""
    rows = np.flatnonzero(history.series["bound"].isin(list(bounds)))
    return slowed(history, np.ix_(rows, list(nights)), by)


def rows_of(history: History, operator: str, implementation: str) -> list[int]:
    """The series of a class, without ceilings."""
    table = history.series
    there = (table["operator"] == operator) & (table["implementation"] == implementation) & ~table["ceiling"]
    return [int(row) for row in np.flatnonzero(there)]


def others(history: History) -> list[int]:
    """All series but the ceilings."""
    return [int(row) for row in np.flatnonzero(~history.series["ceiling"].to_numpy(dtype=bool))]


COLUMNS = [
    *("sweep", "operator", "implementation", "parameters", "cache", "threads_asked", "dtype"),
    *("protocol", "regime", "clock", "fill", "threads", "concurrent_gpus", "bound", "ceiling"),
]
MANNER = ("e4a1", "sustained", "cuda_events", "normal", 1, 1)


def _ceiling(which: int, bound: str) -> tuple[object, ...]:
    operator, implementation = ("stream", "aten") if bound == "memory" else ("gemm", "cublas")
    sizes: dict[str, object] = {"m": 8192, "n": 8192, "k": 8192 + which}
    if bound == "memory":
        sizes = {"kind": "copy", "n": 2**24 + which}
    case = ("ceilings/probes", operator, implementation, json.dumps(sizes), "cold", "all", "float32")
    return (*case, *MANNER, bound, True)


def _series(which: int, per_class: int) -> tuple[object, ...]:
    operator, implementation, bound = CLASSES[which // per_class % len(CLASSES)]
    dtype = ("float16", "bfloat16", "float32")[which % 3]
    size = 256 * (1 + which % per_class)
    sizes = (
        {"n": 64, "c": size, "h": 7 + which} if bound == "memory" else {"m": size, "n": size, "k": 64 + which}
    )
    case = (f"{operator}/sizes", operator, implementation, json.dumps(sizes), "cold", "all", dtype)
    return (*case, *MANNER, bound, False)


def _night(which: int, segments: Sequence[int], timed: int) -> Night:
    segment = sum(which >= begin for begin in segments)
    utc = (FIRST + timedelta(days=which)).strftime("%Y-%m-%dT%H:%M:%SZ")
    commit = f"{which * 2654435761 % 2**48:012x}"
    before = f"{(which - 1) * 2654435761 % 2**48:012x}"
    changed = [Difference("commit", before, commit)] if which else []
    if which in segments:
        changed.insert(0, Difference("driver", f"550.{segment - 1}", f"550.{segment}"))
    return Night(
        run=RunKey("h100-80gb-hbm3", "1f2e3d4c5b6a7988", f"{utc.replace('-', '').replace(':', '')}-{commit}"),
        utc=utc,
        commit=commit,
        facts={"driver": f"550.{segment}", "torch": "2.13.0", "triton": "3.7.1", "power_limit_w": "700.0"},
        segment=segment,
        changed=tuple(changed),
        timed=timed,
    )
