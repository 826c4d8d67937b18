"""The tiles that our pooling kernels may try.

Every combination takes an hour on two cores.
"""

import itertools
from collections.abc import Iterator
from functools import partial

import torch

from bench.spec import Dtype
from kernels.pooling import launching
from kernels.pooling.launching import Tile
from kernels.pooling.problem import Direction, Kind, Layout, Pooling
from tests.kernels.compiled import (
    CAPABILITIES,
    Family,
    Form,
    Promise,
    launched,
    narrow_faults,
    resource_faults,
    without_memory,
)
from tests.kernels.problems import usual

pooling = partial(usual, "pooling")
DTYPES: tuple[Dtype, ...] = ("float16", "float32")
DIRECTIONS: tuple[Direction, ...] = ("forward", "backward")
LAYOUTS: tuple[Layout, ...] = ("NHWC", "NCHW")
KINDS: tuple[Kind, ...] = ("max", "average")
WINDOWS = ((2, 2, 0, 56), (3, 2, 1, 56), (3, 1, 1, 56), (7, 1, 3, 56), (9, 1, 4, 56), (7, 1, 0, 7))
"""window, stride, padding, h and w; the last is global."""
RECTANGLES = ((1, 7), (7, 1), (3, 1), (3, 5), (9, 1), (5, 5))
"""window and window_w."""


IMAGES = {"n": 8, "c": 256}


def square(
    window: int, stride: int, padding: int, size: int, direction: Direction, layout: Layout, dtype: Dtype
) -> Pooling:
    """Max pooling of 8 images of 256 channels."""
    sizes = {"h": size, "w": size, "window": window, "stride": stride, "padding": padding}
    return pooling(**IMAGES, **sizes, direction=direction, layout=layout, dtype=dtype)


def rectangle(
    window: int, window_w: int, direction: Direction, layout: Layout, dtype: Dtype, kind: Kind = "max"
) -> Pooling:
    """Pooling of 8 images of 256 channels with such windows, at stride 1 and padded by half."""
    sizes = {"h": 56, "w": 56, "window": window, "window_w": window_w, "stride": 1}
    sizes |= {"padding": window // 2, "padding_w": window_w // 2}
    return pooling(**IMAGES, **sizes, kind=kind, direction=direction, layout=layout, dtype=dtype)


def form(problem: Pooling, tile: Tile, capabilities: tuple[int, ...]) -> Form:
    """One compilation of what `launching.launch` would run."""
    tensors = without_memory(problem)
    if problem.direction == "backward" and problem.kind == "max":
        tensors += (torch.empty_like(tensors[0], dtype=torch.int64),)
    (call,) = launched(launching.launch(problem, *tensors, tile=tile))
    small = max(problem.window, problem.window_w) <= 3
    element = tile.high * tile.wide * tile.lanes // (32 * tile.warps) if small else 0
    promises: list[Promise] = [resource_faults]
    # Unaligned rows allow no wide access, nor do the windows of NCHW, which start anywhere; and global
    # pooling writes next to nothing.
    if problem.layout == "NHWC" and problem.c % 8 == 0 and problem.high > 1:
        promises.append(narrow_faults)
    return Form(f"{problem} {tile}", call, tuple(promises), capabilities, element=element)


def chosen() -> Iterator[Form]:
    """Every tile in either direction, layout and two data types, with kinds and architectures in turn.

    Beside them what is hardest on registers or decides the width of accesses: the unrolled and the looping
    windows with indices, global pooling, bfloat16 and channels that are no multiple of 16 bytes.
    """
    capabilities = itertools.cycle(CAPABILITIES)
    for layout, direction, dtype in itertools.product(LAYOUTS, DIRECTIONS, DTYPES):
        problem = square(3, 2, 1, 56, direction, layout, dtype)
        for place, tile in enumerate(launching.candidates(problem)):
            kind = KINDS[(place + (dtype == "float32")) % 2]
            yield form(problem.model_copy(update={"kind": kind}), tile, (next(capabilities),))
            if dtype == "float32":  # five steps of a cycle of four and tiles of eight: no tile keeps its own
                next(capabilities)
    for layout, direction in itertools.product(LAYOUTS, DIRECTIONS):
        for window, padding in ((3, 1), (7, 3)):
            problem = square(window, 1, padding, 56, direction, layout, "float16")
            widest = max(launching.candidates(problem), key=lambda t: t.high * t.wide * t.lanes / t.warps)
            yield form(problem, widest, (70, 90))
    # Where windows overlap most, ptxas is quickest to put registers aside, and not the same on each.
    for tile in launching.candidates(problem := square(3, 1, 1, 56, "backward", "NCHW", "float16")):
        yield form(problem.model_copy(update={"kind": "average"}), tile, (80, 100))
    for layout, direction in itertools.product(LAYOUTS, DIRECTIONS):
        for window, window_w in RECTANGLES[:2]:
            problem = rectangle(window, window_w, direction, layout, "float16")
            yield form(problem, launching.candidates(problem)[-1], (next(capabilities),))
    for layout in LAYOUTS:
        problem = square(7, 1, 0, 7, "forward", layout, "float16")
        yield form(problem, launching.candidates(problem)[-1], (70, 100))
    for direction in DIRECTIONS:
        for dtype, c in (("bfloat16", 256), ("float16", 100)):
            problem = square(3, 2, 1, 56, direction, "NHWC", dtype).model_copy(update={"c": c})
            yield form(problem, launching.candidates(problem)[-1], (80,))


def every() -> Iterator[Form]:
    """All tiles of all kernels, windows, kinds, layouts and two data types, for every architecture."""
    for layout, direction, dtype, kind in itertools.product(LAYOUTS, DIRECTIONS, DTYPES, KINDS):
        for window, stride, padding, size in WINDOWS:
            problem = square(window, stride, padding, size, direction, layout, dtype)
            for tile in launching.candidates(problem):
                yield form(problem.model_copy(update={"kind": kind}), tile, CAPABILITIES)
        for window, window_w in RECTANGLES:
            problem = rectangle(window, window_w, direction, layout, dtype, kind)
            for tile in launching.candidates(problem):
                yield form(problem, tile, CAPABILITIES)


FAMILIES = {"pooling": Family(chosen, every)}
