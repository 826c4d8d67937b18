"""Chains of multiply-adds on tensors."""

from __future__ import annotations

import torch

from bench.spec import Implementations, Operator
from kernels.excerpts import every_nth
from kernels.fma.problem import SHIFT, FusedMultiplyAdd
from kernels.optional import launched_by
from kernels.tensors import inputs


def reference(problem: FusedMultiplyAdd, x: torch.Tensor) -> torch.Tensor:
    """y `[length]` in float64: every pair adds 2^-12."""
    return x.double() + problem.pairs * SHIFT


def tolerance(problem: FusedMultiplyAdd, implementation: str) -> float:
    """Eight roundings of 4 v + 1, which is below 16, in units of v, whose largest is above a half.

    Once rounded, v lies on the grid that it is rounded to, until 4 v + 1 passes a power of two, which it does
    four times at most. A pair left out would be 2^-12 of a v below 4, a hundred times as much.
    """
    return 8 * 2.0**-21 / 4 / 0.5


IMPLEMENTATIONS: Implementations = {"triton": launched_by("fma.multiply_add")}
EXAMPLES = [
    # A rest alone, whole tiles and a rest, fewer programs than tiles and more.
    FusedMultiplyAdd(
        dtype="float32", length=length, flop_per_byte=flop, block_threads=threads, programs=programs
    )
    for length, flop, threads, programs in (
        (1024, 1, 32, 0),
        (1500, 1, 64, 0),
        (16_384, 3, 128, 0),
        (65_537, 2, 256, 3),
        (98_304, 1, 512, 5),
        (65_600, 2, 1024, 0),
        (65_600, 7, 1024, 4),
    )
]
OPERATOR = Operator(FusedMultiplyAdd, inputs, reference, IMPLEMENTATIONS, tolerance, EXAMPLES, every_nth)
