"""What the GEMM tests have in common: the check of a result against the reference."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from operator import attrgetter

import torch

from bench.spec import Dtype
from bench.worker.check import poison
from kernels.gemm.operands import Operands, operands
from kernels.gemm.operator import OPERATOR
from kernels.gemm.problem import Gemm, Layout
from tests.kernels.tensors import TORCH_TYPE

ADDENDS = ("none", "matrix", "bias")
"""What may be added to a product."""
KINDS = tuple(
    attrgetter(*names)
    for names in (("m", "n", "k"), ("layout",), ("dtype",), ("beta", "pitch", "batch", "sparsity"))
)
"""Properties of a problem of which every run of the tests meets every value (tests/drawing.py)."""


def error(
    problem: Gemm, inputs: Sequence[torch.Tensor], d: torch.Tensor, bias: torch.Tensor | None = None
) -> float:
    """Largest |d - reference| as a fraction of the largest |reference|; NaN if d has a NaN.

    `bias` [m] was added to every row.
    """
    right = OPERATOR.reference(problem, *inputs)
    assert isinstance(right, torch.Tensor) and right.dtype == torch.float64
    if bias is not None:
        right += bias.double()
    assert d.shape == right.shape and d.shape[-2:] == (problem.n, problem.m)
    return float((d.double() - right).abs().max() / right.abs().max())


def sizeless(dtype: Dtype, layout: Layout, add: str) -> Gemm:
    """A product of any size: sizes are not compiled in. `add` is none, matrix or bias."""
    return Gemm(m=512, n=512, k=512, dtype=dtype, layout=layout, beta=1 if add == "matrix" else 0)


@functools.cache
def meta_operands(problem: Gemm, add: str = "none") -> Operands:
    """Operands without memory, for a compilation."""

    def empty(*shape: int, dtype: torch.dtype | None = None) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype or TORCH_TYPE[problem.dtype], device="meta")

    of = operands(problem, *OPERATOR.inputs(problem, empty))
    return replace(of, c=empty(problem.m)) if add == "bias" else of


def storage(d: torch.Tensor) -> torch.Tensor:
    """D with what lies between its rows: [n, elements from one row to the next], batch first if not 1."""
    row = d.stride(-2)
    return torch.as_strided(d, (*d.shape[:-1], row), (*d.stride()[:-1], 1), d.storage_offset())


def poisoned(of: Operands) -> Callable[[], bool]:
    """Fill D and what lies between its rows with poison; returns what says whether the latter still is."""
    poison((whole := storage(of.d),))
    before = whole.clone()

    def untouched() -> bool:
        return torch.equal(*(bits(each[..., of.problem.m :]) for each in (whole, before)))

    return untouched


def poison_gaps(inputs: Sequence[torch.Tensor]) -> None:
    """Fill what lies between rows with NaN, of int8 with the largest number: no kernel may use it."""
    for matrix in (one for one in inputs if one.dim() == 2):
        between = storage(matrix)[:, matrix.shape[1] :]
        between.view(torch.uint8).fill_(0x7F if matrix.element_size() == 1 else 0xFF)


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """The same as bytes, for which NaN equals itself."""
    return tensor.contiguous().view(torch.uint8)
