"""What the tests of pooling have in common: problems, the error of a launch, and what kernels load."""

import math
from functools import partial

import torch

from bench.spec import Launch
from bench.worker.check import outputs_of, poison
from kernels.pooling import launching
from kernels.pooling.launching import Shape, Strip
from kernels.pooling.operator import OPERATOR
from kernels.pooling.problem import Pooling
from tests.kernels.problems import usual
from tests.kernels.tensors import relative_error

pooling = partial(usual, "pooling")


def error(problem: Pooling, inputs: tuple[torch.Tensor, ...], launch: Launch) -> float:
    """The harness's own: poisons what is allocated beforehand, launches, compares; codes become indices."""
    poison(launch.outputs)
    return relative_error(OPERATOR, problem, inputs, outputs_of(launch.call()))


def visits(problem: Pooling) -> int:
    """Loads of a window's dy by `gather_cells`: every cell visits the windows that exist of its few."""
    total = problem.n * problem.c
    for axis in (problem.down, problem.across):
        cells = math.ceil((axis.size + axis.padding) / axis.stride)
        total *= sum(0 <= cell - i < axis.windows for cell in range(cells) for i in range(axis.overlap))
    return total


def taps(problem: Pooling) -> int:
    """Loads that visiting every tap of every window takes, padding left out."""
    return problem.n * problem.c * sum(problem.down.taps) * sum(problem.across.taps)


def loads(problem: Pooling, shape: Shape) -> int:
    """Loads of elements of x forward, of dy backward, that our kernel makes of this problem in this shape."""
    if isinstance(shape, Strip):
        rows, columns = strip_points(problem, shape)
        return problem.n * problem.c * len(rows) * len(columns)
    return visits(problem) if launching.has_cells(problem) else taps(problem)


def strip_points(problem: Pooling, strip: Strip) -> tuple[list[int], list[int]]:
    """The rows and the columns of a plane of x, or of dy, that its strips load, as often as they do."""
    down, across = problem.down, problem.across
    rows, columns = [], []
    if problem.direction == "forward":
        end = min(down.size, (down.windows - 1) * down.stride - down.padding + down.window)
        for output in range(0, down.windows, strip.rows):
            top = output * down.stride - down.padding
            rows += list(range(max(top, 0), min(top + (strip.rows - 1) * down.stride + down.window, end)))
        beside = across.padding, max(0, across.window - across.stride - across.padding)
        starts = range(0, across.windows * across.stride, strip.columns)
        size = across.size
    else:
        # Every window that holds a point of the strip, or would if there were no end.
        for row in range(0, down.size, strip.rows):
            first = (row + down.padding - down.window) // down.stride + 1
            last = (row + strip.rows - 1 + down.padding) // down.stride
            rows += list(range(max(first, 0), min(last + 1, down.windows)))
        last_of = strip.columns * across.stride - 1 + across.padding
        beside = (across.window - 1 - across.padding) // across.stride, last_of // across.stride + 1
        beside = beside[0], beside[1] - strip.columns
        starts = range(0, -(-across.size // across.stride), strip.columns)
        size = across.windows
    left, right = (1 << (reach - 1).bit_length() if reach else 0 for reach in beside)
    for start in starts:
        columns += list(range(max(start - left, 0), min(start + strip.columns + right, size)))
    return rows, columns
