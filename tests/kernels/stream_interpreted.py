"""STREAM's copy kernel, run by the repaired interpreter under the sanitizer."""

import itertools
import math
import random

import pytest
import torch

from kernels.stream import copying
from kernels.stream.operator import OPERATOR
from kernels.stream.problem import Stream
from tests.drawing import covering
from tests.kernels.interpreted import check
from tests.kernels.interpreter import repaired
from tests.kernels.sanitizer import placed, watched
from tests.kernels.tensors import TORCH_TYPE, uniform


def drawn(problem: Stream, seed: int) -> torch.Tensor:
    (x,) = OPERATOR.inputs(problem, uniform(problem, seed))
    return x


def holds(problem: Stream, programs: int, seed: int) -> None:
    """The same bits, in bounds, every element read once and written once."""
    x = drawn(problem, seed)
    done = check(OPERATOR, problem, (x,), copying.launch_with(programs, problem, x))
    assert torch.equal(done.outputs[0], x)
    assert done.byte == (problem.byte_read, problem.byte_written, 0)
    assert done.watch.loads.repeated == 0


def stream(length: int, dtype: str) -> Stream:
    return Stream(kind="copy", length=length, dtype=dtype)  # type: ignore[arg-type]


EXAMPLES = [p for p in OPERATOR.examples if not Stream.model_validate(p).missing("triton", "cuda", (9, 0))]
SHARES = list(itertools.product([1, 2, 3, 7], ["float16", "bfloat16", "float32", "float64"]))


@pytest.mark.parametrize(
    "problem",
    covering(EXAMPLES, "interpreted stream", lambda p: (p.length, p.programs), lambda p: p.dtype),
    ids=str,
)
def test_examples(problem: Stream, seed: int) -> None:
    holds(problem, problem.programs or 3, seed)


@pytest.mark.parametrize(
    ("programs", "dtype"), covering(SHARES, "shares of stream", lambda case: case[0], lambda case: case[1])
)
def test_whole_and_ragged_blocks_by_fewer_and_by_more_programs(programs: int, dtype: str, seed: int) -> None:
    """Nothing but a rest, one short of a block, a block, one more; several of each; and any length."""
    size = copying.block(TORCH_TYPE[dtype].itemsize)
    lengths = [1, size - 1, size, size + 1, programs * size, programs * size + 1]
    for length in (*lengths, random.Random(seed).randrange(1, 5 * size)):
        holds(stream(length, dtype), programs, seed)


@pytest.mark.parametrize("piece", [-1, 0, 1])
def test_a_rest_of_whole_pieces_and_around(piece: int, seed: int) -> None:
    holds(stream(copying.block(4) + 2 * copying.PIECE + piece, "float32"), 2, seed)


def test_blocks_are_shared_out_as_evenly_as_can_be(seed: int) -> None:
    """Of three programs and eight blocks two get three, the third two and the rest: each alone says it."""
    size = copying.block(4)
    problem = stream(8 * size + 10, "float32")
    x, y = drawn(problem, seed), torch.empty(problem.length)
    shares = []
    for program in range(3):
        with repaired(), watched() as watch, placed((program,), (3,)):
            copying.copy[(1,)](x, y, problem.length, BLOCK=size, PIECE=copying.PIECE)
        shares.append(watch.loads.byte // 4)
    assert shares == [3 * size, 3 * size, 2 * size + 10]
    assert torch.equal(x, y)


def test_beyond_two_to_the_31(seed: int) -> None:
    """The last block and the rest of 2^31 elements and more, by the programs whose turn they are."""
    size = copying.block(2)
    blocks, rest = 2**31 // size + 3, 1001
    x, y = (torch.empty(blocks * size + rest, dtype=torch.float16) for _ in range(2))
    last = drawn(stream(size + rest, "float16"), seed)
    x[-len(last) :] = last
    y[-len(last) :] = math.nan
    # As many programs as blocks: each has one, and the rest falls to the first.
    for program in (blocks - 1, 0):
        with repaired(), watched(), placed((program,), (blocks,)):
            copying.copy[(1,)](x, y, x.numel(), BLOCK=size, PIECE=copying.PIECE)
    assert torch.equal(y[-len(last) :], last)
