"""A 16-bit product by way of 8 bits: B is quantised in each launch, then cuBLAS multiplies.

A stands for weights, which were quantised once, beforehand; B for activations, which come in 16 bits. Each
matrix has one scale. What quantising B costs (kernels/quantize/casting.py) is part of the time.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from bench.spec import Launch
from kernels.gemm.number_types import rounded
from kernels.gemm.operands import new_output
from kernels.gemm.problem import Gemm
from kernels.quantize.problem import Quantize


def launch(problem: Gemm, a: torch.Tensor, b: torch.Tensor) -> Launch:
    """D [n, m] of a [m, k] and b [n, k], both 16 bits, multiplied as float8_e4m3."""
    from kernels.quantize import casting  # Triton is not everywhere, and a run on a CPU needs none.

    quantized, b_by = torch.empty_like(b, dtype=torch.float8_e4m3fn), torch.empty(1, device=b.device)
    quantize = casting.launch(_of_b(problem), b, (quantized, b_by))
    weights, a_by = rounded("float8_e4m3", a.float())
    assert a_by is not None
    d = new_output(problem, a)

    def call() -> torch.Tensor:
        quantize.call()
        torch._scaled_mm(quantized, weights.t(), b_by, a_by, out_dtype=d.dtype, use_fast_accum=True, out=d)
        return d

    return replace(quantize, call=call, outputs=(d,))


def _of_b(problem: Gemm) -> Quantize:
    return Quantize(rows=problem.n, length=problem.k, dtype=problem.dtype, to="float8_e4m3", scaling="tensor")
