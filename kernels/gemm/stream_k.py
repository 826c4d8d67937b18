"""GEMM whose tiles do not fill whole waves: each program gets an equal share of all steps along K (stream-K).

**Why this algorithm.** A device that computes P tiles at a time takes two waves for P + 1 tiles, and idles
through most of the second. Here P programs divide up the steps along K of all tiles in one line, evenly to
one step: the end of one tile, whole tiles, the start of another. The sums of a tile that several programs
share are added by the last of them to arrive, in the order of K (parts.py); nobody waits.

Steps cut within tiles cost: sums pass through the workspace, and programs walk along K at different places,
so that they share less of their operands in L2. So of T tiles only the last waves are cut up:

    T < P               all tiles, by at most one program for 4 steps
    P divides T         none: whole waves
    otherwise           P + T mod P tiles, between one wave and two, and so at most 3 programs a tile

The others are whole tiles, P at a time, computed after the cut ones: sums are exchanged while there is
other work. (Osama et al., Stream-K, PPoPP 2023, call this the two-tile hybrid.)

**Bytes moved.** Operands as in pointer.py: each tile's K is covered once, whoever does it,

    T (BLOCK_M + BLOCK_N) k    elements, mostly from L2

and at most 2 P partial tiles, written and read once: a program has two at most, the first and the last of its
share. On Hopper and later, where rows allow, operands are moved by bulk copies (descriptors.py), which read
nothing beyond the tensors.

**Arithmetic.** As in pointer.py; a shared tile's sum is some shorter ones, added in the type of sums.
"""

import math
from typing import NamedTuple

import triton
import triton.language as tl

from kernels.gemm import descriptors
from kernels.gemm.blocks import aligned, grouped, known_multiple, walk_descriptors, walk_pointers, write
from kernels.gemm.duration import FILL_STEPS, leave, sharing
from kernels.gemm.operands import Operands
from kernels.gemm.parts import FAN, Share, bring, exchange, reads, shared_arguments, step, tiles_of
from kernels.gemm.parts_tiles import has_bulk_copies, shared_tiles
from kernels.gemm.problem import Gemm
from kernels.gemm.tiles import Tile
from kernels.prepared import Prepared

LEAST_STEPS = 4
"""Steps along K that a program has at least."""


@triton.jit
def owner(at, each, more):  # type: ignore[no-untyped-def]
    """The program to whose share a place in line belongs: the first `more` have each + 1, the others each."""
    longer = more * (each + 1)
    return tl.where(at < longer, at // (each + 1), more + (at - longer) // tl.maximum(each, 1))


@triton.jit(  # type: ignore[untyped-decorator]
    do_not_specialize=["m", "n", "k", "row_a", "row_b", "row_c", "row_d", "streamed"]
)
def multiply(  # type: ignore[no-untyped-def]
    a_pointer,  # op(A): [k, m] if ROWS_ARE_K[0] else [m, k]; a descriptor if BULK
    b_pointer,  # op(B): [k, n] if ROWS_ARE_K[1] else [n, k]; likewise
    c_pointer,  # [n, m] (ADD matrix), [m] (ADD bias) or None
    d_pointer,  # D: [n, m]; every element is written once
    a_scale,  # None, or one float32 each
    b_scale,
    slots,  # [streamed + programs - 1, BLOCK_N, BLOCK_M] of sums
    counters,  # [streamed, 1 + ceil(programs / FAN)], zero before and after
    m,
    n,
    k,
    row_a,  # elements from one row of a tensor to the next
    row_b,
    row_d,
    row_c,
    streamed,  # tiles whose steps are shared out; programs divides the number of the others
    ROWS_ARE_K: tl.constexpr,  # of A, of B
    ALIGN: tl.constexpr,  # powers of two that divide m, n, k and the rows of A, B, D; at most 16 bytes' worth
    ARITHMETIC: tl.constexpr,  # precision, "tf32" or "ieee" (for float32 operands alone), and type of sums
    ADD: tl.constexpr,  # "none", "matrix" or "bias"
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr,
    EVEN_K: tl.constexpr,  # BLOCK_K divides k: the walk along K needs no mask
    BULK: tl.constexpr,  # operands are moved by bulk copies
    ROWS: tl.constexpr,  # of a tile that are added at a time
):
    """Programs that take turns: the tiles of a share of the steps, then whole tiles, programs apart."""
    m, n, k, row_a, row_b, row_c, row_d = aligned(m, n, k, row_a, row_b, row_c, row_d, ALIGN)

    outputs = c_pointer, d_pointer, a_scale, b_scale, m, n, row_c, row_d
    block: tl.constexpr = (BLOCK_M, BLOCK_N, BLOCK_K)
    program, programs = tl.program_id(0), tl.num_programs(0)
    tiles_m, tiles_n = tl.cdiv(m, BLOCK_M), tl.cdiv(n, BLOCK_N)
    steps = tl.cdiv(k, BLOCK_K)
    # Fits 32 bits: streamed is less than 2 programs, and so many tiles with K any longer fit no memory.
    each, more = streamed * steps // programs, streamed * steps % programs
    begin = program * each + tl.minimum(program, more)
    end = begin + each + tl.where(program < more, 1, 0)
    shared = tl.where(begin < end, tl.cdiv(end, steps) - begin // steps, 0)
    whole = (tiles_m * tiles_n - streamed) // programs
    for turn in range(0, shared + whole):
        if turn < shared:
            tile = begin // steps + turn
            first = tl.maximum(begin - tile * steps, 0)
            last = tl.minimum(end - tile * steps, steps)
        else:
            tile = streamed + program + (turn - shared) * programs
            first = tl.zeros_like(steps)
            last = steps
        tile_m, tile_n = grouped(tile, tiles_m, tiles_n, GROUP)
        along_m = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
        along_n = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
        from_k, to_k = first * BLOCK_K, known_multiple(tl.minimum(last * BLOCK_K, k), ALIGN[2])
        if BULK:
            at_m, at_n = tile_m * BLOCK_M, tile_n * BLOCK_N
            total = walk_descriptors(
                a_pointer, b_pointer, at_m, at_n, from_k, to_k, ROWS_ARE_K, ARITHMETIC, block
            )
        else:
            operands = a_pointer, b_pointer, m, n, row_a, row_b
            total = walk_pointers(
                operands, along_m, along_n, from_k, to_k, ROWS_ARE_K, ARITHMETIC, block, EVEN_K
            )
        if last - first == steps:
            write(total, along_m, along_n, outputs, ADD)
        else:
            # From part to part in line the tile, the program or both go up: so their sum is each part's own.
            foremost = owner(tile * steps, each, more)
            hindmost = owner(tile * steps + steps - 1, each, more)
            part, parts = program - foremost, hindmost - foremost + 1
            mine = slots + tl.cast(tile + foremost, tl.int64) * (BLOCK_M * BLOCK_N)
            counts = counters + tile * (1 + tl.cdiv(programs, FAN))
            bring(total, part, parts, mine, counts, tile_m, tile_n, outputs, ADD, (BLOCK_M, BLOCK_N, ROWS))


class Streams(NamedTuple):
    """A tile, how many programs share each multiprocessor (SM), and whether bulk copies move the operands."""

    tile: Tile
    per_sm: int
    bulk: bool

    def __str__(self) -> str:
        """`128x256x64 w8 s3 1/SM bulk`."""
        return f"{Share(self.tile, self.per_sm)} {'bulk' if self.bulk else 'pointers'}"


class Plan(NamedTuple):
    """How the tiles of a problem are divided up."""

    programs: int
    streamed: int
    """Tiles whose steps are shared out, the first ones; the rest are whole, a multiple of programs."""


def plan(problem: Gemm, streams: Streams, sm_count: int) -> Plan:
    """The rule above, for as many programs as there is room for."""
    tiles = tiles_of(problem, streams.tile)
    programs = streams.per_sm * sm_count
    if tiles < programs:
        # Fewer programs where each would have but a few steps; a program for each tile at least.
        steps = math.ceil(problem.k / streams.tile.k)
        programs = max(tiles, min(programs, tiles * steps // LEAST_STEPS))
    left = tiles % programs
    return Plan(programs, left + (programs if tiles > programs else 0) if left else 0)


def candidates(problem: Gemm, capability: tuple[int, int], sm_count: int) -> tuple[Streams, ...]:
    """The tiles to try on a device of this compute capability; it decides (choosing.py)."""
    bulk = has_bulk_copies(problem, capability)
    return tuple(Streams(share.tile, share.per_sm, bulk) for share in shared_tiles(problem, capability))


def cost(problem: Gemm, streams: Streams, capability: tuple[int, int], sm_count: int) -> float:
    """How long a launch takes, in the units of kernels/gemm/duration.py.

    A program that shares tiles has a part of one more than its steps would fill. It writes its first and its
    last part, and adds up those of one tile. Each turn, of a part or of a tile, fills a pipeline and ends.
    """
    tile = streams.tile
    programs, streamed = plan(problem, streams, sm_count)
    of_tile = math.ceil(problem.k / tile.k)
    turns = (tiles_of(problem, tile) - streamed) // programs
    steps = float(turns * of_tile)
    if streamed:
        share = math.ceil(streamed * of_tile / programs)
        parts = math.ceil(of_tile / share) + 1
        steps += share + (2 + reads(parts)) * exchange(problem, tile)
        turns += math.ceil(share / of_tile) + 1
    together = sharing(programs, streams.per_sm, sm_count)
    steps += FILL_STEPS * turns
    return steps * together * step(problem, tile) + turns * leave(problem, tile)


def prepare(of: Operands, streams: Streams, sm_count: int) -> Prepared:
    """D in `of.d`. The tensors' device must be the current one; one stream runs all launches (parts.py)."""
    programs, streamed = plan(of.problem, streams, sm_count)
    room = streamed + programs - 1 if streamed else 0
    counters = streamed * (1 + math.ceil(programs / FAN.value))
    share = Share(streams.tile, streams.per_sm)
    arguments = shared_arguments(of, multiply, share, room, counters)
    arguments |= {"streamed": streamed, "BULK": streams.bulk}
    if streams.bulk:
        a, b = descriptors.operands(of, streams.tile)
        arguments |= {"a_pointer": a, "b_pointer": b}
    return Prepared(multiply, (programs,), arguments, of.d)
