"""Chains of multiply-adds: their counts, their reference, and what is refused."""

import pytest
import torch
from pydantic import ValidationError

from kernels.fma.operator import OPERATOR, tolerance
from kernels.fma.problem import FusedMultiplyAdd
from tests.kernels.tensors import relative_error, uniform


def fma(**given: object) -> FusedMultiplyAdd:
    """2000 elements, three operations for each byte, but for what is given."""
    usual: dict[str, object] = {"dtype": "float32", "length": 2000, "flop_per_byte": 3}
    return FusedMultiplyAdd.model_validate(usual | given)


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
    (x,) = OPERATOR.inputs(problem, uniform(problem, seed))
    allowed = tolerance(problem, "triton")
    assert relative_error(OPERATOR, problem, (x,), (computed(problem, x, problem.pairs),)) <= allowed
    for pairs in (problem.pairs - 1, problem.pairs + 1):
        assert relative_error(OPERATOR, problem, (x,), (computed(problem, x, pairs),)) > 10 * allowed


def test_who_computes_what_and_what_is_refused() -> None:
    assert fma().missing("triton", "cpu", None) == "triton runs on cuda, not on cpu"
    assert not fma().missing("triton", "cuda", (8, 0))
    for wrong, sentence in (
        ({"block_threads": 48}, "block_threads is one of 32, 64, 128, 256, 512, 1024, not 48"),
        ({"length": 1023}, "greater than or equal to 1024"),
        ({"flop_per_byte": 0}, "greater than or equal to 1"),
        ({"programs": -1}, "greater than or equal to 0"),
        ({"dtype": "float16"}, "fma has no dtype 'float16'"),
    ):
        with pytest.raises(ValidationError, match=sentence):
            fma(**wrong)
