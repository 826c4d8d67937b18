"""GEMM on tensors: inputs, the float64 reference, the libraries' GEMM and ours.

Every implementation computes the row-major product D [n, m] = op(B) [n, k] op(A) [k, m] + C, which is the
column-major D = op(A) op(B) + C of the documents without moving a byte (see problem.py for the layouts).
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from importlib import import_module
from typing import Any

import torch

from bench.spec import PACKED, Dtype, Implementations, Launch, Operator, Tensors, Uniform, Unsupported
from kernels.excerpts import one_of_each_block
from kernels.gemm import max_autotune
from kernels.gemm.number_types import decoded, in_8_bits, scale_of, swizzled
from kernels.gemm.operands import factors, new_output, operands
from kernels.gemm.problem import BLOCK_SCALED, FORCED_TILES, SCALED, Gemm, Layout
from kernels.gemm.rounding import tolerance
from kernels.precision import cublas_precision, sum_in_float32
from kernels.quantize.problem import Quantize

_BLOCK = 32
"""Finest spacing of an excerpt, in rows and columns of C: no tile of any implementation is smaller."""
_BLOCKS = 256
"""Most blocks a side of an excerpt."""


def inputs(problem: Gemm, uniform: Uniform) -> Tensors:
    """a, then b, as their letters of the layout say: N -> a [k, m], b [n, k]; T -> a [m, k], b [k, n].

    Both with batch in front if that is more than 1. Then c [n, m] if beta = 1, or the scales of a and b if
    the type has some (number_types.py). Rows lie as far apart as `pitch` says. The b of float8_e5m2 has the
    bits of random numbers of that type, which as float8_e4m3 are numbers up to 1.5.
    """
    m, n, k = problem.m, problem.n, problem.k
    row_a, row_b, row_d = problem.row_byte()
    item = problem.item_byte * PACKED.get(problem.dtype, 1)
    several = () if problem.batch == 1 else (problem.batch,)
    a = _rows(uniform, (*several, k, m) if problem.layout[0] == "N" else (*several, m, k), row_a // item)
    b = _rows(uniform, (*several, n, k) if problem.layout[1] == "N" else (*several, k, n), row_b // item)
    if problem.beta:
        return a, b, _rows(uniform, (n, m), row_d // item)
    if problem.sparsity == "2of4":
        a = pruned(a)
    if problem.dtype == "float8_e5m2":
        b = b.view(torch.float8_e4m3fn)
    if problem.dtype in SCALED:
        shapes: tuple[tuple[int, ...], ...] = ((1,), (1,))
        if problem.dtype in BLOCK_SCALED:
            blocks = k // BLOCK_SCALED[problem.dtype]
            shapes = ((m, blocks), (n, blocks))
        return a, b, *(scale_of(problem.dtype, uniform(*shape, dtype=torch.float32)) for shape in shapes)
    return a, b


def _rows(uniform: Uniform, shape: tuple[int, ...], pitch: int) -> torch.Tensor:
    return uniform(*shape[:-1], pitch)[..., : shape[-1]]


def reference(problem: Gemm, a: torch.Tensor, b: torch.Tensor, *more: torch.Tensor) -> torch.Tensor:
    """D in float64, products and sums too. Takes four to eight bytes per byte of 16-bit input."""
    a_scale, b_scale = more if problem.dtype in SCALED else (None, None)
    right_of_b: Dtype = "float8_e4m3" if problem.dtype == "float8_e5m2" else problem.dtype
    a, b = decoded(problem.dtype, a, a_scale), decoded(right_of_b, b, b_scale)
    left, right = factors(problem, a, b)
    d = torch.matmul(left, right)
    return d + more[0].double() if problem.beta else d


def cublas(problem: Gemm, *inputs: torch.Tensor) -> Launch:
    """cuBLAS through torch, D [n, m] or [batch, n, m] preallocated.

    Sums are float32 (float64 for float64, int32 for int8) to the end: cuBLAS may neither sum in 16 bits nor,
    when it splits K, reduce the parts in 16 bits. Of float8_e4m3 it sums inside Hopper's tensor cores (fast
    accumulation), as our kernels do. tf32 and float32 are one type to torch, told apart by a global
    flag that counts when cuBLAS is called, which is also when a graph is captured. So the launch itself sets
    it, and whatever else runs in the process, each launch is what it says.
    """
    sum_in_float32()
    product = _by_torch(problem, *inputs)
    if problem.dtype not in ("tf32", "float32"):
        return product
    return replace(product, call=cublas_precision(problem.dtype)(product.call))


def onednn(problem: Gemm, *inputs: torch.Tensor) -> Launch:
    """The CPU's GEMM through torch, D preallocated; sums of 16-bit types are float32, int8's int32."""
    return _by_torch(problem, *inputs)


def _by_torch(problem: Gemm, a: torch.Tensor, b: torch.Tensor, *more: torch.Tensor) -> Launch:
    left, right = factors(problem, a, b)
    d = new_output(problem, a)
    if problem.dtype in SCALED:
        b_by, a_by = more[1], more[0]  # left is op(B)
        if problem.dtype in BLOCK_SCALED:
            kind = torch.float8_e8m0fnu if problem.dtype == "mxfp8" else torch.float8_e4m3fn
            b_by, a_by = swizzled(b_by).view(kind), swizzled(a_by).view(kind)
        if problem.dtype == "nvfp4":
            left, right = b.view(torch.float4_e2m1fn_x2), a.view(torch.float4_e2m1fn_x2).t()

        # A flag of Hopper's; blocks are multiplied on Blackwell.
        how = {"out_dtype": torch.bfloat16, "use_fast_accum": problem.dtype not in BLOCK_SCALED, "out": d}
        return Launch.of(torch._scaled_mm, (d,), left, right, b_by, a_by, **how)
    if problem.dtype == "int8":
        return Launch(lambda: torch._int_mm(left, right, out=d), outputs=(d,))
    if problem.batch > 1:
        return Launch(lambda: torch.bmm(left, right, out=d), outputs=(d,))
    if problem.beta:
        return Launch(lambda: torch.addmm(more[0], left, right, out=d), outputs=(d,))
    return Launch(lambda: torch.mm(left, right, out=d), outputs=(d,))


def pruned(a: torch.Tensor) -> torch.Tensor:
    """A copy of a [m, k] in which the two smaller of each four elements along K are zero."""
    fours = a.reshape(a.shape[0], -1, 4)
    smaller = fours.float().abs().topk(2, dim=-1, largest=False).indices
    return fours.scatter(-1, smaller, 0).view(a.shape)


def cusparselt(problem: Gemm, a: torch.Tensor, b: torch.Tensor) -> Launch:
    """cuSPARSELt through torch: D [n, m] of a [m, k], pruned and stored without its zeros, and b [n, k].

    Compressing A, as one does with weights once, is not timed, nor is the search for the quickest algorithm.
    The result is allocated by each call, which torch cannot avoid. Unsupported where torch lacks cuSPARSELt.
    """
    if not torch.backends.cusparselt.is_available():
        raise Unsupported("this build of torch has no cuSPARSELt")
    # Of A by B' it gives D', which `transpose_result` stores as D.
    compressed, right = torch._cslt_compress(a), b.t()
    kind = torch.int32 if problem.dtype == "int8" else None
    algorithm = torch._cslt_sparse_mm_search(compressed, right, out_dtype=kind, transpose_result=True)
    how: dict[str, Any] = {"out_dtype": kind, "transpose_result": True, "alg_id": algorithm}
    multiply = functools.partial(torch._cslt_sparse_mm, compressed, right, **how)
    return Launch(multiply, configuration=f"algorithm {algorithm}")


def cublas_quantized(problem: Gemm, a: torch.Tensor, b: torch.Tensor) -> Launch:
    """D [n, m] of a [m, k] and b [n, k], both 16 bits, multiplied as float8_e4m3 by cuBLAS.

    A stands for weights, which were quantised once, beforehand; B for activations, which come in 16 bits and
    are quantised in each launch (kernels/quantize/casting.py). Each matrix has one scale.
    """
    from kernels.quantize import casting  # Triton is not everywhere, and a run on a CPU needs none.

    quantized, b_by = torch.empty_like(b, dtype=torch.float8_e4m3fn), torch.empty(1, device=b.device)
    of_b = Quantize(rows=problem.n, length=problem.k, dtype=problem.dtype, to="float8_e4m3", scaling="tensor")
    quantize = casting.launch(of_b, b, (quantized, b_by))
    weights, a_by = in_8_bits(a)
    d = new_output(problem, a)

    def call() -> torch.Tensor:
        quantize.call()
        torch._scaled_mm(quantized, weights.t(), b_by, a_by, out_dtype=d.dtype, use_fast_accum=True, out=d)
        return d

    return replace(quantize, call=call, outputs=(d,))


def _of_operands(module: str, which: str) -> Callable[..., Launch]:
    """The `launch` of a module of this folder, which is imported when it is called.

    Triton is not everywhere, and a run on a CPU needs none.
    """

    def launch(problem: Gemm, *inputs: torch.Tensor) -> Launch:
        made: Launch = import_module(f"kernels.gemm.{module}").launch(operands(problem, *inputs), which)
        return made

    return launch


def excerpt(problem: Gemm, inputs: Tensors, outputs: Tensors) -> tuple[Gemm, Tensors, Tensors]:
    """The same problem for some rows and columns of D only, at full k and batch; a small problem whole.

    One random row and one random column of every block of 32, the first and the last too: every tile of
    D is met, whichever implementation cut it. Above 8192 a side the blocks widen, to at most 258 rows and
    columns.
    """
    if problem.flop < 1e8:
        return problem, inputs, outputs
    a, b, *more = inputs
    (d,) = outputs
    rows, columns = (
        one_of_each_block(size, _BLOCK * math.ceil(size / (_BLOCK * _BLOCKS)))
        for size in (problem.n, problem.m)
    )
    smaller = problem.model_copy(update={"m": len(columns), "n": len(rows), "pitch": "tight"})
    rows, columns = rows.to(d.device), columns.to(d.device)
    some_a = _some(a, -1 if problem.layout[0] == "N" else -2, columns)
    some_b = _some(b, -2 if problem.layout[1] == "N" else -1, rows)
    if problem.beta:
        more = [_some(_some(more[0], -2, rows), -1, columns)]
    elif problem.dtype in BLOCK_SCALED:
        more = [_some(more[0], 0, columns), _some(more[1], 0, rows)]
    return smaller, (some_a, some_b, *more), (_some(_some(d, -2, rows), -1, columns),)


def _some(tensor: torch.Tensor, dim: int, indices: torch.Tensor) -> torch.Tensor:
    # torch indexes bytes, but not numbers of 8 bits.
    if tensor.dtype in (torch.float8_e4m3fn, torch.float8_e5m2):
        return tensor.view(torch.uint8).index_select(dim, indices).view(tensor.dtype)
    return tensor.index_select(dim, indices)


def _examples() -> list[Gemm]:
    def products(
        sizes: Iterable[tuple[int, int, int]], layouts: Iterable[Layout], dtypes: Iterable[Dtype], **more: Any
    ) -> list[Gemm]:
        every = itertools.product(sizes, layouts, dtypes)
        return [Gemm(m=m, n=n, k=k, layout=layout, dtype=d, **more) for (m, n, k), layout, d in every]

    # (m, n, k): nothing, vectors, primes, one past and one short of tiles, aligned, and k beyond a stage.
    sizes = [(1, 1, 1), (1, 37, 29), (41, 1, 16), (33, 65, 1), (17, 31, 13), (129, 63, 65), (64, 128, 96)]
    few = [(33, 65, 1), (129, 63, 65), (64, 128, 96)]
    layouts: tuple[Layout, ...] = ("NN", "NT", "TN", "TT")
    single = [dtype for dtype in Gemm.dtypes() if dtype not in BLOCK_SCALED]
    with_c: tuple[Dtype, ...] = ("float16", "bfloat16", "float32", "float64")
    others: tuple[Dtype, ...] = (*with_c, "tf32", "float8_e4m3", "int8")
    problems = products(sizes, layouts, single)
    for dtype in others:
        pitch = "tight" if dtype in ("float16", "float64") else "padded"
        problems += products(few, layouts, [dtype], beta=int(dtype in with_c), pitch=pitch)
        for m, n, k, batch in [(1, 37, 29, 2), (33, 65, 1, 5), (65, 33, 40, 3)]:
            problems += products([(m, n, k)], layouts, [dtype], pitch=pitch, batch=batch)
    problems += products([(1, 1, 32), (33, 65, 96), (16, 37, 64), (144, 129, 256)], ["TN"], BLOCK_SCALED)
    pruned = Gemm.implementation("cusparselt").dtypes
    problems += products([(32, 16, 32), (33, 65, 100), (96, 48, 256)], ["TN"], pruned, sparsity="2of4")
    # One product of two such numbers may be too small for its type: no relative error bounds it.
    small = ("float16", "float8_e4m3", "float8_e5m2")
    return [problem for problem in problems if problem.product != (1, 1, 1) or problem.dtype not in small]


OURS = tuple(one.name for one in Gemm.implementations if one.name.startswith("triton"))

CUBLASLT = {"cublaslt": "first"} | {f"cublaslt-{t}": t for t in FORCED_TILES}
"""What each of them takes of cuBLASLt's answers (cublaslt.py)."""

IMPLEMENTATIONS: Implementations = {
    "cublas": cublas,
    "onednn": onednn,
    "inductor": max_autotune.launch,
    "cublas-quantized": cublas_quantized,
    "cusparselt": cusparselt,
    **{name: _of_operands("cublaslt", which) for name, which in CUBLASLT.items()},
    **{name: _of_operands("autotune", name) for name in OURS},
}
OPERATOR = Operator(Gemm, inputs, reference, IMPLEMENTATIONS, tolerance, _examples(), excerpt)
