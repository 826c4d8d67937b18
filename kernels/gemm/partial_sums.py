"""One tile of D computed by several programs: how their sums are added up, and where those lie.

Each program stores its sums as a *part* of the tile in a workspace and counts itself. Whoever finds that all
are there adds them, in the order of the parts and not of their arrival, so the result is the same bits every
time, and writes D. No program waits for another: the device may run them in any order, or one by one.

Counters are zero before a launch, and each is set back by the program that finds it full, so a launch can be
repeated (CUDA graphs do).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from kernels.gemm.blocks import write
from kernels.gemm.problem import Gemm
from kernels.tensors import shared

UNROLL = tl.constexpr(8)
"""Parts whose loads are under way together."""


@triton.jit
def arrived(counter, expected):  # type: ignore[no-untyped-def]
    """Count this program; whether it is the last of those expected, which then may read what all stored."""
    # All threads' stores before, one thread's release and acquire, all threads' loads after.
    tl.debug_barrier()
    last = tl.atomic_add(counter, 1, sem="acq_rel", scope="gpu") == expected - 1
    if last:
        tl.store(counter, 0)
    return last


@triton.jit
def added(parts, count, step):  # type: ignore[no-untyped-def]
    """The sum of `count` blocks, `step` elements apart, in their order; `parts` points to the first."""
    # Past the L1 cache, which knows nothing of what other multiprocessors stored.
    total = tl.load(parts, cache_modifier=".cg")
    for part in tl.range(1, count, loop_unroll_factor=UNROLL):
        total += tl.load(parts + tl.cast(part, tl.int64) * step, cache_modifier=".cg")
    return total


@triton.jit  # type: ignore[untyped-decorator]
def reduce_parts(  # type: ignore[no-untyped-def]
    total,  # [BLOCK_N, BLOCK_M], this program's part of a tile's sums
    part,  # 0 <= part < parts
    parts,
    slots,  # [parts, BLOCK_N, BLOCK_M], of this tile
    counter,  # of this tile, zero
    tile_m,
    tile_n,
    outputs,  # as `write` has them
    ADD: tl.constexpr,
    TILE: tl.constexpr,  # BLOCK_M, BLOCK_N, and rows of the tile that are added at a time
):
    """Store this part; the last program to do so adds all, and writes the tile of D."""
    BLOCK_M: tl.constexpr = TILE[0]
    BLOCK_N: tl.constexpr = TILE[1]
    ROWS: tl.constexpr = TILE[2]
    SIZE: tl.constexpr = BLOCK_M * BLOCK_N
    in_tile = tl.arange(0, BLOCK_N)[:, None] * BLOCK_M + tl.arange(0, BLOCK_M)[None, :]
    tl.store(slots + tl.cast(part, tl.int64) * SIZE + in_tile, total)

    if arrived(counter, parts):
        in_rows = tl.arange(0, ROWS)[:, None] * BLOCK_M + tl.arange(0, BLOCK_M)[None, :]
        along_m = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
        for row in range(0, BLOCK_N, ROWS):
            along_n = tile_n * BLOCK_N + row + tl.arange(0, ROWS)
            sums = added(slots + row * BLOCK_M + in_rows, parts, SIZE)
            write(sums, along_m, along_n, outputs, ADD)


class Workspace(NamedTuple):
    """Memory for parts of tiles and counts of programs: written and read within each launch alone."""

    parts: torch.Tensor
    """[elements] of the type in which sums are kept; not filled."""
    counters: torch.Tensor
    """[count] int32, zero before and after each launch."""


def workspace(problem: Gemm, like: torch.Tensor, elements: int, counters: int) -> Workspace:
    """Room for so many elements and counters on the device of `like`; zeroed on the current stream.

    Launches that live at the same time and ask for the same share it, as those of cuBLAS do: so it stays in
    the cache, where a workspace for every slot of a ring would be written to memory again and again. They
    must therefore run one after the other, on one stream.
    """
    kind = {"float64": torch.float64, "int8": torch.int32}.get(problem.dtype, torch.float32)
    return Workspace(
        shared("parts of GEMM", torch.empty, elements, kind, like.device),
        shared("counters of GEMM", torch.zeros, counters, torch.int32, like.device),
    )
