"""The four passes of STREAM on tensors."""

from __future__ import annotations

import math

import torch

from bench.spec import Implementations, Launch, Operator, Problem, Tensors, Uniform
from kernels.excerpts import every_nth
from kernels.optional import launched_by
from kernels.rounding import FLOAT32, UNIT_ROUNDOFF
from kernels.stream.problem import Stream
from kernels.tensors import inputs as declared

ALPHA = 0.5
"""Triad's factor: a power of two, so that alpha z is exact."""
CONSTANT = 0.75
"""What write writes: exact in every data type."""


def inputs(problem: Stream, uniform: Uniform) -> Tensors:
    """x `[length]`, and z `[length]` for triad; write takes its dtype and device from an empty x."""
    return declared(problem, uniform) or (uniform(0),)


def reference(problem: Stream, x: torch.Tensor, z: torch.Tensor | None = None) -> torch.Tensor:
    """y `[length]` in float64; for read the sum, `[1]`, and what `excerpt` adds to it as z."""
    match problem.kind:
        case "copy":
            return x.double()
        case "triad":
            assert z is not None
            return x.double() + ALPHA * z.double()
        case "read":
            return x.double().sum(dim=0, keepdim=True) + (0.0 if z is None else z)
        case "write":
            return torch.full((problem.length,), CONSTANT, dtype=torch.float64, device=x.device)


def aten(problem: Stream, x: torch.Tensor, z: torch.Tensor | None = None) -> Launch:
    """One call of torch, writing y `[length]` (read: `[1]`) allocated here."""
    y = x.new_empty(1 if problem.kind == "read" else problem.length)
    match problem.kind:
        case "copy":
            return Launch(lambda: y.copy_(x), (y,))
        case "triad":
            assert z is not None
            return Launch(lambda: torch.add(x, z, alpha=ALPHA, out=y), (y,))
        case "read":
            return Launch(lambda: torch.sum(x, dim=0, keepdim=True, out=y), (y,))
        case "write":
            return Launch(lambda: y.fill_(CONSTANT), (y,))


def tolerance(problem: Stream, implementation: str) -> float:
    """0 for what is exact, one rounding for triad, and for read those of a sum.

    Its errors grow with its partial sums, of the size of what `excerpt` adds or less: some units of float32,
    and some of the output's type, in which the threads' parts are added up.
    """
    match problem.kind:
        case "copy" | "write":
            return 0.0
        case "triad":
            return 2 * UNIT_ROUNDOFF[problem.dtype]
        case "read":
            accumulated = min(FLOAT32, UNIT_ROUNDOFF[problem.dtype])
            return 8 * UNIT_ROUNDOFF[problem.dtype] + 20 * accumulated * math.log2(problem.length + 1)


def excerpt(problem: Stream, tensors: Tensors, outputs: Tensors) -> tuple[Problem, Tensors, Tensors]:
    """About a million evenly spread elements of a long pass. A sum is checked whole, with 4 sqrt(n) added.

    Of n values between -1 and 1 the sum is some sqrt(n / 3), but now and then so close to 0 that its rounding
    errors are all there is: compared with 4 sqrt(n) they are what they usually are.
    """
    if problem.kind == "read":
        beside = torch.full_like(outputs[0], 4 * math.sqrt(problem.length), dtype=torch.float64)
        return problem, (*tensors, beside), (outputs[0] + beside,)
    return every_nth(problem, tensors, outputs)


IMPLEMENTATIONS: Implementations = {"aten": aten, "triton": launched_by("stream.copying")}
EXAMPLES = [
    Stream(dtype=dtype, kind=kind, length=length)
    for dtype in ("float16", "bfloat16", "float32", "float64")
    for kind in ("copy", "triad", "read", "write")
    for length in (1, 7, 4099)
]
# Beyond a block, whole and ragged; more programs than blocks, and fewer.
EXAMPLES += [
    Stream(dtype=dtype, kind="copy", length=length, programs=programs)
    for dtype in ("float16", "float32", "float64")
    for length in (3 * 65_536, 100_003)
    for programs in (1, 2, 5)
]
OPERATOR = Operator(Stream, inputs, reference, IMPLEMENTATIONS, tolerance, EXAMPLES, excerpt)
