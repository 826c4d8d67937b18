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
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.blackwell import TensorDescriptor

from bench.spec import PACKED
from kernels.gemm.gluon import described
from kernels.gemm.gluon_blackwell import (
    GROUPS,
    ROWS,
    SLACK_BYTE,
    Schedule,
    check_version,
    computed,
    programs,
)
from kernels.gemm.gluon_scaled_warps import multiply
from kernels.gemm.number_types import swizzled
from kernels.gemm.operands import Operands
from kernels.gemm.problem import BLOCK_SCALED, Gemm
from kernels.gemm.tiles import Tile
from kernels.prepared import Prepared

_STEP_BYTE = 128
"""Bytes of a row that are brought at a time: the widest pattern of TMA."""
_ROOM_BYTE = 227 * 1024
_SECOND = {256: 192, 128: 128}
"""Columns of a tile -> the column of tensor memory where the second tile of sums begins."""


def candidates(problem: Gemm, capability: tuple[int, int], sm_count: int) -> tuple[Schedule, ...]:
    """What to try on a device of this compute capability: first whose waves of tiles compute least in vain.

    Of each width the most stages that leave room for two parts of D of 128 bytes a row; one more where there
    is room for it beside smaller parts. Raises Unsupported with a Triton before 3.7.
    """
    check_version(triton.__version__)
    schedules = []
    for wide in _SECOND:
        deepest = max(stages for stages in range(2, 8) if part(problem, wide, stages)[0])
        most = max(stages for stages in range(2, 8) if part(problem, wide, stages) == (64, 2))
        for stages in dict.fromkeys((most, min(deepest, most + 1))):
            tile = Tile(wide, ROWS, _step(problem), 4, stages)
            schedules += [Schedule(tile, 1, group) for group in (GROUPS if wide == 256 else GROUPS[:1])]
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
    arguments = {
        "a": described("a", a, [tile.m, _STEP_BYTE]),
        "b": described("b", b, [tile.n, _STEP_BYTE]),
        "d": described("d", of.d, [tile.n, columns]),
        "a_scale": _described_scales(a_scale, tile.m, blocks),
        "b_scale": _described_scales(b_scale, tile.n, blocks),
        "m": problem.m,
        "n": problem.n,
        "steps": math.ceil(problem.k / tile.k),
        "BLOCK_M": tile.m,
        "BLOCK_N": tile.n,
        "STEP_BYTE": _STEP_BYTE,
        "BLOCKS": blocks,
        "FORMAT": "e2m1" if packed else "e4m3",
        "PART": columns,
        "BUFFERS": buffers,
        "STAGES": tile.stages,
        "SECOND": _SECOND[tile.m],
        "GROUP": chosen.group,
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
