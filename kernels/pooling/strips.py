"""Pooling forward in NCHW by strips: each thread reads a few rows of x in wide loads, and each of them once.

**Why this algorithm.** In `forward.py` every tap of every output is a load of its own, of one element, with
its own address and its own test whether it is in the image: for 3 x 3 nine loads and more than a hundred
instructions an output, while memory wants an output every few cycles. Here a thread computes a strip, ROWS
outputs high and COLUMNS points of x wide. It loads the rows that its windows visit in one wide load each, and
beside them the few points that its first and last windows share with its neighbours: for 3 x 3 at stride 1,
six rows for four of outputs, so half a load an output. A shift by a column is another choice of registers
(`columns.py`), whether a point is in the image is asked once a load, and windows are separable: what a row of
a window holds is found once, and the windows of the next rows use it again.

All loads come first, so that they are in flight together. Strips follow each other along a row, then down:
a warp reads whole rows, and rows shared by strips meet in the L1 cache.

**Bytes moved.** With p and q the points left and right of a strip that its windows reach, each rounded up to
a power of two, or 0:

    loads  = e n c (rows of x that strips read, halos counted again) (w + p + q for each strip but the ends)
    stores = (e + 8 for indices, e + 1 for codes, or e) n c high wide

From DRAM each element of x must come once: `Problem.byte_moved`, but for columns that no window holds: a wide
load reads them too. Loads are COLUMNS wide, 16 bytes where w allows it, and p and q wide; stores are
COLUMNS / STRIDE_W wide where `wide` is a multiple of that.

**Arithmetic.** As in `forward.py`, row by row: of the maxima of a window's rows the first is kept, so places
and NaN are the same bit for bit. Sums are float32, of rows and then of those, and multiplied by the rounded
reciprocal of a whole window's size.
"""

import triton
import triton.language as tl

from kernels.pooling.columns import apart, together
from kernels.pooling.windows import divisor, taken


@triton.jit(do_not_specialize=["h", "w", "high", "wide", "planes"])  # type: ignore[untyped-decorator]
def pool_strips(  # type: ignore[no-untyped-def]
    x_pointer,  # [planes, h, w], contiguous, read only
    y_pointer,  # [planes, high, wide], contiguous; every element is written once
    place_pointer,  # as y: int64 indices or uint8 codes, every element written once; average: not touched
    h,
    w,  # a multiple of COLUMNS
    high,
    wide,
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
    ALIGN: tl.constexpr,  # power of two that divides wide, at most COLUMNS / STRIDE_W
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,  # a power of two, no less than STRIDE_W or what windows reach beyond it
    STRIPS: tl.constexpr,
):
    """y, and for max where the maxima were, of STRIPS strips of ROWS x (COLUMNS / STRIDE_W) outputs."""
    # Changes no value: it is how the compiler learns what divides them (a hint on an argument is lost).
    w = w // COLUMNS * COLUMNS
    wide = wide // ALIGN * ALIGN
    OUTPUTS: tl.constexpr = COLUMNS // STRIDE_W
    RAGGED: tl.constexpr = ALIGN < OUTPUTS  # the last strip of a row may be wider than what is left
    across = tl.cdiv(wide, OUTPUTS)
    of_plane = across * tl.cdiv(high, ROWS)
    strip = tl.program_id(0) * STRIPS + tl.arange(0, STRIPS)[:, None]
    plane = (strip // of_plane).to(tl.int64)
    inside = plane < planes
    row = strip % of_plane // across * ROWS
    number = strip % across
    top = row * STRIDE_H - PADDING_H
    column = number * COLUMNS  # of x
    first = number * OUTPUTS  # column of y

    LEFT: tl.constexpr = triton.next_power_of_2(PADDING_W)
    REACH: tl.constexpr = max(WINDOW_W - STRIDE_W - PADDING_W, 0)
    RIGHT: tl.constexpr = triton.next_power_of_2(REACH)
    x = x_pointer + plane * (h * w) + (top * w + column)
    bottom = tl.minimum(h, (high - 1) * STRIDE_H - PADDING_H + WINDOW_H)  # rows below are in no window
    own = ()
    before = ()
    after = ()
    for n in tl.static_range((ROWS - 1) * STRIDE_H + WINDOW_H):
        held = inside & (top + n >= 0) & (top + n < bottom)
        own += (points(x + n * w, held & (column < w), KIND, COLUMNS),)  # type: ignore[assignment]
        if PADDING_W > 0:
            before += (points(x + n * w - LEFT, held & (column > 0), KIND, LEFT),)  # type: ignore[assignment]
        if REACH > 0:
            after += (points(x + n * w + COLUMNS, held & (column + COLUMNS < w), KIND, RIGHT),)  # type: ignore[assignment]
    left = column - PADDING_W + tl.arange(0, OUTPUTS)[None, :] * STRIDE_W
    pitch = w if KIND == "indices" else WINDOW_W  # of places: of the image, or of the window
    values = ()
    places = ()
    for r in tl.static_range(ROWS):
        for n in tl.static_range((r - 1) * STRIDE_H + WINDOW_H if r > 0 else 0, r * STRIDE_H + WINDOW_H):
            columns = apart(own[n], STRIPS, COLUMNS)
            if PADDING_W > 0:
                columns = apart(before[n], STRIPS, LEFT)[LEFT - PADDING_W :] + columns
            if REACH > 0:
                columns += apart(after[n], STRIPS, RIGHT)[:REACH]
            value = together(columns, 0, STRIDE_W, OUTPUTS, STRIPS)
            place = tl.maximum(-left, 0)  # the first tap in the image
            for j in tl.static_range(1, WINDOW_W):
                tap = together(columns, j, STRIDE_W, OUTPUTS, STRIPS)
                value, place = taken(value, place, tap, j, KIND)
            values += (value,)  # type: ignore[assignment]
            places += (place,)  # type: ignore[assignment]

        value = values[r * STRIDE_H]
        place = places[r * STRIDE_H]
        above = top + r * STRIDE_H
        if KIND != "average":
            place += tl.maximum(-above, 0) * pitch
        for i in tl.static_range(1, WINDOW_H):
            tap = values[r * STRIDE_H + i]
            value, place = taken(value, place, tap, places[r * STRIDE_H + i] + i * pitch, KIND)

        at = plane * (high * wide) + ((row + r) * wide + first)
        written = inside & (row + r < high)
        if KIND == "average":
            if WHOLE_WINDOWS:
                value = value * (1.0 / (WINDOW_H * WINDOW_W))
            else:
                value = value / divisor(
                    above, left, h, w, WINDOW_H, WINDOW_W, PADDING_H, PADDING_W, INCLUDE_PADDING
                )
        elif KIND == "codes":
            store(place_pointer + at, place.to(tl.uint8), first, wide, written, OUTPUTS, RAGGED)
        elif OUTPUTS == 1:
            store(
                place_pointer + at, (place + above * w + left).to(tl.int64), first, wide, written, 1, RAGGED
            )
        else:
            # 16 bytes at a time: the compiler would exchange a wider block between threads to store so.
            indices = apart(place + above * w + left, STRIPS, OUTPUTS)
            for k in tl.static_range(0, OUTPUTS, 2):
                pair = together(indices, k, 1, 2, STRIPS).to(tl.int64)
                store(place_pointer + at + k, pair, first + k, wide, written, 2, RAGGED)
        store(y_pointer + at, value.to(y_pointer.dtype.element_ty), first, wide, written, OUTPUTS, RAGGED)


@triton.jit  # type: ignore[untyped-decorator]
def points(pointer, held, KIND: tl.constexpr, COUNT: tl.constexpr):  # type: ignore[no-untyped-def]
    """COUNT points from each pointer on, in float32; what is not held is what padding counts as."""
    padding: tl.constexpr = 0.0 if KIND == "average" else float("-inf")
    return tl.load(pointer + tl.arange(0, COUNT)[None, :], mask=held, other=padding).to(tl.float32)


@triton.jit  # type: ignore[untyped-decorator]
def store(  # type: ignore[no-untyped-def]
    pointer, block, column, limit, held, COUNT: tl.constexpr, RAGGED: tl.constexpr
):
    """Store COUNT columns, the first of which is `column`, of a row of `limit`."""
    offset = tl.arange(0, COUNT)[None, :]
    if RAGGED:
        held = held & (column + offset < limit)
    tl.store(pointer + offset, block, mask=held)
