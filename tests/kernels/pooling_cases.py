"""What the tests of pooling have in common: launches into poison, and the error of what they wrote."""

import math

import torch

from bench.spec import Launch
from bench.worker.check import outputs_of, poison
from kernels.pooling.operator import OPERATOR
from kernels.pooling.problem import Pooling
from tests.kernels.tensors import relative_error


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
