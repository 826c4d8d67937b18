"""Chains of element-wise operators on tensors: a kernel a step, fused by Inductor, fused by us."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import get_args

import torch
from torch.nn import functional

from bench.launching import inductor as torch_compile
from bench.spec import Dtype, Launch, Operator, Tensors
from kernels.excerpts import of_rows, one_of_each_block
from kernels.fusion.problem import EPSILON, Chain, Fusion
from kernels.fusion.rounding import tolerance
from kernels.optional import launched_by
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


def triton(problem: Fusion, *tensors: torch.Tensor) -> Launch:
    """Our fused kernel: y [rows, length], or y and h; tuned for this problem when first asked."""
    return launched_by("fusion.norm" if problem.normalized else "fusion.stream")(problem, *tensors)


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
    implementations={"aten": aten, "inductor": partial(torch_compile.launch, chain), "triton": triton},
    tolerance=tolerance,
    examples=_examples(),
    excerpt=excerpt,
)
