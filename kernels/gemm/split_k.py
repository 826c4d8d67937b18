"""GEMM with K cut into parts: for products whose tiles are too few to occupy the device.

**Why this algorithm.** A small D with a long K has few tiles and much work in each: 256 x 256 is four tiles
of 128 x 128, and 128 of an H100's 132 multiprocessors would be idle. Here a tile is shared by `parts`
programs, each of which walks along its own part of K; the last to arrive adds up what the others left
(parts.py). Operands are addressed by pointers, so any size and any architecture will do.

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

import triton
import triton.language as tl

from kernels.gemm.blocks import aligned, grouped, known_multiple, walk_pointers, write
from kernels.gemm.duration import FILL_STEPS, leave, sharing
from kernels.gemm.operands import Operands
from kernels.gemm.parts import (
    FAN,
    Share,
    bring,
    exchange,
    reads,
    registers,
    rows,
    step,
    tiles_of,
    workspace,
)
from kernels.gemm.parts_tiles import shared_tiles
from kernels.gemm.problem import Gemm
from kernels.gemm.tiles import Tile
from kernels.prepared import Prepared

UNIT_ROWS = 64
"""Of the matrix instructions of Hopper and Blackwell; a tile with fewer is left to those of Ampere."""
LEAST_STEPS = 4
"""Steps along K that a part has at least: about as many as it takes to fill its pipeline."""


@triton.jit(  # type: ignore[untyped-decorator]
    do_not_specialize=["m", "n", "k", "row_a", "row_b", "row_c", "row_d", "parts"]
)
def multiply(  # type: ignore[no-untyped-def]
    a_pointer,  # op(A): [k, m] if ROWS_ARE_K[0] else [m, k]
    b_pointer,  # op(B): [k, n] if ROWS_ARE_K[1] else [n, k]
    c_pointer,  # [n, m] (ADD matrix), [m] (ADD bias) or None
    d_pointer,  # D: [n, m]; every element is written once
    a_scale,  # None, or one float32 each
    b_scale,
    slots,  # [tiles, parts, BLOCK_N, BLOCK_M] of SUM
    counters,  # [tiles, 1 + ceil(parts / FAN)], zero before and after
    m,
    n,
    k,
    row_a,  # elements from one row of a tensor to the next
    row_b,
    row_d,
    row_c,
    parts,
    ROWS_ARE_K: tl.constexpr,  # of A, of B
    ALIGN: tl.constexpr,  # powers of two that divide m, n, k and the rows of A, B, D; at most 16 bytes' worth
    ARITHMETIC: tl.constexpr,  # precision, "tf32" or "ieee" (for float32 operands alone), and type of sums
    ADD: tl.constexpr,  # "none", "matrix" or "bias"
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr,
    EVEN_K: tl.constexpr,  # BLOCK_K divides k: the walk along K needs no mask
    SPLIT: tl.constexpr,  # parts > 1
    TURNED: tl.constexpr,  # compute D's transpose: the tile's M is the matrix unit's
    ROWS: tl.constexpr,  # of a tile that are added at a time
):
    """Programs (tile, part): D [n, m] = op(B) [n, k] op(A) [k, m] + C."""
    m, n, k, row_a, row_b, row_c, row_d = aligned(m, n, k, row_a, row_b, row_c, row_d, ALIGN)

    tile, part = tl.program_id(0), tl.program_id(1)
    tile_m, tile_n = grouped(tile, tl.cdiv(m, BLOCK_M), tl.cdiv(n, BLOCK_N), GROUP)
    along_m = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    along_n = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    # The first parts have one step more than the others; with fewer steps than parts some have none.
    steps = tl.cdiv(k, BLOCK_K)
    each, more = steps // parts, steps % parts
    first = part * each + tl.minimum(part, more)
    last = first + each + tl.where(part < more, 1, 0)
    from_k, to_k = first * BLOCK_K, known_multiple(tl.minimum(last * BLOCK_K, k), ALIGN[2])
    block: tl.constexpr = (BLOCK_M, BLOCK_N, BLOCK_K)
    if TURNED:
        # D's transpose is the product of op(A)'s and op(B)'s, so a and b change places.
        operands = b_pointer, a_pointer, n, m, row_b, row_a
        rows_are_k: tl.constexpr = (ROWS_ARE_K[1], ROWS_ARE_K[0])
        other: tl.constexpr = (BLOCK_N, BLOCK_M, BLOCK_K)
        total = walk_pointers(
            operands, along_n, along_m, from_k, to_k, rows_are_k, ARITHMETIC, other, EVEN_K
        ).T
    else:
        operands = a_pointer, b_pointer, m, n, row_a, row_b
        total = walk_pointers(operands, along_m, along_n, from_k, to_k, ROWS_ARE_K, ARITHMETIC, block, EVEN_K)
    outputs = c_pointer, d_pointer, a_scale, b_scale, m, n, row_c, row_d
    if SPLIT:
        mine = slots + tl.cast(tile, tl.int64) * parts * (BLOCK_M * BLOCK_N)
        counts = counters + tile * (1 + tl.cdiv(parts, FAN))
        bring(total, part, parts, mine, counts, tile_m, tile_n, outputs, ADD, (BLOCK_M, BLOCK_N, ROWS))
    else:
        write(total, along_m, along_n, outputs, ADD)


def parts(problem: Gemm, share: Share, sm_count: int, least: int = 2) -> int:
    """Parts of K for each tile, by the formula above: at least `least` where K has room for two."""
    most = math.ceil(problem.k / share.tile.k) // LEAST_STEPS
    if most < 2:
        return 1
    # As many as fill the device with a single tile, and some to fill up the last wave of many tiles.
    counts = range(least, min(most, max(8, share.per_sm * sm_count)) + 1)
    durations = [duration(problem, share, sm_count, count) for count in counts]
    near = 1.05 * min(durations)
    return next(count for count, one in zip(counts, durations, strict=True) if one <= near)


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
    return cost_of_parts(problem, share, sm_count, parts(problem, share, sm_count))


def cost_of_parts(problem: Gemm, share: Share, sm_count: int, count: int) -> float:
    """The same with so many parts for each tile."""
    together = sharing(tiles_of(problem, share.tile) * count, share.per_sm, sm_count)
    steps = duration(problem, share, sm_count, count)
    return steps * together * step(problem, share.tile) + leave(problem, share.tile)


def prepare(of: Operands, share: Share, sm_count: int) -> Prepared:
    """D in `of.d`. The tensors' device must be the current one; one stream runs all launches (parts.py)."""
    return in_parts(of, share, parts(of.problem, share, sm_count))


def in_parts(of: Operands, share: Share, count: int) -> Prepared:
    """The same with so many parts for each tile: any number, even more than K has steps."""
    tile, tiles = share.tile, tiles_of(of.problem, share.tile)
    room = workspace(
        of.problem,
        of.d,
        elements=tiles * count * tile.m * tile.n if count > 1 else 0,
        counters=tiles * (1 + math.ceil(count / FAN.value)) if count > 1 else 0,
    )
    arguments = of.arguments(tile) | {
        "slots": room.parts,
        "counters": room.counters,
        "parts": count,
        "SPLIT": count > 1,
        "TURNED": turned(of.problem, tile),
        "ROWS": rows(of.problem, tile),
        "maxnreg": registers(tile, share.per_sm),
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
