"""Pooling forward: each program computes a tile of outputs, visiting the taps of all its windows together.

**Why this algorithm.** A tap at a time, a program loads what all its windows hold there: independent loads,
all in flight at once up to 3 x 3 (unrolled) and up to seven at a time above, where a row of taps is unrolled.
Nothing is shared between threads but the L1 cache, which serves the overlap of windows. `windows.py` says how
tiles lie.

**Bytes moved.** Every tap of every output is loaded once and every output stored once:

    loads  = e n c (taps of all windows that lie in the image)   k^2 / stride^2 of x, mostly from L1 and L2
    stores = (e + 8 for indices, e + 1 for codes, or e) n c high wide

From DRAM each element of x must come once: `Problem.byte_moved`. In NHWC all accesses are 16 bytes wide if c
is a multiple of 16 bytes. In NCHW a tap's loads are `stride` elements apart and rarely aligned, so 2 or 4
bytes wide, coalesced over a warp; stores are wide if a plane of y is a multiple of 16 bytes.

**Arithmetic.** Values are compared and added in float32, exactly and nearly so; rounded once. Of equal maxima
the first is kept, and a NaN beats all; the place starts at the first tap in the image, which an image of
minus infinity keeps. All as PyTorch does, bit for bit.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator"
import triton
import triton.language as tl

from kernels.pooling.windows import SIZES, aligned, divisor, first, taken, tile


@triton.jit(do_not_specialize=SIZES)
def pool(
    x_pointer,  # [n, c, h, w] in its layout, read only
    y_pointer,  # [n, c, high, wide], laid out as x; every element is written once
    place_pointer,  # as y: int64 indices or uint8 codes, every element written once; average: not touched
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
    """y, and for max where the maxima were, of one tile of outputs."""
    c, area_out = aligned(c, area_out, TILE)
    row, column, lane, image, inside = tile(high, wide, c, planes, TILE)
    pitch = c if TILE.channels_last else 1
    x = first(x_pointer, image, lane, area_in, c, TILE)
    top = row * WINDOW.stride_h - WINDOW.padding_h
    left = column * WINDOW.stride_w - WINDOW.padding_w

    best = tl.full(inside.shape, 0.0 if WINDOW.kind == "average" else float("-inf"), tl.float32)
    code = tl.broadcast_to(tl.maximum(-top, 0) * WINDOW.w + tl.maximum(-left, 0), inside.shape)
    # A column of seven taps unrolled as a whole spills where a row of them does not.
    ROWS: tl.constexpr = WINDOW.h if max(WINDOW.h, WINDOW.w) <= 3 else 4 if WINDOW.w == 1 else 1
    for i in tl.range(0, WINDOW.h, loop_unroll_factor=ROWS):
        for j in tl.range(0, WINDOW.w, loop_unroll_factor=WINDOW.w if WINDOW.w <= 7 else 1):
            best, code = visit(best, code, x, i, j, top, left, h, w, pitch, inside, WINDOW)

    at = (row * wide + column) * pitch if TILE.channels_last else row * wide + column
    y = first(y_pointer, image, lane, area_out, c, TILE)
    if WINDOW.kind == "average":
        if WINDOW.whole:
            best = best / (WINDOW.h * WINDOW.w)
        else:
            best = best / divisor(top, left, h, w, WINDOW)
    else:
        place = first(place_pointer, image, lane, area_out, c, TILE)
        if WINDOW.kind == "indices":
            index = (top + code // WINDOW.w) * w + left + code % WINDOW.w
            tl.store(place + at, index.to(tl.int64), mask=inside)
        else:
            tl.store(place + at, code.to(tl.uint8), mask=inside)
    tl.store(y + at, best.to(y_pointer.dtype.element_ty), mask=inside)


@triton.jit
def visit(best, code, x, i, j, top, left, h, w, pitch, inside, WINDOW: tl.constexpr):
    """The sum or maximum so far, and the tap it is of, with tap (i, j) of every window taken in."""
    row = top + i
    column = left + j
    held = inside & (row >= 0) & (row < h) & (column >= 0) & (column < w)
    at = x + (row * w + column) * pitch
    padding: tl.constexpr = 0.0 if WINDOW.kind == "average" else float("-inf")
    value = tl.load(at, mask=held, other=padding).to(tl.float32)
    best, code = taken(best, code, value, i * WINDOW.w + j, WINDOW.kind)
    return best, code
