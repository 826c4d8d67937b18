"""GEMM on Blackwell (10.x) in Gluon: warps that copy, one that multiplies, four that take tiles away.

**Why this algorithm.** A program walks over tiles as in persistent.py, and three kinds of warps share the
work, meeting at barriers in shared memory alone:

* one warp *brings* blocks of A and B by bulk copies (TMA), `stages` steps of K ahead, across tiles;
* one warp *multiplies*: a tcgen05 instruction reads both blocks from shared memory and adds to sums in tensor
  memory, without a register; when it has ended it frees the blocks by itself (commit);
* four warps *take away*: sums from tensor memory to registers, addend, rounding, shared memory, bulk store.

Tensor memory has room for two tiles of sums (2 x 128 x 256 float32, all 512 columns), so one is taken away
while the next is multiplied: the end of a tile costs time only where K is so short that it takes longer than
the tile's products. persistent.py has the room too, but one kind of warps for everything: each step of K
there is a loop of some 290 instructions and 7 barriers of all warps, here of some 60 and none.

**Two blocks to a product.** In a cluster of two, on neighbouring SMs, one instruction (`cta_group::2`)
multiplies 256 rows of D: each SM brings its own 128 rows of op(B) and half the columns of op(A), holds the
sums of its own rows, and reads the other's half where it lies. So a step brings 128 + m/2 rows an SM
instead of 128 + m, which is what shared memory and L2 have to carry.

**Barriers**, each with the number of arrivals that completes a phase:

    filled[stage]  1: expects the bytes of A and B, which the copies themselves report; of a pair one, the
                   first block's, which expects and gets those of both
    freed[stage]   1: the products of this step have read the blocks; reported to both blocks of a pair
    summed[half]   1: the sums of a tile are complete; to both blocks of a pair
    taken[half]    1: these sums have been read, each block's own
    brought[i]     1: C, or the bias, is in shared memory

Sums that are to be overwritten must have been read first. A block alone has its multiplying warp wait for
`taken`. Of a pair only the first block multiplies, and in Triton 3.7 an arrival stays within its own block,
also at a barrier of both (later versions send it to the first, as their examples expect). So there the warps
that bring wait for `taken`, each for its own block: no product starts without the operands of both.

**Bytes moved.** As in tma.py, with tiles of a pair as large as both blocks' together; loads of C are of D's
size, in the same parts.

**Layouts.** All four, for 16-bit types and float8_e4m3: tcgen05 reads blocks along K or across it.

**Arithmetic.** Products of 16-bit types are exact in float32, sums too are float32, in tensor memory, in the
order in which K is walked; deterministic. The addend is added in float32, the result rounded once.

Triton 3.6 has no barriers of a cluster in Gluon, nor copies of part of a block, so 3.7 is needed. Learned
from Triton's tutorials python/tutorials/gluon 06, 08, 14 and examples/gluon/03.
"""

from __future__ import annotations

import functools

import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.blackwell import (
    TensorMemoryLayout,
    allocate_tensor_memory,
    fence_async_shared,
    get_tmem_reg_layout,
    mbarrier,
    tcgen05_commit,
    tcgen05_mma,
    tma,
)
from triton.experimental.gluon.nvidia.blackwell import TensorDescriptor

from kernels.gemm.blocks import grouped
from kernels.gemm.gluon import (
    GROUPS,
    ROWS,
    SLACK_BYTE,
    Schedule,
    check_version,
    computed,
    described,
    programs,
)
from kernels.gemm.operands import Operands
from kernels.gemm.problem import Gemm
from kernels.gemm.tiles import Tile
from kernels.prepared import Prepared

LEAST_TRITON = (3, 7)
"""Before it Gluon has no barriers of a cluster, nor any of what is called to make them."""


@gluon.jit  # type: ignore[untyped-decorator]
def allocated_barriers(STAGES: gl.constexpr, PAIRED: gl.constexpr):  # type: ignore[no-untyped-def]
    """The barriers filled, freed, summed and taken, each completed by one arrival."""
    filled = mbarrier.allocate_mbarrier(batch=STAGES, two_ctas=PAIRED)
    freed = mbarrier.allocate_mbarrier(batch=STAGES)
    summed = mbarrier.allocate_mbarrier(batch=2)
    taken = mbarrier.allocate_mbarrier(batch=2)
    for i in gl.static_range(STAGES):
        mbarrier.init(filled.index(i), count=1)
        mbarrier.init(freed.index(i), count=1)
    for i in gl.static_range(2):
        mbarrier.init(summed.index(i), count=1)
        mbarrier.init(taken.index(i), count=1)
    return filled, freed, summed, taken


@gluon.jit  # type: ignore[untyped-decorator]
def bring(  # type: ignore[no-untyped-def]
    operands,  # A, B, and shared memory for STAGES blocks of each
    barriers,  # filled, freed, summed, taken
    tiles,  # along M and N
    k,
    ROWS_ARE_K: gl.constexpr,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    BLOCK_K: gl.constexpr,
    STAGES: gl.constexpr,
    GROUP: gl.constexpr,
    PAIRED: gl.constexpr,
):
    """One warp: the blocks of all steps of all tiles of this program, as stages become free."""
    a, b, a_blocks, b_blocks = operands
    filled, freed, _, taken = barriers
    tiles_m, tiles_n = tiles
    step = 0
    turn = 0
    for tile in range(gl.program_id(0), tiles_m * tiles_n, gl.num_programs(0)):
        tile_m, tile_n = grouped(tile, tiles_m, tiles_n, GROUP)
        at_m = tile_m * BLOCK_M
        at_n = tile_n * BLOCK_N
        if PAIRED:
            mbarrier.wait(taken.index(turn % 2), (turn // 2 + 1) & 1)
        for at_k in range(0, k, BLOCK_K):
            stage = step % STAGES
            # The phase before a barrier's first counts as completed: the first round does not wait.
            mbarrier.wait(freed.index(stage), (step // STAGES + 1) & 1)
            full = filled.index(stage)
            mbarrier.expect(full, a.nbytes_per_cta + b.nbytes_per_cta)
            if ROWS_ARE_K[0]:
                tma.async_copy_global_to_shared(a, [at_k, at_m], full, a_blocks.index(stage))
            else:
                tma.async_copy_global_to_shared(a, [at_m, at_k], full, a_blocks.index(stage))
            if ROWS_ARE_K[1]:
                tma.async_copy_global_to_shared(b, [at_k, at_n], full, b_blocks.index(stage))
            else:
                tma.async_copy_global_to_shared(b, [at_n, at_k], full, b_blocks.index(stage))
            step += 1
        turn += 1


@gluon.jit  # type: ignore[untyped-decorator]
def multiply_tiles(  # type: ignore[no-untyped-def]
    blocks,  # of A and B
    sums,  # tensor memory, two tiles
    barriers,
    tiles,
    k,
    ROWS_ARE_K: gl.constexpr,
    BLOCK_K: gl.constexpr,
    STAGES: gl.constexpr,
    PAIRED: gl.constexpr,
):
    """One warp, of a pair the first block's: all products, the two tiles of sums in turn."""
    a_blocks, b_blocks = blocks
    filled, freed, summed, taken = barriers
    step = 0
    turn = 0
    for _ in range(gl.program_id(0), tiles, gl.num_programs(0)):
        half = turn % 2
        if not PAIRED:
            mbarrier.wait(taken.index(half), (turn // 2 + 1) & 1)
        for at_k in range(0, k, BLOCK_K):
            stage = step % STAGES
            mbarrier.wait(filled.index(stage), (step // STAGES) & 1)
            left = b_blocks.index(stage)
            if ROWS_ARE_K[1]:
                left = left.permute((1, 0))
            right = a_blocks.index(stage)
            if not ROWS_ARE_K[0]:
                right = right.permute((1, 0))
            tcgen05_mma(left, right, sums.index(half), use_acc=at_k > 0, mbarriers=[freed.index(stage)])
            step += 1
        tcgen05_commit(summed.index(half))
        turn += 1


@gluon.jit  # type: ignore[untyped-decorator]
def take_away(  # type: ignore[no-untyped-def]
    tensors,  # c, d, a_scale and b_scale
    memory,  # sums, and shared memory: BUFFERS parts of a tile of D, or of C before; the parts of a bias
    barriers,  # summed, taken, brought
    tiles,
    ADD: gl.constexpr,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    PART: gl.constexpr,
    BUFFERS: gl.constexpr,
    GROUP: gl.constexpr,
    PAIRED: gl.constexpr,
):
    """Four warps: tiles of D from tensor memory to global memory, in parts of PART columns."""
    c, d, a_scale, b_scale = tensors
    sums, staged, bias = memory
    summed, taken, brought = barriers
    tiles_m, tiles_n = tiles
    PARTS: gl.constexpr = BLOCK_M // PART
    columns: gl.constexpr = TensorMemoryLayout(
        (128, PART), col_stride=1, cta_split_num=(2, 1) if PAIRED else None, two_ctas=PAIRED
    )
    registers: gl.constexpr = get_tmem_reg_layout(
        gl.float32, (BLOCK_N, PART), columns, gl.num_warps(), cga_layout=[[1, 0]] if PAIRED else []
    )
    if a_scale is not None:
        scale = gl.load(a_scale) * gl.load(b_scale)
    turn = 0
    for tile in range(gl.program_id(0), tiles_m * tiles_n, gl.num_programs(0)):
        tile_m, tile_n = grouped(tile, tiles_m, tiles_n, GROUP)
        at_m = tile_m * BLOCK_M
        at_n = tile_n * BLOCK_N
        # The addend comes while the tile is still being multiplied.
        if ADD == "bias":
            mbarrier.expect(brought.index(0), PARTS * c.nbytes_per_cta)
            for part in gl.static_range(PARTS):
                at = at_m + part * PART
                tma.async_copy_global_to_shared(c, [at], brought.index(0), bias.index(part))
            mbarrier.wait(brought.index(0), turn & 1)
        if ADD == "matrix":
            tma.store_wait(0)
            for part in gl.static_range(BUFFERS):
                mbarrier.expect(brought.index(part), c.nbytes_per_cta)
                at = at_m + part * PART
                tma.async_copy_global_to_shared(c, [at_n, at], brought.index(part), staged.index(part))
        half = turn % 2
        mbarrier.wait(summed.index(half), (turn // 2) & 1)
        for part in gl.static_range(PARTS):
            total = sums.index(half).slice(part * PART, PART).load(registers)
            if part == PARTS - 1:
                mbarrier.arrive(taken.index(half))
            if a_scale is not None:
                total = total * scale
            buffer = staged.index(part % BUFFERS)
            if ADD == "bias":
                added = bias.index(part).load(gl.SliceLayout(0, registers))
                total = total + added.to(gl.float32)[None, :]
            if ADD == "matrix":
                round_ = turn * (PARTS // BUFFERS) + part // BUFFERS
                mbarrier.wait(brought.index(part % BUFFERS), round_ & 1)
                total = total + buffer.load(registers).to(gl.float32)
            else:
                tma.store_wait(BUFFERS - 1)
            buffer.store(total.to(d.dtype))
            fence_async_shared()
            tma.async_copy_shared_to_global(d, [at_n, at_m + part * PART], buffer)
            if ADD == "matrix" and part > 0 and part - 1 + BUFFERS < PARTS:
                tma.store_wait(1)
                again = (part - 1) % BUFFERS
                mbarrier.expect(brought.index(again), c.nbytes_per_cta)
                at = at_m + (part - 1 + BUFFERS) * PART
                tma.async_copy_global_to_shared(c, [at_n, at], brought.index(again), staged.index(again))
        turn += 1
    tma.store_wait(0)


@gluon.jit(do_not_specialize=["m", "n", "k"])  # type: ignore[untyped-decorator]
def multiply(  # type: ignore[no-untyped-def]
    a,  # descriptor of op(A): [k, m] if ROWS_ARE_K[0] else [m, k]
    b,  # of op(B): [k, n] if ROWS_ARE_K[1] else [n, k]
    c,  # of [n, m] (ADD matrix) or [m] (ADD bias), in parts; or None
    d,  # of D: [n, m], in parts; every element is written once
    a_scale,  # None, or one float32 each
    b_scale,
    m,
    n,
    k,
    ROWS_ARE_K: gl.constexpr,  # of A, of B
    ADD: gl.constexpr,  # "none", "matrix" or "bias"
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    BLOCK_K: gl.constexpr,
    PART: gl.constexpr,
    BUFFERS: gl.constexpr,
    STAGES: gl.constexpr,
    GROUP: gl.constexpr,
    PAIRED: gl.constexpr,
):
    """D [n, m] = op(B) [n, k] op(A) [k, m] + C, every programs-th tile of it."""
    a_blocks = gl.allocate_shared_memory(a.dtype, [STAGES] + a.block_shape, a.layout)  # noqa: RUF005
    b_blocks = gl.allocate_shared_memory(b.dtype, [STAGES] + b.block_shape, b.layout)  # noqa: RUF005
    staged = gl.allocate_shared_memory(d.dtype, [BUFFERS] + d.block_shape, d.layout)  # noqa: RUF005
    bias, brought = staged, staged  # stand-ins where nothing is added
    if ADD == "bias":
        bias = gl.allocate_shared_memory(c.dtype, [BLOCK_M // PART] + c.block_shape, c.layout)  # noqa: RUF005
    columns: gl.constexpr = TensorMemoryLayout(
        (128, BLOCK_M), col_stride=1, cta_split_num=(2, 1) if PAIRED else None, two_ctas=PAIRED
    )
    sums = allocate_tensor_memory(gl.float32, [2, BLOCK_N, BLOCK_M], columns)
    filled, freed, summed, taken = allocated_barriers(STAGES, PAIRED)
    if ADD != "none":
        ADDENDS: gl.constexpr = BUFFERS if ADD == "matrix" else 1
        brought = mbarrier.allocate_mbarrier(batch=ADDENDS)
        for i in gl.static_range(ADDENDS):
            mbarrier.init(brought.index(i), count=1)
    if PAIRED:
        mbarrier.sync_cluster_init()
    tiles_m = gl.cdiv(m, BLOCK_M)
    tiles_n = gl.cdiv(n, BLOCK_N)
    operands = a, b, a_blocks, b_blocks
    tensors = c, d, a_scale, b_scale
    memory = sums, staged, bias
    barriers, ends = (filled, freed, summed, taken), (summed, taken, brought)
    blocks, tiles, count = (a_blocks, b_blocks), (tiles_m, tiles_n), tiles_m * tiles_n
    gl.warp_specialize(
        [
            (take_away, (tensors, memory, ends, tiles, ADD, BLOCK_M, BLOCK_N, PART, BUFFERS, GROUP, PAIRED)),
            (
                bring,
                (operands, barriers, tiles, k, ROWS_ARE_K, BLOCK_M, BLOCK_N, BLOCK_K, STAGES, GROUP, PAIRED),
            ),
            (multiply_tiles, (blocks, sums, barriers, count, k, ROWS_ARE_K, BLOCK_K, STAGES, PAIRED)),
        ],
        [1, 1],
        [24, 24],
    )


_SHAPES = ((256, 2), (256, 1), (128, 2), (128, 1), (64, 1))
"""Columns of a tile, and the blocks that compute it: the largest first, which reuse operands most."""


def candidates(problem: Gemm, capability: tuple[int, int], sm_count: int) -> tuple[Schedule, ...]:
    """What to try on a device of this compute capability: first whose waves of tiles compute least in vain.

    Raises Unsupported with a Triton before 3.7 (module docstring).
    """
    check_version(triton.__version__, LEAST_TRITON)
    schedules = [
        Schedule(Tile(wide, ROWS * blocks, 128 // problem.item_byte, 4, stages, group), blocks)
        for wide, blocks in _SHAPES
        for stages in [_most_stages(problem, wide, blocks)]
        for group in (GROUPS if wide == 256 else GROUPS[:1])
    ]
    return tuple(sorted(schedules, key=functools.partial(computed, problem, sm_count=sm_count)))


def _most_stages(problem: Gemm, wide: int, blocks: int) -> int:
    """The most stages that fit beside the parts of D on their way out, at most 8, whatever is added."""
    step = 128 * (ROWS + wide // blocks)
    left = 227 * 1024 - SLACK_BYTE - 4 * wide - _staged_byte(problem, wide)
    return min(8, left // step)


def part(problem: Gemm, wide: int, add: str) -> tuple[int, int]:
    """(columns of the parts in which a tile leaves, how many of them are in shared memory at a time).

    A part's rows are 128 bytes, the widest pattern of TMA; half that where C is brought into the same
    buffers, four at a time.
    """
    columns = (64 if add == "matrix" else 128) // problem.output_item_byte
    return columns, min(4 if add == "matrix" else 2, wide // columns)


def shared_byte(problem: Gemm, chosen: Schedule) -> int:
    """The most shared memory that the compiler takes for this schedule, of one block, whatever is added."""
    of_step = 128 * (ROWS + chosen.tile.m // chosen.blocks)
    return (
        chosen.tile.stages * of_step + _staged_byte(problem, chosen.tile.m) + 4 * chosen.tile.m + SLACK_BYTE
    )


def _staged_byte(problem: Gemm, wide: int) -> int:
    columns, buffers = part(problem, wide, "none")
    return buffers * ROWS * columns * problem.output_item_byte


def prepare(of: Operands, chosen: Schedule, sm_count: int) -> Prepared:
    """D in `of.d`, in tiles of this size. The tensors' device must be the current one.

    Raises ValueError if a row of anything does not begin at a multiple of 16 bytes.
    """
    problem, tile, paired = of.problem, chosen.tile, chosen.blocks == 2
    columns, buffers = part(problem, tile.m, of.addend)

    def block(name: str, tensor: torch.Tensor, shape: list[int], half: list[int]) -> TensorDescriptor:
        return described(name, tensor, shape, half if paired else None)

    # Of a pair each has one half: of the rows of op(B), C and D, of the columns of op(A); a bias whole.
    c = None
    if of.c is not None:
        c = block("c", of.c, *(([tile.n, columns], [1, 0]) if of.c.dim() == 2 else ([columns], [0])))
    (of_a, of_b), (a_rows_are_k, b_rows_are_k) = of.blocks(tile), of.rows_are_k
    arguments = of.arguments(multiply, tile) | {
        "a": block("a", of.a, of_a, [0, 1] if a_rows_are_k else [1, 0]),
        "b": block("b", of.b, of_b, [0, 1] if b_rows_are_k else [1, 0]),
        "c": c,
        "d": block("d", of.d, [tile.n, columns], [1, 0]),
        "PART": columns,
        "BUFFERS": buffers,
        "STAGES": tile.stages,
        "PAIRED": paired,
        "num_warps": tile.warps,
        "num_ctas": chosen.blocks,
    }
    return Prepared(multiply, (programs(problem, chosen, sm_count),), arguments, of.d)
