"""Pooling forward by tiles: each visits the taps of many windows together.

**Why this algorithm.** Each program computes a tile of outputs. A tap at a time, it loads what all its
windows hold there: independent loads, all in flight at once up to 3 x 3 (unrolled) and up to seven at a time
above, where a row of taps is unrolled. Nothing is shared between threads but the L1 cache, which serves the
overlap of windows. `windows.py` says how tiles lie.

**Bytes moved.** Every tap of every output is loaded once and every output stored once:

    loads  = e n c (taps of all windows that lie in the image)   k^2 / stride^2 of x, mostly from L1 and L2
    stores = (e + 8 for indices, or e) n c high wide

From DRAM each element of x must come once: `Problem.byte_moved`. In NHWC all accesses are 16 bytes wide if c
is a multiple of 16 bytes. In NCHW those of a tap are `stride` elements apart and rarely aligned, so 2 or 4
bytes wide, coalesced over a warp; stores are wide if a plane of y is a multiple of 16 bytes. Where one window
is the whole image (global pooling) a plane has one output, and one thread walks through it alone.

**Arithmetic.** Values are compared and added in float32, exactly and nearly so; rounded once. Of equal maxima
the first is kept, and a NaN beats all, the last of several; the place starts at the first tap in the image,
which an image of minus infinity keeps. All as PyTorch does, bit for bit.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator,no-redef"
import triton
import triton.language as tl

from kernels.pooling.windows import SIZES, aligned, first, offset, tile


@triton.jit(do_not_specialize=SIZES)
def pool(
    x_pointer,  # [n, c, h, w] in its layout, read only
    y_pointer,  # [n, c, high, wide], laid out as x; every element is written once
    place_pointer,  # as y: int64 indices, every element written once; average: not touched
    h,
    w,
    high,
    wide,
    lanes,
    WINDOW: tl.constexpr,
    TILE: tl.constexpr,
):
    """y, and for max where the maxima were, of one tile of outputs."""
    lanes, area = aligned(lanes, high * wide, TILE)
    row, column, lane, image, inside = tile(high, wide, lanes, TILE)
    x = first(x_pointer, image, lane, h * w, lanes, TILE)
    top = row * WINDOW.stride_h - WINDOW.padding_h
    left = column * WINDOW.stride_w - WINDOW.padding_w

    PADDING: tl.constexpr = 0.0 if WINDOW.kind == "average" else float("-inf")
    best = tl.full(inside.shape, PADDING, tl.float32)
    code = tl.broadcast_to(tl.maximum(-top, 0) * WINDOW.w + tl.maximum(-left, 0), inside.shape)
    # A column of seven taps unrolled as a whole spills where a row of them does not.
    ROWS: tl.constexpr = WINDOW.h if max(WINDOW.h, WINDOW.w) <= 3 else 4 if WINDOW.w == 1 else 1
    for i in tl.range(0, WINDOW.h, loop_unroll_factor=ROWS):
        for j in tl.range(0, WINDOW.w, loop_unroll_factor=WINDOW.w if WINDOW.w <= 7 else 1):
            held = inside & (top + i >= 0) & (top + i < h) & (left + j >= 0) & (left + j < w)
            here = offset((top + i) * w + left + j, lanes, TILE)
            tap = tl.load(x + here, mask=held, other=PADDING).to(tl.float32)
            if WINDOW.kind == "average":
                best += tap
            else:
                better = (tap > best) | (tap != tap)
                best = tl.where(better, tap, best)
                code = tl.where(better, i * WINDOW.w + j, code)

    at = offset(row * wide + column, lanes, TILE)
    if WINDOW.kind == "average":
        best = best / (WINDOW.h * WINDOW.w)
    else:
        place = first(place_pointer, image, lane, area, lanes, TILE) + at
        index = (top + code // WINDOW.w) * w + left + code % WINDOW.w
        tl.store(place, index.to(tl.int64), mask=inside)
    y = first(y_pointer, image, lane, area, lanes, TILE) + at
    tl.store(y, best.to(y_pointer.dtype.element_ty), mask=inside)
