"""Pooling forward where one window is the whole image: global pooling, a reduction over h w points.

**Why this algorithm.** A plane has one output, so the tiles of `forward.py` would have one point, and one
thread would walk through a plane alone, a load at a time. Here the points of the window are an axis of the
tile: TAPS of them are loaded together, each thread keeps its own sum or maximum over the steps, and one
reduction across the threads ends it. A plane is one program's, whose loop covers it, so there is nothing to
combine between programs and the order of additions is always the same.

**Bytes moved.** Every point of x is loaded once and every output stored once, which is `Problem.byte_moved`.
Accesses are 16 bytes wide along c (NHWC) or along the plane (NCHW), where a row of those is a multiple of
that.

**Ties and NaN.** A thread sees its points in ascending order and keeps the first of equal maxima, and the
last NaN. Across threads, the last NaN wins if there is any; else the lowest place among those that hold the
maximum. As the window is the image, the tap's code is the index.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator,no-redef"
import triton
import triton.language as tl

from kernels.pooling.windows import aligned, first


@triton.jit(do_not_specialize=["area", "c", "planes"])
def pool_whole(
    x_pointer,  # [n, c, h, w] in its layout, read only
    y_pointer,  # [n, c, 1, 1]; every element is written once
    place_pointer,  # as y: int64 indices or uint8 codes, every element written once; average: not touched
    area,  # h w
    c,
    planes,  # n c
    WINDOW: tl.constexpr,
    TILE: tl.constexpr,  # high x wide points at a time
):
    """y, and for max where the maxima were, of lanes: channels of an image (NHWC) or planes (NCHW)."""
    TAPS: tl.constexpr = TILE.high * TILE.wide
    program = tl.program_id(0)
    c, area = aligned(c, area, TILE)
    if TILE.channels_last:
        blocks = tl.cdiv(c, TILE.lanes)
        image = (program // blocks).to(tl.int64)
        lane = (program % blocks * TILE.lanes + tl.arange(0, TILE.lanes))[None, :]
        inside = lane < c
        number = tl.arange(0, TAPS)[:, None]
        pitch = c
        AXIS: tl.constexpr = 0
        SHAPE: tl.constexpr = (TAPS, TILE.lanes)
    else:
        image = tl.zeros((), tl.int64)
        lane = (program.to(tl.int64) * TILE.lanes + tl.arange(0, TILE.lanes))[:, None]
        inside = lane < planes
        number = tl.arange(0, TAPS)[None, :]
        pitch = 1
        AXIS: tl.constexpr = 1
        SHAPE: tl.constexpr = (TILE.lanes, TAPS)
    x = first(x_pointer, image, lane, area, c, TILE)

    best = tl.full(SHAPE, 0.0 if WINDOW.kind == "average" else float("-inf"), tl.float32)
    code = tl.broadcast_to(number, SHAPE)
    for start in range(0, area, TAPS):
        tap = start + number
        held = inside & (tap < area)
        if WINDOW.kind == "average":
            best += tl.load(x + tap * pitch, mask=held, other=0.0).to(tl.float32)
        else:
            value = tl.load(x + tap * pitch, mask=held, other=float("-inf")).to(tl.float32)
            better = (value > best) | (value != value)
            best = tl.where(better, value, best)
            code = tl.where(better, tap, code)

    y = first(y_pointer, image, lane, 1, c, TILE)
    if WINDOW.kind == "average":
        result = tl.sum(best, axis=AXIS, keep_dims=True) / tl.cast(area, tl.float32)
    else:
        nan = tl.max(tl.where(best != best, code, -1), axis=AXIS, keep_dims=True)
        number_best = tl.where(best != best, float("-inf"), best)
        result = tl.max(number_best, axis=AXIS, keep_dims=True)
        # A place beyond the image holds minus infinity, and is above every place within.
        index = tl.min(tl.where(number_best == result, code, 2147483647), axis=AXIS, keep_dims=True)
        result = tl.where(nan >= 0, float("nan"), result)
        index = tl.where(nan >= 0, nan, index)
        place = first(place_pointer, image, lane, 1, c, TILE)
        tl.store(place, index.to(place_pointer.dtype.element_ty), mask=inside)
    tl.store(y, result.to(y_pointer.dtype.element_ty), mask=inside)
