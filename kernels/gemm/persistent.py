"""GEMM by one program an SM that walks over tiles, moved by bulk copies (TMA), on Hopper and later.

**Why this algorithm.** As in tma.py, but a program does not end with its tile: it goes on to the next, as
many tiles on as there are programs. The two loops, over tiles and along K, are made one (`flatten`), so the
first steps of the next tile are already in flight while the sums of this one leave. What a block costs to
begin and to end is paid once an SM, not once a tile; the shorter K, the more that is.

The price is the last wave: with T tiles and P programs the time is that of ceil(T / P) tiles, however few
are in the last round (MM-13). stream_k.py is for where that hurts. Which program does which tile is fixed,
so all SMs are taken to be equally fast and free.

**Bytes moved.** As in tma.py, in the same grouped order: programs that run at the same time are at
neighbouring tiles.

**Warps that only copy.** The same kernel is specialized.py's, with SPECIALIZE.
"""

from typing import Any

import triton
import triton.language as tl

from bench.spec import Launch
from kernels.gemm import descriptors, duration, tma
from kernels.gemm.blocks import grouped
from kernels.gemm.descriptors import described_operands, multiply_tile
from kernels.gemm.operands import Operands
from kernels.gemm.problem import Gemm
from kernels.gemm.tiles import Tile
from kernels.gemm.tma_tiles import bulk_tiles


@triton.jit(do_not_specialize=["m", "n", "k", "row_a", "row_b", "row_c", "row_d"])  # type: ignore[untyped-decorator]
def multiply(  # type: ignore[no-untyped-def]
    a,  # as in tma.py, all of them, up to GROUP
    b,
    c,
    d,
    a_scale,
    b_scale,
    m,
    n,
    k,
    row_a,
    row_b,
    row_c,
    row_d,
    A_ROWS_ARE_K: tl.constexpr,
    B_ROWS_ARE_K: tl.constexpr,
    PRECISION: tl.constexpr,
    ADD: tl.constexpr,
    SUM: tl.constexpr,
    ON_HOST: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr,
    FLATTEN: tl.constexpr,  # one pipeline over all tiles of a program
    SPECIALIZE: tl.constexpr,  # some warps copy, the others multiply
):
    """D [n, m] = op(B) [n, k] op(A) [k, m] + C, every num_programs(0)-th tile of it."""
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
    tiles_m = tl.cdiv(m, BLOCK_M)
    tiles_n = tl.cdiv(n, BLOCK_N)
    first, step = tl.program_id(0), tl.num_programs(0)
    for tile in tl.range(first, tiles_m * tiles_n, step, flatten=FLATTEN, warp_specialize=SPECIALIZE):
        tile_m, tile_n = grouped(tile, tiles_m, tiles_n, GROUP)
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
    return bulk_tiles(problem, capability, persistent=True)


def cost(problem: Gemm, tile: Tile, capability: tuple[int, int], sm_count: int) -> float:
    """How long a launch takes by count (duration.py)."""
    return duration.walking(problem, tile, sm_count)


def launch(of: Operands, tile: Tile, sm_count: int) -> Launch:
    """D in `of.d`, in tiles of this size. The tensors' device must be the current one."""
    return descriptors.launch(multiply, of, programs(of.problem, tile, sm_count), arguments(of, tile))


def compile(of: Operands, tile: Tile, sm_count: int) -> None:  # noqa: A001
    """What `launch` will run, compiled and not run."""
    multiply.warmup(**arguments(of, tile), grid=(programs(of.problem, tile, sm_count),))


def programs(problem: Gemm, tile: Tile, sm_count: int) -> int:
    """One an SM, or one a tile where those are fewer."""
    return min(sm_count, tma.programs(problem, tile))


def arguments(of: Operands, tile: Tile) -> dict[str, Any]:
    """What `multiply` is called with."""
    return tma.arguments(of, tile) | {"FLATTEN": True, "SPECIALIZE": False}
