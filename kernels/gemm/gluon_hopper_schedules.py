"""How gluon_hopper.py may compute its tiles: which sizes, stages, lags and orders are tried.

A group of warps multiplies 64 rows (N) at least, and holds 128 sums a thread at most: so 256 x 128, 128 x 256
and 128 x 128 (M x N). A step along K is 128 bytes, as wide as the swizzle of shared memory. Of stages there
are as many as fit beside the pieces of D: four of the large tiles, six of the small, and one fewer of the
large where a matrix is added, for which each group has a buffer for all of its half.

While one group writes its half, the other has as many steps to itself as it lags: of 64 x 256 or 128 x 128
512 cycles each, of 64 x 128 half as many. A copy must arrive within stages - 1 - lag steps of both groups,
1024 cycles each: with four stages 2048 cycles at a lag of one, 3072 at none; of the small tile, whose steps
take half as long, 1536 at a lag of two. Of the groups of tiles of N that comes first with which a wave of 132
tiles is about as wide as it is high.
"""

from __future__ import annotations

from typing import NamedTuple

from kernels.gemm.problem import Gemm
from kernels.gemm.tiles import Tile

PIECE = 64
"""Columns of D that leave at once: 128 bytes, as wide as the widest swizzle of shared memory."""


class Schedule(NamedTuple):
    """How tiles are computed: `lag` and `group` are the kernel's; the tile's warps those that multiply."""

    tile: Tile
    lag: int
    group: int

    def __str__(self) -> str:
        """As people write it: `256x128x64 w8 s4 lag1 g8`."""
        return f"{self.tile} lag{self.lag} g{self.group}"


_SHAPES = {
    (256, 128): ((1, 0, 2), (16, 8, 4)),
    (128, 256): ((1, 0, 2), (8, 16, 4)),
    (128, 128): ((2, 0), (8, 16, 4)),
}
"""M x N -> lags and groups, the likeliest of both first."""
_ROOM_BYTE = 227 * 1024
_SLACK_BYTE = 1024
"""Of one block: barriers, and what it takes to begin on a multiple of 1024 bytes."""


def schedules(problem: Gemm) -> tuple[Schedule, ...]:
    """Everything that is tried for this type and addend, large tiles first."""
    found = []
    for (m, n), (lags, groups) in _SHAPES.items():
        tile = Tile(m, n, 128 // problem.item_byte, 8, 1)
        one = shared_byte(problem, tile)
        stages = 1 + (_ROOM_BYTE - one) // (shared_byte(problem, tile._replace(stages=2)) - one)
        tile = tile._replace(stages=stages)
        found += [Schedule(tile, lag, groups[0]) for lag in lags if lag <= stages - 2]
        found += [Schedule(tile, lags[0], group) for group in groups[1:]]
    return tuple(found)


def shared_byte(problem: Gemm, tile: Tile) -> int:
    """The most shared memory that one block takes: the ring, the pieces of D on their way, barriers."""
    step = (tile.m + tile.n) * tile.k * problem.item_byte
    pieces = 2 * staged(problem, tile) * 64 * PIECE * problem.output_item_byte
    return tile.stages * step + pieces + _SLACK_BYTE


def staged(problem: Gemm, tile: Tile) -> int:
    """Pieces of D that each group of warps has buffers for: two, or all if they bring C as well."""
    return tile.n // 2 * tile.m // (64 * PIECE) if problem.beta else 2
