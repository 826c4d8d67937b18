"""The ceilings of a device as it was in one run: launch floor, arithmetic peaks, memory and cache bandwidth.

They are the rows of the run whose role is roof, probe or calibration. Which ceiling a row is follows from
what it counts and asks for, not from its sweep's name:

    flop > 0, one tile       what a tile costs, and each of its steps
    flop > 0, else           a peak of its arithmetic and dtype (the largest GEMMs, chains of multiply-adds)
    byte > 0, `programs`     what one SM draws from memory (a copy by fewer programs than there are SMs)
    byte > 0, cache: warm    bandwidth of a copy within a working set that stays where it is
    byte > 0, else           memory bandwidth at its share of written bytes (STREAM: read, copy, write)
    neither                  the launch floor

Dedicated probes, because a regression on the sweep itself leaves them unidentified: 20 random shapes
left H100's bandwidth unknown, three designated regimes fixed it (replay of public GEMM timings).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from bench.errors import UserError
from bench.format import share_text
from bench.model.ceiling import STEP_K, Ceiling, Duration, highest_rate, launch_floor, tile_line
from bench.model.quantization import forced_tile
from bench.store.schema import Measurement, RunKey

_OVER_FLOOR = 2.0
"""A probe whose launch floor is taken off must take this many times as long, or it measures the floor."""
_PASSES = {0.0: "read", 0.333: "triad", 0.5: "copy", 1.0: "write"}
"""Share of written bytes -> the pass of STREAM that has it."""
_SAME = ("driver", "power_limit_w", "regime")
"""What all ceilings of a run must have in common."""


class MixedCeilings(UserError):
    """Rows of one run that cannot be one calibration; says which and why in one sentence."""


class Listed(NamedTuple):
    """One ceiling as it is printed, in SI units."""

    name: str
    value: float
    """A time, or the highest rate."""
    low: float
    high: float
    """The ends of the 95 % interval."""
    unit: str
    """`s`, `FLOP/s` or `byte/s`."""
    row: str
    median: float
    """What tables and curves show of the row."""


@dataclass(frozen=True)
class Ceilings:
    """What one (device, run, condition) was seen to reach. What was not measured is None or absent."""

    device: str = ""
    run_id: str = ""
    condition: str = ""
    launch_s: float | None = None
    """t0, seconds: the median over the launch-floor rows of the quickest implementation."""
    peak_flop_per_s: Mapping[tuple[str, str], Ceiling] = field(default_factory=dict)
    """(arithmetic, dtype) -> highest flop / quickest time."""
    bandwidth_byte_per_s: Mapping[float, Ceiling] = field(default_factory=dict)
    """Share of written bytes (0 read, 0.5 copy, 1 write) -> highest byte / quickest time; shares ascend."""
    cached: Mapping[int, Ceiling] = field(default_factory=dict)
    """Bytes of the working set -> bandwidth of a copy that finds it where the launch before left it, the
    launch floor taken off; ascending. Cold and warm ceilings of a run have the same."""
    sm_byte_per_s: Ceiling | None = None
    """Bandwidth of a copy in memory by a single SM, read and written bytes together (GPU)."""
    step: Mapping[str, Duration] = field(default_factory=dict)
    """dtype -> one step of 128 x 128 x 64 in one program, operands in L2 (GPU)."""
    tile: Mapping[str, Duration] = field(default_factory=dict)
    """dtype -> what such a tile takes besides its steps and the launch floor: prologue, epilogue (GPU)."""
    launch: Duration | None = None
    """The launch floor with its interval."""

    @cached_property
    def slowest(self) -> Ceilings:
        """The same with peaks and bandwidths at the low ends of their intervals."""
        return self._at(lambda ceiling: ceiling.low_per_s)

    @cached_property
    def quickest(self) -> Ceilings:
        """The same with peaks and bandwidths at the high ends of their intervals."""
        return self._at(lambda ceiling: ceiling.high_per_s)

    @cached_property
    def slow(self) -> Ceilings:
        """The same by the slowest visits, where visits differ."""
        return self._at(lambda ceiling: ceiling.slow_per_s)

    def _at(self, end: Callable[[Ceiling], float]) -> Ceilings:
        peaks = {key: replace(each, per_s=end(each)) for key, each in self.peak_flop_per_s.items()}
        rates = {key: replace(each, per_s=end(each)) for key, each in self.bandwidth_byte_per_s.items()}
        return replace(self, peak_flop_per_s=peaks, bandwidth_byte_per_s=rates)

    def peak(self, arithmetic: str, dtype: str) -> float | None:
        """Highest measured rate of this arithmetic, FLOP/s; None if it was not measured."""
        ceiling = self.peak_flop_per_s.get((arithmetic, dtype))
        return ceiling.per_s if ceiling else None

    @property
    def copy_byte_per_s(self) -> float | None:
        """Bandwidth of a copy, bytes/s: the slope of the roofline picture. None if not measured."""
        ceiling = self.bandwidth_byte_per_s.get(0.5)
        return ceiling.per_s if ceiling else None

    @property
    def tile_s(self) -> dict[str, float]:
        """dtype -> seconds of prologue and epilogue of such a tile, above the launch floor; 0 at least."""
        return {dtype: max(0.0, duration.seconds) for dtype, duration in self.tile.items()}

    def second_per_byte(self, write_share: float | npt.ArrayLike) -> npt.NDArray[np.float64] | None:
        """Seconds per byte moved where `write_share` (0 to 1) of the bytes are written.

        Linear in the share between the measured ones: time adds up, rates do not. Outside the measured
        shares the nearest holds. So a read-mostly GEMV is compared with read bandwidth and a copy
        against copy. None if no bandwidth was measured.
        """
        if not self.bandwidth_byte_per_s:
            return None
        shares = list(self.bandwidth_byte_per_s)
        seconds = [1.0 / ceiling.per_s for ceiling in self.bandwidth_byte_per_s.values()]
        return np.asarray(np.interp(np.asarray(write_share, dtype=np.float64), shares, seconds))

    def cached_byte_per_s(self, working_set: float | npt.ArrayLike) -> npt.NDArray[np.float64] | None:
        """Bandwidth, bytes/s, of a copy within a working set of so many bytes that is used again and again.

        Between measured sets a straight line of log bandwidth over log bytes; outside them the nearest
        holds. Of a copy: reading alone may be quicker. None if no working set was measured.
        """
        if not self.cached:
            return None
        held = np.log(np.maximum(np.asarray(working_set, dtype=np.float64), 1.0))
        rates = np.log([ceiling.per_s for ceiling in self.cached.values()])
        return np.asarray(np.exp(np.interp(held, np.log(list(self.cached)), rates)))

    def listed(self) -> list[Listed]:
        """Every ceiling with its interval, for people: floor, peaks, memory, caches, one SM, one tile."""
        rates = {f"peak {a} {dtype}": (c, "FLOP/s") for (a, dtype), c in self.peak_flop_per_s.items()}
        for share, ceiling in self.bandwidth_byte_per_s.items():
            rates[f"memory {_PASSES.get(share, f'{share_text(share)} written')}"] = ceiling, "byte/s"
        for working_set, ceiling in self.cached.items():
            rates[f"copy within {working_set / 2**20:g} MiB"] = ceiling, "byte/s"
        if self.sm_byte_per_s:
            rates["memory copy by one SM"] = self.sm_byte_per_s, "byte/s"
        times = {"launch floor": self.launch} if self.launch else {}
        floors = len(times)
        times |= {f"step 128x128x{STEP_K} {dtype}": duration for dtype, duration in self.step.items()}
        times |= {f"tile 128x128 {dtype} without steps": duration for dtype, duration in self.tile.items()}
        of_time = [Listed(n, d.seconds, d.low_s, d.high_s, "s", d.row, d.seconds) for n, d in times.items()]
        of_rate = [
            Listed(n, c.per_s, c.low_per_s, c.high_per_s, u, c.row, c.median_per_s)
            for n, (c, u) in rates.items()
        ]
        return [*of_time[:floors], *of_rate, *of_time[floors:]]


def condition(cache: str, threads_asked: object = None) -> str:
    """How rows are measured that may be compared with each other: `cold`, `warm`, `cold, one thread`.

    `threads_asked` is a row's column: None in older files, where all cores computed.
    """
    return f"{cache}, one thread" if threads_asked == "one" else cache


def by_run(rows: Iterable[Measurement]) -> dict[tuple[RunKey, str], Ceilings]:
    """(run, condition) -> its ceilings, for every one that has any.

    Probes of caches, of one SM and of one tile belong to all conditions of their run and threads, and make
    none but the cold: warm ceilings are there if a launch floor or a peak was measured warm. MixedCeilings if
    the rows of a run are of several drivers, power limits or regimes.
    """
    roofs = [row for row in rows if row.role != "measurement" and row.is_timed]
    _refuse_mixed(roofs)
    groups: dict[tuple[RunKey, str], list[Measurement]] = {}
    probes: dict[tuple[RunKey, str], list[Measurement]] = {}
    for row in roofs:
        cold = (RunKey.of(row), condition("cold", row.threads_asked))
        if _probe(row):
            probes.setdefault(cold, []).append(row)
            groups.setdefault(cold, [])
        else:
            groups.setdefault((cold[0], condition(row.cache, row.threads_asked)), []).append(row)
    read = {}
    for key, group in groups.items():
        cold = (key[0], key[1].replace("warm", "cold"))
        # Memory is the same memory where peaks and floor were measured with a warm cache.
        ceilings, memory = _read(key, group), _read(cold, groups.get(cold, []))
        ceilings = replace(ceilings, bandwidth_byte_per_s=memory.bandwidth_byte_per_s)
        read[key] = _with_probes(ceilings, probes.get(cold, []), memory.launch_s)
    return read


def _refuse_mixed(ceilings: Iterable[Measurement]) -> None:
    """MixedCeilings if rows of one run were measured in different states."""
    seen: dict[tuple[RunKey, str], object] = {}
    for row in ceilings:
        for name in _SAME:
            value = getattr(row, name)
            if value is None:  # not known
                continue
            before = seen.setdefault((RunKey.of(row), name), value)
            if before != value:
                raise MixedCeilings(
                    f"run {row.run_id} on {row.device}: its ceilings were measured with {name} {before} and "
                    f"{value}, so they are no one calibration; measure again without changing it"
                )


def _probe(row: Measurement) -> Literal["", "cache", "one SM", "one tile"]:
    """Which probe a ceiling's row is; empty for a floor, a peak or a bandwidth of memory."""
    parameters = json.loads(row.parameters)
    if row.flop > 0:
        tile = forced_tile(row.implementation)
        return "one tile" if tile and tile == (parameters.get("m"), parameters.get("n")) else ""
    if row.byte > 0 and 0 < parameters.get("programs", 0) < row.sm_count:
        return "one SM"
    return "cache" if row.byte > 0 and row.cache == "warm" else ""


def _read(key: tuple[RunKey, str], group: list[Measurement]) -> Ceilings:
    """The ceilings of rows that are no probes."""
    floors: dict[str, list[Measurement]] = {}
    peaks: dict[tuple[str, str], Ceiling] = {}
    bandwidths: dict[float, Ceiling] = {}
    for row in group:
        if row.flop > 0:
            _keep_highest(peaks, (row.arithmetic, row.dtype), highest_rate(row, row.flop))
        elif row.byte > 0:
            # Rounded, so that the many sizes of one kind of pass meet under one share.
            _keep_highest(bandwidths, round(row.byte_written / row.byte, 3), highest_rate(row, row.byte))
        else:
            floors.setdefault(row.implementation, []).append(row)
    launch = min(
        (launch_floor(floor) for floor in floors.values()), key=lambda each: each.seconds, default=None
    )
    launch_s = launch.seconds if launch else None
    run, of = key
    return Ceilings(
        run.device, run.run_id, of, launch_s, peaks, dict(sorted(bandwidths.items())), launch=launch
    )


def _with_probes(ceilings: Ceilings, probes: Iterable[Measurement], floor_s: float | None) -> Ceilings:
    """The same with what the probes tell; nothing if no launch floor is known to be taken off."""
    if floor_s is None:
        return ceilings
    cached: dict[int, Ceiling] = {}
    of_one_sm: dict[str, Ceiling] = {}
    tiles: dict[str, list[Measurement]] = {}
    for row in probes:
        which = _probe(row)
        if which == "one tile":
            tiles.setdefault(row.dtype, []).append(row)
        elif row.quickest_s < _OVER_FLOOR * floor_s or 2 * row.byte_written != row.byte:
            continue  # as good as empty, or no copy
        elif which == "one SM":
            programs = json.loads(row.parameters)["programs"]
            _keep_highest(of_one_sm, "", highest_rate(row, row.byte / programs, floor_s))
        else:
            _keep_highest(cached, row.byte, highest_rate(row, row.byte, floor_s))
    fitted = {of: line for of, rows in sorted(tiles.items()) if (line := tile_line(rows, floor_s))}
    return replace(
        ceilings,
        cached=dict(sorted(cached.items())),
        sm_byte_per_s=of_one_sm.get(""),
        step={dtype: step for dtype, (step, _) in fitted.items()},
        tile={dtype: tile for dtype, (_, tile) in fitted.items()},
    )


def _keep_highest(kept: dict[Any, Ceiling], key: object, ceiling: Ceiling) -> None:
    """Keep the highest of a key, of equal ones the first."""
    kept[key] = max(kept.get(key, ceiling), ceiling, key=lambda each: each.per_s)
