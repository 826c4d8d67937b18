"""Quantisation on tensors: inputs, the float64 reference, torch's kernels and ours.

x is `[rows, length]`, contiguous; y likewise. Scales are float32 [1] or [rows], or uint8 [rows, length / 32].
"""

from __future__ import annotations

from functools import partial

import torch

from bench.autotune import inductor as torch_compile
from bench.spec import Implementations, Launch, Operator, Tensors
from kernels.excerpts import of_rows
from kernels.optional import launched_by
from kernels.quantize.problem import LARGEST, MX_BLOCK, Quantize
from kernels.tensors import empty, inputs, stored_dtype

_LEAST = 1e-30
"""What a largest |x| of zero is taken for, so that zeros become zeros."""
_CHECKED = 1 << 20
"""About how many elements an excerpt keeps; a result up to twice as large is checked whole."""


def _groups(problem: Quantize, tensor: torch.Tensor) -> torch.Tensor:
    """A view in which each row shares a scale: [scales, elements of each]."""
    return tensor.view(problem.scales, -1)


def reference(problem: Quantize, x: torch.Tensor) -> Tensors:
    """x / scale, not rounded to the type, and the scales (of mx their exponents plus 127), in float64."""
    grouped = _groups(problem, x.double())
    largest = grouped.abs().amax(1, keepdim=True).clamp_min(_LEAST)
    if problem.scaling != "mx":
        scale = largest / LARGEST
        return (grouped / scale).view_as(x), scale.flatten()
    exponent = torch.frexp(largest).exponent - torch.frexp(torch.tensor(LARGEST)).exponent
    quotients = (grouped / 2.0 ** exponent.double()).clamp(-LARGEST, LARGEST)
    return quotients.view_as(x), (exponent + 127).double().view(problem.rows, -1)


def _scales(problem: Quantize, largest: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """What to divide by, float32, and the scales as they are stored, both as `largest` is shaped."""
    largest = largest.float().clamp_min(_LEAST)
    if problem.scaling != "mx":
        scale = largest / LARGEST
        return scale, scale
    # The exponent's bits of a float32 are its exponent plus 127.
    exponent = (largest.view(torch.int32) >> 23) - (int(LARGEST).bit_length() - 1)
    return (exponent << 23).view(torch.float32), exponent.to(torch.uint8)


def aten(problem: Quantize, x: torch.Tensor) -> Launch:
    """torch's kernels one after the other, into tensors made beforehand but for scales and their largest."""
    y, scales = empty(problem, x)
    grouped, quotients = _groups(problem, x), torch.empty_like(x, dtype=torch.float32)
    in_groups = _groups(problem, quotients)

    def call() -> Tensors:
        largest = torch.linalg.vector_norm(grouped, float("inf"), dim=1, keepdim=True)
        scale, stored = _scales(problem, largest)
        scales.copy_(stored.view_as(scales))
        torch.div(grouped, scale, out=in_groups)
        if problem.scaling == "mx":
            quotients.clamp_(-LARGEST, LARGEST)
        y.copy_(quotients)
        return y, scales

    return Launch(call, outputs=(y, scales))


def _functional(problem: Quantize, x: torch.Tensor) -> Tensors:
    grouped = _groups(problem, x)
    scale, stored = _scales(problem, grouped.abs().amax(1, keepdim=True))
    quotients = grouped / scale
    if problem.scaling == "mx":
        quotients = quotients.clamp(-LARGEST, LARGEST)
    y = quotients.to(stored_dtype(problem.to)).view_as(x)
    return y, stored.view(problem.rows, -1) if problem.scaling == "mx" else stored.flatten()


def tolerance(problem: Quantize, implementation: str) -> tuple[float, float]:
    """The largest |error| of y and of scales that rounding explains, as a fraction of the largest |value|.

    y: a number of three bits of mantissa is off by up to 2^-4 of it; division, or the product with one over
    the scale, and the scale itself by 2^-24 each, four times at most. A scale is two of those; exponents are
    exact.
    """
    return 2.0**-4 + 2.0**-22, 0.0 if problem.scaling == "mx" else 2.0**-23


def excerpt(problem: Quantize, inputs: Tensors, outputs: Tensors) -> tuple[Quantize, Tensors, Tensors]:
    """The same problem for some rows only: random ones, the last, and that of the tensor's largest |x|."""
    if problem.elements <= 2 * _CHECKED:
        return problem, inputs, outputs
    rows = torch.randint(problem.rows, (max(2, _CHECKED // problem.length),))
    largest = torch.linalg.vector_norm(inputs[0], float("inf"), dim=1).argmax()
    rows[0], rows[-1] = problem.rows - 1, largest
    smaller, inputs, (y, scales) = of_rows(problem, rows, inputs, outputs)
    return smaller, inputs, (y, scales[rows.to(scales.device)] if problem.scaling == "row" else scales)


def _examples() -> list[Quantize]:
    # (rows, length): single, primes, odd, on, one short of and one past blocks.
    sizes = [(13, 1), (5, 7), (49, 49), (131, 64), (17, 1000), (33, 1025), (9, 4096), (3, 96)]
    return [
        Quantize(rows=rows, length=length, dtype=dtype, to="float8_e4m3", scaling=scaling)
        for rows, length in sizes
        for dtype in ("float16", "bfloat16", "float32")
        for scaling in ("tensor", "row", "mx")
        if scaling != "mx" or length % MX_BLOCK == 0
    ]


IMPLEMENTATIONS: Implementations = {
    "aten": aten,
    "inductor": partial(torch_compile.launch, _functional),
    "triton": launched_by("quantize.casting"),
}
OPERATOR = Operator(Quantize, inputs, reference, IMPLEMENTATIONS, tolerance, _examples(), excerpt)
