"""From a problem to a launch of one of our pooling kernels: which kernel, its arguments, the tiles to try."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch

from bench.spec import Launch
from kernels.pooling.backward import gather
from kernels.pooling.cells import gather_cells
from kernels.pooling.forward import pool
from kernels.pooling.problem import Pooling
from kernels.pooling.whole import pool_whole
from kernels.tuning import fastest, tuned


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


def candidates(problem: Pooling) -> list[Tile]:
    """Tiles worth timing: one to four 16-byte accesses a thread and tap, no larger than the problem.

    More in a tile means more loads in flight and fewer halos; fewer means more programs for a small problem.
    In NCHW every element of a thread is a load of its own, so eight of them are enough, and sixteen spill;
    where more than four windows hold a point, already four may.
    """
    h, w = (problem.h, problem.w) if is_whole(problem) else computed(problem)
    found: dict[Tile, None] = {}
    overlap = problem.down.overlap * problem.across.overlap
    if problem.layout == "NHWC":
        sizes = ((512, 2), (1024, 4), (2048, 4)) + (
            ((2048, 8),) if max(problem.window, problem.window_w) <= 3 else ()
        )
        for elements, warps in sizes:
            for channels in (64, 128):
                lanes = min(_power(problem.c), channels)
                points = elements // lanes
                # As square as the image allows.
                wide = min(_power(w), 1 << (points.bit_length() // 2))
                found[Tile(min(_power(h), points // wide), wide, lanes, warps)] = None
    else:
        many = ((256, 4), (512, 8)) if overlap > 4 and not is_whole(problem) else ()
        for elements, warps in many or ((512, 2), (512, 4), (1024, 4), (2048, 8)):
            for run in (elements, 64 if many else elements // 8):
                wide = min(_power(h * w), run)
                lanes = min(_power(problem.n * problem.c), elements // wide)
                found[Tile(1, wide, lanes, warps)] = None
    return list(found)


def _power(number: int) -> int:
    """The power of two at or above."""
    return 1 << (number - 1).bit_length()


def is_whole(problem: Pooling) -> bool:
    """Whether one window is the whole image, and forward a reduction (whole.py)."""
    return problem.direction == "forward" and all(
        axis.padding == 0 and axis.window == axis.size for axis in (problem.down, problem.across)
    )


def has_cells(problem: Pooling) -> bool:
    """Whether backward goes by cells (cells.py): the windows of one are few enough to be held at once."""
    return problem.direction == "backward" and all(
        max(axis.window, axis.stride) <= 3 for axis in (problem.down, problem.across)
    )


def computed(problem: Pooling) -> tuple[int, int]:
    """Rows and columns that tiles are cut from: outputs forward, inputs or cells of them backward."""
    if problem.direction == "forward":
        return problem.high, problem.wide
    if has_cells(problem):
        down, across = (_blocks(a.size + a.padding, a.stride) for a in (problem.down, problem.across))
        return down, across
    return problem.h, problem.w


def kernel(problem: Pooling) -> Any:
    """The jitted function that computes this problem."""
    if problem.direction == "backward":
        return gather_cells if has_cells(problem) else gather
    return pool_whole if is_whole(problem) else pool


def kind(problem: Pooling, as_codes: bool) -> str:
    """What the kernels call KIND."""
    if problem.kind == "average":
        return "average"
    return "codes" if as_codes else "indices"


def constants(problem: Pooling, as_codes: bool, tile: Tile) -> dict[str, Any]:
    """The compile-time arguments of `kernel(problem)`."""
    channels_last = problem.layout == "NHWC"
    forward = problem.direction == "forward"
    if channels_last:
        contiguous = problem.c
    else:
        contiguous = (
            problem.high * problem.wide if forward and not is_whole(problem) else problem.h * problem.w
        )
    found = {
        "KIND": kind(problem, as_codes),
        "CHANNELS_LAST": channels_last,
        "ALIGN": math.gcd(contiguous, 16 // problem.item_byte),
        "LANES": tile.lanes,
    }
    if is_whole(problem):
        return found | {"TAPS": tile.high * tile.wide}
    return found | {
        "WINDOW_H": problem.window,
        "WINDOW_W": problem.window_w,
        "STRIDE_H": problem.stride,
        "STRIDE_W": problem.stride_w,
        "PADDING_H": problem.padding,
        "PADDING_W": problem.padding_w,
        "INCLUDE_PADDING": problem.count_include_pad,
        "WHOLE_WINDOWS": all(
            set(along) == {window}
            for along, window in zip(problem.divisors, (problem.window, problem.window_w), strict=True)
        ),
        "HIGH": tile.high,
        "WIDE": tile.wide,
    }


def sizes(problem: Pooling) -> dict[str, int]:
    """The run-time arguments of `kernel(problem)` that are not tensors."""
    found = {"c": problem.c, "planes": problem.n * problem.c}
    if is_whole(problem):
        return found | {"area": problem.h * problem.w}
    return found | {
        "h": problem.h,
        "w": problem.w,
        "high": problem.high,
        "wide": problem.wide,
        "area_in": problem.h * problem.w,
        "area_out": problem.high * problem.wide,
    }


def grid(problem: Pooling, tile: Tile) -> tuple[int]:
    """One program for each tile, ragged ones included."""
    h, w = computed(problem)
    if problem.layout == "NHWC":
        patches = 1 if is_whole(problem) else _blocks(h, tile.high) * _blocks(w, tile.wide)
        return (problem.n * patches * _blocks(problem.c, tile.lanes),)
    runs = 1 if is_whole(problem) else _blocks(h * w, tile.high * tile.wide)
    return (runs * _blocks(problem.n * problem.c, tile.lanes),)


def _blocks(size: int, block: int) -> int:
    return -(-size // block)


def launch(
    problem: Pooling, *tensors: torch.Tensor, as_codes: bool = False, tile: Tile | None = None
) -> Launch:
    """Forward (x): y, and for max indices, or codes if `as_codes`. Backward (dy, and for max either): dx.

    Shapes and layouts as `kernels.pooling.problem` and `kernels.pooling.operator` say; on the tensors'
    device, which must be the current one. Without a `tile` the first launch of a problem in a process
    compiles and times the candidates (seconds); later ones remember.
    """
    as_codes = as_codes or tensors[-1].dtype == torch.uint8
    arguments, outputs = allocated(problem, tensors, as_codes)

    def with_tile(tile: Tile) -> Launch:
        run = kernel(problem)[grid(problem, tile)]
        options = constants(problem, as_codes, tile) | {"num_warps": tile.warps, "num_stages": 1}

        def call() -> torch.Tensor | tuple[torch.Tensor, ...]:
            run(**arguments, **options)
            return outputs[0] if len(outputs) == 1 else outputs

        return Launch(call, outputs)

    return with_tile(tile) if tile else tuned(_question(problem, as_codes), candidates(problem), with_tile)


def configuration(problem: Pooling, as_codes: bool) -> str:
    """The tile that `launch` chose for this problem in this process: `4x8x64 w4`."""

    def unknown(_: Tile) -> Launch:
        raise LookupError(f"{problem} was not launched in this process")

    return str(fastest(_question(problem, as_codes), candidates(problem), unknown))


def _question(problem: Pooling, as_codes: bool) -> tuple[object, ...]:
    return ("pooling", "codes" if as_codes else "indices", problem)


def allocated(
    problem: Pooling, tensors: tuple[torch.Tensor, ...], as_codes: bool
) -> tuple[dict[str, Any], tuple[torch.Tensor, ...]]:
    """The run-time arguments of `kernel(problem)`, and those of them that it writes."""
    layout = torch.channels_last if problem.layout == "NHWC" else torch.contiguous_format
    device = tensors[0].device

    def empty(h: int, w: int, dtype: torch.dtype) -> torch.Tensor:
        shape = (problem.n, problem.c, h, w)
        return torch.empty(shape, dtype=dtype, device=device, memory_format=layout)

    if problem.direction == "backward":
        dx = empty(problem.h, problem.w, tensors[0].dtype)
        arguments = {"dy_pointer": tensors[0], "place_pointer": tensors[-1], "dx_pointer": dx}
        return arguments | sizes(problem), (dx,)
    outputs: tuple[torch.Tensor, ...] = (empty(problem.high, problem.wide, tensors[0].dtype),)
    if problem.kind == "max":
        outputs += (empty(problem.high, problem.wide, torch.uint8 if as_codes else torch.int64),)
    # An average has no places; its kernel never touches the pointer.
    arguments = {"x_pointer": tensors[0], "y_pointer": outputs[0], "place_pointer": outputs[-1]}
    return arguments | sizes(problem), outputs
