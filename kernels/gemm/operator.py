"""GEMM on tensors: inputs, the float64 reference, the library's GEMM and ours.

Every implementation computes the row-major product C [n, m] = op(B) [n, k] op(A) [k, m], which is the
column-major C = op(A) op(B) of the documents without moving a byte (see problem.py for the layouts).
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import TYPE_CHECKING

import torch

from bench.spec import Launch, Operator, Uniform
from kernels.gemm.problem import Gemm

if TYPE_CHECKING:
    from bench.spec import Tensors

_UNIT_ROUNDOFF = {
    "float16": 2.0**-11,
    "bfloat16": 2.0**-8,
    "tf32": 2.0**-24,
    "float32": 2.0**-24,
    "float64": 2.0**-53,
}
"""Half the distance from 1 to the next number of the type that C is rounded to."""

_BLOCK = 32
"""Finest spacing of an excerpt, in rows and columns of C: no tile of any implementation is smaller."""
_BLOCKS = 256
"""Most blocks a side of an excerpt."""


def inputs(problem: Gemm, uniform: Uniform) -> Tensors:
    """a, then b, as their letters of the layout say: N -> a [k, m], b [n, k]; T -> a [m, k], b [k, n]."""
    m, n, k = problem.m, problem.n, problem.k
    a = uniform(k, m) if problem.layout[0] == "N" else uniform(m, k)
    b = uniform(n, k) if problem.layout[1] == "N" else uniform(k, n)
    return a, b


def factors(problem: Gemm, a: torch.Tensor, b: torch.Tensor) -> Tensors:
    """op(B) [n, k] and op(A) [k, m], as views: their row-major product is C."""
    return (b if problem.layout[1] == "N" else b.t(), a if problem.layout[0] == "N" else a.t())


def reference(problem: Gemm, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """C [n, m] in float64, products and sums too. Takes four to eight bytes per byte of 16-bit input."""
    left, right = factors(problem, a, b)
    return torch.mm(left.double(), right.double())


def cublas(problem: Gemm, a: torch.Tensor, b: torch.Tensor) -> Launch:
    """cuBLAS by torch.mm, C [n, m] preallocated.

    Sums are float32 (float64 for float64) to the end: cuBLAS may neither sum in 16 bits nor, when it
    splits K, reduce the parts in 16 bits. tf32 and float32 are one type to torch, told apart by a global
    flag that counts when cuBLAS is called, which is also when a graph is captured. So the launch itself sets
    it (0.4 us), and whatever else runs in the process, each launch is what it says.
    """
    matmul = torch.backends.cuda.matmul
    matmul.allow_fp16_accumulation = False
    matmul.allow_fp16_reduced_precision_reduction = False
    matmul.allow_bf16_reduced_precision_reduction = False
    product = _mm(problem, a, b)
    if problem.dtype not in ("tf32", "float32"):
        return product

    def with_precision() -> torch.Tensor | Tensors:
        matmul.fp32_precision = "tf32" if problem.dtype == "tf32" else "ieee"
        c = product.call()
        # Left at tf32, it would contradict torch's older flags, and reading one of those then raises.
        matmul.fp32_precision = "ieee"
        return c

    return Launch(with_precision, outputs=product.outputs)


def onednn(problem: Gemm, a: torch.Tensor, b: torch.Tensor) -> Launch:
    """The CPU's GEMM by torch.mm, C [n, m] preallocated; sums of 16-bit types are float32."""
    return _mm(problem, a, b)


def triton(problem: Gemm, a: torch.Tensor, b: torch.Tensor) -> Launch:
    """Our tiled kernel, C [n, m]; tuned for this problem when first asked (pointer.py)."""
    from kernels.gemm import pointer  # Triton is not everywhere, and a run on a CPU needs none.

    return pointer.launch(problem, a, b)


def triton_configuration(problem: Gemm, a: torch.Tensor, b: torch.Tensor) -> str:
    """The tile that `triton` chose, as `256x128x64 w8 s3`: m x n x k, warps, stages."""
    from kernels.gemm import pointer

    return pointer.configuration(problem, a, b)


def _mm(problem: Gemm, a: torch.Tensor, b: torch.Tensor) -> Launch:
    left, right = factors(problem, a, b)
    c = a.new_empty(problem.n, problem.m)
    return Launch(lambda: torch.mm(left, right, out=c), outputs=(c,))


def tolerance(problem: Gemm, implementation: str) -> float:
    """The largest |error| that rounding explains, as a fraction of the largest |C|.

    Operands are uniform in [-1, 1], so a product has variance 1/9, and an element of C is close to a
    normal variable of standard deviation s = sqrt(k)/3. Of m n such elements the largest is at least
    `low` s but once in 10,000 runs; the bounds on errors below hold as often.

    * Rounding C to its type: at most u |C|, u the unit roundoff.
    * Summing in float32 (float64), u' = 2^-24 (2^-53): each of k additions is off by up to u' of the
      partial sum, evenly spread. Where C is q s, the sum grows to q s, and the errors add up to one of
      standard deviation u' sqrt(k)/3 q s. q times another normal variable, largest of m n: ln(m n 10^4).
      That is one running sum; libraries sum in blocks and stay well below. For float64 the reference errs
      as much: sqrt(2) more.
    * Tensor cores cut off instead of rounding, once in every 16 terms (8 of tf32), up to 2 u' of the
      partial sum and always towards zero: at most u' k/16 (k/8) of the largest |C|.
    * tf32 cuts each operand to 10 bits, by up to 2^-10 of it: a product by up to 2^-9. Over a random sum
      the mean of that, 6.3e-4, is a bias of C; what scatters about it, 2.8e-4 s, is normal: `high`.
    """
    elements, unlikely = problem.m * problem.n, 1e-4
    low = NormalDist().inv_cdf((1 + unlikely ** (1 / elements)) / 2)
    high = NormalDist().inv_cdf(1 - unlikely / (2 * elements))

    error = _UNIT_ROUNDOFF[problem.dtype]
    if problem.k == 1:  # one product, no sum
        return error + (2.0**-9 if problem.dtype == "tf32" else 0)
    of_sum = _UNIT_ROUNDOFF["float64" if problem.dtype == "float64" else "float32"]
    sums = 2 if problem.dtype == "float64" else 1
    error += of_sum * math.sqrt(sums * problem.k) / 3 * math.log(elements / unlikely) / low
    if implementation != "onednn" and problem.dtype in ("float16", "bfloat16", "tf32"):
        error += of_sum * problem.k / (8 if problem.dtype == "tf32" else 16)
    if problem.dtype == "tf32":
        error += 6.3e-4 + 2.8e-4 * high / low
    return error


def excerpt(problem: Gemm, inputs: Tensors, outputs: Tensors) -> tuple[Gemm, Tensors, Tensors]:
    """The same problem for some rows and columns of C only, at full k; a small problem whole.

    One random row and one random column of every block of 32, the first and the last too: every tile of
    C is met, whichever implementation cut it. Above 8192 a side the blocks widen, to at most 258 rows and
    columns. Chosen by torch's own generator on the CPU, so a seeded run repeats its choice.
    """
    if problem.flop < 1e8:
        return problem, inputs, outputs
    a, b = inputs
    (c,) = outputs
    rows, columns = _spread(problem.n), _spread(problem.m)
    smaller = problem.model_copy(update={"m": len(columns), "n": len(rows)})
    rows, columns = rows.to(c.device), columns.to(c.device)
    some_a = a.index_select(1 if problem.layout[0] == "N" else 0, columns)
    some_b = b.index_select(0 if problem.layout[1] == "N" else 1, rows)
    return smaller, (some_a, some_b), (c.index_select(0, rows).index_select(1, columns),)


def _spread(size: int) -> torch.Tensor:
    """Indices in [0, size), ascending: the ends, and a random one of every block."""
    width = _BLOCK * math.ceil(size / (_BLOCK * _BLOCKS))
    starts = torch.arange(0, size, width)
    inside = torch.minimum(starts + torch.randint(width, starts.shape), torch.tensor(size - 1))
    indices: torch.Tensor = torch.unique(torch.cat([torch.tensor([0, size - 1]), inside]))
    return indices


def _examples() -> list[Gemm]:
    # (m, n, k): nothing, vectors, primes, one past and one short of tiles, aligned, and k beyond a stage.
    sizes = [(1, 1, 1), (1, 37, 29), (41, 1, 16), (33, 65, 1), (17, 31, 13), (129, 63, 65), (64, 128, 96)]
    return [
        Gemm(m=m, n=n, k=k, layout=layout, dtype=dtype)
        for m, n, k in sizes
        for layout in ("NN", "NT", "TN", "TT")
        for dtype in ("float16", "bfloat16", "tf32", "float32", "float64")
        # One product of two float16 numbers may be too small for float16: no relative error bounds it.
        if not (m == n == k == 1 and dtype == "float16")
    ]


OPERATOR = Operator(
    problem=Gemm,
    inputs=inputs,
    reference=reference,
    implementations={"cublas": cublas, "onednn": onednn, "triton": triton},
    tolerance=tolerance,
    examples=_examples(),
    excerpt=excerpt,
    configuration={"triton": triton_configuration},
)
