"""Which tiles the pointer kernel tries: a short list for each architecture, data type and width of load.

A tile is good if its operands are reused often (large), if it fits (registers, shared memory), and if there
are enough of it to fill the device (small). Fitting is a fact of the compiled program, so every tile below
is one that fits, in all four layouts, with and without a mask along K: of the hundreds of instructions in
the loop at most 3 spill a register, in most forms none. tests/kernels holds the lists to that. What is
fastest depends on the problem, so the device decides (pointer.py). Large tiles come first; the last ones
are for matrices with a short side.

*Wide* loads are 16 bytes: all rows start at multiples of 16 bytes. Narrow ones need up to eight times as
many registers for addresses and masks, so tiles must be smaller.

What the compiler taught: 128 x 256 needs 8 warps, and so does, with narrow loads of 16-bit types, whatever
exceeds 64 x 64 x 32. On Blackwell the accumulator lies in tensor memory, yet leaves through registers, and
there 128 x 256 of tf32 spills. float64 has no tensor-core path in Triton on Blackwell, float32 nowhere.
"""

from collections.abc import Mapping
from typing import NamedTuple

GROUP = 8
"""Tiles of N that run together where nothing else is said: 8 x 256 rows of op(B), a column of tiles of
op(A)."""


class Tile(NamedTuple):
    """BLOCK_M, BLOCK_N, BLOCK_K, the warps of one block, and how many steps of K are in flight.

    `group` is no part of the tile but of the order in which tiles run: how many of N together (order.py).
    """

    m: int
    n: int
    k: int
    warps: int
    stages: int
    group: int = GROUP

    def __str__(self) -> str:
        """As people write it: `256x128x64 w8 s3`, and ` g16` if another number than 8 runs together."""
        text = f"{self.m}x{self.n}x{self.k} w{self.warps} s{self.stages}"
        return text if self.group == GROUP else f"{text} g{self.group}"


def pointer_tiles(capability: tuple[int, int], dtype: str, layout: str, *, wide: bool) -> tuple[Tile, ...]:
    """The tiles to try for this compute capability, data type and layout of ours.

    A tile that needs more shared memory than a smaller sibling of the architecture has (8.6, 12.0: 99 KiB)
    is passed over by the tuner; every list ends with tiles that fit everywhere.
    """
    kind = _kind(dtype)
    if not wide:
        return _NARROW[kind]
    generation = _generation(capability)
    tiles = _WIDE[kind].get(generation) or _WIDE[kind]["any"]
    if (kind, generation, layout) == ("tf32", "hopper", "NT"):
        # Hopper multiplies tf32 only from operands with K contiguous. Here neither is: both are turned on
        # their way, 4 bytes at a time, and large tiles spill.
        return tuple(tile for tile in tiles if (tile.m + tile.n) * tile.k <= 256 * 32)
    return tiles


def forced(
    capability: tuple[int, int], dtype: str, layout: str, m: int, n: int, *, wide: bool
) -> tuple[Tile, ...]:
    """Tiles of exactly m x n: a few depths and warps, so that it is the tile that is measured; or none.

    How many elements 4 or 8 warps hold without spilling is in `_FORCED`; four stages where they fit.
    """
    kind, generation = _kind(dtype), _generation(capability)
    if not wide:
        return tuple(tile for tile in _NARROW[kind] if (tile.m, tile.n) == (m, n))
    found = _FORCED[kind]
    of = found.get(generation) or found["any"]
    eight = 128 * 128 if (kind, generation, layout) == ("tf32", "hopper", "NT") else of.eight
    warps = [4] * (m * n <= of.four) + [8] * (128 * 128 <= m * n <= eight)
    return tuple(Tile(m, n, of.k, w, stages) for w in warps for stages in (3, 4))


def _kind(dtype: str) -> str:
    return {
        "float16": "16-bit",
        "bfloat16": "16-bit",
        "float8_e4m3": "8-bit",
        "int8": "8-bit",
    }.get(dtype, dtype)


def _generation(capability: tuple[int, int]) -> str:
    # 12.x is called Blackwell too, but multiplies with Ampere's instructions, as do 7.x (float32, float64).
    return {9: "hopper", 10: "blackwell", 11: "blackwell"}.get(capability[0], "ampere")


_WIDE: Mapping[str, Mapping[str, tuple[Tile, ...]]] = {
    "16-bit": {
        "ampere": (
            Tile(128, 256, 32, 8, 4),
            Tile(256, 128, 32, 8, 4),
            Tile(128, 128, 64, 8, 3),
            Tile(128, 128, 32, 4, 4),
            Tile(128, 64, 64, 4, 4),
            Tile(64, 128, 64, 4, 4),
            Tile(64, 64, 64, 4, 4),
            Tile(64, 32, 128, 4, 3),
            Tile(32, 64, 128, 4, 3),
            Tile(128, 16, 128, 4, 3),
        ),
        "hopper": (
            Tile(128, 256, 64, 8, 3),
            Tile(256, 128, 64, 8, 3),
            Tile(128, 256, 64, 8, 4),
            Tile(256, 128, 64, 8, 4),
            Tile(128, 128, 64, 8, 4),
            Tile(128, 128, 128, 8, 3),
            Tile(128, 64, 64, 4, 4),
            Tile(64, 128, 64, 4, 4),
            Tile(64, 64, 128, 4, 4),
            Tile(64, 64, 64, 4, 6),
            Tile(32, 64, 128, 4, 4),
            Tile(128, 16, 64, 4, 6),
        ),
        "blackwell": (
            Tile(128, 256, 64, 8, 3),
            Tile(256, 128, 64, 8, 3),
            Tile(128, 256, 64, 8, 4),
            Tile(256, 128, 64, 8, 4),
            Tile(128, 128, 64, 8, 4),
            Tile(128, 128, 128, 8, 3),
            Tile(128, 64, 64, 4, 4),
            Tile(64, 64, 128, 4, 4),
            Tile(64, 64, 64, 4, 6),
            Tile(32, 64, 128, 4, 4),
            Tile(64, 32, 128, 4, 4),
        ),
    },
    "8-bit": {
        "any": (
            Tile(128, 256, 128, 8, 3),
            Tile(256, 128, 128, 8, 3),
            Tile(128, 128, 128, 8, 4),
            Tile(128, 128, 128, 8, 3),
            Tile(128, 64, 128, 4, 4),
            Tile(64, 128, 128, 4, 4),
            Tile(64, 64, 128, 4, 4),
            Tile(64, 32, 128, 4, 4),
            Tile(128, 16, 128, 4, 4),
        ),
    },
    "tf32": {
        "ampere": (
            Tile(128, 256, 32, 8, 3),
            Tile(256, 128, 32, 8, 3),
            Tile(128, 128, 32, 8, 4),
            Tile(128, 128, 16, 4, 4),
            Tile(128, 64, 32, 4, 4),
            Tile(64, 128, 32, 4, 4),
            Tile(64, 64, 32, 4, 4),
            Tile(64, 32, 64, 4, 3),
        ),
        "hopper": (
            Tile(128, 256, 32, 8, 3),
            Tile(256, 128, 32, 8, 3),
            Tile(128, 128, 32, 8, 4),
            Tile(128, 128, 64, 8, 3),
            Tile(128, 64, 32, 4, 4),
            Tile(64, 128, 32, 4, 4),
            Tile(64, 64, 32, 4, 5),
            Tile(64, 32, 32, 4, 4),
            Tile(128, 16, 64, 4, 3),
        ),
        "blackwell": (
            Tile(128, 128, 32, 8, 4),
            Tile(128, 128, 64, 8, 3),
            Tile(128, 64, 32, 4, 4),
            Tile(64, 128, 32, 4, 4),
            Tile(64, 64, 32, 4, 5),
            Tile(64, 32, 64, 4, 3),
            Tile(128, 16, 64, 4, 3),
        ),
    },
    "float32": {
        "any": (
            Tile(128, 128, 32, 8, 3),
            Tile(128, 128, 16, 8, 3),
            Tile(128, 64, 16, 4, 3),
            Tile(64, 128, 16, 4, 3),
            Tile(128, 64, 32, 8, 3),
            Tile(64, 64, 16, 4, 3),
            Tile(32, 32, 32, 4, 3),
        ),
        "hopper": (
            Tile(128, 128, 32, 8, 3),
            Tile(128, 128, 16, 8, 3),
            Tile(128, 64, 16, 4, 3),
            Tile(64, 128, 16, 4, 3),
            Tile(128, 64, 32, 8, 3),
            Tile(64, 64, 16, 8, 3),
            Tile(32, 32, 32, 4, 3),
        ),
    },
    "float64": {
        "any": (
            Tile(128, 128, 16, 8, 3),
            Tile(128, 64, 16, 8, 3),
            Tile(64, 128, 16, 8, 3),
            Tile(64, 64, 32, 4, 3),
            Tile(64, 64, 16, 4, 4),
            Tile(32, 32, 16, 4, 4),
        ),
    },
}


class _Most(NamedTuple):
    """BLOCK_K, and the most elements of a tile that 4 and 8 warps hold."""

    k: int
    four: int
    eight: int


_FORCED: Mapping[str, Mapping[str, _Most]] = {
    "16-bit": {
        "ampere": _Most(64, 128 * 64, 256 * 128),
        "any": _Most(64, 128 * 128, 256 * 128),
    },
    "8-bit": {
        "hopper": _Most(128, 128 * 128, 256 * 128),
        "any": _Most(128, 128 * 64, 256 * 128),
    },
    "tf32": {
        "ampere": _Most(32, 128 * 128, 256 * 128),
        "hopper": _Most(32, 128 * 64, 256 * 128),
        "any": _Most(32, 128 * 64, 128 * 128),
    },
    "float32": {"any": _Most(16, 128 * 64, 128 * 128)},
    "float64": {"any": _Most(16, 128 * 64, 128 * 128)},
}

_NARROW: Mapping[str, tuple[Tile, ...]] = {
    "16-bit": (
        Tile(128, 128, 32, 8, 3),
        Tile(128, 64, 64, 8, 3),
        Tile(64, 128, 64, 8, 3),
        Tile(64, 64, 128, 8, 3),
        Tile(64, 64, 32, 4, 3),
        Tile(64, 32, 64, 4, 3),
    ),
    "8-bit": (
        Tile(128, 64, 64, 8, 3),
        Tile(64, 64, 64, 8, 3),
        Tile(64, 32, 64, 4, 3),
    ),
    "tf32": (
        Tile(128, 128, 16, 8, 4),
        Tile(128, 64, 32, 4, 4),
        Tile(64, 64, 32, 4, 4),
        Tile(64, 32, 64, 4, 3),
    ),
    "float32": (
        Tile(128, 64, 32, 8, 3),
        Tile(64, 64, 32, 8, 3),
        Tile(64, 64, 16, 4, 3),
        Tile(32, 32, 32, 4, 3),
    ),
    "float64": (
        Tile(128, 64, 16, 8, 3),
        Tile(64, 64, 16, 4, 3),
        Tile(32, 32, 16, 4, 4),
    ),
}
