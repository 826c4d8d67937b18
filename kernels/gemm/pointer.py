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
near it, programs run in *grouped order* (blocks.py): GROUP tiles of N by all of M, so that the tiles which
run at the same time share operands in L2.

**Alignment.** The loads are 16 bytes wide only if the compiler can prove that rows start at multiples of
16 bytes, so each size's alignment (1, 2, 4 or 8 elements of 16 bits) is a compile-time constant here.
Triton's own specialisation knows only "divisible by 16" and would hide that 8 elements are enough.

**The second axis of the grid** is the products of a batch, which follow one another in memory, each computed
as if it were alone; or the parts into which split_k.py cuts K.

**Arithmetic.** Products are summed in float32 (float64 for float64, int32 for int8), scaled, C or a bias is
added, and the result rounded once. `tf32` truncates float32 operands to 10 bits; `float32` uses no matrix
unit. On Hopper `float8_e4m3` is summed inside the tensor core, which keeps some 14 bits: what cuBLAS calls
fast accumulation.
"""

import triton
import triton.language as tl

from kernels.gemm.blocks import aligned, grouped, known_multiple, walk_pointers, write
from kernels.gemm.operands import Operands, Prepared, has_wide_loads
from kernels.gemm.partial_sums import reduce_parts
from kernels.gemm.problem import Gemm
from kernels.gemm.tiles import Tile, pointer_tiles, tiles_of


@triton.jit(  # type: ignore[untyped-decorator]
    do_not_specialize=["m", "n", "k", "row_a", "row_b", "row_c", "row_d", "parts"]
)
def multiply(  # type: ignore[no-untyped-def]
    a_pointer,  # op(A): [k, m] if ROWS_ARE_K[0] else [m, k]
    b_pointer,  # op(B): [k, n] if ROWS_ARE_K[1] else [n, k]
    c_pointer,  # [n, m] (ADD matrix), [m] (ADD bias) or None
    d_pointer,  # D: [n, m]; every element is written once; A, B and D with batch in front if BATCHED
    a_scale,  # None, or one float32 each
    b_scale,
    slots,  # [tiles, parts, BLOCK_N, BLOCK_M] of sums, or None
    counters,  # [tiles], zero before and after; or None
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
    ROWS: tl.constexpr,  # of a tile that are added at a time
    HALVES: tl.constexpr,  # a tile is written left half first: its sums and all of C would not fit registers
    BATCHED: tl.constexpr,
):
    """D [n, m] = op(B) [n, k] op(A) [k, m] + C by programs (tile, part) or (tile, product)."""
    m, n, k, row_a, row_b, row_c, row_d = aligned(m, n, k, row_a, row_b, row_c, row_d, ALIGN)

    if BATCHED:
        which = tl.program_id(1).to(tl.int64)
        a_pointer += which * (k if ROWS_ARE_K[0] else m) * row_a
        b_pointer += which * (k if ROWS_ARE_K[1] else n) * row_b
        d_pointer += which * n * row_d

    tile = tl.program_id(0)
    tile_m, tile_n = grouped(tile, tl.cdiv(m, BLOCK_M), tl.cdiv(n, BLOCK_N), GROUP)
    along_m = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    along_n = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    from_k, to_k = 0, k
    if SPLIT:
        part = tl.program_id(1)
        # The first parts have one step more than the others; with fewer steps than parts some have none.
        steps = tl.cdiv(k, BLOCK_K)
        each, more = steps // parts, steps % parts
        first = part * each + tl.minimum(part, more)
        last = first + each + tl.where(part < more, 1, 0)
        from_k, to_k = first * BLOCK_K, known_multiple(tl.minimum(last * BLOCK_K, k), ALIGN[2])
    block: tl.constexpr = (BLOCK_M, BLOCK_N, BLOCK_K)
    operands = a_pointer, b_pointer, m, n, row_a, row_b
    total = walk_pointers(operands, along_m, along_n, from_k, to_k, ROWS_ARE_K, ARITHMETIC, block, EVEN_K)
    outputs = c_pointer, d_pointer, a_scale, b_scale, m, n, row_c, row_d
    if SPLIT:
        mine = slots + tl.cast(tile, tl.int64) * parts * (BLOCK_M * BLOCK_N)
        shape: tl.constexpr = (BLOCK_M, BLOCK_N, ROWS)
        reduce_parts(total, part, parts, mine, counters + tile, tile_m, tile_n, outputs, ADD, shape)
    elif HALVES:
        left, right = total.reshape(BLOCK_N, 2, BLOCK_M // 2).permute(0, 2, 1).split()
        along_half = tile_m * BLOCK_M + tl.arange(0, BLOCK_M // 2)
        write(left, along_half, along_n, outputs, ADD)
        write(right, along_half + BLOCK_M // 2, along_n, outputs, ADD)
    else:
        write(total, along_m, along_n, outputs, ADD)


def candidates(problem: Gemm, capability: tuple[int, int]) -> tuple[Tile, ...]:
    """The tiles to try on a device of this compute capability; it decides (autotune.py)."""
    return pointer_tiles(capability, problem.dtype, problem.layout, wide=has_wide_loads(problem))


def prepare(of: Operands, tile: Tile, sm_count: int) -> Prepared:
    """D in `of.d`, in tiles of this size. The tensors' device must be the current one."""
    batch = of.problem.batch
    grid = tiles_of(of.problem, tile) // batch, batch
    arguments = (
        of.arguments(multiply, tile)
        | tile.options
        | {
            **{"slots": None, "counters": None, "parts": 1, "SPLIT": False, "ROWS": 1},
            "HALVES": of.addend == "matrix",
            "BATCHED": batch > 1,
        }
    )
    return Prepared(multiply, grid, arguments, of.d)
