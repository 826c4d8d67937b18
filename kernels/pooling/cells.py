"""Pooling backward for small windows: a gather by cells of stride x stride points, which share their windows.

**Why this algorithm.** Like `backward.py` a gather: no atomics, every dx written once, a fixed order. But
where windows are 2 apart, the points of a 2 x 2 cell lie in the same windows: cell (r, q) only in those that
start at cells r, r - 1, ... and q, q - 1, ..., ceil(window / stride) each way. So a program computes whole
cells. It loads the dy and place of each window once, and which of them hold a point is known at compile time:
tap (a + i stride, b + j stride) for point (a, b) of the cell and the window that starts i cells above and j
to the left. For 3 x 3 at stride 2 that is one load and 2.25 comparisons a point, where a point by itself
makes four of each, most in vain.

**Bytes moved.** Cells start at the padding, so those at the edge are cut off; each visits all its windows:

    loads  = (e + 8 for indices, e + 1 for codes, or e) n c (cells x ceil(window / stride)^2 in the output)
    stores = e n c h w

From DRAM each dy and place must come once: `Problem.byte_moved`. In NHWC accesses are 16 bytes wide if c is a
multiple of that. In NCHW they are narrow, and the columns of a cell are stored one after the other.

**Arithmetic.** As in `backward.py`.
"""

import triton
import triton.language as tl

from kernels.pooling.windows import divisor, first, tile


@triton.jit(  # type: ignore[untyped-decorator]
    do_not_specialize=["h", "w", "high", "wide", "area_in", "area_out", "c", "planes"]
)
def gather_cells(  # type: ignore[no-untyped-def]
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
    """dx of one tile of cells."""
    if CHANNELS_LAST:
        c = c // ALIGN * ALIGN  # as in forward.py
    else:
        area_in = area_in // ALIGN * ALIGN
    down = tl.cdiv(h + PADDING_H, STRIDE_H)
    across = tl.cdiv(w + PADDING_W, STRIDE_W)
    row, column, lane, image, inside = tile(down, across, c, planes, CHANNELS_LAST, HIGH, WIDE, LANES)
    pitch = c if CHANNELS_LAST else 1
    dy = first(dy_pointer, image, lane, area_out, c, CHANNELS_LAST)
    place = dy
    if KIND != "average":
        place = first(place_pointer, image, lane, area_out, c, CHANNELS_LAST)
    dx = first(dx_pointer, image, lane, area_in, c, CHANNELS_LAST)

    ABOVE: tl.constexpr = (WINDOW_H + STRIDE_H - 1) // STRIDE_H
    BESIDE: tl.constexpr = (WINDOW_W + STRIDE_W - 1) // STRIDE_W
    # Tuples of tiles, each the length of the one before and one.
    gradients = ()
    places = ()
    for i in tl.static_range(ABOVE):
        for j in tl.static_range(BESIDE):
            from_row = row - i
            from_column = column - j
            held = inside & (from_row >= 0) & (from_row < high) & (from_column >= 0) & (from_column < wide)
            at = (from_row * wide + from_column) * pitch
            gradient = tl.load(dy + at, mask=held, other=0.0).to(tl.float32)
            if KIND == "average":
                if WHOLE_WINDOWS:
                    gradient = gradient / (WINDOW_H * WINDOW_W)
                else:
                    top = from_row * STRIDE_H - PADDING_H
                    left = from_column * STRIDE_W - PADDING_W
                    share = 1.0 / divisor(
                        top, left, h, w, WINDOW_H, WINDOW_W, PADDING_H, PADDING_W, INCLUDE_PADDING
                    )
                    gradient = tl.where(held, gradient * share, 0.0)
            else:
                places += (tl.load(place + at, mask=held, other=0).to(tl.int32),)  # type: ignore[assignment]
            gradients += (gradient,)  # type: ignore[assignment]

    for a in tl.static_range(STRIDE_H):
        for b in tl.static_range(STRIDE_W):
            to_row = row * STRIDE_H + (a - PADDING_H)
            to_column = column * STRIDE_W + (b - PADDING_W)
            index = to_row * w + to_column
            total = tl.zeros_like(gradients[0])  # type: ignore[misc]
            for i in tl.static_range(ABOVE):
                for j in tl.static_range(BESIDE):
                    if a + i * STRIDE_H < WINDOW_H and b + j * STRIDE_W < WINDOW_W:
                        gradient = gradients[i * BESIDE + j]
                        if KIND == "indices":
                            gradient = tl.where(places[i * BESIDE + j] == index, gradient, 0.0)
                        elif KIND == "codes":
                            tap = (a + i * STRIDE_H) * WINDOW_W + b + j * STRIDE_W
                            gradient = tl.where(places[i * BESIDE + j] == tap, gradient, 0.0)
                        total += gradient
            written = inside & (to_row >= 0) & (to_row < h) & (to_column >= 0) & (to_column < w)
            tl.store(dx + index * pitch, total.to(dx_pointer.dtype.element_ty), mask=written)
