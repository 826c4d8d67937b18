"""Chains of element-wise operators on tensors: a kernel a step, fused by Inductor, fused by us."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import get_args

import torch
from torch.nn import functional

from bench.autotune import inductor as torch_compile
from bench.spec import Dtype, Implementations, Launch, Operator, Tensors
from kernels.excerpts import of_rows, one_of_each_block
from kernels.fusion.problem import Chain, Fusion
from kernels.optional import launched_by
from kernels.rounding import FLOAT32, UNIT_ROUNDOFF, UNLIKELY
from kernels.tensors import inputs

_CHECKED = 1 << 20
"""Elements of x above which only some rows are checked."""


def chain(problem: Fusion, *tensors: torch.Tensor) -> torch.Tensor:
    """y [rows, length] in the type of the inputs, as a model would write it."""
    value, *addends = tensors
    for addend in addends:
        value = value + addend
    return functional.gelu(value, approximate="tanh") if "gelu" in problem.steps else value


def reference(problem: Fusion, *tensors: torch.Tensor) -> torch.Tensor:
    """y [rows, length] in float64."""
    return chain(problem, *(tensor.double() for tensor in tensors))


def aten(problem: Fusion, *tensors: torch.Tensor) -> Launch:
    """One kernel of torch a step: y [rows, length].

    Each launch has its own buffer for what passes from step to step, so that a cold ring leaves it cold.
    """
    value, *addends = tensors
    result = torch.empty_like(value)
    steps: list[Callable[[], object]] = []
    if len(addends) == 2 or "gelu" in problem.steps:
        between = torch.empty_like(value)
        steps.append(partial(torch.add, value, addends[0], out=between))
        value = between
    if "gelu" in problem.steps:
        gelu: Callable[..., torch.Tensor] = functional.gelu  # whose type stub forgets out=
        steps.append(partial(gelu, value, approximate="tanh", out=result))
    else:
        steps.append(partial(torch.add, value, addends[-1], out=result))

    def call() -> torch.Tensor:
        for step in steps:
            step()
        return result

    return Launch(call, (result,))


def tolerance(problem: Fusion, implementation: str) -> float:
    """The largest |error| that rounding explains, as a fraction of the largest |value| of an output.

    Inputs are uniform in [-1, 1]. v = 2^-24 is float32's unit roundoff, u that of the data type, and s what
    one step loses that computes in float32 and stores: s = u + v, or v where the type is float32.

    * The last step loses s of each y. That is all of bias and of residual.
    * Between steps, an unfused chain loses s of the intermediate value, a fused one v. A sum of two inputs
      is below 2, so it is off by at most half the distance of numbers below 2, s (v) itself; one of three
      is below 4, by at most 2 s (2 v).
    * bias-residual: that, over the largest |y|. See `_largest_sum`.
    * gelu: the value between enters a function. See `_gelu`.
    """
    u = UNIT_ROUNDOFF[problem.dtype]
    stored = u if problem.dtype == "float32" else u + FLOAT32
    between = stored if implementation == "aten" else FLOAT32
    match problem.chain:
        case "bias" | "residual":
            return stored
        case "bias-residual":
            return stored + between / _largest_sum(problem.elements)
        case "bias-gelu":
            return stored + _gelu(problem, between)


def _largest_sum(elements: int) -> float:
    """What the largest |x + b + r| of so many exceeds, but once in 10,000 runs.

    |x + r| < t has probability t - t^2 / 4. Given b, |x + r + b| < t is at most as likely; and given b, the
    elements are independent, though they share b.
    """
    share = math.pow(UNLIKELY, 1 / elements)
    return 2 - 2 * math.sqrt(1 - share)


def _gelu(problem: Fusion, between: float) -> float:
    """What gelu makes of an argument off by `between`, with its own arithmetic.

    Its slope is at most 1.13. In float32 its value is off by at most 8 v of itself where positive (some ten
    roundings, damped), below 3 v where negative: 16 v in all. These are set against the largest y.

    Few elements may all be negative and small. Then each error is set against its own y: gelu enlarges
    relative errors, at most 3.8 times (at -2), and of 1 + tanh, down to 0.045, 64 v are lost.
    """
    of_itself = 3.8 * between + 64 * FLOAT32
    largest = _gelu_of(_largest_biased(problem.rows, problem.length))
    return min(of_itself, (1.13 * between + 16 * FLOAT32) / largest) if largest > 0 else of_itself


def _gelu_of(s: float) -> float:
    return 0.5 * s * (1 + math.tanh(math.sqrt(2 / math.pi) * (s + 0.044715 * s**3)))


def _largest_biased(rows: int, length: int) -> float:
    """What the largest x + b exceeds but once in 10,000 runs; 0 if it may be negative.

    x + b < q has, given b, probability p = (q - b + 1) / 2, at most 1; a column is below q with p^rows, of
    which the mean over b is q/2 + (1 - (q/2)^(rows + 1)) / (rows + 1). Columns are independent.
    """

    def all_below(q: float) -> float:
        column: float = q / 2 + (1 - (q / 2) ** (rows + 1)) / (rows + 1)
        return math.pow(column, length)

    low, high = 0.0, 2.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if all_below(middle) < UNLIKELY else (low, middle)
    return low


def excerpt(problem: Fusion, tensors: Tensors, outputs: Tensors) -> tuple[Fusion, Tensors, Tensors]:
    """Some whole rows of a large problem, about a million elements; a small one whole.

    The first row, the last, and a random one of every block of rows between.
    """
    if problem.elements <= _CHECKED:
        return problem, tensors, outputs
    block = math.ceil(problem.rows / max(1, _CHECKED // problem.length))
    return of_rows(problem, one_of_each_block(problem.rows, block), tensors, outputs)


def _examples() -> list[Fusion]:
    # Nothing to speak of, one row, one column, primes, a row that is aligned and ends within a block.
    sizes = ((1, 1), (1, 37), (131, 1), (13, 997), (5, 1032))
    chains: tuple[Chain, ...] = get_args(Chain)
    dtypes: tuple[Dtype, ...] = ("float16", "bfloat16", "float32")
    return [
        Fusion(chain=chain, rows=rows, length=length, dtype=dtype)
        for chain in chains
        for rows, length in sizes
        for dtype in dtypes
        # One sum of three numbers may be as small as its own rounding: no relative error bounds it.
        if not (chain == "bias-residual" and rows == length == 1)
    ]


IMPLEMENTATIONS: Implementations = {
    "aten": aten,
    "inductor": partial(torch_compile.launch, chain),
    "triton": launched_by("fusion.stream"),
}
OPERATOR = Operator(Fusion, inputs, reference, IMPLEMENTATIONS, tolerance, _examples(), excerpt)
