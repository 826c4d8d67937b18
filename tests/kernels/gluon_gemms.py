"""The GEMM kernels in Gluon on the emulator: how each is called, and what a run of it must show."""

import math
from types import ModuleType
from typing import Any, NamedTuple

import torch

from bench.worker.check import poison
from kernels.gemm import (
    gluon_blackwell,
    gluon_blackwell_warps,
    gluon_hopper,
    gluon_scaled,
    gluon_scaled_warps,
)
from kernels.gemm.operands import Operands, operands
from kernels.gemm.operator import OPERATOR, tolerance
from kernels.gemm.problem import BLOCK_SCALED, Gemm
from tests.kernels.gemm_cases import bits, gaps, storage
from tests.kernels.gluon_emulator import Emulated, emulate
from tests.kernels.tensors import uniform, used

KERNELS: dict[str, ModuleType] = {
    "hopper": gluon_hopper,
    "blackwell": gluon_blackwell_warps,
    "scaled": gluon_scaled_warps,
}
"""Name -> the module with what its warps do."""
_CALLED = {"hopper": gluon_hopper, "blackwell": gluon_blackwell, "scaled": gluon_scaled}
CAPABILITY = {"hopper": (9, 0), "blackwell": (10, 0), "scaled": (10, 0)}


class Case(NamedTuple):
    """A product and how it is computed."""

    kernel: str
    problem: Gemm
    chosen: Any
    """Its schedule."""
    bias: bool = False
    """Whether one row is added to every row, as a linear layer asks."""
    programs: int = 1
    """How many blocks, or pairs, share the tiles, at most."""

    def __str__(self) -> str:
        more = ("bias",) * self.bias
        return " ".join((self.kernel, str(self.problem), str(self.chosen), f"p{self.programs}", *more))

    @property
    def addend(self) -> str:
        return "bias" if self.bias else "matrix" if self.problem.beta else "none"


def schedules(kernel: str, problem: Gemm, stages: int | None = None) -> list[Any]:
    """What a device may choose from; with as many stages, if given, or as few as its lag allows."""
    found = []
    for one in _CALLED[kernel].candidates(problem, CAPABILITY[kernel], 132):
        fewest = max(stages or one.tile.stages, getattr(one, "lag", 0) + 1)
        found.append(one._replace(tile=one.tile._replace(stages=fewest)))
    return found


def check(case: Case, seed: int, *, module: ModuleType | None = None) -> Emulated:
    """Run it, by another module's kernel if given; AssertionError (a Fault among them) if anything is wrong.

    D is right within the operator's tolerance; what lies between rows holds NaN and is neither used nor
    written; every element is written once, and bulk copies bring as many bytes as the kernel's formula says.
    """
    problem = case.problem
    inputs = OPERATOR.inputs(problem, uniform(problem, seed))
    for matrix in inputs:
        if matrix.dim() == 2 and problem.dtype not in BLOCK_SCALED:
            between = storage(matrix)[:, matrix.shape[1] :]
            between.view(torch.uint8).fill_(0x7F if matrix.element_size() == 1 else 0xFF)
    of = operands(problem, *inputs)
    if case.bias:
        of = Operands(problem, of.a, of.b, of.d, uniform(problem, seed + 1)(problem.m), of.scales)
    poison((whole := storage(of.d),))
    before = whole.clone()
    sm_count = case.programs * getattr(case.chosen, "blocks", 1)
    prepared = _CALLED[case.kernel].prepare(of, case.chosen, sm_count)
    kernel = (module or KERNELS[case.kernel]).multiply
    done = emulate(kernel, prepared.grid[0], prepared.arguments, seed)
    assert torch.equal(bits(gaps(whole, problem)), bits(gaps(before, problem))), (
        "gaps between rows are written"
    )
    _right(case, of, inputs)
    assert done.traffic.stored == problem.byte_written
    assert done.traffic.loaded == _bulk_byte(case, of)
    return done


def _right(case: Case, of: Operands, inputs: tuple[torch.Tensor, ...]) -> None:
    if not case.bias:
        share = used(OPERATOR, "triton-gluon", case.problem, inputs, (of.d,))
        assert share <= 1, f"{share} of the tolerance"  # a NaN is more
        return
    assert of.c is not None
    right = OPERATOR.reference(case.problem, *inputs) + of.c.double()
    error = float((of.d.double() - right).abs().max() / right.abs().max())
    assert error <= 2 * tolerance(case.problem, "triton"), error


def _bulk_byte(case: Case, of: Operands) -> int:
    """What bulk copies bring: tma.py's formula, and scales, of rows and blocks rounded up to whole copies."""
    problem, tile = case.problem, case.chosen.tile
    tiles_m, tiles_n = math.ceil(problem.m / tile.m), math.ceil(problem.n / tile.n)
    if problem.dtype in BLOCK_SCALED:
        rows_a, rows_b = (128 * math.ceil(rows / 128) for rows in (problem.m, problem.n))
        blocks = 4 * math.ceil(problem.k // BLOCK_SCALED[problem.dtype] / 4)
        row = of.a.shape[1] * of.a.element_size() + blocks
        scales = blocks * (tiles_n * (rows_a - problem.m) + tiles_m * (rows_b - problem.n))
        return (tiles_n * problem.m + tiles_m * problem.n) * row + scales
    byte = (tiles_n * problem.m + tiles_m * problem.n) * problem.k * problem.item_byte
    if case.bias and case.kernel == "blackwell":  # of a pair each brings its own
        byte += tiles_n * case.chosen.blocks * problem.m * problem.item_byte
    return byte + problem.beta * problem.byte_written
