"""Tiles that our convolution kernels try, and what the launches of the three have in common.

*Wide* loads are 16 bytes: c / groups is a multiple of 16 bytes, and for the gradients k / groups too. With
narrow ones each element needs an address and a mask of its own, so tiles must be smaller. tests/kernels shows
that no tile below spills in its loop. tf32 on Hopper and Blackwell is narrower: their matrix units want the
sum contiguous in memory, so what is not (w for dx, both factors for dw) is turned on its way, 4 bytes at a
time.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator"
from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import triton
import triton.language as tl

from kernels.convolution.problem import Convolution
from kernels.gemm.parts import registers
from kernels.gemm.tiles import Tile, tile_list

TILES: Mapping[tuple[str, bool], tuple[Tile, ...]] = {
    ("16-bit", True): tile_list(
        "128x128x64 w8 s3, 128x128x32 w8 s4, 128x64x64 w4 s3, 64x128x64 w4 s3, 64x64x64 w4 s4, "
        "64x32x64 w4 s4, 128x16x64 w4 s3"
    ),
    ("tf32", True): tile_list("128x128x16 w8 s4, 128x64x32 w4 s3, 64x64x32 w4 s4, 64x32x32 w4 s4"),
    ("float32", True): tile_list("128x64x16 w8 s3, 64x64x16 w4 s3, 64x32x16 w4 s3"),
    ("16-bit", False): tile_list("64x64x32 w4 s2, 64x32x32 w8 s2, 64x16x32 w4 s2"),
    ("tf32", False): tile_list("64x64x16 w4 s2, 64x32x16 w4 s2, 64x16x16 w4 s2"),
    ("float32", False): tile_list("64x64x16 w8 s3, 64x32x16 w4 s2, 64x16x16 w4 s2"),
}
"""Tiles by type and width of load. M, N and K are pixels, channels and terms of each sum for y and dx; for dw
they are weights, channels of dy and pixels."""
FEW: Mapping[str, Tile] = {
    "16-bit": Tile(16, 16, 64, 4, 4),
    "tf32": Tile(16, 16, 32, 4, 4),
    "float32": Tile(16, 16, 32, 4, 3),
}
"""Tiles for dw of few weights and channels, such as a depthwise convolution has."""


def candidates(problem: Convolution) -> tuple[Tile, ...]:
    """Tiles worth timing: none of twice the channels, or weights, that there are."""
    c, k = problem.c // problem.groups, problem.k // problem.groups
    listed = TILES[kind(problem), has_wide_loads(problem)]
    if problem.direction != "weight_gradient":
        channels = k if problem.direction == "forward" else c
        return tuple(tile for tile in listed if tile.n < 2 * channels) or listed[-1:]
    weights = c * problem.window_h * problem.window_w
    fitting = [tile for tile in listed if tile.m < 2 * weights and (tile.n < 2 * k or tile.n == 16)]
    return tuple(fitting) or (FEW[kind(problem)],)


def kind(problem: Convolution) -> str:
    """What the lists of tiles call the data type."""
    return "16-bit" if problem.item_byte == 2 else problem.dtype


def has_wide_loads(problem: Convolution) -> bool:
    """Whether the channels that are read lie in whole 16 bytes."""
    read = (problem.c,) if problem.direction == "forward" else (problem.c, problem.k)
    return all(channels // problem.groups * problem.item_byte % 16 == 0 for channels in read)


@triton.jit
def read(pointers, inside, exists, MASKED: tl.constexpr, EVEN: tl.constexpr):
    """A block of a factor, 0 where it is not `inside`, if MASKED, or beyond the sum's end, unless EVEN."""
    if MASKED:
        block = tl.load(pointers, mask=inside if EVEN else inside & exists, other=0.0)
    elif EVEN:
        block = tl.load(pointers)
    else:
        block = tl.load(pointers, mask=exists, other=0.0)
    return block


class Windows(NamedTuple):
    """What every kernel is compiled for: windows, the same for rows and columns but for their sizes."""

    groups: int
    h: int
    w: int
    stride: int
    padding: int
    dilation: int


class Blocks(NamedTuple):
    """And how it cuts the matrices of its product: BLOCK_M and the like."""

    align_c: int
    """Powers of two that divide the channels of a group; at most 16 bytes' worth of elements."""
    align_k: int
    precision: str
    m: int
    n: int
    k: int
    group: int = 8
    """Tiles of channels that run together."""


def arguments(problem: Convolution, tile: Tile) -> dict[str, Any]:
    """What every kernel is called and compiled with; c and k are channels of a group.

    Registers are for two programs of 4 warps, or one of 8, at a time.
    """
    wide = 16 // problem.item_byte
    channels = {"c": problem.c // problem.groups, "k": problem.k // problem.groups}
    align_c, align_k = (math.gcd(of_group, wide) for of_group in channels.values())
    precision = "tf32" if problem.dtype == "tf32" else "ieee"
    sizes = {"h": problem.h, "w": problem.w, "p": problem.p, "q": problem.q} | channels
    geometry = problem.window_h, problem.window_w, problem.stride, problem.padding, problem.dilation
    return sizes | {
        "WINDOW": Windows(problem.groups, *geometry),
        "TILE": Blocks(align_c, align_k, precision, tile.m, tile.n, tile.k),
        "num_warps": tile.warps,
        "num_stages": tile.stages,
        "maxnreg": registers(tile, 8 // tile.warps),
    }
