"""The product as torch.compile makes it in mode max-autotune: the quickest of cuBLAS and its own templates.

Inductor times what it has for this shape when it compiles, and keeps one.
"""

from __future__ import annotations

import torch

from bench.autotune.inductor import compiled
from bench.spec import Launch, Tensors
from kernels.gemm.operands import factors
from kernels.gemm.problem import Gemm
from kernels.precision import sum_in_float32

_OPTIONS = (("max_autotune", True), ("coordinate_descent_tuning", True))
"""What mode="max-autotune-no-cudagraphs" stands for: how launches are queued is the harness's business."""


def launch(problem: Gemm, *inputs: torch.Tensor) -> Launch:
    """D [n, m], allocated by each call; the first compiles and times (seconds to a minute).

    Sums are as operator.py's `cublas` has them.
    """
    sum_in_float32()
    run = compiled(multiply, problem, _OPTIONS)
    precision = "high" if problem.dtype == "tf32" else "highest"

    def call() -> torch.Tensor | Tensors:
        # Counts for templates when they are compiled, for cuBLAS when it is called, and Dynamo compares it
        # before each call. Said in the older way, which sets the newer flag too: Inductor asks for both.
        torch.set_float32_matmul_precision(precision)
        try:
            return run(*inputs)
        finally:
            torch.set_float32_matmul_precision("highest")

    return Launch(call)


def multiply(problem: Gemm, a: torch.Tensor, b: torch.Tensor, *c: torch.Tensor) -> torch.Tensor:
    """D as a model calls it: what Inductor compiles."""
    left, right = factors(problem, a, b)
    return torch.addmm(c[0], left, right) if problem.beta else torch.mm(left, right)
