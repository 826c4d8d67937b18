"""What rounding explains of a block's error: that of its convolution, as the steps behind it pass it on."""

from __future__ import annotations

import math

from kernels.convolution.rounding import tolerance as of_convolution
from kernels.convolution_block.problem import ConvolutionBlock
from kernels.rounding import FLOAT32, UNIT_ROUNDOFF, UNLIKELY

_SLOPE = {"relu": 1.0, "gelu": 1.13, "silu": 1.1, "sigmoid": 0.25}
"""Steepest slope of an activation function."""
_SCALE, _SHIFT = 1.1 / math.sqrt(0.9), 1.2
"""The largest factor and addend of batchnorm, by the ranges of its inputs; layernorm's are smaller."""
_SPREAD = 1.2
"""Standard deviation of the convolution's results in the channel where it is largest; 1 on average."""


def tolerance(problem: ConvolutionBlock, implementation: str) -> float:
    """The largest |error| that rounding explains, as a fraction of the largest |value| of y.

    The convolution's results z are sums of many terms, of variance 1, so they are nearly normal.

    * z is off by what the convolution's own tolerance says of the largest |z|; folded weights add their own
      rounding and the bias's.
    * batchnorm multiplies that by its factor; layernorm by its weight over the pixel's standard deviation, at
      least d, and once more through mean and deviation. What is unfused is stored between: another rounding.
    * The activation function multiplies errors by its slope at most, and adds eight roundings of float32.
    * All of this is set against the largest |y|; some normal values reach half of sqrt(2 ln(count)).
    """
    u = UNIT_ROUNDOFF[problem.dtype]
    count = problem.byte_written // problem.item_byte
    largest = _SPREAD * math.sqrt(2 * math.log(2 * count / UNLIKELY))
    folded = problem.folds(implementation)
    library = implementation.partition("-")[0]
    share = of_convolution(problem.convolution(bias=folded), library)
    assert isinstance(share, float)
    if folded:
        largest = _SCALE * largest + _SHIFT
        error = (share + u) * largest
    else:
        error = share * largest
        if problem.norm == "batchnorm":
            error, largest = _SCALE * error, _SCALE * largest + _SHIFT
        elif problem.norm == "layernorm":
            deviation = _deviation(problem.k, count // problem.k)
            error, largest = 2.2 * error / deviation, 1.1 * min(largest / deviation, math.sqrt(problem.k)) + 1
        if problem.norm != "none":
            error += (u + 8 * FLOAT32) * largest
    passed = _SLOPE[problem.activation] * error + 8 * FLOAT32 * largest
    return u + passed / _reached(problem, math.sqrt(2 * math.log(count)) / 2)


def _deviation(channels: int, pixels: int) -> float:
    """What the standard deviation of each of so many pixels exceeds, but once in 10,000 runs.

    Of n normal values the variance is below t with probability (t exp(1 - t))^(n / 2) at most (Chernoff).
    """
    bar = 2 * math.log(pixels / UNLIKELY) / (channels - 1)
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if middle - 1 - math.log(middle) > bar else (low, middle)
    return math.sqrt(low)


def _reached(problem: ConvolutionBlock, z: float) -> float:
    """The activation function of z, which is positive."""
    logistic = 1 / (1 + math.exp(-z))
    return {
        "relu": z, "gelu": z * (1 + math.erf(z / math.sqrt(2))) / 2, "silu": z * logistic, "sigmoid": logistic
    }[problem.activation]  # fmt: skip
