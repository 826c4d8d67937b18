"""Chains of element-wise operators on tensors: a kernel a step, fused by Inductor, fused by us."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import get_args

import torch
from torch.nn import functional

from bench.autotune import inductor as torch_compile
from bench.spec import Dtype, Launch, Operator, Tensors
from kernels.excerpts import of_rows, one_of_each_block
from kernels.fusion.problem import EPSILON, Chain, Fusion
from kernels.optional import launched_by
from kernels.rounding import FLOAT32, UNIT_ROUNDOFF, UNLIKELY
from kernels.tensors import inputs

_CHECKED = 1 << 20
"""Elements of x above which only some rows are checked."""


def chain(problem: Fusion, *tensors: torch.Tensor) -> torch.Tensor | Tensors:
    """y [rows, length], or y and h with layernorm, in the type of the inputs, as a model would write it."""
    value, *addends = tensors[: problem.sums]
    for addend in addends:
        value = value + addend
    if problem.normalized:
        weight, shift = tensors[problem.sums :]
        return functional.layer_norm(value, (problem.length,), weight, shift, EPSILON), value
    return functional.gelu(value, approximate="tanh") if "gelu" in problem.steps else value


def reference(problem: Fusion, *tensors: torch.Tensor) -> torch.Tensor | Tensors:
    """y [rows, length] in float64; with layernorm y and h."""
    return chain(problem, *(tensor.double() for tensor in tensors))


def aten(problem: Fusion, *tensors: torch.Tensor) -> Launch:
    """One kernel of torch a step: y [rows, length], or y and h.

    Each launch has its own buffer for what passes from step to step, so that a cold ring leaves it cold.
    """
    value, *addends = tensors[: problem.sums]
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

    def pointwise() -> torch.Tensor:
        for step in steps:
            step()
        return result

    if not problem.normalized:
        return Launch(pointwise, (result,))
    weight, shift = tensors[problem.sums :]

    def normalized() -> Tensors:
        # Its variant with out= is made by torchgen: it calls this one, then copies all of y.
        h = pointwise()
        y, _, _ = torch.native_layer_norm(h, (problem.length,), weight, shift, EPSILON)
        return y, h

    return Launch(normalized)


def tolerance(problem: Fusion, implementation: str) -> float:
    """The largest |error| that rounding explains, as a fraction of the largest |value| of an output.

    Inputs are uniform in [-1, 1]. v = 2^-24 is float32's unit roundoff, u that of the data type, and s what
    one step loses that computes in float32 and stores: s = u + v, or v where the type is float32.

    * The last step loses s of each y. That is all of bias and of residual.
    * Between steps, an unfused chain loses s of the intermediate value, a fused one v. A sum of two inputs
      is below 2, so it is off by at most half the distance of numbers below 2, s (v) itself; one of three
      is below 4, by at most 2 s (2 v). h is an output too, and Inductor may read it back: as unfused.
    * bias-residual: that, over the largest |y|. See `_largest_sum`.
    * gelu, layernorm: the value between enters a function. See `_gelu`, `_layernorm`.
    """
    u = UNIT_ROUNDOFF[problem.dtype]
    stored = u if problem.dtype == "float32" else u + FLOAT32
    unfused = implementation == "aten" or (implementation == "inductor" and problem.normalized)
    between = stored if unfused else FLOAT32
    match problem.chain:
        case "bias" | "residual":
            return stored
        case "bias-residual":
            return stored + between / _largest_sum(problem.elements)
        case "bias-gelu":
            return stored + _gelu(problem, between)
        case "residual-layernorm":
            return stored + _layernorm(problem, between, 2)
        case "bias-residual-layernorm":
            return stored + _layernorm(problem, 3 * between, 3)


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


def _layernorm(problem: Fusion, between: float, addends: int) -> float:
    """What layernorm makes of an h off by `between`, the sum of two or three inputs; and its arithmetic.

    * h has variance 2/3 (1), a row of `length` of them once in 10,000 runs a smaller one. The mean of the
      squares, which are not negative, lies t below its expectation with probability at most
      exp(-length t^2 / 2 E[h^4]); the square of the mean is taken off, and that of sums of uniform values
      is bounded as a normal variable's. So the standard deviation is at least d.
    * (h - mean) / d is off by between / d; the errors of a row's other elements reach it through the mean
      and the deviation. They are independent, so their means are small: Hoeffding's inequality.
    * Six roundings from h to y, and the sum of squares, summed as a tree: log2(length) roundings, half of
      which its root sees. They are relative to |y - shift|, at most the largest |y| and 1.
    * y = weight (...) + shift. In half of the cases the signs agree and |y| is at least |shift|; so the
      largest |y| of a row is below t with probability ((1 + t) / 2)^length at most.
    """
    rows, length = problem.rows, problem.length
    mean_square, mean_fourth = addends / 3, addends**2 / 3 - 2 * addends / 15
    below = math.sqrt(2 * mean_fourth * math.log(rows / UNLIKELY) / length)
    mean = 2 * mean_square * math.log(2 * rows / UNLIKELY) / length
    deviation = math.sqrt(max(mean_square - below - mean, 0.0) + EPSILON)
    drift = math.sqrt(2 * math.log(4 * rows / UNLIKELY) / length)
    largest = 2 * math.pow(UNLIKELY, 1 / length) - 1
    reached = between / deviation * (1 + drift * (1 + addends / deviation))
    arithmetic = (6 + math.log2(length) / 2) * FLOAT32
    return reached / largest + arithmetic * (1 + 1 / largest)


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
    rows_of_norm = ((1, 256), (7, 257), (3, 1000))
    chains: tuple[Chain, ...] = get_args(Chain)
    dtypes: tuple[Dtype, ...] = ("float16", "bfloat16", "float32")
    return [
        Fusion(chain=chain, rows=rows, length=length, dtype=dtype)
        for chain in chains
        for rows, length in (rows_of_norm if "layernorm" in chain else sizes)
        for dtype in dtypes
        # One sum of three numbers may be as small as its own rounding: no relative error bounds it.
        if not (chain == "bias-residual" and rows == length == 1)
    ]


OPERATOR = Operator(
    problem=Fusion,
    inputs=inputs,
    reference=reference,
    implementations={
        "aten": aten,
        "inductor": partial(torch_compile.launch, chain),
        "triton": launched_by("fusion.stream"),
    },
    tolerance=tolerance,
    examples=_examples(),
    excerpt=excerpt,
)
