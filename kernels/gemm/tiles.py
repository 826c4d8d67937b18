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

import math
import re
from collections.abc import Mapping
from typing import NamedTuple, TypeVar

from kernels.gemm.problem import Gemm

GROUP = 8
"""Tiles of N that run together: 8 x 256 rows of op(B), a column of tiles of op(A)."""


class Tile(NamedTuple):
    """BLOCK_M, BLOCK_N, BLOCK_K, the warps of one block, and how many steps of K are in flight."""

    m: int
    n: int
    k: int
    warps: int
    stages: int

    def __str__(self) -> str:
        """`256x128x64 w8 s3`."""
        return f"{self.m}x{self.n}x{self.k} w{self.warps} s{self.stages}"

    @property
    def options(self) -> dict[str, int]:
        """What Triton is asked for: its own options of a launch."""
        return {"num_warps": self.warps, "num_stages": self.stages}


def tiles_of(problem: Gemm, tile: Tile) -> int:
    """Tiles that cover D, ragged ones included, of all products of a batch."""
    return math.ceil(problem.m / tile.m) * math.ceil(problem.n / tile.n) * problem.batch


def tile_list(text: str) -> tuple[Tile, ...]:
    """The tiles of a text such as `256x128x64 w8 s3, 128x64x64 w4 s4`: each as rows show it."""
    return tuple(Tile(*map(int, re.findall(r"\d+", name))) for name in text.split(", "))


def pointer_tiles(capability: tuple[int, int], dtype: str, layout: str, *, wide: bool) -> tuple[Tile, ...]:
    """The tiles to try for this compute capability, data type and layout of ours.

    A tile that needs more shared memory than a smaller sibling of the architecture has (8.6, 12.0: 99 KiB)
    is passed over by the tuner; every list ends with tiles that fit everywhere.
    """
    kind = kind_of(dtype)
    if not wide:
        return _NARROW[kind]
    tiles = of_generation(_WIDE, kind, capability)
    if (kind, generation_of(capability), layout) == ("tf32", "hopper", "NT"):
        # Hopper multiplies tf32 only from operands with K contiguous. Here neither is: both are transposed on
        # their way, 4 bytes at a time, and large tiles spill.
        return tuple(tile for tile in tiles if (tile.m + tile.n) * tile.k <= 256 * 32)
    return tiles


def kind_of(dtype: str) -> str:
    """What the lists of tiles call a data type: by its width where that is all that counts."""
    widths = {"float16": "16-bit", "bfloat16": "16-bit", "float8_e4m3": "8-bit", "int8": "8-bit"}
    return widths.get(dtype, dtype)


def generation_of(capability: tuple[int, int]) -> str:
    """The architecture whose instructions multiply there, as the lists of tiles call it."""
    # 12.x is called Blackwell too, but multiplies with Ampere's instructions, as do 7.x (float32, float64).
    return {9: "hopper", 10: "blackwell", 11: "blackwell"}.get(capability[0], "ampere")


T = TypeVar("T")


def of_generation(table: Mapping[tuple[str, str], T], kind: str, capability: tuple[int, int]) -> T:
    """What a table has for this kind of data type and this architecture, or for any."""
    return table.get((kind, generation_of(capability))) or table[kind, "any"]


_WIDE: Mapping[tuple[str, str], tuple[Tile, ...]] = {
    ("16-bit", "ampere"): tile_list(
        "128x256x32 w8 s4, 256x128x32 w8 s4, 128x128x64 w8 s3, 128x128x32 w4 s4, 128x64x64 w4 s4, "
        "64x128x64 w4 s4, 64x64x64 w4 s4, 64x32x128 w4 s3, 32x64x128 w4 s3, 128x16x128 w4 s3"
    ),
    ("16-bit", "hopper"): tile_list(
        "128x256x64 w8 s3, 256x128x64 w8 s3, 128x256x64 w8 s4, 256x128x64 w8 s4, 128x128x64 w8 s4, "
        "128x128x128 w8 s3, 128x64x64 w4 s4, 64x128x64 w4 s4, 64x64x128 w4 s4, 64x64x64 w4 s6, "
        "32x64x128 w4 s4, 128x16x64 w4 s6"
    ),
    ("16-bit", "blackwell"): tile_list(
        "128x256x64 w8 s3, 256x128x64 w8 s3, 128x256x64 w8 s4, 256x128x64 w8 s4, 128x128x64 w8 s4, "
        "128x128x128 w8 s3, 128x64x64 w4 s4, 64x64x128 w4 s4, 64x64x64 w4 s6, 32x64x128 w4 s4, "
        "64x32x128 w4 s4"
    ),
    ("8-bit", "any"): tile_list(
        "128x256x128 w8 s3, 256x128x128 w8 s3, 128x128x128 w8 s4, 128x128x128 w8 s3, 128x64x128 w4 s4, "
        "64x128x128 w4 s4, 64x64x128 w4 s4, 64x32x128 w4 s4, 128x16x128 w4 s4"
    ),
    ("tf32", "ampere"): tile_list(
        "128x256x32 w8 s3, 256x128x32 w8 s3, 128x128x32 w8 s4, 128x128x16 w4 s4, 128x64x32 w4 s4, "
        "64x128x32 w4 s4, 64x64x32 w4 s4, 64x32x64 w4 s3"
    ),
    ("tf32", "hopper"): tile_list(
        "128x256x32 w8 s3, 256x128x32 w8 s3, 128x128x32 w8 s4, 128x128x64 w8 s3, 128x64x32 w4 s4, "
        "64x128x32 w4 s4, 64x64x32 w4 s5, 64x32x32 w4 s4, 128x16x64 w4 s3"
    ),
    ("tf32", "blackwell"): tile_list(
        "128x128x32 w8 s4, 128x128x64 w8 s3, 128x64x32 w4 s4, 64x128x32 w4 s4, 64x64x32 w4 s5, "
        "64x32x64 w4 s3, 128x16x64 w4 s3"
    ),
    ("float32", "any"): tile_list(
        "128x128x32 w8 s3, 128x128x16 w8 s3, 128x64x16 w4 s3, 64x128x16 w4 s3, 128x64x32 w8 s3, "
        "64x64x16 w4 s3, 32x32x32 w4 s3"
    ),
    ("float32", "hopper"): tile_list(
        "128x128x32 w8 s3, 128x128x16 w8 s3, 128x64x16 w4 s3, 64x128x16 w4 s3, 128x64x32 w8 s3, "
        "64x64x16 w8 s3, 32x32x32 w4 s3"
    ),
    ("float64", "any"): tile_list(
        "128x128x16 w8 s3, 128x64x16 w8 s3, 64x128x16 w8 s3, 64x64x32 w4 s3, 64x64x16 w4 s4, 32x32x16 w4 s4"
    ),
}


_NARROW: Mapping[str, tuple[Tile, ...]] = {
    "16-bit": tile_list(
        "128x128x32 w8 s3, 128x64x64 w8 s3, 64x128x64 w8 s3, 64x64x128 w8 s3, 64x64x32 w4 s3, 64x32x64 w4 s3"
    ),
    "8-bit": tile_list("128x64x64 w8 s3, 64x64x64 w8 s3, 64x32x64 w4 s3"),
    "tf32": tile_list("128x128x16 w8 s4, 128x64x32 w4 s4, 64x64x32 w4 s4, 64x32x64 w4 s3"),
    "float32": tile_list("128x64x32 w8 s3, 64x64x32 w8 s3, 64x64x16 w4 s3, 32x32x32 w4 s3"),
    "float64": tile_list("128x64x16 w8 s3, 64x64x16 w4 s3, 32x32x16 w4 s4"),
}
