"""What our pooling kernels share: which points a program computes, and where they lie in memory.

A program's tile has two axes, points of an image and *lanes*, whatever runs beside the image:

    NHWC  [HIGH x WIDE points, LANES channels]  lanes are contiguous: 16-byte accesses at every tap
    NCHW  [LANES planes, HIGH x WIDE points]    points are contiguous: row by row over a plane's end of line

In NHWC the points are a patch, so that windows which overlap, down as well as across, meet in the L1 cache.
In NCHW they are a run of the plane, since a patch would cut short the only contiguous direction; several
planes share a program where planes are small, and the division of a point into row and column is done once
for all.

An image (NHWC) or a plane (NCHW) starts at a 64-bit offset; within it 32 bits suffice (problem.py refuses).
"""

import triton
import triton.language as tl


@triton.jit  # type: ignore[untyped-decorator]
def tile(  # type: ignore[no-untyped-def]
    high,  # rows and columns of the image whose points are computed
    wide,
    c,  # channels
    planes,  # images x channels
    CHANNELS_LAST: tl.constexpr,
    HIGH: tl.constexpr,
    WIDE: tl.constexpr,
    LANES: tl.constexpr,
):
    """(row, column, lane, image, inside) of this program's tile.

    row and column broadcast along lanes, lane along points; image is 64-bit, 0 in NCHW, where lanes number
    all planes. `inside` is false for what lies beyond the image or the last lane.
    """
    program = tl.program_id(0)
    point = tl.arange(0, HIGH * WIDE)
    if CHANNELS_LAST:
        blocks = tl.cdiv(c, LANES)
        across = tl.cdiv(wide, WIDE)
        patches = tl.cdiv(high, HIGH) * across
        patch = program // blocks
        image = (patch // patches).to(tl.int64)
        patch = patch % patches
        row = (patch // across * HIGH + point // WIDE)[:, None]
        column = (patch % across * WIDE + point % WIDE)[:, None]
        lane = (program % blocks * LANES + tl.arange(0, LANES))[None, :]
        inside = (row < high) & (column < wide) & (lane < c)
    else:
        blocks = tl.cdiv(high * wide, HIGH * WIDE)
        point = (program % blocks * (HIGH * WIDE) + point)[None, :]
        row = point // wide
        column = point % wide
        image = tl.zeros((), tl.int64)
        lane = ((program // blocks).to(tl.int64) * LANES + tl.arange(0, LANES))[:, None]
        inside = (row < high) & (lane < planes)
    return row, column, lane, image, inside


@triton.jit  # type: ignore[untyped-decorator]
def first(pointer, image, lane, area, c, CHANNELS_LAST: tl.constexpr):  # type: ignore[no-untyped-def]
    """Pointers to point 0 of every lane, in a tensor of `area` points an image."""
    if CHANNELS_LAST:
        pointer += image * (area * c) + lane
    else:
        pointer += lane * area
    return pointer


@triton.jit  # type: ignore[untyped-decorator]
def divisor(  # type: ignore[no-untyped-def]
    row,
    column,
    h,
    w,
    WINDOW_H: tl.constexpr,
    WINDOW_W: tl.constexpr,
    PADDING_H: tl.constexpr,
    PADDING_W: tl.constexpr,
    INCLUDE_PADDING: tl.constexpr,
):
    """Points that the window at (row, column) averages over, float32; the window may start in the padding."""
    if INCLUDE_PADDING:
        down = tl.minimum(row + WINDOW_H, h + PADDING_H) - row
        across = tl.minimum(column + WINDOW_W, w + PADDING_W) - column
    else:
        down = tl.minimum(row + WINDOW_H, h) - tl.maximum(row, 0)
        across = tl.minimum(column + WINDOW_W, w) - tl.maximum(column, 0)
    return (down * across).to(tl.float32)


@triton.jit  # type: ignore[untyped-decorator]
def taken(value, place, tap, number, KIND: tl.constexpr):  # type: ignore[no-untyped-def]
    """The sum, or the maximum and its place, of what came before and of the tap with this number."""
    if KIND == "average":
        value += tap
    else:
        better = (tap > value) | (tap != tap)
        value = tl.where(better, tap, value)
        place = tl.where(better, number, place)
    return value, place
