"""The tiles that our pooling kernels may try."""

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


def maximum(
    direction: Direction, layout: Layout, dtype: Dtype, window: int, stride: int = 1, **more: int
) -> Pooling:
    """Max pooling of 8 images of 256 channels and 56 x 56, padded by half a window, but for what is given."""
    images = {"n": 8, "c": 256, "h": 56, "w": 56, "padding": window // 2}
    given = {"direction": direction, "layout": layout, "dtype": dtype, "window": window, "stride": stride}
    return pooling(**{**images, **given, **more})


def form(problem: Pooling, tile: Tile, capabilities: tuple[int, ...]) -> Form:
    """One compilation of what `launching.launch` would run."""
    tensors = without_memory(problem)
    if problem.direction == "backward" and problem.kind == "max":
        tensors += (torch.empty_like(tensors[0], dtype=torch.int64),)
    (call,) = launched(launching.launch(problem, *tensors, tile=tile))
    promises: list[Promise] = [resource_faults]
    # Unaligned rows allow no wide access, nor do the windows of NCHW, which start anywhere; and global
    # pooling writes next to nothing.
    if problem.layout == "NHWC" and problem.c % 8 == 0 and problem.high > 1:
        promises.append(narrow_faults)
    return Form(f"{problem} {tile}", call, tuple(promises), capabilities)


def chosen() -> Iterator[Form]:
    """Every tile in either direction, layout and two data types, with kinds and architectures in turn.

    Beside them what is hardest on registers or decides the width of accesses: the unrolled and the looping
    windows with indices, global pooling, bfloat16 and channels that are no multiple of 16 bytes.
    """
    capabilities = itertools.cycle(CAPABILITIES)
    for layout, direction, dtype in itertools.product(LAYOUTS, DIRECTIONS, DTYPES):
        problem = maximum(direction, layout, dtype, 3, 2)
        for place, tile in enumerate(launching.candidates(problem)):
            kind = KINDS[(place + (dtype == "float32")) % 2]
            yield form(problem.model_copy(update={"kind": kind}), tile, (next(capabilities),))
            if dtype == "float32":  # five steps of a cycle of four and tiles of eight: no tile keeps its own
                next(capabilities)
    for layout, direction in itertools.product(LAYOUTS, DIRECTIONS):
        for window in (3, 7):
            problem = maximum(direction, layout, "float16", window)
            widest = max(launching.candidates(problem), key=lambda t: t.high * t.wide * t.lanes / t.warps)
            yield form(problem, widest, (70, 90))
    # Where windows overlap most, ptxas is quickest to put registers aside, and not the same on each.
    for tile in launching.candidates(problem := maximum("backward", "NCHW", "float16", 3)):
        yield form(problem.model_copy(update={"kind": "average"}), tile, (80, 100))
    for layout, direction in itertools.product(LAYOUTS, DIRECTIONS):
        for window, more in ((1, {"window_w": 7, "padding_w": 3}), (7, {"window_w": 1, "padding_w": 0})):
            problem = maximum(direction, layout, "float16", window, **more)
            yield form(problem, launching.candidates(problem)[-1], (next(capabilities),))
    for layout in LAYOUTS:
        problem = maximum("forward", layout, "float16", 7, h=7, w=7, padding=0)
        yield form(problem, launching.candidates(problem)[-1], (70, 100))
    for direction in DIRECTIONS:
        for dtype, c in (("bfloat16", 256), ("float16", 100)):
            problem = maximum(direction, "NHWC", dtype, 3, 2, c=c)
            yield form(problem, launching.candidates(problem)[-1], (80,))


FAMILIES = {"pooling": chosen}
