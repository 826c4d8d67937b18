"""cuSPARSELt through torch: A with two zeros in each four elements along K, stored without them.

Compressing A, as one does with weights once, is not timed, nor is the search for the quickest algorithm. The
result is allocated by each call, which torch cannot avoid.
"""

from __future__ import annotations

import functools

import torch

from bench.spec import Launch, Unsupported
from kernels.gemm.problem import Gemm


def pruned(a: torch.Tensor) -> torch.Tensor:
    """A copy of a [m, k] in which the two smaller of each four elements along K are zero."""
    fours = a.reshape(a.shape[0], -1, 4)
    smaller = fours.float().abs().topk(2, dim=-1, largest=False).indices
    return fours.scatter(-1, smaller, 0).view(a.shape)


def launch(problem: Gemm, a: torch.Tensor, b: torch.Tensor) -> Launch:
    """D [n, m] of a [m, k], which is pruned, and b [n, k]. Unsupported where torch lacks cuSPARSELt."""
    if not torch.backends.cusparselt.is_available():
        raise Unsupported("this build of torch has no cuSPARSELt")
    # Of A by B' it gives D', which `transpose_result` stores as D.
    compressed, right = torch._cslt_compress(a), b.t()
    kind = torch.int32 if problem.dtype == "int8" else None
    algorithm = torch._cslt_sparse_mm_search(compressed, right, out_dtype=kind, transpose_result=True)
    multiply = functools.partial(
        torch._cslt_sparse_mm,
        compressed,
        right,
        out_dtype=kind,
        transpose_result=True,
        alg_id=algorithm,
    )
    return Launch(multiply, configuration=f"algorithm {algorithm}")
