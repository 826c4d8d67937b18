"""Block-scaled GEMM (mxfp8, nvfp4) on Blackwell in Gluon: gluon_blackwell.py with scales in tensor memory.

**Why this algorithm.** The matrix instruction multiplies each block of 32 (mxfp8) or 16 (nvfp4) numbers by
its scale itself, if it finds the scales in tensor memory. So the warp that brings blocks of A and B brings
their scales, and the one that multiplies copies them on from shared to tensor memory (`tcgen05.cp`) before
each step's products. One set of scales is enough: a product waits for copies issued before it (PTX ISA,
"Pipelined tcgen05 Instructions"), and a copy for products issued before it, as Triton's tutorial 10 says and
CUTLASS's kernels rely on; the ISA's list of pairs does not have the latter.

**Two tiles of sums that overlap.** Two of 128 x 256 float32 would fill tensor memory and leave no room for
scales. So the second begins in column 192, where the last 64 columns of the first are: the one tile is taken
away beginning with the columns that both have, and as soon as those are read, the next tile's products begin
over them. Tiles of 128 columns lie side by side.

**Scales** are brought in the order in which cuBLAS reads them (number_types.swizzled): 512 bytes for 128 rows
and 4 blocks along K, which is what a copy to tensor memory takes. Putting them into that order is preparation
and part of no launch's time, exactly as it is for `cublas` (operator.py).

**Barriers**: as in gluon_blackwell.py for a block alone, but

    taken[half]    1: what these sums share with the others has been read; with nothing shared, all of them

**Bytes moved.** As in gluon_blackwell.py, and 1/32 (1/8) as many of scales as of mxfp8 (nvfp4) numbers.

**Arithmetic.** Products and scales as the hardware multiplies them, sums float32, rounded once to bfloat16.

One block to a product: Triton 3.7.1 neither copies scales to the tensor memory of a pair ("ttng.tmem_copy op
NYI: Only one CTA is supported for now") nor lowers a pair's scaled product. Learned from Triton's tutorials
python/tutorials/gluon 10 and 11.
"""

from __future__ import annotations

import functools
import math

import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.blackwell import (
    TensorMemoryLayout,
    TensorMemoryScalesLayout,
    allocate_tensor_memory,
    fence_async_shared,
    get_tmem_reg_layout,
    mbarrier,
    tcgen05_commit,
    tcgen05_copy,
    tcgen05_mma_scaled,
    tma,
)
from triton.experimental.gluon.nvidia.blackwell import TensorDescriptor

from bench.spec import PACKED
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
from kernels.gemm.gluon_blackwell import allocated_barriers
from kernels.gemm.number_types import swizzled
from kernels.gemm.operands import Operands
from kernels.gemm.problem import BLOCK_SCALED, Gemm
from kernels.gemm.tiles import Tile
from kernels.prepared import Prepared

LEAST_TRITON = (3, 7)
"""The oldest Triton that compiles these kernels, as in gluon_blackwell.py."""
_STEP_BYTE = 128
"""Bytes of a row that are brought at a time: the widest pattern of TMA."""
_ROOM_BYTE = 227 * 1024
_SECOND = {256: 192, 128: 128}
"""Columns of a tile -> the column of tensor memory where the second tile of sums begins."""


@gluon.jit  # type: ignore[untyped-decorator]
def bring(  # type: ignore[no-untyped-def]
    tensors,  # A, B and their scales, and shared memory for STAGES blocks of each
    blocks,
    barriers,  # filled, freed, summed, taken
    tiles,  # along M and N
    steps,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    STEP_BYTE: gl.constexpr,
    BLOCKS: gl.constexpr,
    STAGES: gl.constexpr,
    GROUP: gl.constexpr,
):
    """One warp: blocks of A and B and their scales, as stages become free."""
    a, b, a_scale, b_scale = tensors
    a_blocks, b_blocks, a_scales, b_scales = blocks
    filled, freed, _, _ = barriers
    tiles_m, tiles_n = tiles
    step = 0
    for tile in range(gl.program_id(0), tiles_m * tiles_n, gl.num_programs(0)):
        tile_m, tile_n = grouped(tile, tiles_m, tiles_n, GROUP)
        for i in range(steps):
            stage = step % STAGES
            mbarrier.wait(freed.index(stage), (step // STAGES + 1) & 1)
            full = filled.index(stage)
            scales_byte: gl.constexpr = a_scale.nbytes_per_cta + b_scale.nbytes_per_cta
            mbarrier.expect(full, a.nbytes_per_cta + b.nbytes_per_cta + scales_byte)
            at_k = i * STEP_BYTE
            tma.async_copy_global_to_shared(a, [tile_m * BLOCK_M, at_k], full, a_blocks.index(stage))
            tma.async_copy_global_to_shared(b, [tile_n * BLOCK_N, at_k], full, b_blocks.index(stage))
            at_block = i * (BLOCKS // 4)
            at_a = [0, tile_m * (BLOCK_M // 128), at_block, 0, 0]
            at_b = [0, tile_n * (BLOCK_N // 128), at_block, 0, 0]
            tma.async_copy_global_to_shared(a_scale, at_a, full, a_scales.index(stage))
            tma.async_copy_global_to_shared(b_scale, at_b, full, b_scales.index(stage))
            step += 1


@gluon.jit  # type: ignore[untyped-decorator]
def rows_of_scales(packed, ROWS: gl.constexpr, BLOCKS: gl.constexpr):  # type: ignore[no-untyped-def]
    """Shared memory in cuBLAS' order of scales, seen as [ROWS, BLOCKS]."""
    tiles = packed.reshape((ROWS // 128, BLOCKS // 4, 32, 4, 4))
    return tiles.permute((0, 3, 2, 1, 4)).reshape((ROWS, BLOCKS))


@gluon.jit  # type: ignore[untyped-decorator]
def multiply_tiles(  # type: ignore[no-untyped-def]
    blocks,
    memory,  # tensor memory: two tiles, the second from column SECOND on; the scales of a step, of A and of B
    barriers,
    tiles,
    steps,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    BLOCKS: gl.constexpr,
    FORMAT: gl.constexpr,
    SECOND: gl.constexpr,
    STAGES: gl.constexpr,
):
    """One warp: all products, the two tiles of sums in turn."""
    a_blocks, b_blocks, a_scales, b_scales = blocks
    sums, a_factors, b_factors = memory
    filled, freed, summed, taken = barriers
    step = 0
    turn = 0
    for _ in range(gl.program_id(0), tiles, gl.num_programs(0)):
        half = turn % 2
        if SECOND < BLOCK_M:
            mbarrier.wait(taken.index(1 - half), ((turn + 1) // 2 + 1) & 1)
        else:
            mbarrier.wait(taken.index(half), (turn // 2 + 1) & 1)
        for i in range(steps):
            stage = step % STAGES
            mbarrier.wait(filled.index(stage), (step // STAGES) & 1)
            tcgen05_copy(rows_of_scales(a_scales.index(stage), BLOCK_M, BLOCKS), a_factors)
            tcgen05_copy(rows_of_scales(b_scales.index(stage), BLOCK_N, BLOCKS), b_factors)
            left = b_blocks.index(stage)
            right = a_blocks.index(stage).permute((1, 0))
            if half == 0:
                total = sums.slice(0, BLOCK_M)
                tcgen05_mma_scaled(left, right, total, b_factors, a_factors, FORMAT, FORMAT, use_acc=i > 0)
            else:
                total = sums.slice(SECOND, BLOCK_M)
                tcgen05_mma_scaled(left, right, total, b_factors, a_factors, FORMAT, FORMAT, use_acc=i > 0)
            tcgen05_commit(freed.index(stage))
            step += 1
        tcgen05_commit(summed.index(half))
        turn += 1


@gluon.jit  # type: ignore[untyped-decorator]
def take_away(  # type: ignore[no-untyped-def]
    d,
    sums,
    staged,  # shared memory, BUFFERS parts of a tile of D
    barriers,
    tiles,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    PART: gl.constexpr,
    BUFFERS: gl.constexpr,
    SECOND: gl.constexpr,
    GROUP: gl.constexpr,
):
    """Four warps: tiles of D from tensor memory to global memory, first what both tiles of sums share."""
    _, _, summed, taken = barriers
    tiles_m, tiles_n = tiles
    PARTS: gl.constexpr = BLOCK_M // PART
    SHARED: gl.constexpr = (BLOCK_M - SECOND) // PART if SECOND < BLOCK_M else PARTS
    columns: gl.constexpr = TensorMemoryLayout((128, PART), col_stride=1)
    registers: gl.constexpr = get_tmem_reg_layout(gl.float32, (BLOCK_N, PART), columns, gl.num_warps())
    turn = 0
    for tile in range(gl.program_id(0), tiles_m * tiles_n, gl.num_programs(0)):
        tile_m, tile_n = grouped(tile, tiles_m, tiles_n, GROUP)
        at_n = tile_n * BLOCK_N
        half = turn % 2
        mbarrier.wait(summed.index(half), (turn // 2) & 1)
        for part in gl.static_range(PARTS):
            if half == 0:
                at = (PARTS - 1 - part) * PART
                total = sums.slice((PARTS - 1 - part) * PART, PART).load(registers)
            else:
                at = part * PART
                total = sums.slice(SECOND + part * PART, PART).load(registers)
            if part == SHARED - 1:
                mbarrier.arrive(taken.index(half))
            tma.store_wait(BUFFERS - 1)
            buffer = staged.index(part % BUFFERS)
            buffer.store(total.to(d.dtype))
            fence_async_shared()
            tma.async_copy_shared_to_global(d, [at_n, tile_m * BLOCK_M + at], buffer)
        turn += 1
    tma.store_wait(0)


@gluon.jit(do_not_specialize=["m", "n", "steps"])  # type: ignore[untyped-decorator]
def multiply(  # type: ignore[no-untyped-def]
    a,  # descriptor of A [m, k], two 4-bit numbers to a byte
    b,  # of B [n, k], so too
    d,  # of D [n, m], in parts; every element is written once
    a_scale,  # of scales in cuBLAS' order, [1, rows / 128, blocks / 4, 2, 256]
    b_scale,
    m,
    n,
    steps,  # along K
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    STEP_BYTE: gl.constexpr,  # of a row, in one step along K
    BLOCKS: gl.constexpr,  # that have a scale each, in one step along K
    FORMAT: gl.constexpr,  # "e4m3" or "e2m1"
    PART: gl.constexpr,
    BUFFERS: gl.constexpr,
    STAGES: gl.constexpr,
    SECOND: gl.constexpr,
    GROUP: gl.constexpr,
):
    """D [n, m] = B [n, k] A^T [k, m], both with their scales, every num_programs(0)-th tile of it."""
    a_blocks = gl.allocate_shared_memory(a.dtype, [STAGES] + a.block_shape, a.layout)  # noqa: RUF005
    b_blocks = gl.allocate_shared_memory(b.dtype, [STAGES] + b.block_shape, b.layout)  # noqa: RUF005
    a_scales = gl.allocate_shared_memory(a_scale.dtype, [STAGES] + a_scale.block_shape, a_scale.layout)  # noqa: RUF005
    b_scales = gl.allocate_shared_memory(b_scale.dtype, [STAGES] + b_scale.block_shape, b_scale.layout)  # noqa: RUF005
    staged = gl.allocate_shared_memory(d.dtype, [BUFFERS] + d.block_shape, d.layout)  # noqa: RUF005
    # One allocation, which must be of a power of two: tensor memory is all of a block's anyway.
    sums = allocate_tensor_memory(
        gl.float32, [BLOCK_N, 512], TensorMemoryLayout((128, BLOCK_M), col_stride=1)
    )
    # 128 rows of 4 scales are a column, four times over: each warp of a multiprocessor's four reads its own.
    A_COLUMNS: gl.constexpr = BLOCK_M // 128 * BLOCKS
    B_COLUMNS: gl.constexpr = BLOCK_N // 128 * BLOCKS
    scales: gl.constexpr = TensorMemoryScalesLayout()
    a_factors = sums.slice(448, A_COLUMNS)._reinterpret(a_scale.dtype, [BLOCK_M, BLOCKS], scales)
    b_factors = sums.slice(448 + A_COLUMNS, B_COLUMNS)._reinterpret(b_scale.dtype, [BLOCK_N, BLOCKS], scales)
    barriers = allocated_barriers(STAGES, False)
    tiles_m = gl.cdiv(m, BLOCK_M)
    tiles_n = gl.cdiv(n, BLOCK_N)
    tensors = a, b, a_scale, b_scale
    blocks = a_blocks, b_blocks, a_scales, b_scales
    memory = sums, a_factors, b_factors
    tiles, count = (tiles_m, tiles_n), tiles_m * tiles_n
    gl.warp_specialize(
        [
            (take_away, (d, sums, staged, barriers, tiles, BLOCK_M, BLOCK_N, PART, BUFFERS, SECOND, GROUP)),
            (
                bring,
                (tensors, blocks, barriers, tiles, steps, BLOCK_M, BLOCK_N, STEP_BYTE, BLOCKS, STAGES, GROUP),
            ),
            (
                multiply_tiles,
                (blocks, memory, barriers, count, steps, BLOCK_M, BLOCK_N, BLOCKS, FORMAT, SECOND, STAGES),
            ),
        ],
        [1, 1],
        [24, 24],
    )


def candidates(problem: Gemm, capability: tuple[int, int], sm_count: int) -> tuple[Schedule, ...]:
    """What to try on a device of this compute capability: first whose waves of tiles compute least in vain.

    Of each width the most stages that leave room for two parts of D of 128 bytes a row; one more where there
    is room for it beside smaller parts. Raises Unsupported with a Triton before 3.7.
    """
    check_version(triton.__version__, LEAST_TRITON)
    schedules = []
    for wide in _SECOND:
        deepest = max(stages for stages in range(2, 8) if part(problem, wide, stages)[0])
        most = max(stages for stages in range(2, 8) if part(problem, wide, stages) == (64, 2))
        for stages in dict.fromkeys((most, min(deepest, most + 1))):
            for group in GROUPS if wide == 256 else GROUPS[:1]:
                schedules.append(Schedule(Tile(wide, ROWS, _step(problem), 4, stages, group), 1))
    return tuple(sorted(schedules, key=functools.partial(computed, problem, sm_count=sm_count)))


def _step(problem: Gemm) -> int:
    """Elements along K in a step: 128 of mxfp8, 256 of nvfp4."""
    return _STEP_BYTE * PACKED.get(problem.dtype, 1)


def _step_byte(problem: Gemm, wide: int) -> int:
    """Bytes of one step in shared memory: numbers and scales."""
    return (ROWS + wide) * (_STEP_BYTE + _step(problem) // BLOCK_SCALED[problem.dtype])


def part(problem: Gemm, wide: int, stages: int) -> tuple[int, int]:
    """(columns of the parts in which a tile leaves, how many are in shared memory); (0, 0) if none fits."""
    left = _ROOM_BYTE - SLACK_BYTE - stages * _step_byte(problem, wide)
    for columns, buffers in ((64, 2), (32, 2), (32, 1)):
        if buffers * ROWS * columns * problem.output_item_byte <= left:
            return columns, buffers
    return 0, 0


def shared_byte(problem: Gemm, chosen: Schedule) -> int:
    """The most shared memory that the compiler takes for this schedule, of one block."""
    columns, buffers = part(problem, chosen.tile.m, chosen.tile.stages)
    staged = buffers * ROWS * columns * problem.output_item_byte
    return chosen.tile.stages * _step_byte(problem, chosen.tile.m) + staged + SLACK_BYTE


def prepare(of: Operands, chosen: Schedule, sm_count: int) -> Prepared:
    """D in `of.d`, in tiles of this size; scales are put into their order here, once, not in each call."""
    problem, tile = of.problem, chosen.tile
    assert of.scales is not None
    a_scale, b_scale = of.scales
    blocks = _step(problem) // BLOCK_SCALED[problem.dtype]
    columns, buffers = part(problem, tile.m, tile.stages)
    packed = problem.dtype == "nvfp4"
    a, b = (operand.view(torch.uint8) if packed else operand for operand in (of.a, of.b))
    arguments = of.arguments(multiply, tile) | {
        "a": described("a", a, [tile.m, _STEP_BYTE]),
        "b": described("b", b, [tile.n, _STEP_BYTE]),
        "d": described("d", of.d, [tile.n, columns]),
        "a_scale": _described_scales(a_scale, tile.m, blocks),
        "b_scale": _described_scales(b_scale, tile.n, blocks),
        "steps": math.ceil(problem.k / tile.k),
        "STEP_BYTE": _STEP_BYTE,
        "BLOCKS": blocks,
        "FORMAT": "e2m1" if packed else "e4m3",
        "PART": columns,
        "BUFFERS": buffers,
        "STAGES": tile.stages,
        "SECOND": _SECOND[tile.m],
        "num_warps": tile.warps,
    }
    return Prepared(multiply, (programs(problem, chosen, sm_count),), arguments, of.d)


def _described_scales(scale: torch.Tensor, rows: int, blocks: int) -> TensorDescriptor:
    """Scales in cuBLAS' order, described for copies of those of `rows` rows and `blocks` blocks.

    A copy's innermost length is at most 256, so the 512 bytes of 128 rows and 4 blocks count as two.
    """
    ordered = swizzled(scale).view(scale.dtype)
    shape = [1, -(-scale.shape[0] // 128), -(-scale.shape[1] // 4), 2, 256]
    layout = gl.NVMMASharedLayout(swizzle_byte_width=0, element_bitwidth=8, rank=5)
    return TensorDescriptor(
        ordered,
        shape,
        [ordered.numel(), shape[2] * 512, 512, 256, 1],
        [1, rows // 128, blocks // 4, 2, 256],
        layout,
    )
