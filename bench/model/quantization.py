"""Tiles and waves: why a product that is one column larger may take half as long again.

A matrix D of m x n is computed in whole tiles, and a GPU works on as many tiles at once as its SMs hold: a
wave. What a tile sticks out over D is computed for nothing, and an SM without a tile in the last wave waits.
So with K fixed

    tiles = ceil(m / tile_m) * ceil(n / tile_n)
    seconds = second_per_wave * ceil(tiles / (sm_count * per_sm))

is a staircase over m or n. It holds where tiles are large enough to keep an SM busy and their number alone
counts: not where memory bounds the launch, not for kernels that cut K or share out steps instead of tiles.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterable

FORCED = re.compile(r"-([1-9][0-9]*)x([1-9][0-9]*)$")
"""Suffix of forced-tile implementations."""
FULL = 0.9
"""Share of a wave's places from which it counts as full."""


def forced_tile(implementation: str) -> tuple[int, int] | None:
    """(tile_m, tile_n) of an implementation that is held to one, as `triton-256x128`; else None."""
    match = FORCED.search(implementation)
    return (int(match[1]), int(match[2])) if match else None


def tiles(m: int, n: int, tile_m: int, tile_n: int) -> int:
    """How many tiles cover m x n elements, those that stick out included."""
    return math.ceil(m / tile_m) * math.ceil(n / tile_n)


def tile_efficiency(m: int, n: int, tile_m: int, tile_n: int) -> float:
    """Elements of D / elements that its tiles compute, above 0 to 1."""
    return m * n / (tiles(m, n, tile_m, tile_n) * tile_m * tile_n)


def waves(count: int, sm_count: int, per_sm: int = 1) -> int:
    """How many times the device is loaded with tiles; an SM holds `per_sm` at once."""
    return math.ceil(count / (sm_count * per_sm))


def last_wave(count: int, sm_count: int, per_sm: int = 1) -> float:
    """Share of the last wave's places that have a tile, above 0 to 1. `count` is at least 1."""
    places = sm_count * per_sm
    return (count - (waves(count, sm_count, per_sm) - 1) * places) / places


def second_per_wave(
    measured: Iterable[tuple[int, float]], sm_count: int, per_sm: int = 1
) -> tuple[float, int, bool]:
    """Calibrate the staircase: (seconds of one wave, how many points say so, whether their waves are full).

    `measured` are (tiles, seconds) of one kernel at one K, at least one. It is the median of seconds / waves
    over the points whose last wave is FULL or more: in an emptier one the others have memory and power to
    themselves. Where no point is, it is the median over all. One number for the whole staircase, so that its
    steps, where they are and how high, are predicted and not fitted.
    """
    points = list(measured)
    full = [point for point in points if last_wave(point[0], sm_count, per_sm) >= FULL]
    of_wave = [seconds / waves(count, sm_count, per_sm) for count, seconds in full or points]
    return statistics.median(of_wave), len(of_wave), bool(full)
