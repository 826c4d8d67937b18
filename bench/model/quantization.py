"""Tiles and waves: why a product that is one column larger may take half as long again.

A matrix D of m x n is computed in whole tiles, and a GPU works on as many tiles at once as its SMs hold: a
wave. What a tile sticks out over D is computed for nothing, and an SM without a tile in the last wave waits.
So with K fixed the time is a staircase over m or n, which bench/model/tile_wave.py predicts.
"""

from __future__ import annotations

import math
import re

FORCED = re.compile(r"-([1-9][0-9]*)x([1-9][0-9]*)$")
"""Suffix of forced-tile implementations."""


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


def waves(count: int, sm_count: int) -> int:
    """How many times the device is loaded with tiles, one for each SM."""
    return math.ceil(count / sm_count)


def last_wave(count: int, sm_count: int) -> float:
    """Share of the SMs that have a tile of the last wave, above 0 to 1. `count` is at least 1."""
    return (count - (waves(count, sm_count) - 1) * sm_count) / sm_count
