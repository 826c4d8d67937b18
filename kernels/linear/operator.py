"""A linear layer on tensors: inputs, the float64 reference, the libraries' kernels and ours.

Every pass is the row-major product of its first two inputs, transposed as problem.py says: x w', dy w, dy' x.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import get_args

import torch

from bench.spec import Dtype, Implementations, Launch, Operator, Tensors, Uniform
from kernels.gemm import operator as gemm
from kernels.gemm.operands import Operands, new_output
from kernels.gemm.problem import Gemm
from kernels.gemm.rounding import tolerance as of_product
from kernels.linear.problem import AS_GEMM, Direction, Linear
from kernels.tensors import inputs as declared


def inputs(problem: Linear, uniform: Uniform) -> Tensors:
    """x and w; dy and w; or dy and x. Forward with bias also that; of float8_e4m3 the scales of x and w.

    A scale is in 0.5 to 1.5.
    """
    left, right, *more = declared(problem, uniform)
    if problem.dtype == "float8_e4m3":
        more = [scale.abs_().add_(0.5) for scale in more]
    return left, right, *more


def reference(
    problem: Linear, left: torch.Tensor, right: torch.Tensor, *more: torch.Tensor
) -> torch.Tensor | Tensors:
    """y [batch, outputs], dx [batch, inputs], or dw [outputs, inputs] and with bias db [outputs]; float64."""
    one, other = left.double(), right.double()
    if problem.direction == "forward":
        y = one @ other.t()
        for scale in more if problem.dtype == "float8_e4m3" else ():
            y *= scale.double()
        return y + more[0].double() if problem.bias else y
    if problem.direction == "activation_gradient":
        return one @ other
    dw = one.t() @ other
    return (dw, one.sum(0)) if problem.bias else dw


def _by_torch(multiply: Callable[..., Launch], problem: Linear, *inputs: torch.Tensor) -> Launch:
    """What nn.Linear calls, outputs preallocated: mm, or addmm, which on a GPU fuses a bias by cuBLASLt.

    Sums are float32 to the end, tf32 and float32 told apart, as in `kernels.gemm.operator.cublas`.
    """
    left, right, *more = inputs
    # What is added, torch.addmm takes as a matrix or as its only row.
    product = multiply(_with_addend(problem), right, left, *reversed(more))
    return _with_bias_gradient(problem, product, left)


def cublaslt(problem: Linear, *inputs: torch.Tensor) -> Launch:
    """cuBLASLt itself, y or a gradient preallocated; a bias is added as y is stored."""
    from kernels.gemm import cublaslt as library  # an optional package

    return library.launch(_operands(problem, *inputs), "first")


def triton(problem: Linear, *inputs: torch.Tensor) -> Launch:
    """Our GEMM, tuned for this problem on first use, outputs preallocated; a bias gradient by torch."""
    from kernels.gemm import autotune  # Triton is not everywhere, and a run on a CPU needs none.

    return _with_bias_gradient(problem, autotune.launch(_operands(problem, *inputs), "triton"), inputs[0])


def _with_bias_gradient(problem: Linear, product: Launch, dy: torch.Tensor) -> Launch:
    """The product and, if that is wanted, the sums of dy by torch's own kernel."""
    if not problem.sums_bias_gradient:
        return product
    db = dy.new_empty(problem.outputs)
    return product.then(Launch(lambda: torch.sum(dy, 0, out=db), outputs=(db,)))


def _operands(problem: Linear, left: torch.Tensor, right: torch.Tensor, *more: torch.Tensor) -> Operands:
    """The GEMM's operands: A is the right factor, B the left one; the bias is C, the same for every row."""
    d = new_output(problem.gemm, left)
    if problem.dtype == "float8_e4m3":
        of_left, of_right = more
        return Operands(problem.gemm, right, left, d, scales=(of_right, of_left))
    return Operands(problem.gemm, right, left, d, c=more[0] if problem.adds_bias else None)


def _with_addend(problem: Linear) -> Gemm:
    """The GEMM whose C is the bias, repeated for every row; without bias the GEMM as it is."""
    return problem.gemm.model_copy(update={"beta": int(problem.adds_bias)})


def tolerance(problem: Linear, implementation: str) -> float | tuple[float, float]:
    """The largest |error| that rounding explains, as a fraction of the largest |value|; for dw and db each.

    Of y, dx and dw it is the GEMM's, where a bias is a C that is added. db is the product of dy with ones, by
    vector units: summed in float32, cut off nowhere.
    """
    allowed = of_product(_with_addend(problem), implementation)
    if not problem.sums_bias_gradient:
        return allowed
    kept: Dtype = "float32" if problem.dtype == "tf32" else problem.dtype
    ones = Gemm(m=problem.outputs, n=1, k=problem.batch, layout="NN", dtype=kept)
    return allowed, of_product(ones, "onednn")


def excerpt(problem: Linear, inputs: Tensors, outputs: Tensors) -> tuple[Linear, Tensors, Tensors]:
    """Some rows and columns of y, dx or dw, chosen as the GEMM's excerpt does, and of bias or db with them.

    A small problem whole.
    """
    left, right, *more = inputs
    product = outputs[0]
    if not problem.bias:
        small, (a, b, *more), part = gemm.excerpt(problem.gemm, (right, left, *more), (product,))
        return _smaller(problem, small), (b, a, *more), part
    # The bias belongs to y's columns, db to dw's rows. Repeated to a matrix it is C, which the GEMM's excerpt
    # cuts as it cuts the product.
    adds = problem.adds_bias
    addend = (more[0] if adds else outputs[1][:, None]).expand_as(product)
    added = problem.gemm.model_copy(update={"beta": 1})
    small, (a, b, c), part = gemm.excerpt(added, (right, left, addend), (product,))
    if adds:
        return _smaller(problem, small), (b, a, c[0]), part
    return _smaller(problem, small), (b, a), (*part, c[:, 0])


def _smaller(problem: Linear, small: Gemm) -> Linear:
    m, n, _, _ = AS_GEMM[problem.direction]
    return problem.model_copy(update={m: small.m, n: small.n})


def _examples() -> list[Linear]:
    # (batch, inputs, outputs): one of each, primes, one past and one short of tiles, aligned.
    sizes = [(1, 37, 29), (41, 1, 16), (33, 65, 1), (17, 13, 31), (129, 65, 63), (64, 96, 128)]
    directions: tuple[Direction, ...] = get_args(Direction)
    return [
        Linear(direction=direction, batch=batch, inputs=inputs, outputs=outputs, bias=bias, dtype=dtype)
        for batch, inputs, outputs in sizes
        for direction in directions
        for dtype in Linear.dtypes()
        for bias in (False, True)
        if not (bias and direction == "activation_gradient")
        if dtype not in ("float8_e4m3", "int8") or (direction == "forward" and not bias)
    ]


IMPLEMENTATIONS: Implementations = {
    "cublas": partial(_by_torch, gemm.cublas),
    "cublaslt": cublaslt,
    "onednn": partial(_by_torch, gemm.onednn),
    "triton": triton,
}
OPERATOR = Operator(Linear, inputs, reference, IMPLEMENTATIONS, tolerance, _examples(), excerpt)
