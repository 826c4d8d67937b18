"""What the GEMM tests have in common: seeded inputs, and the check of a result against the reference."""

from collections.abc import Sequence

import torch

from bench.spec import Uniform
from kernels.gemm.operator import OPERATOR
from kernels.gemm.problem import Gemm

TORCH_TYPE = {
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "tf32": torch.float32,
    "float32": torch.float32,
    "float64": torch.float64,
}


def uniform(problem: Gemm, seed: int) -> Uniform:
    """CPU tensors uniform in [-1, 1] in the problem's type, the same for the same seed."""
    generator = torch.Generator().manual_seed(seed)

    def make(*shape: int, dtype: torch.dtype | None = None) -> torch.Tensor:
        random = torch.rand(shape, generator=generator, dtype=torch.float64) * 2 - 1
        return random.to(dtype or TORCH_TYPE[problem.dtype])

    return make


def error(problem: Gemm, inputs: Sequence[torch.Tensor], c: torch.Tensor) -> float:
    """Largest |c - reference| as a fraction of the largest |reference|; NaN if c has a NaN."""
    right = OPERATOR.reference(problem, *inputs)
    assert isinstance(right, torch.Tensor) and right.dtype == torch.float64
    assert c.shape == right.shape == (problem.n, problem.m)
    return float((c.double() - right).abs().max() / right.abs().max())
