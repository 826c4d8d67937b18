"""GEMM as a grid of tiles addressed by pointers: the Triton kernel that runs everywhere, at any size.

**Why this algorithm.** One program computes one tile of C, BLOCK_M x BLOCK_N, by walking along K in steps
of BLOCK_K and feeding each pair of operand tiles to the matrix units. Loads are plain pointers, so any
size and any alignment works, and the compiler overlaps them with the arithmetic (`cp.async`, as many
steps ahead as the configuration has stages). Bulk tensor copies (TMA) are faster on Hopper and later,
but need rows that start at multiples of 16 bytes; they are another file's idea.

**Bytes moved.** Every program reads BLOCK_M rows of op(A)^T and BLOCK_N rows of op(B)^T, each K long, and
writes its tile once:

    loads  = ceil(m / BLOCK_M) ceil(n / BLOCK_N) (BLOCK_M + BLOCK_N) k  elements, mostly from L2
    stores = m n                                                        elements

A ragged tile loads as much as a full one: its missing rows wrap around to rows that exist, so that no
load along K needs a mask for them. `Problem.byte` is what must come from DRAM, each operand once; to stay
near it, programs run in *grouped order* (order.py): GROUP tiles of N by all of M, so that the tiles which
run at the same time share operands in L2.

**Alignment.** The loads are 16 bytes wide only if the compiler can prove that rows start at multiples of
16 bytes, so each size's alignment (1, 2, 4 or 8 elements of 16 bits) is a compile-time constant here.
Triton's own specialisation knows only "divisible by 16" and would hide that 8 elements are enough.

**A batch** is a second axis of the grid: each of its products is computed as if it were alone, from tensors
that follow one another in memory.

**Arithmetic.** Products are summed in float32 (float64 for float64, int32 for int8), scaled, C or a bias is
added, and the result rounded once. `tf32` truncates float32 operands to 10 bits; `float32` uses no matrix
unit. On Hopper `float8_e4m3` is summed inside the tensor core, which keeps some 14 bits: what cuBLAS calls
fast accumulation.
"""

from typing import Any

import triton
import triton.language as tl

from bench.spec import Launch
from kernels.gemm import duration
from kernels.gemm.blocks import finished, grouped, known_multiple, store, walk_pointers
from kernels.gemm.operands import Operands, has_wide_loads
from kernels.gemm.problem import Gemm
from kernels.gemm.tiles import Tile, pointer_tiles


@triton.jit(do_not_specialize=["m", "n", "k", "row_a", "row_b", "row_c", "row_d"])  # type: ignore[untyped-decorator]
def multiply(  # type: ignore[no-untyped-def]
    a_pointer,  # op(A): [k, m] if A_ROWS_ARE_K else [m, k]
    b_pointer,  # op(B): [k, n] if B_ROWS_ARE_K else [n, k]
    c_pointer,  # [n, m] (ADD matrix), [m] (ADD bias) or None
    d_pointer,  # D: [n, m]; every element is written once; A, B and D with batch in front if BATCHED
    a_scale,  # None, or one float32 each
    b_scale,
    m,
    n,
    k,
    row_a,  # elements from one row of a tensor to the next
    row_b,
    row_d,
    row_c,
    A_ROWS_ARE_K: tl.constexpr,
    B_ROWS_ARE_K: tl.constexpr,
    ALIGN_M: tl.constexpr,  # powers of two that divide m, n, k; at most 16 bytes' worth of elements
    ALIGN_N: tl.constexpr,
    ALIGN_K: tl.constexpr,
    ALIGN_ROW_A: tl.constexpr,  # and those that divide the rows' lengths
    ALIGN_ROW_B: tl.constexpr,
    ALIGN_ROW_D: tl.constexpr,
    PRECISION: tl.constexpr,  # "tf32" or "ieee"; means something for float32 operands only
    ADD: tl.constexpr,  # "none", "matrix" or "bias"
    SUM: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr,
    EVEN_K: tl.constexpr,  # BLOCK_K divides k: the walk along K needs no mask
    BATCHED: tl.constexpr,
):
    """D [n, m] = op(B) [n, k] op(A) [k, m] + C: the column-major product, written row-major."""
    m = known_multiple(m, ALIGN_M)
    n = known_multiple(n, ALIGN_N)
    k = known_multiple(k, ALIGN_K)
    row_a = known_multiple(row_a, ALIGN_ROW_A)
    row_b = known_multiple(row_b, ALIGN_ROW_B)
    row_d = known_multiple(row_d, ALIGN_ROW_D)
    if BATCHED:
        which = tl.program_id(1).to(tl.int64)
        a_pointer += which * (k if A_ROWS_ARE_K else m) * row_a
        b_pointer += which * (k if B_ROWS_ARE_K else n) * row_b
        d_pointer += which * n * row_d

    tile_m, tile_n = grouped(tl.program_id(0), tl.cdiv(m, BLOCK_M), tl.cdiv(n, BLOCK_N), GROUP)
    along_m = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    along_n = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    total = walk_pointers(
        a_pointer,
        b_pointer,
        along_m,
        along_n,
        0,
        k,
        m,
        n,
        row_a,
        row_b,
        A_ROWS_ARE_K,
        B_ROWS_ARE_K,
        PRECISION,
        SUM,
        BLOCK_M,
        BLOCK_N,
        BLOCK_K,
        EVEN_K,
    )
    row_c = known_multiple(row_c, ALIGN_ROW_D)
    if ADD == "matrix":
        # In two halves, left and right: a tile's sums and all of its C would not fit the registers.
        left, right = total.reshape(BLOCK_N, 2, BLOCK_M // 2).permute(0, 2, 1).split()
        along_half = tile_m * BLOCK_M + tl.arange(0, BLOCK_M // 2)
        left = finished(left, c_pointer, a_scale, b_scale, along_half, along_n, m, n, row_c, ADD)
        store(left, d_pointer, along_half, along_n, m, n, row_d)
        along_half += BLOCK_M // 2
        right = finished(right, c_pointer, a_scale, b_scale, along_half, along_n, m, n, row_c, ADD)
        store(right, d_pointer, along_half, along_n, m, n, row_d)
    else:
        total = finished(total, c_pointer, a_scale, b_scale, along_m, along_n, m, n, row_c, ADD)
        store(total, d_pointer, along_m, along_n, m, n, row_d)


def candidates(problem: Gemm, capability: tuple[int, int], sm_count: int) -> tuple[Tile, ...]:
    """The tiles to try on a device of this compute capability; it decides (bench/launching/tuning.py)."""
    return pointer_tiles(capability, problem.dtype, problem.layout, wide=has_wide_loads(problem))


def cost(problem: Gemm, tile: Tile, capability: tuple[int, int], sm_count: int) -> float:
    """How long a launch takes by count (duration.py)."""
    step_byte = (tile.m + tile.n) * tile.k * problem.item_byte
    # Instructions that take their operands from registers need no room for the step they are at.
    from_registers = capability[0] not in (9, 10, 11)
    shared_byte = max(1, tile.stages - from_registers) * step_byte
    held = duration.at_a_time(tile, shared_byte, capability)
    return duration.each_alone(problem, tile, sm_count, held)


def launch(of: Operands, tile: Tile, sm_count: int) -> Launch:
    """D in `of.d`, in tiles of this size. The tensors' device must be the current one."""
    return Launch.of(multiply[grid(of.problem, tile)], (of.d,), **_arguments(of, tile))


def compile(of: Operands, tile: Tile, sm_count: int) -> None:  # noqa: A001
    """What `launch` will run, compiled and not run."""
    multiply.warmup(**_arguments(of, tile), grid=grid(of.problem, tile))


def grid(problem: Gemm, tile: Tile) -> tuple[int, int]:
    """One program for each tile of D, ragged ones included, and each product."""
    return -(-problem.m // tile.m) * -(-problem.n // tile.n), problem.batch


def _arguments(of: Operands, tile: Tile) -> dict[str, Any]:
    return of.arguments() | {
        "BLOCK_M": tile.m,
        "BLOCK_N": tile.n,
        "BLOCK_K": tile.k,
        "GROUP": tile.group,
        "EVEN_K": of.problem.k % tile.k == 0,
        "BATCHED": of.problem.batch > 1,
        "num_warps": tile.warps,
        "num_stages": tile.stages,
    }
