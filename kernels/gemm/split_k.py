"""GEMM with K cut into parts: for products whose tiles are too few to occupy the device.

**Why this algorithm.** A small D with a long K has few tiles and much work in each: 256 x 256 is four tiles
of 128 x 128, and 128 of an H100's 132 multiprocessors would be idle. Here a tile is shared by `parts`
programs, each of which walks along its own part of K; the last to arrive adds up what the others left
(partial_sums.py). The kernel is pointer.py's, so any size and any architecture will do.

**How many parts.** As many as fill the device once with programs, but each with LEAST_STEPS steps along K,
and MOST_PARTS at most, since one program adds them all. Where K has room for two parts it has two: whole
tiles are for other kernels.

**Bytes moved.** Operands as in pointer.py: parts of K are disjoint, so none is read more often than there.
Besides, with T tiles and more than one part,

    T parts BLOCK_M BLOCK_N    sums, written once and read once (in L2, unless they outgrow it)

**Arithmetic.** As in pointer.py, but a sum is that of shorter ones, added in the type of sums in fixed order.

**Tiles.** As in tiles.py every tile is one that fits: it spills no register, in any layout that it is listed
for, with and without a mask along K; tests/kernels holds the lists to that. Adding up parts takes registers
beside the accumulator's, so the largest tiles of tiles.py are missing here where they leave none. Tensor
cores want tf32 and 8-bit operands with K contiguous (layout TN): others are transposed on their way through
registers, which large tiles do not have.
"""

import math
from collections.abc import Mapping

from kernels.gemm.operands import Operands, Prepared, has_wide_loads
from kernels.gemm.partial_sums import workspace
from kernels.gemm.pointer import multiply
from kernels.gemm.problem import Gemm
from kernels.gemm.tiles import Tile, kind_of, of_generation, tile_list, tiles_of

LEAST_STEPS = 4
"""Steps along K that a part has at least: about as many as it takes to fill its pipeline."""
MOST_PARTS = 32
"""Parts of a tile at most: one program reads them one after the other, 2 MB of sums of 128 x 128."""
CHUNK_BYTE = 32
"""Bytes of a tile that one thread adds at a time, with eight parts under way within 128 registers."""


def parts(problem: Gemm, tile: Tile, sm_count: int) -> int:
    """Parts of K for each tile, by the rule above."""
    most = min(MOST_PARTS, math.ceil(problem.k / tile.k) // LEAST_STEPS)
    if most < 2:
        return 1
    return max(2, min(most, _per_sm(tile) * sm_count // tiles_of(problem, tile)))


def candidates(problem: Gemm, capability: tuple[int, int]) -> tuple[Tile, ...]:
    """The tiles to try on a device of this compute capability; it decides (autotune.py)."""
    kind = kind_of(problem.dtype)
    if not has_wide_loads(problem):
        return _NARROW[kind]
    tiles = of_generation(_WIDE, kind, capability)
    if kind in ("tf32", "8-bit") and problem.layout != "TN":
        tiles = tuple(tile for tile in tiles if _has_room_to_transpose(kind, tile))
    return tiles


def prepare(of: Operands, tile: Tile, sm_count: int) -> Prepared:
    """D in `of.d`. The tensors' device must be the current one; one stream runs all launches."""
    return in_parts(of, tile, parts(of.problem, tile, sm_count))


def in_parts(of: Operands, tile: Tile, count: int) -> Prepared:
    """The same with so many parts for each tile: any number, even more than K has steps."""
    tiles = tiles_of(of.problem, tile)
    split = count > 1
    room = workspace(of.problem, of.d, tiles * count * tile.m * tile.n if split else 0, tiles if split else 0)
    arguments = {
        **of.arguments(multiply, tile),
        **tile.options,
        "slots": room.parts,
        "counters": room.counters,
        "ROWS": rows(of.problem, tile),
        "maxnreg": _registers(tile),
        "parts": count,
        "SPLIT": split,
        "HALVES": False,
        "BATCHED": False,
    }
    return Prepared(multiply, (tiles, count), arguments, of.d)


def rows(problem: Gemm, tile: Tile) -> int:
    """Rows of a tile of D [tile.n, tile.m] that are added at a time: CHUNK_BYTE a thread."""
    return max(1, min(tile.n, CHUNK_BYTE // sum_byte(problem) * 32 * tile.warps // tile.m))


def sum_byte(problem: Gemm) -> int:
    """Bytes of one element of a part."""
    return 8 if problem.dtype == "float64" else 4


def _per_sm(tile: Tile) -> int:
    """Programs on a multiprocessor: two of 4 warps, which hides what each waits for; larger fill it alone."""
    return 8 // tile.warps


def _registers(tile: Tile) -> int:
    """The most that a thread may have so that so many programs fit on a multiprocessor.

    The limit keeps the compiler from spilling some to fit one program more, which will not be there.
    """
    return min(255, 65_536 // (32 * tile.warps * _per_sm(tile)) // 8 * 8)


def _has_room_to_transpose(kind: str, tile: Tile) -> bool:
    """Whether registers are left to transpose operands on their way: 64 sums a thread at most, few bytes."""
    sums = tile.m * tile.n // (32 * tile.warps)
    return sums <= 64 and not (kind == "8-bit" and tile.k > 64)


_WIDE: Mapping[tuple[str, str], tuple[Tile, ...]] = {
    ("16-bit", "ampere"): tile_list(
        "128x256x32 w8 s4, 256x128x32 w8 s4, 128x128x64 w8 s3, 128x64x64 w4 s4, 64x128x64 w4 s4, "
        "64x64x64 w4 s4, 64x32x128 w4 s3, 32x64x128 w4 s3, 128x16x128 w4 s3"
    ),
    ("16-bit", "hopper"): tile_list(
        "128x256x64 w8 s3, 256x128x64 w8 s3, 128x128x64 w8 s4, 128x64x64 w4 s4, 64x128x64 w4 s4, "
        "64x64x128 w4 s3, 64x64x64 w4 s6, 128x16x64 w4 s6"
    ),
    ("16-bit", "blackwell"): tile_list(
        "256x128x64 w8 s3, 128x128x64 w8 s4, 128x64x64 w4 s4, 64x128x64 w4 s4, 64x64x128 w4 s3, "
        "64x64x64 w4 s6"
    ),
    # The last two, not 128 bytes along K, are for the layouts that are transposed.
    ("8-bit", "any"): tile_list(
        "128x256x128 w8 s3, 256x128x128 w8 s3, 128x128x128 w8 s3, 128x64x128 w4 s4, 64x128x128 w4 s4, "
        "64x64x128 w4 s4, 128x128x64 w8 s4, 64x64x64 w4 s4"
    ),
    ("tf32", "ampere"): tile_list("128x128x32 w8 s4, 128x64x32 w4 s4, 64x128x32 w4 s4, 64x64x32 w4 s4"),
    ("tf32", "any"): tile_list(
        "128x256x32 w8 s3, 256x128x32 w8 s3, 128x128x32 w8 s4, 128x64x32 w4 s4, 64x128x32 w4 s4, "
        "64x64x32 w4 s4"
    ),
    ("float32", "any"): tile_list(
        "128x128x16 w8 s3, 128x64x16 w8 s3, 64x128x16 w8 s3, 64x64x16 w4 s3, 32x32x32 w4 s3"
    ),
    ("float64", "any"): tile_list("128x64x16 w8 s3, 64x128x16 w8 s3, 64x64x16 w4 s3, 32x32x16 w4 s4"),
}

_NARROW: Mapping[str, tuple[Tile, ...]] = {
    "16-bit": tile_list("128x128x32 w8 s3, 64x64x32 w4 s3, 32x64x64 w4 s3"),
    "8-bit": tile_list("128x64x64 w8 s3, 64x64x64 w8 s3, 32x64x64 w4 s3"),
    "tf32": tile_list("128x128x32 w8 s4, 128x64x32 w8 s4, 64x64x32 w4 s4"),
    "float32": tile_list("128x64x16 w8 s3, 64x64x16 w4 s3, 32x32x32 w4 s3"),
    "float64": tile_list("128x64x16 w8 s3, 64x64x16 w4 s3, 32x32x16 w4 s4"),
}
