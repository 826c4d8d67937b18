"""Pooling backward by tiles, as a gather: each point of dx adds up what the windows that hold it give it.

**Why a gather.** The gradient flows from a window to its points, and written so it needs atomics where
windows overlap, an order that changes from run to run, and zeros beforehand. The other way round a point
visits the windows that can hold it, ceil(window / stride) each way; of max it takes those whose place names
it. Every dx is written once, zeros too, and the order of additions is fixed.

**Bytes moved.** For every point the dy (and place) of each window that holds it is loaded; dx is stored once:

    loads  = (e + 8 for indices, or e) n c (taps of all windows that lie in the image)
    stores = e n c h w

From DRAM each dy and place must come once: `Problem.byte_moved`. The taps are the forward pass's, seen from
the other side, and the caches serve the repetition. In NHWC accesses are as wide as forward. In NCHW the
loads of neighbours often coincide; stores are wide if a plane of dx is a multiple of 16 bytes.

**Arithmetic.** Sums are float32, rounded once. A dy, NaN too, reaches only the point that its place names.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator,assignment,misc"
import triton
import triton.language as tl

from kernels.pooling.windows import SIZES, aligned, first, offset, tile


@triton.jit(do_not_specialize=SIZES)
def gather(
    dy_pointer,  # [n, c, high, wide] in its layout, read only
    place_pointer,  # as dy, read only: int64 indices; average: not touched
    dx_pointer,  # [n, c, h, w], laid out as dy; every element is written once
    h,
    w,
    high,
    wide,
    lanes,
    WINDOW: tl.constexpr,
    TILE: tl.constexpr,
):
    """dx of one tile of points."""
    lanes, area = aligned(lanes, h * w, TILE)
    row, column, lane, image, inside = tile(h, w, lanes, TILE)
    dy = first(dy_pointer, image, lane, high * wide, lanes, TILE)
    place = first(place_pointer, image, lane, high * wide, lanes, TILE)

    total = tl.zeros(inside.shape, tl.float32)
    ABOVE: tl.constexpr = (WINDOW.h + WINDOW.stride_h - 1) // WINDOW.stride_h
    BESIDE: tl.constexpr = (WINDOW.w + WINDOW.stride_w - 1) // WINDOW.stride_w
    ROWS: tl.constexpr = ABOVE if max(ABOVE, BESIDE) <= 3 else 2 if BESIDE == 1 else 1  # as in forward.py
    for i in tl.range(0, ABOVE, loop_unroll_factor=ROWS):
        for j in tl.range(0, BESIDE, loop_unroll_factor=BESIDE if BESIDE <= 7 else 1):
            # The window i above and j left of the last one that starts at or before the point.
            from_row = (row + WINDOW.padding_h) // WINDOW.stride_h - i
            from_column = (column + WINDOW.padding_w) // WINDOW.stride_w - j
            tap_row = row + WINDOW.padding_h - from_row * WINDOW.stride_h
            tap_column = column + WINDOW.padding_w - from_column * WINDOW.stride_w
            held = inside & (from_row >= 0) & (from_row < high) & (from_column >= 0) & (from_column < wide)
            held = held & (tap_row < WINDOW.h) & (tap_column < WINDOW.w)
            at = offset(from_row * wide + from_column, lanes, TILE)
            gradient = tl.load(dy + at, mask=held, other=0.0).to(tl.float32)
            if WINDOW.kind == "max":
                number = tl.load(place + at, mask=held, other=0).to(tl.int32)
                gradient = tl.where(number == row * w + column, gradient, 0.0)
            total += gradient

    if WINDOW.kind == "average":
        total = total / (WINDOW.h * WINDOW.w)
    dx = first(dx_pointer, image, lane, area, lanes, TILE) + offset(row * w + column, lanes, TILE)
    tl.store(dx, total.to(dx_pointer.dtype.element_ty), mask=inside)
