"""What our pooling kernels share: which points a program computes, and where they lie in memory.

A program's tile has two axes, points of an image and *lanes*, whatever is not the image:

    NHWC  [HIGH x WIDE points, LANES channels]  lanes are contiguous: 16-byte accesses at every tap
    NCHW  [LANES planes, HIGH x WIDE points]    points are contiguous: row by row over a plane's end of line

In NHWC the points are a patch, so that windows which overlap, down as well as across, meet in the L1 cache.
In NCHW they are a run of the plane, since a patch would cut short the only contiguous direction; several
planes share a program where planes are small, and the division of a point into row and column is done once
for all.

An image (NHWC) or a plane (NCHW) starts at a 64-bit offset; within it 32 bits suffice (problem.py refuses).
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator"
from typing import NamedTuple

import triton
import triton.language as tl

SIZES = ["h", "w", "high", "wide", "lanes"]
"""Integers that a compilation does not depend on; lanes are c (NHWC) or n c (NCHW)."""


class Windows(NamedTuple):
    """What a kernel is compiled for: what is done with a window, and how windows lie."""

    kind: str
    """`max`, with its place as PyTorch's index, or `average`."""
    h: int
    w: int
    stride_h: int
    stride_w: int
    padding_h: int
    padding_w: int


class Points(NamedTuple):
    """How a kernel is compiled to cut images: the tile of one program."""

    channels_last: bool
    align: int
    """Power of two that divides c (NHWC) or a plane that is written (NCHW); at most 16 bytes' worth."""
    high: int
    wide: int
    lanes: int


@triton.jit
def aligned(lanes, area, TILE: tl.constexpr):
    """Lanes and the area of a plane as they are: so the compiler learns what divides them."""
    if TILE.channels_last:
        lanes = lanes // TILE.align * TILE.align
    else:
        area = area // TILE.align * TILE.align
    return lanes, area


@triton.jit
def tile(high, wide, lanes, TILE: tl.constexpr):
    """(row, column, lane, image, inside) of this program's tile of images of high x wide points.

    row and column broadcast along lanes, lane along points; image is 64-bit, 0 in NCHW, where lanes number
    all planes. `inside` is false for what lies beyond the image or the last lane.
    """
    program = tl.program_id(0)
    point = tl.arange(0, TILE.high * TILE.wide)
    if TILE.channels_last:
        blocks = tl.cdiv(lanes, TILE.lanes)
        across = tl.cdiv(wide, TILE.wide)
        patches = tl.cdiv(high, TILE.high) * across
        patch = program // blocks
        image = (patch // patches).to(tl.int64)
        patch = patch % patches
        row = (patch // across * TILE.high + point // TILE.wide)[:, None]
        column = (patch % across * TILE.wide + point % TILE.wide)[:, None]
        lane = (program % blocks * TILE.lanes + tl.arange(0, TILE.lanes))[None, :]
        inside = (row < high) & (column < wide) & (lane < lanes)
    else:
        blocks = tl.cdiv(high * wide, TILE.high * TILE.wide)
        point = (program % blocks * (TILE.high * TILE.wide) + point)[None, :]
        row = point // wide
        column = point % wide
        image = tl.zeros((), tl.int64)
        lane = ((program // blocks).to(tl.int64) * TILE.lanes + tl.arange(0, TILE.lanes))[:, None]
        inside = (row < high) & (lane < lanes)
    return row, column, lane, image, inside


@triton.jit
def first(pointer, image, lane, area, lanes, TILE: tl.constexpr):
    """Pointers to point 0 of every lane, in a tensor of `area` points an image."""
    if TILE.channels_last:
        pointer += image * (area * lanes) + lane
    else:
        pointer += lane * area
    return pointer


@triton.jit
def offset(point, lanes, TILE: tl.constexpr):
    """Offset of a lane's point of this number from its point 0."""
    return point * lanes if TILE.channels_last else point
