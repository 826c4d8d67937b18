"""Pooling in NCHW by strips: each thread reads a few rows in wide loads, and each of them once.

**Why forward.** In `forward.py` every tap of every output is a load of its own, of one element, with
its own address and its own test whether it is in the image: for 3 x 3 nine loads and more than a hundred
instructions an output, while memory wants an output every few cycles. Here a thread computes a strip, ROWS
outputs high and COLUMNS points of x wide. It loads the rows that its windows visit in one wide load each, and
beside them the few points that its first and last windows share with its neighbours: for 3 x 3 at stride 1,
six rows for four of outputs, so half a load an output. Whether a point is in the image is checked once a
load, and windows are separable: what a row of a window holds is computed once, and the windows of the next
rows use it again.

**Why backward.** As in `backward.py` every point of dx gathers from the windows that hold it, so there are no
atomics and the order is fixed. A strip is ROWS x (COLUMNS STRIDE_W) points of dx, and which windows can hold
each of its columns, and which of their taps it is then, is known at compile time. So a point costs a
comparison and an addition for each of its ceil(window / stride)^2 windows, where a tap at a time costs two
loads with their tests. Columns of dx that are a stride apart are computed together and interleaved at the
end, so stores are wide whatever the stride.

A block is `[strips, columns]` with a row of it in the registers of one thread, so a shift by a column is only
another choice of registers. Triton has no slices of a block, but it splits and joins pairs, and the compiler
sees through those (`apart`, `together`).

All loads come first, so that they are in flight together. Strips follow each other along a row, then down:
a warp reads whole rows, and rows shared by strips meet in the L1 cache.

**Bytes moved.** With p and q the points of x left and right of a strip that its windows reach, or backward
the windows left and right of it that hold points of it, each rounded up to a power of two, or 0; and with
place = 8 for indices, 1 for codes, or 0:

    forward    loads  = e n c (rows of x that strips read, halos counted again)
                        (w + p + q for each strip but the ends)
               stores = (e + place) n c high wide
    backward   loads  = (e + place) n c (rows of dy that strips read, halos counted again)
                        (wide + p + q for each strip but the ends)
               stores = e n c h w

From DRAM each element of x, dy and place must come once: `Problem.byte_moved`, but for columns that no window
holds: a wide load of x reads them too. Loads are COLUMNS wide, 16 bytes where the row that is read allows it,
and p and q wide; stores are as wide as a strip where the row that is written is a multiple of that.

**Arithmetic.** As in `forward.py`, row by row: of the maxima of a window's rows the first is kept, so places
and NaN are the same bit for bit. Sums, of averages forward and backward too, are float32, of rows and then of
those, and multiplied by the rounded reciprocal of a whole window's size.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator,assignment,misc"
import triton
import triton.language as tl

from kernels.pooling.windows import SIZES, divisor, load, taken


@triton.jit(do_not_specialize=SIZES)
def pool_strips(
    x_pointer,  # [lanes, h, w], contiguous, read only
    y_pointer,  # [lanes, high, wide], contiguous; every element is written once
    place_pointer,  # as y: int64 indices or uint8 codes, every element written once; average: not touched
    h,
    w,  # a multiple of COLUMNS
    high,
    wide,
    lanes,  # n c planes
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
    KIND: tl.constexpr = WINDOW.kind  # Triton 3.6 passes no text of a tuple to another function
    OUTPUTS: tl.constexpr = COLUMNS // WINDOW.stride_w
    RAGGED: tl.constexpr = ALIGN < OUTPUTS  # the last strip of a row may be wider than what is left
    plane, inside, row, number = share(high, wide, lanes, ROWS, OUTPUTS, STRIPS)
    top = row * WINDOW.stride_h - WINDOW.padding_h
    column = number * COLUMNS  # of x
    first = number * OUTPUTS  # column of y

    LEFT: tl.constexpr = triton.next_power_of_2(WINDOW.padding_w)
    REACH: tl.constexpr = max(WINDOW_W - WINDOW.stride_w - WINDOW.padding_w, 0)
    RIGHT: tl.constexpr = triton.next_power_of_2(REACH)
    x = x_pointer + plane * (h * w) + (top * w + column)
    bottom = tl.minimum(h, (high - 1) * WINDOW.stride_h - WINDOW.padding_h + WINDOW_H)  # of the last window
    own = ()
    before = ()
    after = ()
    for n in tl.static_range((ROWS - 1) * WINDOW.stride_h + WINDOW_H):
        held = inside & (top + n >= 0) & (top + n < bottom)
        own += (points(x + n * w, held & (column < w), KIND, COLUMNS),)
        if WINDOW.padding_w > 0:
            before += (points(x + n * w - LEFT, held & (column > 0), KIND, LEFT),)
        if REACH > 0:
            after += (points(x + n * w + COLUMNS, held & (column + COLUMNS < w), KIND, RIGHT),)
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
                value, place = taken(value, place, tap, j, KIND)
            values += (value,)
            places += (place,)

        value = values[r * WINDOW.stride_h]
        place = places[r * WINDOW.stride_h]
        above = top + r * WINDOW.stride_h
        if WINDOW.kind != "average":
            place += tl.maximum(-above, 0) * pitch
        for i in tl.static_range(1, WINDOW_H):
            tap = values[r * WINDOW.stride_h + i]
            value, place = taken(value, place, tap, places[r * WINDOW.stride_h + i] + i * pitch, KIND)

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
            index = (place + above * w + left).to(tl.int64)
            store(place_pointer + at, index, first, wide, written, 1, RAGGED)
        else:
            # 16 bytes at a time: the compiler would exchange a wider block between threads to store so.
            indices = apart(place + above * w + left, STRIPS, OUTPUTS)
            for k in tl.static_range(0, OUTPUTS, 2):
                pair = together(indices, k, 1, 2, STRIPS).to(tl.int64)
                store(place_pointer + at + k, pair, first + k, wide, written, 2, RAGGED)
        store(y_pointer + at, value.to(y_pointer.dtype.element_ty), first, wide, written, OUTPUTS, RAGGED)


@triton.jit(do_not_specialize=SIZES)
def gather_strips(
    dy_pointer,  # [lanes, high, wide], contiguous, read only
    place_pointer,  # as dy, read only: int64 indices or uint8 codes; average: not touched
    dx_pointer,  # [lanes, h, w], contiguous; every element is written once
    h,
    w,
    high,
    wide,  # a multiple of COLUMNS
    lanes,  # n c planes
    WINDOW: tl.constexpr,  # stride_w is 1 or 2
    ALIGN: tl.constexpr,  # power of two that divides w, at most COLUMNS STRIDE_W
    ROWS: tl.constexpr,  # of dx, a multiple of STRIDE_H
    COLUMNS: tl.constexpr,  # of dy, a power of two, no less than the windows next to a strip
    STRIPS: tl.constexpr,
):
    """dx of STRIPS strips of ROWS x (COLUMNS STRIDE_W) points."""
    # Changes no value: it is how the compiler learns what divides them (a hint on an argument is lost).
    wide = wide // COLUMNS * COLUMNS
    w = w // ALIGN * ALIGN
    WINDOW_H: tl.constexpr = WINDOW.h
    WINDOW_W: tl.constexpr = WINDOW.w
    STRIDE_H: tl.constexpr = WINDOW.stride_h
    STRIDE_W: tl.constexpr = WINDOW.stride_w
    POINTS: tl.constexpr = COLUMNS * STRIDE_W
    plane, inside, row, number = share(h, w, lanes, ROWS, POINTS, STRIPS)
    column = number * COLUMNS  # of dy
    first = number * POINTS  # of dx

    # Window q holds point p as its tap p + padding - q stride.
    ABOVE: tl.constexpr = (WINDOW_H - 1 - WINDOW.padding_h) // STRIDE_H
    BELOW: tl.constexpr = (STRIDE_H - 1 + WINDOW.padding_h) // STRIDE_H
    BEFORE: tl.constexpr = (WINDOW_W - 1 - WINDOW.padding_w) // STRIDE_W
    AFTER: tl.constexpr = (STRIDE_W - 1 + WINDOW.padding_w) // STRIDE_W
    LEFT: tl.constexpr = triton.next_power_of_2(BEFORE)
    RIGHT: tl.constexpr = triton.next_power_of_2(AFTER)
    READ: tl.constexpr = ABOVE + ROWS // STRIDE_H + BELOW
    SHIFTS: tl.constexpr = BEFORE + 1 + AFTER
    from_row = row // STRIDE_H - ABOVE
    start = plane * (high * wide) + (from_row * wide + column)
    gradients = ()
    places = ()
    for n in tl.static_range(READ):
        held = inside & (from_row + n >= 0) & (from_row + n < high)
        top = (from_row + n) * STRIDE_H - WINDOW.padding_h
        dy = dy_pointer + start + n * wide
        place = place_pointer + start + n * wide
        given = ()
        named = ()
        if BEFORE > 0:
            left = held & (column > 0) & (column - LEFT < wide)
            given, named = windows(
                dy - LEFT, place - LEFT, left, top, column - LEFT, h, w, WINDOW, LEFT, STRIPS
            )
            given, named = given[LEFT - BEFORE :], named[LEFT - BEFORE :]
        own = windows(dy, place, held & (column < wide), top, column, h, w, WINDOW, COLUMNS, STRIPS)
        given += own[0]
        named += own[1]
        if AFTER > 0:
            at = column + COLUMNS
            right = windows(
                dy + COLUMNS, place + COLUMNS, held & (at < wide), top, at, h, w, WINDOW, RIGHT, STRIPS
            )
            given += right[0][:AFTER]
            named += right[1][:AFTER]
        for d in tl.static_range(SHIFTS):
            gradients += (together(given, d, 1, COLUMNS, STRIPS),)
            if WINDOW.kind != "average":
                places += (together(named, d, 1, COLUMNS, STRIPS),)

    if WINDOW.kind == "average":
        sums = ()
        for n in tl.static_range(READ):
            for b in tl.static_range(STRIDE_W):
                total = tl.zeros((STRIPS, COLUMNS), tl.float32)
                for j in tl.static_range((b + WINDOW.padding_w) % STRIDE_W, WINDOW_W, STRIDE_W):
                    total += gradients[n * SHIFTS + BEFORE + (b + WINDOW.padding_w - j) // STRIDE_W]
                sums += (total,)

    for r in tl.static_range(ROWS):
        totals = ()
        for b in tl.static_range(STRIDE_W):
            total = tl.zeros((STRIPS, COLUMNS), tl.float32)
            index = (row + r) * w + (first + b + tl.arange(0, COLUMNS)[None, :] * STRIDE_W)
            # Tap i is of the window that starts i - padding above r.
            for i in tl.static_range((r + WINDOW.padding_h) % STRIDE_H, WINDOW_H, STRIDE_H):
                if WINDOW.kind == "average":
                    total += sums[(ABOVE + (r + WINDOW.padding_h - i) // STRIDE_H) * STRIDE_W + b]
                else:
                    for j in tl.static_range((b + WINDOW.padding_w) % STRIDE_W, WINDOW_W, STRIDE_W):
                        total += chosen(
                            gradients,
                            places,
                            index if WINDOW.kind == "indices" else i * WINDOW_W + j,
                            (ABOVE + (r + WINDOW.padding_h - i) // STRIDE_H) * SHIFTS
                            + BEFORE
                            + (b + WINDOW.padding_w - j) // STRIDE_W,
                        )
            totals += (total,)
        if STRIDE_W == 1:
            dx = totals[0]
        else:
            dx = tl.reshape(tl.join(totals[0], totals[1]), (STRIPS, POINTS))
        if WINDOW.kind == "average" and WINDOW.whole:
            dx = dx * (1.0 / (WINDOW_H * WINDOW_W))
        at = plane * (h * w) + ((row + r) * w + first)
        written = inside & (row + r < h)
        store(dx_pointer + at, dx.to(dx_pointer.dtype.element_ty), first, w, written, POINTS, ALIGN < POINTS)


@triton.jit
def chosen(gradients, places, tap, AT: tl.constexpr):
    """The gradients with number AT where their places name this tap, or point; else 0."""
    return tl.where(places[AT] == tap, gradients[AT], 0.0)


@triton.jit
def windows(
    dy, place, held, top, column, h, w, WINDOW: tl.constexpr, COUNT: tl.constexpr, STRIPS: tl.constexpr
):
    """What each of COUNT windows from `column` on gives a point, whole ones undivided; their places: columns.

    Places are int32; where no window is held, of a tap or point that is none. An average has none.
    """
    gradient = points(dy, held, "average", COUNT)
    numbers = ()
    if WINDOW.kind == "average" and not WINDOW.whole:
        left = (column + tl.arange(0, COUNT)[None, :]) * WINDOW.stride_w - WINDOW.padding_w
        share = 1.0 / divisor(top, left, h, w, WINDOW)
        # Of what is not held this is 0, or NaN where the divisor is 0. That is a window without a point of x,
        # and no point that is written adds it: every window that holds one is divided by 1 or more.
        gradient = gradient * share
    if WINDOW.kind == "codes" or (WINDOW.kind == "indices" and COUNT == 1):
        block = tl.load(place + tl.arange(0, COUNT)[None, :], mask=held, other=0).to(tl.int32)
        numbers += apart(block, STRIPS, COUNT)
    elif WINDOW.kind == "indices":
        # 16 bytes at a time: the compiler would exchange what a wider load brings between threads.
        for k in tl.static_range(0, COUNT, 2):
            pair = tl.load(place + k + tl.arange(0, 2)[None, :], mask=held, other=0).to(tl.int32)
            numbers += apart(pair, STRIPS, 2)
    return apart(gradient, STRIPS, COUNT), numbers


@triton.jit
def share(high, wide, lanes, ROWS: tl.constexpr, COLUMNS: tl.constexpr, STRIPS: tl.constexpr):
    """This program's strips of what is written: planes, which exist, first rows, numbers along a row."""
    across = tl.cdiv(wide, COLUMNS)
    of_plane = across * tl.cdiv(high, ROWS)
    strip = tl.program_id(0) * STRIPS + tl.arange(0, STRIPS)[:, None]
    plane = (strip // of_plane).to(tl.int64)
    return plane, plane < lanes, strip % of_plane // across * ROWS, strip % across


@triton.jit
def points(pointer, held, KIND: tl.constexpr, COUNT: tl.constexpr):
    """COUNT points from each pointer on, in float32; what is not held is what padding counts as."""
    return load(pointer + tl.arange(0, COUNT)[None, :], held, KIND)


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
