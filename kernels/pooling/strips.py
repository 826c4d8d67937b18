"""Pooling forward in NCHW by strips: each thread reads a few rows of x in wide loads, and each of them once.

**Why this algorithm.** In `forward.py` every tap of every output is a load of its own, of one element, with
its own address and its own test whether it is in the image: for 3 x 3 nine loads and more than a hundred
instructions an output, while memory wants an output every few cycles. Here a thread computes a strip, ROWS
outputs high and COLUMNS points of x wide. It loads the rows that its windows visit in one wide load each, and
beside them the few points that its first and last windows share with its neighbours: for 3 x 3 at stride 1,
six rows for four of outputs, so half a load an output. Whether a point is in the image is asked once a load,
and windows are separable: what a row of a window holds is found once, and the windows of the next rows use it
again.

A block is `[strips, columns]` with a row of it in the registers of one thread, so a shift by a column is only
another choice of registers. Triton has no slices of a block, but it splits and joins pairs, and the compiler
sees through those (`apart`, `together`).

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

# mypy: disable-error-code="no-untyped-def,untyped-decorator,assignment,misc"
import triton
import triton.language as tl

from kernels.pooling.windows import divisor, taken


@triton.jit(do_not_specialize=["h", "w", "high", "wide", "planes"])
def pool_strips(
    x_pointer,  # [planes, h, w], contiguous, read only
    y_pointer,  # [planes, high, wide], contiguous; every element is written once
    place_pointer,  # as y: int64 indices or uint8 codes, every element written once; average: not touched
    h,
    w,  # a multiple of COLUMNS
    high,
    wide,
    planes,  # n c
    WINDOW: tl.constexpr,
    ALIGN: tl.constexpr,  # power of two that divides wide, at most COLUMNS / stride_w
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,  # a power of two, no less than stride_w or what windows reach beyond it
    STRIPS: tl.constexpr,
):
    """y, and for max where the maxima were, of STRIPS strips of ROWS x (COLUMNS / stride_w) outputs."""
    # Changes no value: it is how the compiler learns what divides them (a hint on an argument is lost).
    w = w // COLUMNS * COLUMNS
    wide = wide // ALIGN * ALIGN
    WINDOW_H: tl.constexpr = WINDOW.h
    WINDOW_W: tl.constexpr = WINDOW.w
    OUTPUTS: tl.constexpr = COLUMNS // WINDOW.stride_w
    RAGGED: tl.constexpr = ALIGN < OUTPUTS  # the last strip of a row may be wider than what is left
    plane, inside, row, number = share(high, wide, planes, ROWS, OUTPUTS, STRIPS)
    top = row * WINDOW.stride_h - WINDOW.padding_h
    column = number * COLUMNS  # of x
    first = number * OUTPUTS  # column of y

    LEFT: tl.constexpr = triton.next_power_of_2(WINDOW.padding_w)
    REACH: tl.constexpr = max(WINDOW_W - WINDOW.stride_w - WINDOW.padding_w, 0)
    RIGHT: tl.constexpr = triton.next_power_of_2(REACH)
    x = x_pointer + plane * (h * w) + (top * w + column)
    bottom = tl.minimum(
        h, (high - 1) * WINDOW.stride_h - WINDOW.padding_h + WINDOW_H
    )  # rows below are in no window
    own = ()
    before = ()
    after = ()
    for n in tl.static_range((ROWS - 1) * WINDOW.stride_h + WINDOW_H):
        held = inside & (top + n >= 0) & (top + n < bottom)
        own += (points(x + n * w, held & (column < w), WINDOW.kind, COLUMNS),)
        if WINDOW.padding_w > 0:
            before += (points(x + n * w - LEFT, held & (column > 0), WINDOW.kind, LEFT),)
        if REACH > 0:
            after += (points(x + n * w + COLUMNS, held & (column + COLUMNS < w), WINDOW.kind, RIGHT),)
    left = column - WINDOW.padding_w + tl.arange(0, OUTPUTS)[None, :] * WINDOW.stride_w
    pitch = w if WINDOW.kind == "indices" else WINDOW_W  # of places: of the image, or of the window
    values = ()
    places = ()
    for r in tl.static_range(ROWS):
        for n in tl.static_range(
            (r - 1) * WINDOW.stride_h + WINDOW_H if r > 0 else 0, r * WINDOW.stride_h + WINDOW_H
        ):
            columns = apart(own[n], STRIPS, COLUMNS)
            if WINDOW.padding_w > 0:
                columns = apart(before[n], STRIPS, LEFT)[LEFT - WINDOW.padding_w :] + columns
            if REACH > 0:
                columns += apart(after[n], STRIPS, RIGHT)[:REACH]
            value = together(columns, 0, WINDOW.stride_w, OUTPUTS, STRIPS)
            place = tl.maximum(-left, 0)  # the first tap in the image
            for j in tl.static_range(1, WINDOW_W):
                tap = together(columns, j, WINDOW.stride_w, OUTPUTS, STRIPS)
                value, place = taken(value, place, tap, j, WINDOW.kind)
            values += (value,)
            places += (place,)

        value = values[r * WINDOW.stride_h]
        place = places[r * WINDOW.stride_h]
        above = top + r * WINDOW.stride_h
        if WINDOW.kind != "average":
            place += tl.maximum(-above, 0) * pitch
        for i in tl.static_range(1, WINDOW_H):
            tap = values[r * WINDOW.stride_h + i]
            value, place = taken(value, place, tap, places[r * WINDOW.stride_h + i] + i * pitch, WINDOW.kind)

        at = plane * (high * wide) + ((row + r) * wide + first)
        written = inside & (row + r < high)
        if WINDOW.kind == "average":
            if WINDOW.whole:
                value = value * (1.0 / (WINDOW_H * WINDOW_W))
            else:
                value = value / divisor(above, left, h, w, WINDOW)
        elif WINDOW.kind == "codes":
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


@triton.jit
def share(high, wide, planes, ROWS: tl.constexpr, COLUMNS: tl.constexpr, STRIPS: tl.constexpr):
    """This program's strips of what is written: planes, which exist, first rows, numbers along a row."""
    across = tl.cdiv(wide, COLUMNS)
    of_plane = across * tl.cdiv(high, ROWS)
    strip = tl.program_id(0) * STRIPS + tl.arange(0, STRIPS)[:, None]
    plane = (strip // of_plane).to(tl.int64)
    return plane, plane < planes, strip % of_plane // across * ROWS, strip % across


@triton.jit
def points(pointer, held, KIND: tl.constexpr, COUNT: tl.constexpr):
    """COUNT points from each pointer on, in float32; what is not held is what padding counts as."""
    padding: tl.constexpr = 0.0 if KIND == "average" else float("-inf")
    return tl.load(pointer + tl.arange(0, COUNT)[None, :], mask=held, other=padding).to(tl.float32)


@triton.jit
def store(pointer, block, column, limit, held, COUNT: tl.constexpr, RAGGED: tl.constexpr):
    """Store COUNT columns, the first of which is `column`, of a row of `limit`."""
    offset = tl.arange(0, COUNT)[None, :]
    if RAGGED:
        held = held & (column + offset < limit)
    tl.store(pointer + offset, block, mask=held)


@triton.jit
def apart(block, STRIPS: tl.constexpr, COLUMNS: tl.constexpr):
    """The COLUMNS (a power of two) columns of a block, in order: each is [STRIPS, 1]."""
    parts = (block,)
    STEPS: tl.constexpr = COLUMNS.bit_length() - 1
    for step in tl.static_range(STEPS):
        halves = ()
        for k in tl.static_range(1 << step):
            pairs = tl.reshape(parts[k], (STRIPS, 2, COLUMNS >> (step + 1)))
            halves += tl.split(tl.permute(pairs, (0, 2, 1)))
        parts = halves
    return parts


@triton.jit
def together(columns, FIRST: tl.constexpr, STEP: tl.constexpr, COUNT: tl.constexpr, STRIPS: tl.constexpr):
    """A block of COUNT (a power of two) of these columns: every STEP-th from FIRST on."""
    parts = ()
    for k in tl.static_range(COUNT):
        parts += (columns[FIRST + k * STEP],)
    STEPS: tl.constexpr = COUNT.bit_length() - 1
    for step in tl.static_range(STEPS):
        wider = ()
        for k in tl.static_range(COUNT >> (step + 1)):
            pairs = tl.permute(tl.join(parts[2 * k], parts[2 * k + 1]), (0, 2, 1))
            wider += (tl.reshape(pairs, (STRIPS, 2 << step)),)
        parts = wider
    return parts[0]
