"""The chain of multiply-adds, run by the repaired interpreter under the sanitizer.

    TRITON_INTERPRET=1 python -m pytest tests/kernels/fma_interpreted.py

test_interpreted_kernels.py starts it; its name keeps it out of an ordinary run.
"""

import random

import pytest
import torch

from kernels.fma.multiply_add import launch, multiply_add
from kernels.fma.operator import OPERATOR, reference, tolerance
from kernels.fma.problem import SHIFT, FusedMultiplyAdd
from tests.kernels.interpreted import check
from tests.kernels.interpreter import repaired
from tests.kernels.sanitizer import placed, watched
from tests.kernels.tensors import relative_error, uniform


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
    x, y = torch.empty(problem.length), torch.empty(problem.length)  # pages not touched
    last = problem.tile + 5
    part = problem.model_copy(update={"length": last})
    x[-last:] = uniform(part, seed)(last)
    tiles = problem.length // problem.tile
    for program in (tiles - 1, tiles):
        with repaired(), watched(), placed((program,), (tiles + 1,)):
            multiply_add[(1,)](x, y, x.numel(), problem.pairs, SHIFT=SHIFT, TILE=problem.tile)
    assert relative_error(OPERATOR, part, (x[-last:],), (y[-last:],)) <= tolerance(part, "triton")
    assert reference(part, x[-last:]).shape == (last,)
