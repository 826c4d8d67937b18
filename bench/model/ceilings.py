"""The ceilings of a device as it was in one run: launch floor, arithmetic peaks, memory bandwidth.

They are ordinary rows of the run, of the sweeps whose path starts with `ceilings/`, and are known by
their counts alone:

    flop > 0             a peak of its arithmetic and dtype (the largest GEMMs)
    flop == 0, byte > 0  memory bandwidth at its share of written bytes (STREAM: read, copy, write)
    flop == 0, byte == 0 the launch floor

Dedicated probes, because a regression on the sweep itself leaves them unidentified: 20 random shapes
left H100's bandwidth unknown, three designated regimes fixed it (replay of public GEMM timings).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import pandas as pd

    from bench.store import Measurement


_PARTS = 5
"""Parts that a ceiling's time is cut into; the quickest counts."""


@dataclass(frozen=True)
class Ceiling:
    """A highest rate that was measured, FLOP/s or bytes/s, with its row and that row's 95 % interval."""

    per_s: float
    low_per_s: float
    high_per_s: float
    row: str
    """`operator implementation parameters` of the row it is read from."""


@dataclass(frozen=True)
class Ceilings:
    """What one (device, run, manner) was seen to reach. What was not measured is None or absent."""

    device: str = ""
    run_id: str = ""
    manner: str = ""
    launch_s: float | None = None
    """t0, seconds: the median over the launch-floor rows of the quickest implementation."""
    peak_flop_per_s: Mapping[tuple[str, str], Ceiling] = field(default_factory=dict)
    """(arithmetic, dtype) -> highest flop / quickest time."""
    bandwidth_byte_per_s: Mapping[float, Ceiling] = field(default_factory=dict)
    """Share of written bytes (0 read, 0.5 copy, 1 write) -> highest byte / quickest time; shares ascend."""

    @classmethod
    def of(cls, rows: Iterable[Measurement]) -> Ceilings:
        """Read the ceilings among these rows; other rows and rows without a time are passed over.

        ValueError if the ceilings come from more than one (device, run, manner): a roof that mixes
        them was never measured. `by_run` separates them.
        """
        found = by_run(rows)
        if len(found) > 1:
            named = ", ".join(" ".join(key) for key in sorted(found))
            raise ValueError(f"ceilings of one device, run and manner are wanted; given {named}")
        return next(iter(found.values()), cls())

    def peak(self, arithmetic: str, dtype: str) -> float | None:
        """Highest measured rate of this arithmetic, FLOP/s; None if it was not measured."""
        ceiling = self.peak_flop_per_s.get((arithmetic, dtype))
        return ceiling.per_s if ceiling else None

    @property
    def copy_byte_per_s(self) -> float | None:
        """Bandwidth of a copy, bytes/s: the slope of the roofline picture. None if not measured."""
        ceiling = self.bandwidth_byte_per_s.get(0.5)
        return ceiling.per_s if ceiling else None

    def second_per_byte(self, write_share: float | npt.ArrayLike) -> npt.NDArray[np.float64] | None:
        """Seconds per byte moved where `write_share` (0 to 1) of the bytes are written.

        Linear in the share between the measured ones: time adds up, rates do not. Outside the measured
        shares the nearest holds. So a read-mostly GEMV is held against read bandwidth and a copy
        against copy. None if no bandwidth was measured.
        """
        if not self.bandwidth_byte_per_s:
            return None
        shares = list(self.bandwidth_byte_per_s)
        seconds = [1.0 / ceiling.per_s for ceiling in self.bandwidth_byte_per_s.values()]
        return np.asarray(np.interp(np.asarray(write_share, dtype=np.float64), shares, seconds))


def is_ceiling(sweep: str) -> bool:
    """Whether rows of the sweep at this path are ceilings."""
    return sweep == "ceilings" or sweep.startswith("ceilings/")


def manner(cache: str, threads_asked: object = None) -> str:
    """How rows are measured that may be held against each other: `cold`, `warm`, `cold, one thread`.

    `threads_asked` is a row's column: null (None, NaN) in older files, where all cores computed.
    """
    return f"{cache}, one thread" if threads_asked == "one" else cache


def by_run(rows: Iterable[Measurement]) -> dict[tuple[str, str, str], Ceilings]:
    """(device, run_id, manner) -> its ceilings, for every one that has any."""
    groups: dict[tuple[str, str, str], list[Measurement]] = {}
    for row in rows:
        if is_ceiling(row.sweep) and row.status == "ok" and _is_time(row.median_s):
            key = (row.device, row.run_id, manner(row.cache, row.threads_asked))
            groups.setdefault(key, []).append(row)
    return {key: _read(key, group) for key, group in groups.items()}


def rows(frame: pd.DataFrame) -> Iterator[Measurement]:
    """The ceiling rows of a DataFrame from `bench.store.read`, with the attributes of a Measurement.

    A time that is missing is NaN there instead of None; everything here takes both.
    """
    ceiling = frame["sweep"].map(is_ceiling).astype(bool)
    return cast("Iterator[Measurement]", frame[ceiling].itertuples(index=False, name="Row"))


def _read(key: tuple[str, str, str], group: list[Measurement]) -> Ceilings:
    floors: dict[str, list[float]] = {}
    peaks: dict[tuple[str, str], Ceiling] = {}
    bandwidths: dict[float, Ceiling] = {}
    for row in group:
        if row.flop > 0:
            _keep_highest(peaks, (row.arithmetic, row.dtype), _rate(row, row.flop))
        elif row.byte > 0:
            # Rounded, so that the many sizes of one kind of pass meet under one share.
            _keep_highest(bandwidths, round(row.byte_written / row.byte, 3), _rate(row, row.byte))
        else:
            floors.setdefault(row.implementation, []).append(_seconds(row.median_s))
    launch_s = min((statistics.median(floor) for floor in floors.values()), default=None)
    return Ceilings(*key, launch_s, peaks, dict(sorted(bandwidths.items())))


def _keep_highest(kept: dict[Any, Ceiling], key: object, ceiling: Ceiling) -> None:
    if key not in kept or ceiling.per_s > kept[key].per_s:
        kept[key] = ceiling


def _rate(row: Measurement, count: int) -> Ceiling:
    median_s = _quickest_s(row)
    low_s = _seconds(row.low_s) if _is_time(row.low_s) else median_s
    high_s = _seconds(row.high_s) if _is_time(row.high_s) else median_s
    named = f"{row.operator} {row.implementation} {row.parameters}"
    return Ceiling(count / median_s, count / high_s, count / low_s, named)


def _quickest_s(row: Measurement) -> float:
    """Median of the quickest fifth of the time of any of its visits; of all of it if there are few samples.

    A roof is what a device was seen to keep up, and clocks move: on the machine this was written on, wide
    vector instructions run at two speeds 9 % apart, for seconds each. The median may miss the faster.
    """
    samples = np.asarray([] if _absent(row.samples_s) else row.samples_s, dtype=np.float64)
    lengths = [len(samples)] if _absent(row.visit_samples) else row.visit_samples
    ends = np.cumsum(np.asarray(lengths, dtype=np.int64))[:-1]
    parts = [
        float(np.median(part))
        for visit in np.split(samples, ends)
        if len(visit) >= 2 * _PARTS
        for part in np.array_split(visit, _PARTS)
    ]
    return min(parts, default=_seconds(row.median_s))


def _absent(values: object) -> bool:
    """Whether a list column is null: None in a row, NaN in a DataFrame."""
    return values is None or isinstance(values, float)


def _is_time(seconds: float | None) -> bool:
    return seconds is not None and math.isfinite(seconds) and seconds > 0


def _seconds(seconds: float | None) -> float:
    return float(seconds or 0.0)
