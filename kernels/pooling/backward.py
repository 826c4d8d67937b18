"""Pooling backward by tiles, as a gather: each point of dx adds up what the windows that hold it give it.

**Why a gather.** The gradient flows from a window to its points, and written so it needs atomics where
windows overlap, an order that changes from run to run, and zeros beforehand. The other way round a point
visits the windows that can hold it, ceil(window / stride) each way; of max it takes those whose place names
it. Every dx is written once, zeros too, and the order of additions is fixed.

**Why cells** (`gather_cells`, for small windows). Where windows are 2 apart, the points of a 2 x 2 cell lie
in the same windows: cell (r, q) only in those that start at cells r, r - 1, ... and q, q - 1, ...,
ceil(window / stride) each way. So a program computes whole cells. It loads the dy and place of each window
once, and which of them hold a point is known at compile time: tap (a + i stride, b + j stride) for point
(a, b) of the cell and the window that starts i cells above and j to the left. For 3 x 3 at stride 2 that is
one load and 2.25 comparisons a point, where a point by itself makes four of each, most in vain.

**Bytes moved.** For every point, or cell, the dy (and place) of each window that may hold it is loaded, and
dx stored once:

    loads  = (e + 8 for indices, e + 1 for codes, or e) n c times
             `gather`         taps of all windows that lie in the image
             `gather_cells`   cells x ceil(window / stride)^2 in the output
    stores = e n c h w

From DRAM each dy and place must come once: `Problem.byte_moved`. The taps are the forward pass's, seen from
the other side, and the caches serve the repetition. Cells start at the padding, so those at the edge are cut
off; each visits all its windows. In NHWC accesses are as wide as forward. In NCHW the loads of neighbours
often coincide; stores of `gather` are wide if a plane of dx is a multiple of 16 bytes, and the columns of a
cell are stored one after the other.

**Arithmetic.** Sums are float32, rounded once. A dy, NaN too, reaches only the point that its place names.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator,assignment,misc"
import triton
import triton.language as tl

from kernels.pooling.windows import SIZES, aligned, divisor, first, offset, tile


@triton.jit
def window(dy, place, row, column, held, h, w, wide, lanes, WINDOW: tl.constexpr, TILE: tl.constexpr):
    """dy of the windows at (row, column), divided if averages may be cut off; and their places."""
    at = offset(row * wide + column, lanes, TILE)
    gradient = tl.load(dy + at, mask=held, other=0.0).to(tl.float32)
    number = 0
    if WINDOW.kind != "average":
        number = tl.load(place + at, mask=held, other=0).to(tl.int32)
    elif not WINDOW.whole:
        top = row * WINDOW.stride_h - WINDOW.padding_h
        left = column * WINDOW.stride_w - WINDOW.padding_w
        share = 1.0 / divisor(top, left, h, w, WINDOW)
        gradient = tl.where(held, gradient * share, 0.0)
    return gradient, number


@triton.jit(do_not_specialize=SIZES)
def gather(
    dy_pointer,  # [n, c, high, wide] in its layout, read only
    place_pointer,  # as dy, read only: int64 indices or uint8 codes; average: not touched
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
            gradient, number = window(dy, place, from_row, from_column, held, h, w, wide, lanes, WINDOW, TILE)
            if WINDOW.kind == "indices":
                gradient = tl.where(number == row * w + column, gradient, 0.0)
            elif WINDOW.kind == "codes":
                gradient = tl.where(number == tap_row * WINDOW.w + tap_column, gradient, 0.0)
            total += gradient

    if WINDOW.kind == "average" and WINDOW.whole:
        total = total / (WINDOW.h * WINDOW.w)
    dx = first(dx_pointer, image, lane, area, lanes, TILE) + offset(row * w + column, lanes, TILE)
    tl.store(dx, total.to(dx_pointer.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=SIZES)
def gather_cells(
    dy_pointer,  # the same tensors and sizes as above
    place_pointer,
    dx_pointer,
    h,
    w,
    high,
    wide,
    lanes,
    WINDOW: tl.constexpr,
    TILE: tl.constexpr,
):
    """dx of one tile of cells."""
    lanes, area = aligned(lanes, h * w, TILE)
    down = tl.cdiv(h + WINDOW.padding_h, WINDOW.stride_h)
    across = tl.cdiv(w + WINDOW.padding_w, WINDOW.stride_w)
    row, column, lane, image, inside = tile(down, across, lanes, TILE)
    dy = first(dy_pointer, image, lane, high * wide, lanes, TILE)
    place = first(place_pointer, image, lane, high * wide, lanes, TILE)
    dx = first(dx_pointer, image, lane, area, lanes, TILE)

    ABOVE: tl.constexpr = (WINDOW.h + WINDOW.stride_h - 1) // WINDOW.stride_h
    BESIDE: tl.constexpr = (WINDOW.w + WINDOW.stride_w - 1) // WINDOW.stride_w
    # Tuples of tiles, each the length of the one before and one.
    gradients = ()
    places = ()
    for i in tl.static_range(ABOVE):
        for j in tl.static_range(BESIDE):
            held = inside & (row - i >= 0) & (row - i < high) & (column - j >= 0) & (column - j < wide)
            gradient, number = window(dy, place, row - i, column - j, held, h, w, wide, lanes, WINDOW, TILE)
            if WINDOW.kind == "average" and WINDOW.whole:
                gradient = gradient / (WINDOW.h * WINDOW.w)
            gradients += (gradient,)
            places += (number,)

    DOWN: tl.constexpr = WINDOW.stride_h
    ACROSS: tl.constexpr = WINDOW.stride_w
    for a in tl.static_range(DOWN):
        for b in tl.static_range(ACROSS):
            to_row = row * WINDOW.stride_h + (a - WINDOW.padding_h)
            to_column = column * WINDOW.stride_w + (b - WINDOW.padding_w)
            index = to_row * w + to_column
            total = tl.zeros_like(gradients[0])
            for i in tl.static_range(ABOVE):
                for j in tl.static_range(BESIDE):
                    if a + i * WINDOW.stride_h < WINDOW.h and b + j * WINDOW.stride_w < WINDOW.w:
                        gradient = gradients[i * BESIDE + j]
                        if WINDOW.kind == "indices":
                            gradient = tl.where(places[i * BESIDE + j] == index, gradient, 0.0)
                        elif WINDOW.kind == "codes":
                            tap = (a + i * WINDOW.stride_h) * WINDOW.w + b + j * WINDOW.stride_w
                            gradient = tl.where(places[i * BESIDE + j] == tap, gradient, 0.0)
                        total += gradient
            written = inside & (to_row >= 0) & (to_row < h) & (to_column >= 0) & (to_column < w)
            at = dx + offset(index, lanes, TILE)
            tl.store(at, total.to(dx_pointer.dtype.element_ty), mask=written)
