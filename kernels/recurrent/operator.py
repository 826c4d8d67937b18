"""Recurrent layers on tensors: inputs, the float64 reference, and which function is which implementation.

Shapes are those of problem.py.
"""

from __future__ import annotations

import itertools
import math
from typing import get_args

import torch

from bench.spec import Implementations, Operator, Tensors, Uniform
from kernels.excerpts import drawn
from kernels.recurrent import formulas, libraries
from kernels.recurrent.problem import STATES, Cell, Direction, Recurrent
from kernels.rounding import FLOAT32, TF32_CUT, UNIT_ROUNDOFF, high, low
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


def tolerance(problem: Recurrent, implementation: str) -> tuple[float, ...]:
    """The largest |error| that rounding explains, as a fraction of the largest |value|, of each output.

    u is the unit roundoff of the problem's type, u' that of float32, in which sums of products are kept.
    Inputs are of random sign and gates far from saturated, so values are about normal, and so are errors:
    what follows are squared deviations of errors over those of the values.

    * A product z of a step: four roundings when both products, their sum and a bias are stored, u^2/3 each;
      of tf32 two factors of each term cut, 2 (2^-10)^2 / 3; its sum of K terms, u'^2 K / 9, and on tensor
      cores, which cut off every 16 terms, (u' K / 16)^2.
    * A state of a step: a gate is near 1/2, where an error of z counts a quarter and its own rounding is
      u/2; tanh passes errors on whole. By the formulas of problem.py, f near 1/2, r within 1/sqrt(hidden), an
      error of c or h is multiplied by 0.6 at most from step to step, its square by 1/3: however many steps,
      the squares add up to 1.5 times those of one. With the deviations that states have (0.12 h, 0.2 c of an
      LSTM, 0.25 h of a GRU) that is 3 of z's, and 8 u^2 of the roundings of gates, c and h. Functions that
      are off by a few units of float32 add 16 u'^2.
    * A layer has the errors of the one before in its input: with L layers, L times that.
    * A gradient of a step is a product of four such values, each with the error of the forward pass, and of
      three roundings of its own; errors pass from step to step as they do forward. It goes through L layers.
    * autograd adds the steps' shares of a weight's gradient in the problem's type: partial sums grow as the
      root of their number, so that is u^2/3 steps / 2. Other sums are as above.

    The largest error is within `high` deviations, the largest value beyond `low` of them, by the number of
    elements that differ: steps of one sequence may be alike. The result is rounded, by u of the largest.
    """
    u = UNIT_ROUNDOFF[problem.dtype]
    state = problem.layers * (3 * _product(problem, problem.inputs + problem.hidden) + 8 * u**2)
    state += problem.layers * 16 * FLOAT32**2
    batch, hidden = problem.batch, problem.hidden
    states = [(problem.layers * batch * hidden, batch * hidden)] * STATES[problem.cell]
    if problem.direction == "forward":
        sizes = [(problem.steps * batch * hidden, batch * hidden), *states]
        return tuple(_error(problem, state, *size) for size in sizes)
    gradient = 1.5 * problem.layers * (4 * state + u**2 + _product(problem, problem.gates * hidden))
    sizes = [(problem.steps * batch * problem.inputs, batch * problem.inputs), *states]
    of_activations = [_error(problem, gradient, *size) for size in sizes]
    if problem.direction == "activation_gradient":
        return tuple(of_activations)
    gradient += _product(problem, problem.steps * batch)
    gradient += u**2 / 6 * problem.steps if implementation in ("aten", "loop") else 0.0
    elements = [math.prod(spec.shape) for spec in problem.tensors[1].values()][len(sizes) :]
    return *of_activations, *(_error(problem, gradient, count, count) for count in elements)


def _product(problem: Recurrent, terms: int) -> float:
    """Squared deviation of the error of sums of so many products, over that of the sums."""
    squared = 4 * UNIT_ROUNDOFF[problem.dtype] ** 2 / 3 + FLOAT32**2 * terms / 9
    if problem.dtype != "float32":
        squared += (FLOAT32 * terms / 16) ** 2
    return squared + (2 * TF32_CUT**2 / 3 if problem.dtype == "tf32" else 0.0)


def _error(problem: Recurrent, squared: float, elements: int, different: int) -> float:
    return UNIT_ROUNDOFF[problem.dtype] + math.sqrt(squared) * high(elements) / low(different)


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


IMPLEMENTATIONS: Implementations = {
    "cudnn": libraries.cudnn,
    "cudnn-standard": libraries.cudnn_standard,
    "onednn": libraries.onednn,
    "aten": libraries.aten,
    "loop": libraries.loop,
}
OPERATOR = Operator(Recurrent, inputs, reference, IMPLEMENTATIONS, tolerance, _examples(), excerpt)
