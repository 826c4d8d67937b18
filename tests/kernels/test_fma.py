"""Chains of multiply-adds: their counts, their reference, and what is refused."""

from functools import partial

import pytest
import torch

from kernels.fma.operator import OPERATOR, tolerance
from kernels.fma.problem import FusedMultiplyAdd
from tests.kernels.problems import inputs_of, usual
from tests.kernels.tensors import relative_error

fma = partial(usual, "fma")


def computed(problem: FusedMultiplyAdd, x: torch.Tensor, pairs: int) -> torch.Tensor:
    """The chain as problem.py defines it, rounded after every multiply-add as the device does."""
    for _ in range(pairs):
        x = (x.double() * 4 + 1).float()
        x = (x.double() / 4 + (2.0**-12 - 0.25)).float()
    return x


@pytest.mark.parametrize("flop_per_byte", [1, 3, 16, 2048])
def test_the_intensity_is_what_is_asked_for(flop_per_byte: int) -> None:
    problem = fma(flop_per_byte=flop_per_byte)
    assert problem.flop / problem.byte == flop_per_byte
    assert problem.flop == 2 * 2 * problem.pairs * problem.length


@pytest.mark.parametrize("flop_per_byte", [1, 64, 2048])
def test_the_reference_is_the_chain_and_a_pair_more_or_less_is_seen(flop_per_byte: int, seed: int) -> None:
    problem = fma(flop_per_byte=flop_per_byte)
    (x,) = inputs_of(problem, seed)
    allowed = tolerance(problem, "triton")
    assert relative_error(OPERATOR, problem, (x,), (computed(problem, x, problem.pairs),)) <= allowed
    for pairs in (problem.pairs - 1, problem.pairs + 1):
        assert relative_error(OPERATOR, problem, (x,), (computed(problem, x, pairs),)) > 10 * allowed
