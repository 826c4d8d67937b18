"""Layer normalization on tensors: inputs, the float64 reference, torch's kernels and ours.

x, dy, y, dx are `[rows, length]`, contiguous; weight, bias and their gradients `[length]`; mean and rstd
`[rows, 1]`. See problem.py for the formulas.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import torch

from bench.autotune import inductor as torch_compile
from bench.spec import Dtype, Implementations, Launch, Operator, Tensors, Uniform, Unsupported
from kernels.excerpts import of_rows, one_of_each_part
from kernels.layernorm.problem import EPSILON, LayerNorm
from kernels.optional import launched_by
from kernels.rounding import FLOAT32, UNIT_ROUNDOFF, UNLIKELY, low
from kernels.row_wise import examples

_CHECKED = 1 << 19
"""About how many elements an excerpt keeps; a result up to four times as large is checked whole."""
_LEAST_ROWS = 16
"""Fewest rows of an excerpt: of fewer, the largest mean, to which errors relate, may be next to nothing."""
_MOST_ERROR = 0.25
"""Beyond this share of the largest value, a gradient summed in 16 bits is no gradient."""


def inputs(problem: LayerNorm, uniform: Uniform) -> Tensors:
    """Forward: x, weight, bias. Backward: x, dy, weight, and mean and rstd.

    The gradient's formula is exact for any mean and rstd, so they are random, in the problem's type (which
    every implementation can hold), and need no pass over x.
    """
    return tuple(uniform(*spec.shape) for spec in problem.tensors[0].values())


def reference(problem: LayerNorm, x: torch.Tensor, *rest: torch.Tensor) -> Tensors:
    """y, mean and rstd, or dx, dweight and dbias, in float64.

    An excerpt of a gradient (see there) has four more inputs: dweight and dbias are then of its columns.
    """
    if problem.direction == "forward":
        weight, bias = rest
        mean = x.double().mean(1, keepdim=True)
        centred = x.double() - mean
        rstd = (centred.square().mean(1, keepdim=True) + EPSILON).rsqrt()
        return centred * rstd * weight.double() + bias.double(), mean, rstd
    dy, weight, mean, rstd = (tensor.double() for tensor in rest[:4])
    standard = (x.double() - mean) * rstd
    scaled = dy * weight
    slope = (scaled * standard).mean(1, keepdim=True)
    dx = rstd * (scaled - scaled.mean(1, keepdim=True) - standard * slope)
    if len(rest) > 4:
        some_x, dy, mean, rstd = (tensor.double() for tensor in rest[4:])
        standard = (some_x - mean) * rstd
    return dx, (dy * standard).sum(0), dy.sum(0)


def _functional(problem: LayerNorm, *inputs: torch.Tensor) -> Tensors:
    """torch's own operators; both allocate what they return (their out= forms compute, then copy)."""
    shape = [problem.length]
    if problem.direction == "forward":
        x, weight, bias = inputs
        return torch.native_layer_norm(x, shape, weight, bias, EPSILON)
    x, dy, weight, mean, rstd = inputs
    # The bias is not read: only its being there, its type and shape count.
    gradient: Any = torch.ops.aten.native_layer_norm_backward.default
    written: Tensors = gradient(dy, x, shape, mean, rstd, weight, weight, [True, True, True])
    return written


def aten(problem: LayerNorm, *inputs: torch.Tensor) -> Launch:
    """torch's kernels; each call allocates its results, which on a CPU costs page faults beyond 32 MB.

    torch keeps mean and rstd of 16-bit data in float32 on a GPU, in 16 bits on a CPU. There it also sums
    dweight and dbias in 16 bits: Unsupported where so many rows leave nothing right.
    """
    kept = inputs
    if problem.direction == "backward":
        on_cpu = inputs[0].device.type == "cpu"
        if on_cpu and _sums_error(problem, problem.dtype) > _MOST_ERROR and problem.item_byte == 2:
            raise Unsupported(
                f"torch on a CPU sums dweight and dbias in {problem.dtype}: over {problem.rows} rows the "
                f"rounding errors may exceed {_MOST_ERROR:.0%} of the result"
            )
        kept = (*inputs[:3], *_statistics(inputs, in_16_bits=on_cpu))
    return Launch(lambda: _functional(problem, *kept))


def inductor(problem: LayerNorm, *inputs: torch.Tensor) -> Launch:
    """What torch.compile makes of the same operators."""
    kept = inputs
    if problem.direction == "backward":
        kept = (*inputs[:3], *_statistics(inputs, in_16_bits=False))
    return torch_compile.launch(_functional, problem, *kept)


def _statistics(inputs: Tensors, in_16_bits: bool) -> Tensors:
    """mean and rstd as the kernel wants them; their values are exact in either type."""
    mean, rstd = inputs[3:]
    return (mean, rstd) if in_16_bits or mean.dtype == torch.float64 else (mean.float(), rstd.float())


def tolerance(problem: LayerNorm, implementation: str) -> tuple[float, float, float]:
    """The largest |error| of each output that rounding explains, as a fraction of its largest |value|.

    u is the unit roundoff of the problem's type, u' that of the arithmetic, float32 (float64 for float64,
    where the reference errs as much: twice). Inputs are uniform in [-1, 1]. `low` (n) is what the largest
    of n standard normal variables exceeds in all but 1 of 10,000 runs.

    * Every output is rounded to its type: u of the largest. So are mean and rstd of aten, on a CPU.
    * y and rstd: a dozen operations, and a sum of squares in at least 128 lanes: 8 + log2(length) u'. Errors
      relate to the row's deviation, which in a short row may be small: all of its elements within a share q
      of their range, which happens in one of the rows with probability rows q^(length - 1). So they grow by
      1/q, but by 316 at most, since 1e-5 is added to the variance.
    * mean is a sum near zero, of rows whose largest is `low` of its standard deviation s. Running sums of
      K = length / 128 elements err by u' sqrt(K / 3) s, plus their merging by some u' s. Inductor's C++ has
      as few as 8 lanes: K = length / 8.
    * dx: terms up to 1, a dozen operations, against a standard deviation of 0.19: 16 u' / (0.19 low).
    * dweight, dbias: sums of `rows` terms, as in gemm: u' sqrt(rows) / 3 times ln(length 10^4) / low. For
      aten and 16-bit data u instead of u', for that is how torch sums on a CPU (where it can be compared).
    """
    unit = UNIT_ROUNDOFF[problem.dtype]
    accumulated, times = (UNIT_ROUNDOFF["float64"], 2) if problem.dtype == "float64" else (FLOAT32, 1)
    if problem.direction == "forward":
        rows = min(problem.rows, _excerpt_rows(problem))
        lanes = 8 if implementation == "inductor" else 128
        chain = 2 + math.sqrt(problem.length / lanes / 3)
        of_mean = chain * math.log(rows / UNLIKELY) / low(rows)
        narrow = (UNLIKELY / rows) ** (1 / (problem.length - 1)) if problem.length > 1 else 1.0
        of_y = (8 + math.log2(problem.length)) * min(1 / narrow, EPSILON**-0.5)
        if problem.length == 1:  # x and its mean, both scaled by 316, cancel before a bias that may be tiny
            of_y *= EPSILON**-0.5 / UNLIKELY
        stored = unit if implementation == "aten" else accumulated
        return (
            unit + times * accumulated * of_y,
            stored + times * accumulated * of_mean,
            stored + times * accumulated * of_y,
        )
    elements = _excerpt_rows(problem) * problem.length
    sums = _sums_error(problem, "float64" if problem.dtype == "float64" else "float32")
    if implementation == "aten" and problem.item_byte == 2:
        in_16_bits = _sums_error(problem, problem.dtype)
        sums = in_16_bits if in_16_bits <= _MOST_ERROR else sums
    of_sums = unit + times * (4 * accumulated + sums)
    return unit + times * 16 * accumulated / (0.19 * low(elements)), of_sums, of_sums


def _sums_error(problem: LayerNorm, summed_in: Dtype | Literal["float32"]) -> float:
    """Error of dweight and dbias by their running sums in this type, as a share of the largest."""
    columns = _excerpt_columns(problem)
    scatter = math.log(columns / UNLIKELY) / low(columns)
    return UNIT_ROUNDOFF[summed_in] * math.sqrt(problem.rows) / 3 * scatter


def _excerpt_rows(problem: LayerNorm) -> int:
    """Rows that an excerpt keeps; all of a small problem."""
    if problem.elements <= 4 * _CHECKED:
        return problem.rows
    return min(problem.rows, max(_LEAST_ROWS, _CHECKED // problem.length))


def _excerpt_columns(problem: LayerNorm) -> int:
    """Columns of a gradient that an excerpt keeps."""
    if problem.elements <= 4 * _CHECKED:
        return problem.length
    return min(problem.length, max(4, _CHECKED // problem.rows))


def excerpt(problem: LayerNorm, inputs: Tensors, outputs: Tensors) -> tuple[LayerNorm, Tensors, Tensors]:
    """The same problem for some rows only; of a gradient, dweight and dbias of some columns.

    Rows and columns are random, one of every equal part, and the last ones. dweight and dbias need every
    row of their columns: so a gradient's excerpt has, after its five inputs, x and dy `[all rows, columns]`
    and mean and rstd `[all rows, 1]`, which `reference` takes. A small problem is left whole.
    """
    if problem.elements <= 4 * _CHECKED:
        return problem, inputs, outputs
    rows = one_of_each_part(problem.rows, _excerpt_rows(problem))
    smaller, smaller_inputs, part = of_rows(problem, rows, inputs, outputs)
    if problem.direction == "forward":
        return smaller, smaller_inputs, part
    x, dy, _, mean, rstd = inputs
    dx, dweight, dbias = part
    columns = one_of_each_part(problem.length, _excerpt_columns(problem)).to(x.device)
    return (
        smaller,
        (*smaller_inputs, x[:, columns], dy[:, columns], mean, rstd),
        (dx, dweight[columns], dbias[columns]),
    )


IMPLEMENTATIONS: Implementations = {
    "aten": aten,
    "inductor": inductor,
    "triton": launched_by("layernorm.launch"),
}
OPERATOR = Operator(LayerNorm, inputs, reference, IMPLEMENTATIONS, tolerance, examples(LayerNorm), excerpt)
