"""The chain of multiply-adds, run by the repaired interpreter under the sanitizer."""

import random

import pytest

from kernels.fma.multiply_add import launch
from kernels.fma.operator import OPERATOR
from kernels.fma.problem import FusedMultiplyAdd
from tests.kernels.interpreted import check, check_far_end
from tests.kernels.tensors import uniform


def holds(problem: FusedMultiplyAdd, seed: int) -> None:
    """Right, in bounds, every element read once and written once."""
    (x,) = OPERATOR.inputs(problem, uniform(problem, seed))
    done = check(OPERATOR, problem, (x,), launch(problem, x))
    assert done.byte == (problem.byte_read, problem.byte_written, 0)
    assert done.watch.loads.repeated == 0


@pytest.mark.parametrize("problem", OPERATOR.examples, ids=str)
def test_examples(problem: FusedMultiplyAdd, seed: int) -> None:
    holds(problem, seed)


def test_any_length_by_any_number_of_programs(seed: int) -> None:
    chance = random.Random(seed)
    for threads in (32, 256):
        tile = 32 * threads
        for length in (tile, tile + 1, 3 * tile - 1, 3 * tile, chance.randrange(1024, 5 * tile)):
            programs = chance.randrange(1, 7)
            holds(
                FusedMultiplyAdd(
                    dtype="float32", length=length, flop_per_byte=1, block_threads=threads, programs=programs
                ),
                seed,
            )


def test_a_long_chain_stays_within_its_tolerance(seed: int) -> None:
    holds(FusedMultiplyAdd(dtype="float32", length=4096, flop_per_byte=2048, block_threads=128), seed)


def test_beyond_two_to_the_31(seed: int) -> None:
    """The last tile and the rest, by the programs whose turn they are."""
    problem = FusedMultiplyAdd(
        dtype="float32", length=2**31 + 3 * 32_768 + 5, flop_per_byte=1, block_threads=1024
    )
    last = problem.model_copy(update={"length": problem.tile + 5})
    check_far_end(OPERATOR, problem, last, lambda inputs: launch(problem, *inputs), seed, programs=2)
