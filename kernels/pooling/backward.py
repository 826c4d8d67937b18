"""Pooling backward as a gather: each point of dx adds up what it gets from the windows that hold it.

**Why this algorithm.** The gradient flows from a window to its points, and written so it needs atomics where
windows overlap, an order that changes from run to run, and zeros beforehand. Turned round, a point visits the
windows that can hold it, ceil(window / stride) each way; of max it takes those whose place names it. Every dx
is written once, zeros too, and the order of additions is fixed.

**Bytes moved.** For every point the dy (and place) of each window that holds it is loaded, and dx stored
once:

    loads  = (e + 8 for indices, e + 1 for codes, or e) n c (taps of all windows that lie in the image)
    stores = e n c h w

From DRAM each dy and place must come once: `Problem.byte_moved`. The taps are the forward pass's, seen from
the other side, and the caches serve the repetition. In NHWC accesses are as wide as forward. In NCHW the
loads of neighbours often coincide; stores are wide if a plane of dx is a multiple of 16 bytes.

**Arithmetic.** Sums are float32, rounded once. A dy, NaN too, reaches only the point that its place names.
"""

import triton
import triton.language as tl

from kernels.pooling.windows import divisor, first, tile


@triton.jit(  # type: ignore[untyped-decorator]
    do_not_specialize=["h", "w", "high", "wide", "area_in", "area_out", "c", "planes"]
)
def gather(  # type: ignore[no-untyped-def]
    dy_pointer,  # [n, c, high, wide] in its layout, read only
    place_pointer,  # as dy, read only: int64 indices or uint8 codes; average: not touched
    dx_pointer,  # [n, c, h, w], laid out as dy; every element is written once
    h,
    w,
    high,
    wide,
    area_in,  # h w
    area_out,  # high wide
    c,
    planes,  # n c
    KIND: tl.constexpr,  # "average", "indices" or "codes"
    WINDOW_H: tl.constexpr,
    WINDOW_W: tl.constexpr,
    STRIDE_H: tl.constexpr,
    STRIDE_W: tl.constexpr,
    PADDING_H: tl.constexpr,
    PADDING_W: tl.constexpr,
    INCLUDE_PADDING: tl.constexpr,
    WHOLE_WINDOWS: tl.constexpr,  # every divisor is WINDOW_H WINDOW_W
    CHANNELS_LAST: tl.constexpr,
    ALIGN: tl.constexpr,  # power of two that divides c (NHWC) or area_in (NCHW); at most 16 bytes' worth
    HIGH: tl.constexpr,
    WIDE: tl.constexpr,
    LANES: tl.constexpr,
):
    """dx of one tile of points."""
    if CHANNELS_LAST:
        c = c // ALIGN * ALIGN  # as in forward.py
    else:
        area_in = area_in // ALIGN * ALIGN
    row, column, lane, image, inside = tile(h, w, c, planes, CHANNELS_LAST, HIGH, WIDE, LANES)
    pitch = c if CHANNELS_LAST else 1
    dy = first(dy_pointer, image, lane, area_out, c, CHANNELS_LAST)
    place = dy
    if KIND != "average":
        place = first(place_pointer, image, lane, area_out, c, CHANNELS_LAST)

    if CHANNELS_LAST:
        total = tl.zeros((HIGH * WIDE, LANES), tl.float32)
    else:
        total = tl.zeros((LANES, HIGH * WIDE), tl.float32)
    ABOVE: tl.constexpr = (WINDOW_H + STRIDE_H - 1) // STRIDE_H
    BESIDE: tl.constexpr = (WINDOW_W + STRIDE_W - 1) // STRIDE_W
    ROWS: tl.constexpr = ABOVE if max(ABOVE, BESIDE) <= 3 else 2 if BESIDE == 1 else 1  # as in forward.py
    for i in tl.range(0, ABOVE, loop_unroll_factor=ROWS):
        for j in tl.range(0, BESIDE, loop_unroll_factor=BESIDE if BESIDE <= 7 else 1):
            total += given(
                dy, place, i, j, row, column, h, w, high, wide, pitch, inside,
                KIND, WINDOW_H, WINDOW_W, STRIDE_H, STRIDE_W, PADDING_H, PADDING_W,
                INCLUDE_PADDING, WHOLE_WINDOWS,
            )  # fmt: skip

    if KIND == "average" and WHOLE_WINDOWS:
        total = total / (WINDOW_H * WINDOW_W)
    dx = first(dx_pointer, image, lane, area_in, c, CHANNELS_LAST)
    tl.store(dx + (row * w + column) * pitch, total.to(dx_pointer.dtype.element_ty), mask=inside)


@triton.jit  # type: ignore[untyped-decorator]
def given(  # type: ignore[no-untyped-def]
    dy,
    place,
    i,
    j,
    row,
    column,
    h,
    w,
    high,
    wide,
    pitch,
    inside,
    KIND: tl.constexpr,
    WINDOW_H: tl.constexpr,
    WINDOW_W: tl.constexpr,
    STRIDE_H: tl.constexpr,
    STRIDE_W: tl.constexpr,
    PADDING_H: tl.constexpr,
    PADDING_W: tl.constexpr,
    INCLUDE_PADDING: tl.constexpr,
    WHOLE_WINDOWS: tl.constexpr,
):
    """What each point gets from the window i above and j left of the last one that starts at or before it."""
    from_row = (row + PADDING_H) // STRIDE_H - i
    from_column = (column + PADDING_W) // STRIDE_W - j
    tap_row = row + PADDING_H - from_row * STRIDE_H
    tap_column = column + PADDING_W - from_column * STRIDE_W
    held = inside & (from_row >= 0) & (from_row < high) & (from_column >= 0) & (from_column < wide)
    held = held & (tap_row < WINDOW_H) & (tap_column < WINDOW_W)
    at = (from_row * wide + from_column) * pitch
    gradient = tl.load(dy + at, mask=held, other=0.0).to(tl.float32)
    if KIND == "average":
        if not WHOLE_WINDOWS:
            top = from_row * STRIDE_H - PADDING_H
            left = from_column * STRIDE_W - PADDING_W
            share = 1.0 / divisor(top, left, h, w, WINDOW_H, WINDOW_W, PADDING_H, PADDING_W, INCLUDE_PADDING)
            gradient = tl.where(held, gradient * share, 0.0)
    elif KIND == "indices":
        index = tl.load(place + at, mask=held, other=-1).to(tl.int32)
        gradient = tl.where(index == row * w + column, gradient, 0.0)
    else:
        code = tl.load(place + at, mask=held, other=0).to(tl.int32)
        gradient = tl.where(code == tap_row * WINDOW_W + tap_column, gradient, 0.0)
    return gradient
