"""What rounding explains of the errors of gradients and updated weights, for the inputs of operator.py."""

from __future__ import annotations

import math

from kernels.rounding import FLOAT32, TF32_CUT, UNIT_ROUNDOFF, reach
from kernels.training.problem import Training

_LARGEST_GRADIENT = 2.4
"""Times 1 / sqrt(batch): five deviations of a sum over rows of (y - t) x / batch, where y - t is up to 0.8
and x up to 0.6 as a root mean square."""
_STEP = {"sgd": 0.1, "adamw": 1.0}
"""How a small error of a gradient moves a weight: by the learning rate, with AdamW divided by its epsilon."""


def tolerance(problem: Training, implementation: str) -> list[float]:
    """The largest |error| that rounding explains, as a fraction of the largest |value|; one for each output.

    W keeps the variance of what it multiplies and tanh has slopes up to 1, so an error is, relative to the
    numbers, as large behind a layer as before it, but for what the finite width adds: a product of n random
    matrices stretches different vectors differently, with deviations of sqrt(2 n / width) in the logarithm.
    Errors of different roundings add up as squares.

    * A layer rounds a weight, its product (with LoRA three, and a sum) and tanh, on the way to the loss,
      there for the factors of a gradient, and on the way back: 4 times as many in all.
    * tf32 shrinks every product by up to 2^-9, there and back.
    * Sums of K terms in float32: u' sqrt(K) / 3, and u' K / 16 where tensor cores cut off; tanh 4 u'.
    * The largest of all errors is within `high` deviations, the largest |value| at least `low` of its own.
    * A weight after the step has the gradient's error times the step, and roundings of float32.
    """
    n, products = problem.layers, 3 if problem.lora_rank else 1
    terms = max(problem.width, problem.batch)
    of_sum = math.sqrt(terms) / 3 + (terms / 16 if problem.dtype != "float32" else 0)
    error = UNIT_ROUNDOFF[problem.dtype] * math.sqrt(4 * n * (1 + 2 * products) / 3)
    error += FLOAT32 * math.sqrt(4 * n * products) * (4 + of_sum)
    error += 2 * n * products * 2 * TF32_CUT if problem.dtype == "tf32" else 0
    error *= math.exp(2 * math.sqrt(2 * n / problem.width))
    shapes = (
        [(problem.lora_rank, problem.width), (problem.width, problem.lora_rank)] if problem.lora_rank
        else [(problem.width, problem.width)]
    )  # fmt: skip
    gradients = [error * reach(math.prod(shape)) for shape in shapes]
    if problem.optimizer == "none":
        return gradients * n
    after = []
    for place, (gradient, (_, inputs)) in enumerate(zip(gradients, shapes, strict=True)):
        largest = 0.8 * math.sqrt(3 / inputs) * (0.1 if place else 1)
        step = _STEP[problem.optimizer] * _LARGEST_GRADIENT / math.sqrt(problem.batch)
        after.append(gradient * step / largest + 8 * FLOAT32)
    return gradients * n + after * n
