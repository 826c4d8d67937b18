"""Recurrent layers on tensors: inputs, the float64 reference, and which function is which implementation.

Shapes are those of problem.py.
"""

from __future__ import annotations

import itertools
import math
from typing import get_args

import torch

from bench.spec import Operator, Tensors, Uniform
from kernels.excerpts import drawn
from kernels.recurrent import formulas, libraries
from kernels.recurrent.problem import Cell, Direction, Recurrent
from kernels.recurrent.rounding import tolerance
from kernels.tensors import inputs as declared

_CHECKED_FLOP = 2e9
"""Work of the reference for an excerpt, about."""


def inputs(problem: Recurrent, uniform: Uniform) -> Tensors:
    """x, first h (and c), then w, r, b, d of each layer; dy but for the forward pass.

    States are [layers, batch, hidden]. Weights are within +-1/sqrt(their row's length), biases within
    +-1/sqrt(hidden), much as torch initialises them: no gate is saturated, however wide the layer.
    """
    x, states, weights, dy = formulas.split(problem, declared(problem, uniform))
    scaled = []
    for weight in itertools.chain.from_iterable(weights):
        scaled.append(weight / math.sqrt(weight.shape[1] if weight.dim() == 2 else problem.hidden))
    return x, *states, *scaled, *dy


def reference(problem: Recurrent, *tensors: torch.Tensor) -> Tensors:
    """y and the last states; or dx, those of the first states, and backward those of the weights; float64."""
    exact = (tensor.double() for tensor in tensors)
    compute = formulas.forward if problem.direction == "forward" else formulas.gradients
    return compute(problem, *exact)


def excerpt(problem: Recurrent, inputs: Tensors, outputs: Tensors) -> tuple[Recurrent, Tensors, Tensors]:
    """Some sequences, the first and the last among them.

    Backward everything: all sequences add to the weights' gradients. So is a small problem.
    """
    count = max(2, round(problem.batch * min(1.0, _CHECKED_FLOP / problem.flop)))
    if problem.direction == "backward" or count >= problem.batch:
        return problem, inputs, outputs
    kept = drawn(problem.batch, count).to(inputs[0].device)
    x, states, weights, dy = formulas.split(problem, inputs)
    flat = itertools.chain.from_iterable(weights)
    excerpt = (*(tensor[:, kept] for tensor in (x, *states)), *flat, *(tensor[:, kept] for tensor in dy))
    return problem.model_copy(update={"batch": count}), excerpt, tuple(output[:, kept] for output in outputs)


def _examples() -> list[Recurrent]:
    # One step, one input, one sequence; primes; several layers; sizes that blocks divide.
    sizes = [
        {"batch": 11, "inputs": 1, "hidden": 29, "steps": 1},
        {"batch": 1, "inputs": 37, "hidden": 41, "steps": 13, "layers": 2},
        {"batch": 7, "inputs": 13, "hidden": 17, "steps": 5, "layers": 3},
        {"batch": 16, "inputs": 64, "hidden": 32, "steps": 9},
    ]
    return [
        Recurrent.model_validate({"cell": cell, "direction": direction, "dtype": dtype, **size})
        for size, cell, direction, dtype in itertools.product(
            sizes, get_args(Cell), get_args(Direction), Recurrent.dtypes()
        )
    ]


OPERATOR = Operator(
    problem=Recurrent,
    inputs=inputs,
    reference=reference,
    implementations={
        "cudnn": libraries.cudnn,
        "cudnn-standard": libraries.cudnn_standard,
        "onednn": libraries.onednn,
        "aten": libraries.aten,
        "loop": libraries.loop,
    },
    tolerance=tolerance,
    examples=_examples(),
    excerpt=excerpt,
)
