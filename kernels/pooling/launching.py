"""Launches of our pooling kernels: which kernel, its arguments, the tiles to try.

    forward    one window is the whole image     pool_whole      forward.py
               else                              pool
    backward   windows and strides of 3 at most  gather_cells    backward.py
               else                              gather
    NCHW, too, where a thread can keep a strip   pool_strips, gather_strips: strips.py

Of tiles and strips the device chooses, by time.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from triton import cdiv, next_power_of_2

from bench.launching.tuning import tuned
from bench.spec import Launch
from kernels.pooling.backward import gather, gather_cells
from kernels.pooling.forward import pool, pool_whole
from kernels.pooling.problem import MOST_32_BIT, Axis, Pooling
from kernels.pooling.strips import gather_strips, pool_strips
from kernels.pooling.windows import Points, Windows
from kernels.tensors import empty

_MOST_READ = 10
"""Rows of x or dy that a thread may load for a strip; with more, registers are spilled somewhere."""
_MOST_KEPT = 40
"""Values of a row of windows, or of the windows over a row, that it may keep, for the same reason."""


class Tile(NamedTuple):
    """What one program computes (windows.py), in powers of two, and its warps.

    For `pool_whole` high x wide are the points loaded together, not outputs.
    """

    high: int
    wide: int
    lanes: int
    warps: int

    def __str__(self) -> str:
        """`4x8x64 w4`: rows x columns of points x channels (NHWC) or planes (NCHW), and warps."""
        return f"{self.high}x{self.wide}x{self.lanes} w{self.warps}"


class Strip(NamedTuple):
    """What one thread computes in NCHW: rows of y or dx, over so many columns of x or dy; and warps."""

    rows: int
    columns: int
    warps: int

    def __str__(self) -> str:
        """`strips 4x8 w4`: rows written x columns read by a thread, and warps of a program."""
        return f"strips {self.rows}x{self.columns} w{self.warps}"


Shape = Tile | Strip


def candidates(problem: Pooling) -> list[Shape]:
    """What is worth timing: strips where there are any, and tiles."""
    return [*strips(problem), *tiles(problem)]


def strips(problem: Pooling) -> list[Strip]:
    """Strips worth timing; none where `pool_strips` or `gather_strips` does not compute the problem.

    As wide as one access of 16 bytes if rows begin at multiples of that, or of four columns, which takes
    fewer registers; no narrower than what windows reach beyond a strip. The more rows, the fewer are loaded
    twice, and the more there are in flight.
    """
    down, across = problem.down, problem.across
    gaps = any(axis.stride > axis.window for axis in (down, across))
    if problem.layout == "NHWC" or is_whole(problem) or gaps:
        return []
    if problem.direction == "forward":
        written, halo = problem.high, down.window - down.stride
        widest = math.gcd(problem.w, 16 // problem.item_byte)
        reach = max(across.padding, across.window - across.stride - across.padding)
        widths = [c for c in (widest, min(widest, 4)) if c % across.stride == 0]
        heights = {rows: rows * down.stride for rows in (1, 2, 4, 8)}
        kept = down.window / across.stride
    else:
        written, halo = problem.h, sum(_windows_beside(down))
        widest = math.gcd(problem.wide, max(1, 16 // (problem.item_byte * across.stride)))
        reach = max(_windows_beside(across))
        # Every window over a point has a register for each: more than 25 of them spill.
        few = across.stride <= 2 and down.overlap * across.overlap <= 25
        widths = [widest, min(widest, 4)] if few else []
        heights = {rows: rows // down.stride for rows in (1, 2, 4, 8) if rows % down.stride == 0}
        kept = down.overlap + 1  # both dy and place: a row more than their windows is what does not spill
    listed = {
        Strip(rows, columns, 4): None
        for columns in widths
        for rows, read in heights.items()
        if columns >= reach and columns * kept <= _MOST_KEPT and read + halo <= _MOST_READ
        if rows <= next_power_of_2(written) and (rows > 1 or written == 1)
    }
    # They are numbered with 32 bits.
    return [strip for strip in listed if grid(problem, strip)[0] * 32 * strip.warps <= MOST_32_BIT]


def _windows_beside(axis: Axis) -> tuple[int, int]:
    """How many windows before the first and behind the last of a strip hold points of it."""
    return (axis.window - 1 - axis.padding) // axis.stride, (axis.stride - 1 + axis.padding) // axis.stride


def tiles(problem: Pooling) -> list[Tile]:
    """Tiles worth timing: one to four 16-byte accesses a thread and tap, no larger than the problem.

    More in a tile means more loads in flight and fewer halos; fewer means more programs for a small problem.
    In NCHW every element of a thread is a load of its own, so eight of them are enough, and sixteen spill;
    where more than four windows hold a point, already four may.
    """
    h, w = (problem.h, problem.w) if is_whole(problem) else computed(problem)
    listed: dict[Tile, None] = {}
    overlap = problem.down.overlap * problem.across.overlap
    if problem.layout == "NHWC":
        small = max(problem.window, problem.window_w) <= 3
        for elements, warps in ((512, 2), (1024, 4), (2048, 4), *(((2048, 8),) if small else ())):
            for channels in (64, 128):
                lanes = min(next_power_of_2(problem.c), channels)
                points = elements // lanes
                # As square as the image allows.
                wide = min(next_power_of_2(w), 1 << (points.bit_length() // 2))
                listed[Tile(min(next_power_of_2(h), points // wide), wide, lanes, warps)] = None
    else:
        many = ((256, 4), (512, 8)) if overlap > 4 and not is_whole(problem) else ()
        for elements, warps in many or ((512, 2), (512, 4), (1024, 4), (2048, 8)):
            for run in (elements, 64 if many else elements // 8):
                wide = min(next_power_of_2(h * w), run)
                lanes = min(next_power_of_2(problem.n * problem.c), elements // wide)
                listed[Tile(1, wide, lanes, warps)] = None
    return list(listed)


def is_whole(problem: Pooling) -> bool:
    """Whether one window is the whole image, and forward a reduction (`pool_whole`)."""
    return problem.direction == "forward" and all(
        axis.padding == 0 and axis.window == axis.size for axis in (problem.down, problem.across)
    )


def has_cells(problem: Pooling) -> bool:
    """Whether backward goes by cells (`gather_cells`): its windows are few enough for the registers."""
    return problem.direction == "backward" and all(
        max(axis.window, axis.stride) <= 3 for axis in (problem.down, problem.across)
    )


def computed(problem: Pooling) -> tuple[int, int]:
    """Rows and columns that tiles are cut from: outputs forward, inputs or cells of them backward."""
    if problem.direction == "forward":
        return problem.high, problem.wide
    if has_cells(problem):
        down, across = (cdiv(a.size + a.padding, a.stride) for a in (problem.down, problem.across))
        return down, across
    return problem.h, problem.w


def kernel(problem: Pooling, shape: Shape) -> Any:
    """The jitted function that computes this problem so."""
    if isinstance(shape, Strip):
        return pool_strips if problem.direction == "forward" else gather_strips
    if problem.direction == "backward":
        return gather_cells if has_cells(problem) else gather
    return pool_whole if is_whole(problem) else pool


def kind(problem: Pooling, as_codes: bool) -> str:
    """What the kernels call KIND."""
    return "average" if problem.kind == "average" else "codes" if as_codes else "indices"


def constants(problem: Pooling, as_codes: bool, shape: Shape) -> dict[str, Any]:
    """The compile-time arguments of `kernel(problem, shape)`."""
    window = Windows(
        kind(problem, as_codes),
        *(problem.window, problem.window_w, problem.stride, problem.stride_w),
        *(problem.padding, problem.padding_w, problem.count_include_pad),
        whole=all(
            set(along) == {window}
            for along, window in zip(problem.divisors, (problem.window, problem.window_w), strict=True)
        ),
    )
    if isinstance(shape, Strip):
        cut = {"ALIGN": math.gcd(*_written(problem, shape)), "ROWS": shape.rows, "COLUMNS": shape.columns}
        return {"WINDOW": window, **cut, "STRIPS": 32 * shape.warps}
    channels_last = problem.layout == "NHWC"
    area = problem.h * problem.w
    if problem.direction == "forward" and not is_whole(problem):
        area = problem.high * problem.wide
    align = math.gcd(problem.c if channels_last else area, 16 // problem.item_byte)
    return {"WINDOW": window, "TILE": Points(channels_last, align, shape.high, shape.wide, shape.lanes)}


def grid(problem: Pooling, shape: Shape) -> tuple[int]:
    """One program for each tile, ragged ones included, or for so many strips as it has threads."""
    if isinstance(shape, Strip):
        rows = problem.high if problem.direction == "forward" else problem.h
        count = problem.n * problem.c * cdiv(rows, shape.rows) * cdiv(*_written(problem, shape))
        return (cdiv(count, 32 * shape.warps),)
    h, w = computed(problem)
    if problem.layout == "NHWC":
        patches = cdiv(h, shape.high) * cdiv(w, shape.wide)
        return (problem.n * patches * cdiv(problem.c, shape.lanes),)
    return (cdiv(h * w, shape.high * shape.wide) * cdiv(problem.n * problem.c, shape.lanes),)


def _written(problem: Pooling, strip: Strip) -> tuple[int, int]:
    """Columns of the tensor that is written, and how many of them a strip has."""
    if problem.direction == "forward":
        return problem.wide, strip.columns // problem.stride_w
    return problem.w, strip.columns * problem.stride_w


def launch(
    problem: Pooling, *tensors: torch.Tensor, as_codes: bool = False, shape: Shape | None = None
) -> Launch:
    """Forward (x): y, and for max indices, or codes if `as_codes`. Backward (dy, and for max either): dx.

    Shapes and layouts as `kernels.pooling.problem` and `kernels.pooling.operator` say; on the tensors'
    device, which must be the current one. Without a `shape` the first launch of a problem in a process
    compiles and times the candidates (seconds); later ones remember.
    """
    as_codes = as_codes or tensors[-1].dtype == torch.uint8
    outputs = empty(problem, tensors[0])
    arguments = tensors[0], tensors[-1], *outputs
    if problem.direction == "forward":
        if problem.kind == "max":
            outputs += (torch.empty_like(outputs[0], dtype=torch.uint8 if as_codes else torch.int64),)
        # An average has no places; its kernel never touches the pointer.
        arguments = tensors[0], outputs[0], outputs[-1]
    sizes = (
        (problem.h * problem.w,) if is_whole(problem) else (problem.h, problem.w, problem.high, problem.wide)
    )
    lanes = problem.c if problem.layout == "NHWC" else problem.n * problem.c

    def shaped(shape: Shape) -> Launch:
        run = kernel(problem, shape)[grid(problem, shape)]
        options = constants(problem, as_codes, shape) | {"num_warps": shape.warps, "num_stages": 1}
        return Launch.of(run, outputs, *arguments, *sizes, lanes, **options)

    if shape:
        return shaped(shape)
    return tuned(("pooling", "codes" if as_codes else "indices", problem), candidates(problem), shaped)
