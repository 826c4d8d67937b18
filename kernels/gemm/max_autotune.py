"""The product as torch.compile makes it in mode max-autotune: the quickest of cuBLAS and its own templates.

Inductor times what it has for this shape when it compiles, and keeps one. Which one, it tells those who add
a feedback saver.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Any

import torch

from bench.autotune.inductor import compiled
from bench.spec import Launch, Tensors
from kernels.gemm.operands import factors
from kernels.gemm.problem import Gemm
from kernels.precision import sum_in_float32

_OPTIONS = (
    # What mode="max-autotune-no-cudagraphs" stands for: how launches are queued is the harness's business.
    ("max_autotune", True),
    ("coordinate_descent_tuning", True),
    # A program kept from an earlier process does not say which kernel it was made of.
    ("fx_graph_cache", False),
)
_TOLD = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "num_warps", "num_stages")


def launch(problem: Gemm, *inputs: torch.Tensor) -> Launch:
    """D [n, m], allocated by each call. Compiles and times for a new problem (seconds to a minute).

    Its configuration is the kernel that won, as `triton_mm_7 64x128x32 w4 s3`, a tile of rows x columns of
    the row-major D: N x M of the documents. It is empty if Inductor had no choice or does not say.
    """
    product = _product(problem)
    if product.chosen is None:
        product.compile(*inputs)
    return Launch(lambda: product(*inputs), configuration=product.chosen or "")


class Product:
    """One problem's product, not compiled yet. Sums are as operator.py's `cublas` has them."""

    def __init__(self, problem: Gemm) -> None:
        sum_in_float32()
        self._problem = problem
        self._run = compiled(multiply, problem, _OPTIONS)
        self.chosen: str | None = None
        """The kernel that won, once it is compiled."""

    def __call__(self, *inputs: torch.Tensor) -> torch.Tensor | Tensors:
        """D, on torch's current stream."""
        # Counts for templates when they are compiled, for cuBLAS when it is called, and Dynamo compares it
        # before each call. Said in the older way, which sets the newer flag too: Inductor asks for both.
        torch.set_float32_matmul_precision("high" if self._problem.dtype == "tf32" else "highest")
        try:
            return self._run(*inputs)
        finally:
            torch.set_float32_matmul_precision("highest")

    def compile(self, *inputs: torch.Tensor) -> None:
        """Call it for the first time, and listen to what Inductor says of what it timed."""
        # Seconds to import, and only this needs it.
        from torch._inductor import select_algorithm as algorithms

        told: list[Mapping[Any, float]] = []
        algorithms.add_feedback_saver(lambda timings, *_: told.append(timings))
        try:
            self(*inputs)
        finally:
            algorithms.clear_feedback_savers()
        self.chosen = _in_words(min(told[-1], key=told[-1].__getitem__)) if told and told[-1] else ""


@functools.lru_cache(maxsize=1)
def _product(problem: Gemm) -> Product:
    """The same for all slots of a ring. One at a time: bench/autotune/inductor.py keeps no more either."""
    return Product(problem)


def multiply(problem: Gemm, a: torch.Tensor, b: torch.Tensor, *c: torch.Tensor) -> torch.Tensor:
    """D as a model calls it: what Inductor compiles."""
    left, right = factors(problem, a, b)
    return torch.addmm(c[0], left, right) if problem.beta else torch.mm(left, right)


def _in_words(kernel: Any) -> str:
    """`mm` for cuBLAS; for a template its name, tile, warps and stages."""
    facts = dict(re.findall(r"(\w+)=(\w+)", getattr(kernel, "description", "")))
    if any(name not in facts for name in _TOLD):
        return str(kernel.name)
    m, n, k, warps, stages = (facts[name] for name in _TOLD)
    return f"{kernel.name} {m}x{n}x{k} w{warps} s{stages}"
