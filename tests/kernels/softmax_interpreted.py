"""Softmax's kernels, run by the repaired interpreter under the sanitizer.

    TRITON_INTERPRET=1 python -m pytest tests/kernels/softmax_interpreted.py

test_memory_limited.py starts it; its name keeps it out of an ordinary run.
"""

import math
from types import ModuleType
from typing import NamedTuple

import pytest
import torch

from kernels.layernorm.tiles import Tile
from kernels.softmax import launch, long_rows, whole_rows
from kernels.softmax.operator import OPERATOR, tolerance
from kernels.softmax.problem import Softmax
from tests.drawing import covering
from tests.kernels.interpreter import repaired
from tests.kernels.sanitizer import Watch, placed, watched
from tests.kernels.tensors import relative_error, uniform


class Ran(NamedTuple):
    inputs: tuple[torch.Tensor, ...]
    result: torch.Tensor
    watch: Watch


def ran(
    problem: Softmax, inputs: tuple[torch.Tensor, ...], tile: Tile, by: ModuleType, times: int = 1
) -> Ran:
    """What the kernels of this file wrote into a result of NaN, and what they touched."""
    ready = by.launch(problem, inputs, tile)
    ready.outputs[0].fill_(math.nan)
    with repaired(), watched() as watch:
        for _ in range(times):
            result = ready.call()
    assert result is ready.outputs[0]
    return Ran(inputs, result, watch)


def drawn(problem: Softmax, seed: int) -> tuple[torch.Tensor, ...]:
    return OPERATOR.inputs(problem, uniform(problem, seed))


def check(problem: Softmax, tile: Tile, seed: int, by: ModuleType) -> None:
    """Right, in bounds, every byte as the docstrings count them, each element written once, no atomics."""
    done = ran(problem, drawn(problem, seed), tile, by)
    assert relative_error(OPERATOR, problem, done.inputs, (done.result,)) <= tolerance(problem, "triton")
    readings = 1 if by is whole_rows else 2
    assert done.watch.loads.byte == readings * problem.byte_read
    assert done.watch.loads.distinct_byte == problem.byte_read
    assert done.watch.stores.byte == problem.byte_written == done.watch.stores.within(done.result).byte
    assert done.watch.stores.repeated == 0
    assert done.watch.atomics.byte == 0


TRITON = [
    p
    for p in OPERATOR.examples
    if not Softmax.implementation("triton").missing(p.dtype, "cuda", (9, 0))
    and not (p.dtype != "bfloat16" and p.length > 1025)  # the interpreter is slow
]
LONG = [
    Softmax.model_validate({"direction": direction, "rows": rows, "length": length, "dtype": dtype})
    for direction in ("forward", "backward")
    for rows, length in ((1, 64), (7, 65), (10, 127), (3, 192), (2, 1))
    for dtype in ("bfloat16", "float32")
]


def few(problems: list[Softmax], of: str) -> list[Softmax]:
    """Every size, and every data type in either direction; all of them in a deep run."""
    return covering(problems, of, lambda p: (p.rows, p.length), lambda p: (p.direction, p.dtype))


@pytest.mark.parametrize("problem", few(TRITON, "interpreted softmax"), ids=str)
def test_right_in_bounds_and_each_element_written_once(problem: Softmax, seed: int) -> None:
    tiles = launch.candidates(problem)
    for tile in (tiles[0], tiles[-1]) if problem.length < 1025 else tiles[:1]:
        check(problem, tile, seed, whole_rows if problem.in_registers else long_rows)


def test_the_launch_takes_the_file_that_suits_the_row() -> None:
    for length, by in ((16384, whole_rows), (16385, long_rows)):
        problem = Softmax(direction="forward", rows=1, length=length, dtype="float32")
        assert launch.candidates(problem) == by.candidates(problem)
        made = launch.with_tile(problem, (torch.empty(1, length),), by.candidates(problem)[0])
        assert made.call.__module__ == by.__name__


@pytest.mark.parametrize("problem", few(LONG, "interpreted long rows of softmax"), ids=str)
def test_long_rows_with_chunks_of_a_few_elements(problem: Softmax, seed: int) -> None:
    """On, one past and one short of chunks."""
    check(problem, Tile(1, 64, 1), seed, long_rows)


BOTH = [(whole_rows, Tile(2, 256, 1)), (long_rows, Tile(1, 32, 1))]


@pytest.mark.parametrize("by, tile", BOTH)
@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_again_is_the_same_bits(direction: str, by: ModuleType, tile: Tile, seed: int) -> None:
    problem = Softmax(direction=direction, rows=5, length=200, dtype="float32")  # type: ignore[arg-type]
    inputs = drawn(problem, seed)
    once, twice = ran(problem, inputs, tile, by), ran(problem, inputs, tile, by, times=2)
    assert torch.equal(once.result, twice.result)
    for before, after in zip(drawn(problem, seed), inputs, strict=True):
        assert torch.equal(before, after)  # inputs are not written


@pytest.mark.parametrize("by, tile", BOTH)
def test_rows_that_rise_fall_and_are_huge(by: ModuleType, tile: Tile) -> None:
    """The largest element comes first, last or in between, and no exponential overflows."""
    rising = torch.linspace(-200, 300, 200)
    x = torch.stack([rising, rising.flip(0), rising.sin() * 1e30, torch.full((200,), -1e30), rising * 1e-3])
    problem = Softmax(direction="forward", rows=5, length=200, dtype="float32")
    y = ran(problem, (x,), tile, by).result
    torch.testing.assert_close(y.double(), OPERATOR.reference(problem, x), rtol=3e-5, atol=1e-30)


@pytest.mark.parametrize("by, tile", BOTH)
def test_nan_and_infinity_spoil_what_they_spoil_in_torch(by: ModuleType, tile: Tile, seed: int) -> None:
    problem = Softmax(direction="forward", rows=9, length=200, dtype="float32")
    (x,) = drawn(problem, seed)
    x[0, 77], x[1, 77], x[2, 77] = math.nan, math.inf, -math.inf
    x[3], x[4] = -math.inf, math.nan
    x[5, :100] = -math.inf  # whole chunks of nothing, then numbers
    x[6, 40:] = -math.inf
    x[7, 10], x[7, 150] = math.nan, math.inf
    y = ran(problem, (x,), tile, by).result
    want = torch.softmax(x, 1)
    assert want.isnan().all(1).tolist() == [True, True, False, True, True, False, False, True, False]
    torch.testing.assert_close(y, want, equal_nan=True)

    problem = Softmax(direction="backward", rows=4, length=200, dtype="float32")
    y, dy = drawn(problem, seed)
    dy[1, 3], y[2, 5] = math.nan, math.nan
    dx = ran(problem, (y, dy), tile, by).result
    assert dx.isnan().all(1).tolist() == [False, True, True, False]
    assert dx.isnan().any(1).tolist() == [False, True, True, False]


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_beyond_two_to_the_31(direction: str, seed: int) -> None:
    """The last rows of 2^31 elements, into an otherwise untouched result."""
    length = 1000
    problem = Softmax(direction=direction, rows=(2**31 + 2**20) // length, length=length, dtype="float16")  # type: ignore[arg-type]
    count = 1 if direction == "forward" else 2
    inputs = tuple(torch.empty(problem.rows, length, dtype=torch.float16) for _ in range(count))
    result = torch.empty(problem.rows, length, dtype=torch.float16)
    few = problem.model_copy(update={"rows": (problem.rows - 1) % 4 + 1})
    for whole, part in zip(inputs, drawn(few, seed), strict=True):
        whole[-few.rows :] = part
    programs = math.ceil(problem.rows / 4)
    with repaired(), watched(), placed((programs - 1,), (programs,)):
        (whole_rows.forward if count == 1 else whole_rows.backward)[(1,)](
            *inputs, result, problem.rows, length, ALIGN=8, EVEN=False, ROWS=4, BLOCK=1024
        )
    last = tuple(one[-few.rows :] for one in inputs)
    assert relative_error(OPERATOR, few, last, (result[-few.rows :],)) <= tolerance(few, "triton")

    result[-1] = math.nan
    with repaired(), watched(), placed((problem.rows - 1,), (problem.rows,)):
        (long_rows.forward_long if count == 1 else long_rows.backward_long)[(1,)](
            *inputs, result, length, ALIGN=8, BLOCK=256
        )
    one = problem.model_copy(update={"rows": 1})
    last = tuple(each[-1:] for each in inputs)
    assert relative_error(OPERATOR, one, last, (result[-1:],)) <= tolerance(one, "triton")
