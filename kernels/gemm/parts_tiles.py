"""Which tiles split_k.py, stream_k.py and skinny.py try, by architecture, data type, layout and alignment.

As in tiles.py every tile is one that fits: it spills no register, in any layout that it is listed for, with
and without a mask along K; tests/kernels holds the lists to that. Adding up parts takes registers beside the
accumulator's, so the largest tiles of tiles.py are missing here where they leave none.

Tiles of 4 warps run two on a multiprocessor, which hides what each waits for; larger ones fill it alone.

What the compiler taught: tensor cores want tf32 and 8-bit operands with K contiguous (layout TN). Others are
turned on their way through registers, which the 256-wide tiles do not have; of tf32 Ampere has none for them
anyhow. On Blackwell 128 x 256 of 16 bits spills, 256 x 128 does not.
"""

from collections.abc import Mapping

from kernels.gemm.operands import has_wide_loads
from kernels.gemm.parts import Share
from kernels.gemm.problem import Gemm
from kernels.gemm.tiles import Tile, generation_of, kind_of, of_generation, tile_list


def has_bulk_copies(problem: Gemm, capability: tuple[int, int]) -> bool:
    """Whether stream_k.py moves the operands by bulk copies (TMA): rows and device allow it, and it pays.

    Of types other than 16-bit ones, operands that do not have K contiguous would be turned in registers.
    """
    allowed = not problem.missing("triton-tma", "cuda", capability) and not problem.refusal("triton-tma")
    return allowed and (problem.item_byte == 2 or problem.layout == "TN")


def shared_tiles(problem: Gemm, capability: tuple[int, int]) -> tuple[Share, ...]:
    """The tiles of split_k.py and stream_k.py, and how many of each run on a multiprocessor."""
    kind = kind_of(problem.dtype)
    if not has_wide_loads(problem):
        tiles = _NARROW[kind]
    else:
        tiles = of_generation(_WIDE, kind, capability)
        if kind in ("tf32", "8-bit") and problem.layout != "TN":
            tiles = tuple(tile for tile in tiles if _has_room_to_turn(kind, tile))
    return tuple(Share(tile, 8 // tile.warps) for tile in tiles)


def _has_room_to_turn(kind: str, tile: Tile) -> bool:
    """Whether registers are left to turn operands on their way: 64 sums a thread at most, few bytes."""
    sums = tile.m * tile.n // (32 * tile.warps)
    return sums <= 64 and not (kind == "8-bit" and tile.k > 64)


def skinny_tiles(problem: Gemm, capability: tuple[int, int]) -> tuple[Share, ...]:
    """The tiles of skinny.py: the short side whole, and as many programs at a time as shared memory holds."""
    n_is_short = problem.n <= problem.m
    kind = kind_of(problem.dtype)
    # The vector units have no least size; matrix units take 16.
    vector = kind == "float32" or (kind == "float64" and capability[0] not in (8, 9))
    short = max(1 if vector else 16, 1 << (min(problem.m, problem.n) - 1).bit_length())
    wide = _long_loads_are_wide(problem, n_is_short=n_is_short)
    tiles = []
    for long, k, stages in (_SKINNY if wide else _SKINNY_NARROW)[kind]:
        tile = Tile(long, short, k, 4, stages) if n_is_short else Tile(short, long, k, 4, stages)
        step_byte = (long + short) * k * problem.item_byte
        taken = long * short + step_byte / 4
        if kind in ("tf32", "8-bit") and problem.layout != "TN" and taken > MOST_TAKEN[kind] * 32 * 4:
            continue
        room = SHARED_BYTE[generation_of(capability)] // (stages * step_byte)
        if room:
            tiles.append(Share(tile, min(3, room), least=1))
    return tuple(tiles)


def _long_loads_are_wide(problem: Gemm, *, n_is_short: bool) -> bool:
    """Whether the large matrix can be loaded 16 bytes at a time; the small one matters little."""
    if n_is_short:
        length, row = problem.m if problem.layout[0] == "N" else problem.k, problem.row_byte()[0]
    else:
        length, row = problem.k if problem.layout[1] == "N" else problem.n, problem.row_byte()[1]
    return length * problem.item_byte % 16 == 0 and row % 16 == 0


MOST_TAKEN: Mapping[str, int] = {"tf32": 64, "8-bit": 56}
"""Registers of a thread for sums and a step's operands, where skinny.py turns these and must not spill."""
SHARED_BYTE: Mapping[str, int] = {"ampere": 96 * 1024, "hopper": 227 * 1024, "blackwell": 227 * 1024}
"""Shared memory of a multiprocessor for the programs on it: the least of an architecture and its smaller
siblings."""

_WIDE: Mapping[tuple[str, str], tuple[Tile, ...]] = {
    ("16-bit", "ampere"): tile_list(
        "128x256x32 w8 s4, 256x128x32 w8 s4, 128x128x64 w8 s3, 128x64x64 w4 s4, 64x128x64 w4 s4, "
        "64x64x64 w4 s4, 64x32x128 w4 s3, 32x64x128 w4 s3"
    ),
    ("16-bit", "hopper"): tile_list(
        "128x256x64 w8 s3, 256x128x64 w8 s3, 128x128x64 w8 s4, 128x64x64 w4 s4, 64x128x64 w4 s4, "
        "64x64x128 w4 s3, 64x64x64 w4 s6"
    ),
    ("16-bit", "blackwell"): tile_list(
        "256x128x64 w8 s3, 128x128x64 w8 s4, 128x64x64 w4 s4, 64x128x64 w4 s4, 64x64x128 w4 s3, "
        "64x64x64 w4 s6"
    ),
    # The last two, not 128 bytes along K, are for the layouts that are turned.
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

_SKINNY: Mapping[str, tuple[tuple[int, int, int], ...]] = {
    # BLOCK of the long side, BLOCK_K, stages.
    "16-bit": ((64, 128, 4), (128, 64, 4), (64, 64, 6), (128, 128, 3)),
    "8-bit": ((64, 256, 4), (128, 128, 4), (64, 128, 6), (128, 256, 3), (64, 64, 6)),
    "tf32": ((64, 64, 4), (128, 32, 4), (64, 32, 6)),
    "float32": ((64, 32, 4), (32, 32, 6), (64, 64, 3)),
    "float64": ((64, 16, 4), (32, 32, 3), (64, 16, 6)),
}

_SKINNY_NARROW: Mapping[str, tuple[tuple[int, int, int], ...]] = {
    "16-bit": ((64, 64, 3), (64, 32, 4)),
    "8-bit": ((64, 64, 3), (64, 32, 4)),
    "tf32": ((64, 64, 4), (64, 32, 4)),
    "float32": ((64, 32, 4), (32, 32, 4)),
    "float64": ((64, 16, 4), (32, 16, 4)),
}
