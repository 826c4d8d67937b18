"""Softmax on tensors: inputs, the float64 reference, torch's kernels and ours.

Every tensor is `[rows, length]`, contiguous, in the problem's type.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch

from bench.autotune import inductor as torch_compile
from bench.spec import Implementations, Launch, Operator, Tensors
from kernels.excerpts import of_rows, one_of_each_part
from kernels.optional import launched_by
from kernels.rounding import FLOAT32, UNIT_ROUNDOFF, UNLIKELY, low
from kernels.row_wise import examples
from kernels.softmax.problem import Softmax
from kernels.tensors import inputs

_CHECKED = 1 << 20
"""About how many elements an excerpt keeps; a result up to twice as large is checked whole."""


def reference(problem: Softmax, first: torch.Tensor, dy: torch.Tensor | None = None) -> torch.Tensor:
    """y `[rows, length]` of x, or dx of y and dy, in float64.

    The gradient's formula is exact for any y, so y is random: a softmax of its own would need a pass, and in
    16 bits would make dx of a long row next to nothing.
    """
    if dy is None:
        return first.double().softmax(1)
    y, dy = first.double(), dy.double()
    return y * (dy - (y * dy).sum(1, keepdim=True))


def aten(problem: Softmax, first: torch.Tensor, dy: torch.Tensor | None = None) -> Launch:
    """torch's kernel, result preallocated: its out= forms are the kernels, not copies."""
    result = torch.empty_like(first)
    if dy is None:
        forward: Any = torch.ops.aten._softmax.out
        return Launch(lambda: forward(first, 1, False, out=result), outputs=(result,))
    backward: Any = torch.ops.aten._softmax_backward_data.out
    return Launch(lambda: backward(dy, first, 1, first.dtype, grad_input=result), outputs=(result,))


def _functional(problem: Softmax, first: torch.Tensor, dy: torch.Tensor | None = None) -> torch.Tensor:
    if dy is None:
        return torch.softmax(first, 1)
    backward: Any = torch.ops.aten._softmax_backward_data.default
    dx: torch.Tensor = backward(dy, first, 1, first.dtype)
    return dx


def tolerance(problem: Softmax, implementation: str) -> float:
    """The largest |error| that rounding explains, as a fraction of the largest |value|.

    u is the unit roundoff of the problem's type, u' that of the arithmetic, float32 (float64 for float64,
    where the reference errs as much: twice). Inputs are uniform in [-1, 1]. No implementation sums in fewer
    than 8 lanes: running sums are K = length / 8 long.

    * The result is rounded to its type: u of the largest. But a float16 below 2^-14 is off by up to 2^-25
      however small it is, and the largest y is at least 1 / length: 2^-25 length.
    * y: exponential (2 units and the rounding of its argument, up to 2 log2(e)), division, and the
      sum, whose terms are positive: 8 u' + u' sqrt(K) / 3 for a normal error of 4 standard deviations.
    * dx: s = sum of y dy is sqrt(length) / 3 times a normal variable; its running sums err by u' sqrt(K) / 3
      times that, times another: ln(rows 10^4), the largest of `rows`. It is relative to the largest |dx|,
      which is at least `low` times the deviation of s (see gemm), or half where s is small.
    """
    accumulated, times = (UNIT_ROUNDOFF["float64"], 2) if problem.dtype == "float64" else (FLOAT32, 1)
    unit = UNIT_ROUNDOFF[problem.dtype]
    chain = math.sqrt(problem.length / 8) / 3
    if problem.direction == "forward":
        smallest = 2.0**-25 * problem.length if problem.dtype == "float16" else 0.0
        return max(unit, smallest) + times * accumulated * (8 + 4 * chain)
    rows = _excerpt_rows(problem)
    deviation = math.sqrt(problem.length) / 3
    of_sum = (1 + chain) * deviation * math.log(rows / UNLIKELY) / max(0.5, low(rows) * deviation)
    return unit + times * accumulated * (8 + of_sum)


def _excerpt_rows(problem: Softmax) -> int:
    """Rows that an excerpt keeps; all of a small problem."""
    if problem.elements <= 2 * _CHECKED:
        return problem.rows
    return min(problem.rows, max(4, _CHECKED // problem.length))


def excerpt(problem: Softmax, inputs: Tensors, outputs: Tensors) -> tuple[Softmax, Tensors, Tensors]:
    """The same problem for some rows only: a random one of every equal part, and the last row."""
    count = _excerpt_rows(problem)
    if count == problem.rows:
        return problem, inputs, outputs
    return of_rows(problem, one_of_each_part(problem.rows, count), inputs, outputs)


IMPLEMENTATIONS: Implementations = {
    "aten": aten,
    "inductor": partial(torch_compile.launch, _functional),
    "triton": launched_by("softmax.forward_backward"),
}
OPERATOR = Operator(Softmax, inputs, reference, IMPLEMENTATIONS, tolerance, examples(Softmax), excerpt)
