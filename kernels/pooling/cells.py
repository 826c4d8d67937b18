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

# mypy: disable-error-code="no-untyped-def,untyped-decorator,assignment,misc"
import triton
import triton.language as tl

from kernels.pooling.windows import SIZES, aligned, divisor, first, tile


@triton.jit(do_not_specialize=SIZES)
def gather_cells(
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
    WINDOW: tl.constexpr,
    TILE: tl.constexpr,
):
    """dx of one tile of cells."""
    c, area_in = aligned(c, area_in, TILE)
    down = tl.cdiv(h + WINDOW.padding_h, WINDOW.stride_h)
    across = tl.cdiv(w + WINDOW.padding_w, WINDOW.stride_w)
    row, column, lane, image, inside = tile(down, across, c, planes, TILE)
    pitch = c if TILE.channels_last else 1
    dy = first(dy_pointer, image, lane, area_out, c, TILE)
    place = dy
    if WINDOW.kind != "average":
        place = first(place_pointer, image, lane, area_out, c, TILE)
    dx = first(dx_pointer, image, lane, area_in, c, TILE)

    ABOVE: tl.constexpr = (WINDOW.h + WINDOW.stride_h - 1) // WINDOW.stride_h
    BESIDE: tl.constexpr = (WINDOW.w + WINDOW.stride_w - 1) // WINDOW.stride_w
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
            if WINDOW.kind == "average":
                if WINDOW.whole:
                    gradient = gradient / (WINDOW.h * WINDOW.w)
                else:
                    top = from_row * WINDOW.stride_h - WINDOW.padding_h
                    left = from_column * WINDOW.stride_w - WINDOW.padding_w
                    share = 1.0 / divisor(top, left, h, w, WINDOW)
                    gradient = tl.where(held, gradient * share, 0.0)
            else:
                places += (tl.load(place + at, mask=held, other=0).to(tl.int32),)
            gradients += (gradient,)

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
            tl.store(dx + index * pitch, total.to(dx_pointer.dtype.element_ty), mask=written)
