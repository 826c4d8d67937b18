"""GEMM as a grid of tiles that bulk copies (TMA) bring and take away, on Hopper and later.

**Why this algorithm.** As in pointer.py, one program computes one tile of D by walking along K, a step of
BLOCK_K at a time, `stages` steps ahead. But here a step's two blocks are brought by two instructions of one
thread: addresses, bounds and the pattern in which shared memory is laid out are the hardware's work, so all
other threads do nothing but start matrix instructions, and no size needs a mask. It takes rows that begin at
multiples of 16 bytes, of any length.

One program a tile, against one program an SM (persistent.py): a tile's way out overlaps with the arithmetic
of other blocks on the same SM, where small tiles leave room for more than one, and the hardware hands out
tiles as blocks end; but each block begins with an empty pipeline.

**Bytes moved.** Blocks stop at the end of a tensor, so with T_m = ceil(m / BLOCK_M), T_n = ceil(n / BLOCK_N)

    loads  = T_n m k + T_m n k  elements, mostly from L2; m n more if C is a matrix, T_n m if a bias
    stores = m n                elements

in grouped order, as in pointer.py, so that the tiles which run at the same time share operands in L2.

**Layouts.** 16-bit types are multiplied as they are stored. Of the others Hopper multiplies only blocks that
are contiguous along K (TN); the rest pass through registers to be turned, between copy and arithmetic.

**Arithmetic.** As in pointer.py.
"""

import triton
import triton.language as tl

from kernels.gemm import descriptors, duration
from kernels.gemm.blocks import grouped, walk_descriptors
from kernels.gemm.operands import Operands
from kernels.gemm.parts import tiles_of
from kernels.gemm.problem import Gemm
from kernels.gemm.tiles import Tile
from kernels.gemm.tma_tiles import bulk_tiles, shared_byte
from kernels.prepared import Prepared


@triton.jit(do_not_specialize=["m", "n", "k"])  # type: ignore[untyped-decorator]
def multiply(  # type: ignore[no-untyped-def]
    a,  # descriptor of op(A): [k, m] if ROWS_ARE_K[0] else [m, k]
    b,  # of op(B): [k, n] if ROWS_ARE_K[1] else [n, k]
    c,  # of [n, m] (ADD matrix) or [m] (ADD bias); or None
    d,  # of D: [n, m]; every element is written once
    a_scale,  # None, or one float32 each
    b_scale,
    m,
    n,
    k,
    ROWS_ARE_K: tl.constexpr,  # of A, of B
    ARITHMETIC: tl.constexpr,  # precision, "tf32" or "ieee" (for float32 operands alone), and type of sums
    ADD: tl.constexpr,  # "none", "matrix" or "bias"
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr,
    WALKS: tl.constexpr,  # a program computes every num_programs(0)-th tile, in one pipeline over all of them
):
    """D [n, m] = op(B) [n, k] op(A) [k, m] + C: the column-major product, written row-major."""
    tiles_m, tiles_n = tl.cdiv(m, BLOCK_M), tl.cdiv(n, BLOCK_N)
    tensors = a, b, c, d, a_scale, b_scale
    block: tl.constexpr = (BLOCK_M, BLOCK_N, BLOCK_K)
    if WALKS:
        for tile in tl.range(tl.program_id(0), tiles_m * tiles_n, tl.num_programs(0), flatten=True):
            tile_m, tile_n = grouped(tile, tiles_m, tiles_n, GROUP)
            multiply_tile(tensors, tile_m * BLOCK_M, tile_n * BLOCK_N, k, ROWS_ARE_K, ARITHMETIC, ADD, block)
    else:
        tile_m, tile_n = grouped(tl.program_id(0), tiles_m, tiles_n, GROUP)
        multiply_tile(tensors, tile_m * BLOCK_M, tile_n * BLOCK_N, k, ROWS_ARE_K, ARITHMETIC, ADD, block)


@triton.jit  # type: ignore[untyped-decorator]
def multiply_tile(  # type: ignore[no-untyped-def]
    tensors,
    at_m,
    at_n,
    k,
    ROWS_ARE_K: tl.constexpr,
    ARITHMETIC: tl.constexpr,
    ADD: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The tile of D that begins at column at_m, row at_n. It leaves in two halves, left and right.

    Half a tile is staged in shared memory at a time, and what that saves is a stage of the pipeline.
    """
    a, b, c, d, a_scale, b_scale = tensors
    HALF: tl.constexpr = BLOCK[0] // 2
    total = walk_descriptors(a, b, at_m, at_n, 0, k, ROWS_ARE_K, ARITHMETIC, BLOCK)
    if a_scale is not None:
        total *= tl.load(a_scale) * tl.load(b_scale)
    left, right = total.reshape(BLOCK[1], 2, HALF).permute(0, 2, 1).split()
    d.store([at_n, at_m], with_addend(left, c, at_m, at_n, ADD).to(d.dtype))
    d.store([at_n, at_m + HALF], with_addend(right, c, at_m + HALF, at_n, ADD).to(d.dtype))


@triton.jit  # type: ignore[untyped-decorator]
def with_addend(half, c, at_m, at_n, ADD: tl.constexpr):  # type: ignore[no-untyped-def]
    """Half a tile with what is to be added to it: a block of C, or the same piece of a bias to every row."""
    if ADD == "matrix":
        half += c.load([at_n, at_m]).to(half.dtype)
    elif ADD == "bias":
        half += c.load([at_m]).to(half.dtype)[None, :]
    return half


def candidates(problem: Gemm, capability: tuple[int, int], sm_count: int) -> tuple[Tile, ...]:
    """The tiles to try on a device of this compute capability; it decides (choosing.py)."""
    return bulk_tiles(problem, capability, persistent=False)


def cost(problem: Gemm, tile: Tile, capability: tuple[int, int], sm_count: int) -> float:
    """How long a launch takes by count (duration.py)."""
    held = duration.at_a_time(tile, shared_byte(problem, capability, tile, persistent=False), capability)
    return duration.each_alone(problem, tile, sm_count, held)


def prepare(of: Operands, tile: Tile, sm_count: int) -> Prepared:
    """D in `of.d`, in tiles of this size. The tensors' device must be the current one."""
    return by(of, tile, tiles_of(of.problem, tile), walks=False)


def by(of: Operands, tile: Tile, count: int, *, walks: bool) -> Prepared:
    """The same by so many programs, each of which computes a tile, or walks."""
    a, b = descriptors.operands(of, tile)
    half = [tile.n, tile.m // 2]
    arguments = of.arguments(multiply, tile) | tile.options
    arguments |= {"a": a, "b": b, "c": None, "d": descriptors.described("d", of.d, half), "WALKS": walks}
    if of.c is not None:
        arguments["c"] = descriptors.described("c", of.c, half if of.addend == "matrix" else half[1:])
    return Prepared(multiply, (count,), arguments, of.d)
