"""The tiles and strips that our pooling kernels may try.

Every combination takes an hour on two cores.
"""

import itertools
from collections.abc import Iterator
from functools import partial

import torch

from bench.spec import Dtype
from kernels.pooling import launching
from kernels.pooling.launching import Shape, Strip, Tile
from kernels.pooling.problem import Direction, Kind, Layout, Pooling
from tests.kernels.compiled import (
    CAPABILITIES,
    Built,
    Family,
    Form,
    Promise,
    launched,
    length_faults,
    narrow_faults,
    resource_faults,
    without_memory,
)
from tests.kernels.problems import usual

pooling = partial(usual, "pooling")
DTYPES: tuple[Dtype, ...] = ("float16", "float32")
DIRECTIONS: tuple[Direction, ...] = ("forward", "backward")
LAYOUTS: tuple[Layout, ...] = ("NHWC", "NCHW")
KINDS: tuple[tuple[Kind, bool], ...] = (("max", False), ("max", True), ("average", False))
"""kind, and whether places are codes."""
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


def form(problem: Pooling, as_codes: bool, shape: Shape, capabilities: tuple[int, ...]) -> Form:
    """One compilation of what `launching.launch` would run."""
    tensors = without_memory(problem)
    if problem.direction == "backward" and problem.kind == "max":
        tensors += (torch.empty_like(tensors[0], dtype=torch.uint8 if as_codes else torch.int64),)
    (call,) = launched(launching.launch(problem, *tensors, as_codes=as_codes, shape=shape))
    by_strips = isinstance(shape, Strip)
    small = max(problem.window, problem.window_w) <= 3
    element = outputs_of_thread(problem, shape) if small or by_strips else 0
    promises: list[Promise] = [resource_faults]
    # Unaligned rows allow no wide access, nor do the windows of NCHW, which start anywhere; and global
    # pooling writes next to nothing.
    if problem.layout == "NHWC" and problem.c % 8 == 0 and not launching.is_whole(problem):
        promises.append(narrow_faults)
    if isinstance(shape, Strip):
        promises.append(row_by_row(problem, as_codes, shape))
        if small:  # a tap at a time takes 120 to 180 forward, and backward at stride 1 as many
            most = 100 if problem.direction == "forward" else 60
            promises.append(partial(length_faults, element=element, most=most))
    name = f"{launching.kind(problem, as_codes):7} {problem} {shape}"
    return Form(name, call, tuple(promises), capabilities, element=element, slow=by_strips)


def outputs_of_thread(problem: Pooling, shape: Shape) -> int:
    """How many outputs, or backward points, or of tiles cells, a thread computes."""
    if isinstance(shape, Tile):
        return shape.high * shape.wide * shape.lanes // (32 * shape.warps)
    if problem.direction == "backward":
        return shape.rows * shape.columns * problem.stride_w
    return shape.rows * shape.columns // problem.stride_w


def row_by_row(problem: Pooling, as_codes: bool, strip: Strip) -> Promise:
    """The promise that a thread loads each row of its strip once, and once what is on either side of it."""
    down, across = problem.down, problem.across
    if problem.direction == "forward":
        rows = (strip.rows - 1) * down.stride + down.window
        beside = [across.padding, max(0, across.window - across.stride - across.padding)]
    else:
        ends = [
            [(axis.window - 1 - axis.padding) // axis.stride, (axis.stride - 1 + axis.padding) // axis.stride]
            for axis in (down, across)
        ]
        rows, beside = sum(ends[0]) + strip.rows // down.stride, ends[1]
    widths = [strip.columns, *(1 << (reach - 1).bit_length() for reach in beside if reach)]
    loads = rows * len(widths)
    if problem.direction == "backward" and problem.kind == "max":  # indices come in pairs
        loads += loads if as_codes else rows * sum(max(1, width // 2) for width in widths)
    name = {16: "128", 8: "64", 4: "E", 2: "U16"}[strip.columns * problem.item_byte]

    def broken(built: Built) -> list[str]:
        names = [name.split(".") for name in built.instructions.elements() if name.startswith("LDG")]
        wide = sum(name in parts for parts in names)
        if names and (wide < rows or len(names) != loads):
            return [f"{len(names)} loads, {wide} of them {name}, where {loads} bring {rows} rows"]
        return []

    return broken


def chosen() -> Iterator[Form]:
    """Every tile in either direction, layout and two data types, with kinds and architectures in turn.

    Beside them what is hardest on registers or decides the width of accesses: the unrolled and the looping
    windows with indices, global pooling, bfloat16 and channels that are no multiple of 16 bytes.
    """
    capabilities = itertools.cycle(CAPABILITIES)
    for layout, direction, dtype in itertools.product(LAYOUTS, DIRECTIONS, DTYPES):
        problem = square(3, 2, 1, 56, direction, layout, dtype)
        for place, tile in enumerate(launching.tiles(problem)):
            kind, as_codes = KINDS[(place + (dtype == "float32")) % 3]
            yield form(problem.model_copy(update={"kind": kind}), as_codes, tile, (next(capabilities),))
            if dtype == "float32":  # five steps of a cycle of four and tiles of eight: no tile keeps its own
                next(capabilities)
    for layout, direction in itertools.product(LAYOUTS, DIRECTIONS):
        for window, padding in ((3, 1), (7, 3)):
            problem = square(window, 1, padding, 56, direction, layout, "float16")
            widest = max(launching.tiles(problem), key=lambda t: t.high * t.wide * t.lanes / t.warps)
            yield form(problem, False, widest, (70, 90))
    # Where windows overlap most, ptxas is quickest to put registers aside, and not the same on each.
    for tile in launching.tiles(problem := square(3, 1, 1, 56, "backward", "NCHW", "float16")):
        yield form(problem.model_copy(update={"kind": "average"}), False, tile, (80, 100))
    for layout, direction in itertools.product(LAYOUTS, DIRECTIONS):
        for window, window_w in RECTANGLES[:2]:
            problem = rectangle(window, window_w, direction, layout, "float16")
            yield form(problem, False, launching.candidates(problem)[-1], (next(capabilities),))
    for layout in LAYOUTS:
        problem = square(7, 1, 0, 7, "forward", layout, "float16")
        yield form(problem, False, launching.candidates(problem)[-1], (70, 100))
    for direction in DIRECTIONS:
        for dtype, c in (("bfloat16", 256), ("float16", 100)):
            problem = square(3, 2, 1, 56, direction, "NHWC", dtype).model_copy(update={"c": c})
            yield form(problem, True, launching.candidates(problem)[-1], (80,))
    yield from strip_forms()


def strip_forms() -> Iterator[Form]:
    """Of each window that there are strips for, those of most rows, with kinds, types, architectures in turn.

    And 3 x 3, the most common window, in all its strips.
    """
    turns = zip(itertools.cycle(CAPABILITIES), itertools.cycle(KINDS), strict=True)
    problems = [
        square(*window, direction, "NCHW", dtype)
        for window in WINDOWS[:3]
        for direction in DIRECTIONS
        for dtype in DTYPES
    ]
    for direction in DIRECTIONS:
        problems += [rectangle(*window, direction, "NCHW", "float16") for window in RECTANGLES]
    for problem in problems:
        strips = launching.strips(problem)
        common = problem.window == problem.window_w == 3 and problem.dtype == "float16"
        for strip in strips if common else [strips[-1]]:
            capability, (kind, as_codes) = next(turns)
            yield form(problem.model_copy(update={"kind": kind}), as_codes, strip, (capability,))


def every() -> Iterator[Form]:
    """All tiles of all kernels, windows, kinds, layouts and two data types, for every architecture."""
    for layout, direction, dtype, (kind, as_codes) in itertools.product(LAYOUTS, DIRECTIONS, DTYPES, KINDS):
        for window, stride, padding, size in WINDOWS:
            problem = square(window, stride, padding, size, direction, layout, dtype)
            for tile in launching.candidates(problem):
                yield form(problem.model_copy(update={"kind": kind}), as_codes, tile, CAPABILITIES)
        for window, window_w in RECTANGLES:
            problem = rectangle(window, window_w, direction, layout, dtype, kind)
            for tile in launching.candidates(problem):
                yield form(problem, as_codes, tile, CAPABILITIES)


FAMILIES = {"pooling": Family(chosen, every)}
