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

from typing import Any

import triton
import triton.language as tl

from bench.spec import Launch
from kernels.gemm import descriptors, duration
from kernels.gemm.blocks import grouped
from kernels.gemm.descriptors import described_operands, multiply_tile
from kernels.gemm.operands import Operands
from kernels.gemm.problem import Gemm
from kernels.gemm.tiles import Tile
from kernels.gemm.tma_tiles import bulk_tiles, shared_byte


@triton.jit(do_not_specialize=["m", "n", "k", "row_a", "row_b", "row_c", "row_d"])  # type: ignore[untyped-decorator]
def multiply(  # type: ignore[no-untyped-def]
    a,  # op(A): [k, m] if A_ROWS_ARE_K else [m, k]; a descriptor, or a pointer to make one of
    b,  # op(B): [k, n] if B_ROWS_ARE_K else [n, k]; so too
    c,  # [n, m] (ADD matrix) or [m] (ADD bias); so too; or None
    d,  # D: [n, m]; so too; every element is written once
    a_scale,  # None, or one float32 each
    b_scale,
    m,
    n,
    k,
    row_a,  # elements from one row of a tensor to the next
    row_b,
    row_c,
    row_d,
    A_ROWS_ARE_K: tl.constexpr,
    B_ROWS_ARE_K: tl.constexpr,
    PRECISION: tl.constexpr,  # "tf32" or "ieee"; means something for float32 operands only
    ADD: tl.constexpr,  # "none", "matrix" or "bias"
    SUM: tl.constexpr,
    ON_HOST: tl.constexpr,  # the descriptors were made there
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr,
):
    """One tile of D [n, m] = op(B) [n, k] op(A) [k, m] + C: the column-major product, written row-major."""
    a, b, c, d = described_operands(
        a,
        b,
        c,
        d,
        m,
        n,
        k,
        row_a,
        row_b,
        row_c,
        row_d,
        A_ROWS_ARE_K,
        B_ROWS_ARE_K,
        ADD,
        BLOCK_M,
        BLOCK_N,
        BLOCK_K,
        ON_HOST,
    )
    tile_m, tile_n = grouped(tl.program_id(0), tl.cdiv(m, BLOCK_M), tl.cdiv(n, BLOCK_N), GROUP)
    multiply_tile(
        a,
        b,
        c,
        d,
        a_scale,
        b_scale,
        tile_m * BLOCK_M,
        tile_n * BLOCK_N,
        k,
        A_ROWS_ARE_K,
        B_ROWS_ARE_K,
        PRECISION,
        ADD,
        SUM,
        BLOCK_M,
        BLOCK_N,
        BLOCK_K,
    )


def candidates(problem: Gemm, capability: tuple[int, int], sm_count: int) -> tuple[Tile, ...]:
    """The tiles to try on a device of this compute capability; it decides (choosing.py)."""
    return bulk_tiles(problem, capability, persistent=False)


def cost(problem: Gemm, tile: Tile, capability: tuple[int, int], sm_count: int) -> float:
    """How long a launch takes by count (duration.py)."""
    held = duration.at_a_time(tile, shared_byte(problem, capability, tile, persistent=False), capability)
    return duration.each_alone(problem, tile, sm_count, held)


def launch(of: Operands, tile: Tile, sm_count: int) -> Launch:
    """D in `of.d`, in tiles of this size. The tensors' device must be the current one."""
    return descriptors.launch(multiply, of, programs(of.problem, tile), arguments(of, tile))


def compile(of: Operands, tile: Tile, sm_count: int) -> None:  # noqa: A001
    """What `launch` will run, compiled and not run."""
    multiply.warmup(**arguments(of, tile), grid=(programs(of.problem, tile),))


def programs(problem: Gemm, tile: Tile) -> int:
    """One for each tile of D, ragged ones included."""
    return -(-problem.m // tile.m) * -(-problem.n // tile.n)


def arguments(of: Operands, tile: Tile) -> dict[str, Any]:
    """What `multiply` is called with."""
    return descriptors.arguments(of, tile) | {"GROUP": tile.group}
