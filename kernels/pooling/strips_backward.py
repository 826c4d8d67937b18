"""Pooling backward in NCHW by strips: as a gather, of which each thread reads a few rows in wide loads.

**Why this algorithm.** As in `backward.py` and `cells.py` every point of dx gathers from the windows that
hold it, so there are no atomics and the order is fixed; as in `strips.py` a thread loads the rows that it
needs once, wide, and a shift by a window is a choice of registers. A strip is ROWS x (COLUMNS STRIDE_W)
points of dx, and which windows can hold each of its columns, and which of their taps it is then, is known at
compile time. So a point costs a comparison and an addition for each of its ceil(window / stride)^2 windows,
where a tap at a time costs two loads with their tests. Columns of dx that are a stride apart are computed
together and interleaved at the end, so stores are wide whatever the stride.

**Bytes moved.** With p and q the windows left and right of a strip that hold points of it, each rounded up to
a power of two, or 0:

    loads  = (e + 8 for indices, e + 1 for codes, or e) n c
             (rows of dy that strips read, halos counted again) (wide + p + q for each strip but the ends)
    stores = e n c h w

From DRAM each dy and place must come once: `Problem.byte_moved`.

**Arithmetic.** As in `backward.py`. An average's sums are of rows, then of those.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator,assignment,misc"
import triton
import triton.language as tl

from kernels.pooling.strips import apart, points, share, store, together
from kernels.pooling.windows import divisor


@triton.jit(do_not_specialize=["h", "w", "high", "wide", "planes"])
def gather_strips(
    dy_pointer,  # [planes, high, wide], contiguous, read only
    place_pointer,  # as dy, read only: int64 indices or uint8 codes; average: not touched
    dx_pointer,  # [planes, h, w], contiguous; every element is written once
    h,
    w,
    high,
    wide,  # a multiple of COLUMNS
    planes,  # n c
    WINDOW: tl.constexpr,  # stride_w is 1 or 2
    ALIGN: tl.constexpr,  # power of two that divides w, at most COLUMNS STRIDE_W
    ROWS: tl.constexpr,  # of dx, a multiple of STRIDE_H
    COLUMNS: tl.constexpr,  # of dy, a power of two, no less than the windows beside a strip
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
    plane, inside, row, number = share(h, w, planes, ROWS, POINTS, STRIPS)
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
        own = held & (column < wide)
        given = ()
        named = ()
        if BEFORE > 0:
            left = held & (column > 0) & (column - LEFT < wide)
            given += shares(dy - LEFT, left, top, column - LEFT, h, w, WINDOW, LEFT, STRIPS)[LEFT - BEFORE :]
            if WINDOW.kind != "average":
                named += numbers(place - LEFT, left, WINDOW.kind, LEFT, STRIPS)[LEFT - BEFORE :]
        given += shares(dy, own, top, column, h, w, WINDOW, COLUMNS, STRIPS)
        if WINDOW.kind != "average":
            named += numbers(place, own, WINDOW.kind, COLUMNS, STRIPS)
        if AFTER > 0:
            right = held & (column + COLUMNS < wide)
            given += shares(dy + COLUMNS, right, top, column + COLUMNS, h, w, WINDOW, RIGHT, STRIPS)[:AFTER]
            if WINDOW.kind != "average":
                named += numbers(place + COLUMNS, right, WINDOW.kind, RIGHT, STRIPS)[:AFTER]
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
def shares(dy, held, top, column, h, w, WINDOW: tl.constexpr, COUNT: tl.constexpr, STRIPS: tl.constexpr):
    """What each of COUNT windows from `column` on gives a point, as columns; whole windows undivided."""
    gradient = points(dy, held, "average", COUNT)
    if WINDOW.kind == "average" and not WINDOW.whole:
        left = (column + tl.arange(0, COUNT)[None, :]) * WINDOW.stride_w - WINDOW.padding_w
        share = 1.0 / divisor(top, left, h, w, WINDOW)
        # Of what is not held this is 0, or NaN where the divisor is 0. That is a window without a point of x,
        # and no point that is written adds it: every window that holds one is divided by 1 or more.
        gradient = gradient * share
    return apart(gradient, STRIPS, COUNT)


@triton.jit
def numbers(place, held, KIND: tl.constexpr, COUNT: tl.constexpr, STRIPS: tl.constexpr):
    """The places of COUNT windows as int32 columns; where none is held, of a tap or point that is none."""
    columns = ()
    if KIND == "codes" or COUNT == 1:
        block = tl.load(place + tl.arange(0, COUNT)[None, :], mask=held, other=0).to(tl.int32)
        columns += apart(block, STRIPS, COUNT)
    else:
        # 16 bytes at a time: the compiler would exchange what a wider load brings between threads.
        for k in tl.static_range(0, COUNT, 2):
            pair = tl.load(place + k + tl.arange(0, 2)[None, :], mask=held, other=0).to(tl.int32)
            columns += apart(pair, STRIPS, 2)
    return columns
