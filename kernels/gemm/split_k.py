"""GEMM with K cut into parts: for products whose tiles are too few to occupy the device.

**Why this algorithm.** A small D with a long K has few tiles and much work in each: 256 x 256 is four tiles
of 128 x 128, and 128 of an H100's 132 multiprocessors would be idle. Here a tile is shared by `parts`
programs, each of which walks along its own part of K; the last to arrive adds up what the others left
(parts.py). The kernel is pointer.py's, so any size and any architecture will do.

**How many parts.** With T tiles, S steps of BLOCK_K along K, and room for P programs at a time, p parts take

    ceil(T p / P) (4 + ceil(S / p) + x) + ceil(T / P) x reads(p)    steps:

waves of programs, each of which fills its pipeline, walks along its part, and stores it, x steps; then
waves of tiles, each read part by part (parts.py). `parts` takes the fewest parts that come within a twentieth
of the least, of those that have 4 steps each. Where K has room for two parts it has two: whole tiles are for
other kernels.

**Bytes moved.** Operands as in pointer.py: parts of K are disjoint, so none is read more often than there.
Besides, with more than one part,

    T p BLOCK_M BLOCK_N    sums, written once and read once (in L2, unless they outgrow it)

and 1/8 of them again where more than 8 are added by stages.

**Arithmetic.** As in pointer.py, but a sum is p shorter ones, added in the type of sums in fixed order.
"""

import math

from kernels.gemm.duration import FILL_STEPS, leave, sharing
from kernels.gemm.operands import Operands
from kernels.gemm.parts import FAN, Share, exchange, reads, shared_arguments, step, tiles_of
from kernels.gemm.parts_tiles import shared_tiles
from kernels.gemm.pointer import multiply
from kernels.gemm.problem import Gemm
from kernels.gemm.tiles import Tile
from kernels.prepared import Prepared

UNIT_ROWS = 64
"""Rows of the matrix instructions of Hopper and Blackwell; a tile with fewer is left to those of Ampere."""
LEAST_STEPS = 4
"""Steps along K that a part has at least: about as many as it takes to fill its pipeline."""


def parts(problem: Gemm, share: Share, sm_count: int) -> int:
    """Parts of K for each tile, by the formula above."""
    most = math.ceil(problem.k / share.tile.k) // LEAST_STEPS
    if most < 2:
        return 1
    # As many as fill the device with a single tile, and some to fill up the last wave of many tiles.
    counts = range(share.least, min(most, max(8, share.per_sm * sm_count)) + 1)
    durations = [duration(problem, share, sm_count, count) for count in counts]
    near = 1.05 * min(durations)
    return next(count for count, duration in zip(counts, durations, strict=True) if duration <= near)


def duration(problem: Gemm, share: Share, sm_count: int, count: int) -> float:
    """Steps along K, and their like, one after the other, with so many parts for each tile."""
    tiles, at_a_time = tiles_of(problem, share.tile), share.per_sm * sm_count
    x = exchange(problem, share.tile) if count > 1 else 0
    each = FILL_STEPS + math.ceil(math.ceil(problem.k / share.tile.k) / count) + x
    return math.ceil(tiles * count / at_a_time) * each + math.ceil(tiles / at_a_time) * x * reads(count)


def candidates(problem: Gemm, capability: tuple[int, int], sm_count: int) -> tuple[Share, ...]:
    """The tiles to try on a device of this compute capability; it decides (choosing.py)."""
    return shared_tiles(problem, capability)


def cost(problem: Gemm, share: Share, capability: tuple[int, int], sm_count: int) -> float:
    """How long a launch takes, in the units of kernels/gemm/duration.py."""
    count = parts(problem, share, sm_count)
    together = sharing(tiles_of(problem, share.tile) * count, share.per_sm, sm_count)
    steps = duration(problem, share, sm_count, count)
    return steps * together * step(problem, share.tile) + leave(problem, share.tile)


def prepare(of: Operands, share: Share, sm_count: int) -> Prepared:
    """D in `of.d`. The tensors' device must be the current one; one stream runs all launches (parts.py)."""
    return in_parts(of, share, parts(of.problem, share, sm_count))


def in_parts(of: Operands, share: Share, count: int) -> Prepared:
    """The same with so many parts for each tile: any number, even more than K has steps."""
    tiles = tiles_of(of.problem, share.tile)
    room = tiles * count if count > 1 else 0
    counters = tiles * (1 + math.ceil(count / FAN.value)) if count > 1 else 0
    arguments = shared_arguments(of, multiply, share, room, counters) | {
        "parts": count,
        "SPLIT": count > 1,
        "TURNED": turned(of.problem, share.tile),
        "HALVES": False,
        "BATCHED": False,
    }
    return Prepared(multiply, (tiles, count), arguments, of.d)


def turned(problem: Gemm, tile: Tile) -> bool:
    """Whether the transposed product suits the matrix units better: their rows are the tile's long side.

    Except of tf32 where that side's matrix does not have K contiguous: the instructions that take so many
    rows would then want it turned, 4 bytes at a time, so they are given the short side, and not used.
    """
    m_is_long, n_is_long = tile.m >= UNIT_ROWS, tile.n >= UNIT_ROWS
    if m_is_long == n_is_long:
        return False
    k_contiguous = problem.layout[0] == "T" if m_is_long else problem.layout[1] == "N"
    return m_is_long == (k_contiguous or problem.dtype != "tf32")
