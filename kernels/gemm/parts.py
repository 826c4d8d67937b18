"""One tile of D computed by several programs: how they bring their sums together, and where those lie.

Each program stores its sums as a *part* of the tile in a workspace and counts itself. Whoever finds that all
are there adds them, in the order of the parts and not of their arrival, so the result is the same bits every
time, and writes D. No program waits for another: the device may run them in any order, or one by one.

With more parts than FAN, the last of each FAN adds those first, and the last of these adds what they leave:
one multiprocessor that had to read 132 parts alone would take longer than all of them took to compute.

Counters are zero before a launch, and each is set back by the program that finds it full, so a launch can be
repeated (CUDA graphs do).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import torch
import triton
import triton.language as tl

from kernels.gemm.blocks import write
from kernels.gemm.operands import Operands
from kernels.gemm.problem import Gemm
from kernels.gemm.tiles import Tile

FAN = tl.constexpr(8)
"""Parts that one program adds at a time, all of them under way together."""
CHUNK_BYTE = 32
"""Bytes of a tile that one thread adds at a time: with FAN times that under way it stays within 128
registers."""
FMA_PER_BYTE: Mapping[str, float] = {
    "nvfp4": 128,
    "mxfp8": 64,
    "float8_e4m3": 64,
    "int8": 64,
    "float16": 32,
    "bfloat16": 32,
    "tf32": 16,
    "float32": 2,
    "float64": 1,
}
"""Multiply-adds that a multiprocessor does while it loads a byte of operands from the L2 cache.

Of Hopper: 2048 of 16 bits and 64 bytes a cycle. Others differ by up to a factor of two. For ordering what
is to be tried, no more.
"""
STEP_BYTE = 2048
"""What a step takes besides, in bytes that could be loaded meanwhile: 32 cycles, of meeting at a barrier
and of starting copies and matrix instructions. A judgement, not a measurement: it keeps small tiles from
being free."""


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
    for part in tl.range(1, count, loop_unroll_factor=FAN):
        total += tl.load(parts + tl.cast(part, tl.int64) * step, cache_modifier=".cg")
    return total


@triton.jit  # type: ignore[untyped-decorator]
def bring(  # type: ignore[no-untyped-def]
    total,  # [BLOCK_N, BLOCK_M], this program's part of a tile's sums
    part,  # 0 <= part < parts
    parts,
    slots,  # [parts, BLOCK_N, BLOCK_M], of this tile
    counters,  # [1 + ceil(parts / FAN)], of this tile, zero
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

    in_rows = tl.arange(0, ROWS)[:, None] * BLOCK_M + tl.arange(0, BLOCK_M)[None, :]
    first = part // FAN * FAN
    members = tl.minimum(parts - first, FAN)
    last = arrived(counters + 1 + part // FAN, members)
    count = parts
    step = tl.full((), SIZE, tl.int64)
    if parts > FAN:
        count = tl.cdiv(parts, FAN)
        step *= FAN
        if last:
            mine = slots + tl.cast(first, tl.int64) * SIZE
            for row in range(0, BLOCK_N, ROWS):
                block = mine + row * BLOCK_M + in_rows
                total_of_fan = added(block, members, SIZE)
                tl.debug_barrier()  # it replaces the first part: all threads have read that by now
                tl.store(block, total_of_fan)
            last = arrived(counters, count)
    if last:
        along_m = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
        for row in range(0, BLOCK_N, ROWS):
            along_n = tile_n * BLOCK_N + row + tl.arange(0, ROWS)
            sums = added(slots + row * BLOCK_M + in_rows, count, step)
            write(sums, along_m, along_n, outputs, ADD)


class Share(NamedTuple):
    """A tile, how many programs are to run on each multiprocessor (SM) at a time, and the fewest parts."""

    tile: Tile
    per_sm: int
    least: int = 2
    """Fewest parts of K for each tile, where K has room for two."""

    def __str__(self) -> str:
        """`128x128x64 w8 s3 1/SM`."""
        return f"{self.tile} {self.per_sm}/SM"


def registers(tile: Tile, per_sm: int) -> int:
    """The most that a thread may have so that `per_sm` programs fit on a multiprocessor.

    The limit keeps the compiler from spilling some for the sake of one more, which will not be there.
    """
    return min(255, 65_536 // (32 * tile.warps * per_sm) // 8 * 8)


def rows(problem: Gemm, tile: Tile) -> int:
    """Rows of a tile of D [tile.n, tile.m] that are added at a time: CHUNK_BYTE a thread."""
    return max(1, min(tile.n, CHUNK_BYTE // sum_byte(problem) * 32 * tile.warps // tile.m))


def tiles_of(problem: Gemm, tile: Tile) -> int:
    """Tiles that cover D, ragged ones included, of all products of a batch."""
    return math.ceil(problem.m / tile.m) * math.ceil(problem.n / tile.n) * problem.batch


def step(problem: Gemm, tile: Tile) -> float:
    """How long a multiprocessor takes for a step of a tile along K, in bytes that it could load meanwhile.

    Loading the operands or multiplying, whichever takes longer, and a fifth more where both take as long,
    since copies and matrix instructions share the shared memory. On Hopper both take 512 cycles for 128 x
    128 x 64 in 16 bits, which is time for 64 KiB there; 32 are written and 48 read. Besides, what a step
    takes of any tile.
    """
    loaded = (tile.m + tile.n) * tile.k * problem.item_byte
    multiplied = tile.m * tile.n * tile.k / FMA_PER_BYTE[problem.dtype]
    return math.sqrt(math.hypot(loaded**2, multiplied**2)) + STEP_BYTE


def exchange(problem: Gemm, tile: Tile) -> float:
    """What it takes to move one part of a tile to or from the workspace, in steps along K.

    A step is counted as the bytes of operands that it loads.
    """
    return tile.m * tile.n * sum_byte(problem) / ((tile.m + tile.n) * tile.k * problem.item_byte)


def reads(parts: int) -> int:
    """Parts that programs read one after the other until the last sum is there."""
    fan: int = FAN.value
    return parts if parts <= fan else fan + math.ceil(parts / fan)


def sum_byte(problem: Gemm) -> int:
    """Bytes of one element of a part."""
    return 8 if problem.dtype == "float64" else 4


def shared_arguments(of: Operands, kernel: Any, share: Share, parts: int, counters: int) -> dict[str, Any]:
    """What the kernels that share out tiles have in common, with room for so many parts and counters."""
    tile = share.tile
    room = workspace(of.problem, of.d, parts * tile.m * tile.n, counters)
    return {
        **of.arguments(kernel, tile),
        **tile.options,
        "slots": room.parts,
        "counters": room.counters,
        "ROWS": rows(of.problem, tile),
        "maxnreg": registers(tile, share.per_sm),
    }


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
        shared("parts", torch.empty, elements, kind, like.device),
        shared("counters", torch.zeros, counters, torch.int32, like.device),
    )


def shared(
    use: str, new: Callable[..., torch.Tensor], count: int, kind: torch.dtype, device: torch.device
) -> torch.Tensor:
    """A tensor of so many elements made by `new`, the same one while anyone has it; of this use alone."""
    key = use, count, kind, device
    living = _living()
    found = living.get(key)
    if found is None:
        found = living[key] = new(count, dtype=kind, device=device)
    return found


@functools.cache
def _living() -> WeakValueDictionary[tuple[str, int, torch.dtype, torch.device], torch.Tensor]:
    """Workspaces in use: launches hold them, this only finds them."""
    return WeakValueDictionary()
