"""Layer normalization's kernels, run by the repaired interpreter under the sanitizer."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from bench.spec import Launch
from kernels.layernorm import (
    backward,
    backward_held,
    backward_long,
    forward,
    forward_held,
    forward_long,
    launch,
)
from kernels.layernorm.held import Held
from kernels.layernorm.operator import OPERATOR
from kernels.layernorm.problem import EPSILON, LayerNorm
from kernels.layernorm.tiles import Tile, alignment
from tests.drawing import covering
from tests.kernels.held_emulated import Emulated
from tests.kernels.interpreted import Tensors, check, check_again, check_far_end, ran
from tests.kernels.interpreter import repaired
from tests.kernels.sanitizer import placed, watched
from tests.kernels.tensors import relative_error, uniform, used

MULTIPROCESSORS = 3
Solve = Callable[[LayerNorm, Tensors, Any], Launch]


@pytest.fixture(autouse=True)
def emulated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels of Gluon run by the interpreter too."""
    monkeypatch.setattr(forward_held, "normalize_held", Emulated(forward_held.normalize_held))
    monkeypatch.setattr(backward_held, "gradient_held", Emulated(backward_held.gradient_held))


def chosen(problem: LayerNorm, inputs: Tensors, tile: Tile | Held) -> Launch:
    return launch.with_tile(problem, inputs, tile, MULTIPROCESSORS)


def long(problem: LayerNorm, inputs: Tensors, tile: Tile) -> Launch:
    """By the kernels for rows that no register file holds, whatever the length."""
    if problem.direction == "forward":
        return forward_long.launch(problem, inputs, tile)
    x, dy, weight, mean, rstd = inputs
    inputs = x, dy, weight, mean.float(), rstd.float()
    return backward_long.launch(problem, inputs, tile, MULTIPROCESSORS)


def drawn(problem: LayerNorm, seed: int) -> Tensors:
    return OPERATOR.inputs(problem, uniform(problem, seed))


def holds(problem: LayerNorm, tile: Tile | Held, seed: int, solve: Solve = chosen) -> None:
    """Right, in bounds, and every byte as the docstrings count them."""
    inputs = drawn(problem, seed)
    done = check(OPERATOR, problem, inputs, solve(problem, inputs, tile))
    assert done.byte == (*traffic(problem, tile, solve), 0)
    assert done.watch.stores.repeated == 0
    if problem.in_registers and solve is chosen:
        x = done.watch.loads.within(inputs[0])
        assert x.byte == x.distinct_byte == inputs[0].nbytes


def partial_byte(problem: LayerNorm, count: int) -> int:
    return 2 * count * problem.length * 4


def traffic(problem: LayerNorm, tile: Tile | Held, solve: Solve) -> tuple[int, int]:
    """Bytes loaded and stored, exactly: the least there is, and what the docstrings name beside it."""
    weight, data = problem.length * problem.item_byte, problem.elements * problem.item_byte
    if isinstance(tile, Held) and problem.direction == "backward":
        count = backward_held.count(problem, tile, MULTIPROCESSORS)
        beside = problem.rows * 2 * tile.blocks * 4 + partial_byte(problem, count)
        statistics = 8 * problem.rows * (tile.blocks - 1)
        return problem.byte_read + (count - 1) * weight + statistics + beside, problem.byte_written + beside
    if isinstance(tile, Held):
        told = 0 if tile.blocks == 1 else problem.rows * 3 * tile.blocks * 4
        # The first share's mean is loaded once more.
        first = 4 * problem.rows if told else 0
        loaded = problem.byte_read + (problem.rows - 1) * 2 * weight + told + first
        return loaded, problem.byte_written + told
    tiles = math.ceil(problem.rows / tile.rows)
    whole = problem.in_registers and solve is chosen
    if problem.direction == "forward":
        again = 0 if whole else data + problem.rows * tile.block * problem.item_byte
        programs = tiles if whole else problem.rows
        return problem.byte_read + again + (programs - 1) * 2 * weight, problem.byte_written
    if whole:
        count = min(MULTIPROCESSORS * tile.per_sm, tiles)
        partial = partial_byte(problem, count)
        return problem.byte_read + (count - 1) * weight + partial, problem.byte_written + partial
    count = backward_long.slices(problem, tile, MULTIPROCESSORS)
    blocks, partial = math.ceil(problem.length / tile.block), partial_byte(problem, count)
    statistics = 8 * problem.rows
    return (
        problem.byte_read
        + 2 * data
        + (problem.rows + count - 1) * weight
        + 2 * blocks * statistics
        + partial,
        problem.byte_written + statistics + partial,
    )


TRITON = [
    p
    for p in OPERATOR.examples
    if not LayerNorm.implementation("triton").missing(p.dtype, "cuda", (9, 0))
    and not (p.dtype != "bfloat16" and p.length > 1025)  # the interpreter is slow
]
LONG = [
    LayerNorm.model_validate({"direction": direction, "rows": rows, "length": length, "dtype": dtype})
    for direction in ("forward", "backward")
    for rows, length in ((1, 64), (7, 65), (23, 200), (10, 127), (3, 192))
    for dtype in ("bfloat16", "float32")
]


def few(problems: list[LayerNorm], of: str) -> list[LayerNorm]:
    """Every size, and every data type in either direction; all of them in a deep run."""
    return covering(problems, of, lambda p: (p.rows, p.length), lambda p: (p.direction, p.dtype))


@pytest.mark.parametrize("problem", few(TRITON, "interpreted layernorm"), ids=str)
def test_right_in_bounds_and_each_element_written_once(problem: LayerNorm, seed: int) -> None:
    tiles = launch.candidates(problem)
    holds(problem, tiles[0], seed)
    if problem.length < 1025:
        holds(problem, tiles[-1], seed)


@pytest.mark.parametrize("problem", few(LONG, "interpreted long rows of layernorm"), ids=str)
def test_long_rows_with_chunks_of_a_few_elements(problem: LayerNorm, seed: int) -> None:
    """On, one past and one short of chunks; more tiles of rows than slices."""
    holds(problem, Tile(1 if problem.direction == "forward" else 4, 64, 1), seed, long)


HELD = [
    (
        LayerNorm.model_validate({"direction": "forward", "rows": rows, "length": length, "dtype": dtype}),
        share,
    )
    for dtype in ("float16", "bfloat16", "float32")
    for rows, length, share in (
        (3, 192, Held(1, 3, 64, 1)),  # whole chunks
        (2, 136, Held(1, 3, 64, 1)),  # one vector in the last chunk
        (5, 64, Held(1, 1, 64, 1)),
        (3, 200, Held(2, 2, 64, 1)),  # a share that ends short, another that is empty behind it
        (2, 168, Held(4, 1, 64, 1)),
        (2, 120, Held(4, 1, 64, 1)),  # shares of nothing
        (1, 1024, Held(16, 1, 64, 1)),
        (2, 4104, Held(8, 9, 64, 1)),
    )
]


@pytest.mark.parametrize(
    ("problem", "share"),
    covering(HELD, "held layernorm", lambda case: (case[0].length, case[1]), lambda case: case[0].dtype),
    ids=str,
)
def test_rows_held_in_shared_memory_by_a_block_or_a_cluster(
    problem: LayerNorm, share: Held, seed: int
) -> None:
    holds(problem, share, seed)


def test_the_launch_takes_shared_memory_or_two_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    for length, first in ((8192, Tile), (8193, Tile), (8200, Held)):
        problem = LayerNorm(direction="backward", rows=1, length=length, dtype="float16")
        tiles = launch.candidates(problem)
        assert isinstance(tiles[0], first) and isinstance(tiles[-1], Tile)
    for length, first in ((16384, Tile), (16385, Tile), (16392, Held)):
        problem = LayerNorm(direction="forward", rows=1, length=length, dtype="float16")
        tiles = launch.candidates(problem)
        assert isinstance(tiles[0], first) and isinstance(tiles[-1], Tile)
        inputs = (torch.empty(1, length, dtype=torch.float16), *torch.empty(2, length, dtype=torch.float16))
        for tile in (tiles[0], tiles[-1]):
            by = forward_held if isinstance(tile, Held) else forward if length == 16384 else forward_long
            with monkeypatch.context() as patch:
                patch.setattr(by, "launch", lambda problem, *_: problem)
                assert launch.with_tile(problem, inputs, tile, MULTIPROCESSORS) is problem


CLUSTERS = [
    (
        LayerNorm.model_validate({"direction": "backward", "rows": rows, "length": length, "dtype": dtype}),
        share,
    )
    for dtype in ("float16", "bfloat16", "float32")
    for rows, length, share in (
        (1, 128, Held(2, 3, 64, 16)),  # fewer rows than are on their way
        (7, 120, Held(2, 3, 64, 8)),
        (40, 200, Held(4, 3, 64, 16)),  # 12 programs; the last share is short
        (97, 136, Held(4, 3, 64, 16)),  # the last share is empty
        (9, 1000, Held(16, 3, 64, 16)),
    )
]


@pytest.mark.parametrize(
    ("problem", "share"),
    covering(CLUSTERS, "gradient in a cluster", lambda case: case[1], lambda case: case[0].dtype),
    ids=str,
)
def test_gradient_in_a_cluster(problem: LayerNorm, share: Held, seed: int) -> None:
    holds(problem, share, seed)


def test_shares_of_a_gradient_hold_a_row() -> None:
    for length, blocks in ((8200, [2, 4]), (16384, [2, 4]), (65536, [8, 16]), (131072, [16]), (131080, [])):
        found = backward_held.candidates(
            LayerNorm(direction="backward", rows=1, length=length, dtype="float16")
        )
        assert [share.blocks for share in found] == blocks
        assert all(share.blocks * share.chunk >= length for share in found)


@pytest.mark.parametrize("rows", [1, 2, 5, 6, 7, 24, 25])
def test_every_share_of_the_rows(rows: int, seed: int) -> None:
    """Fewer, as many and more tiles than programs, ragged or not."""
    problem = LayerNorm(direction="backward", rows=rows, length=24, dtype="float32")
    holds(problem, Tile(2, 32, 1), seed)


@pytest.mark.parametrize("solve", [chosen, long])
@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_again_is_the_same_bits(direction: str, solve: Solve, seed: int) -> None:
    problem = LayerNorm(direction=direction, rows=9, length=100, dtype="float32")  # type: ignore[arg-type]
    tile = Tile(2, 128, 1) if solve is chosen else Tile(1, 32, 1)
    ready = solve(problem, drawn(problem, seed), tile)
    ran(ready)
    check_again(ready)


@pytest.mark.parametrize("first", [None, 0.0, 5000.0])
@pytest.mark.parametrize(
    "solve, tile",
    [
        (chosen, Tile(2, 1024, 1)),
        (long, Tile(1, 128, 1)),
        (chosen, Held(1, 4, 256, 1)),
        (chosen, Held(4, 4, 64, 1)),
    ],
)
def test_a_large_mean_costs_no_digits(
    solve: Solve, tile: Tile | Held, first: float | None, seed: int
) -> None:
    """Mean 1000, standard deviation 2, in float32; an outlier in front must not matter either."""
    problem = LayerNorm(direction="forward", rows=6, length=1000, dtype="float32")
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(6, 1000, generator=generator) * 2 + 1000
    if first is not None:
        x[:, 0] = first
    inputs = (x, *drawn(problem, seed)[1:])
    outputs = ran(solve(problem, inputs, tile)).outputs
    assert relative_error(OPERATOR, problem, inputs, outputs) < 6 * 2.0**-24


@pytest.mark.parametrize(
    "solve, tile", [(chosen, Tile(4, 256, 1)), (long, Tile(1, 64, 1)), (chosen, Held(2, 2, 64, 1))]
)
def test_nan_and_infinity_spoil_what_they_spoil_in_torch(solve: Solve, tile: Tile | Held, seed: int) -> None:
    forward_problem = LayerNorm(direction="forward", rows=6, length=200, dtype="float32")
    x, weight, bias = drawn(forward_problem, seed)
    for row, value in enumerate((math.nan, math.inf, -math.inf)):
        x[row, 77] = value
    y, mean, rstd = ran(solve(forward_problem, (x, weight, bias), tile)).outputs
    want = torch.native_layer_norm(x, [200], weight, bias, EPSILON)
    assert torch.equal(y.isnan(), want[0].isnan()) and bool(y[:3].isnan().all())
    assert bool(rstd[:3].isnan().all()) and bool(mean[0].isnan()) and bool(mean[3:].isfinite().all())

    problem = LayerNorm(direction="backward", rows=6, length=200, dtype="float32")
    x, dy, weight, mean, rstd = drawn(problem, seed)
    dy[1, 5], x[3, 7] = math.nan, math.nan
    tile = Tile(4, 256, 1) if solve is chosen else Tile(4, 64, 1)
    outputs = ran(solve(problem, (x, dy, weight, mean, rstd), tile)).outputs
    expected = OPERATOR.reference(problem, x, dy, weight, mean, rstd)
    for got, one in zip(outputs, expected, strict=True):
        assert torch.equal(got.isnan(), one.isnan())


FAR = 2**31 + 2**20
"""Elements: the last tiles start beyond 2^31."""


@pytest.mark.parametrize(
    "solve, tile",
    [(chosen, Tile(4, 1024, 1)), (long, Tile(1, 256, 1)), (chosen, Held(1, 4, 256, 1))],
)
def test_forward_beyond_two_to_the_31(solve: Solve, tile: Tile | Held, seed: int) -> None:
    problem = LayerNorm(direction="forward", rows=FAR // 1000 + 1, length=1000, dtype="float16")
    count = (problem.rows - 1) % tile.rows + 1 if isinstance(tile, Tile) else 1
    last = problem.model_copy(update={"rows": count})
    check_far_end(OPERATOR, problem, last, lambda inputs: solve(problem, inputs, tile), seed)


def test_backward_beyond_two_to_the_31(seed: int) -> None:
    """The last tile of 2^31 elements, and its partial sums, which lie beyond 2^31 as well."""
    length = 1000
    problem = LayerNorm(direction="backward", rows=FAR // length + 1, length=length, dtype="float16")
    x, dy, dx = (torch.empty(problem.rows, length, dtype=torch.float16) for _ in range(3))
    mean, rstd = (torch.empty(problem.rows, 1) for _ in range(2))
    few = problem.model_copy(update={"rows": 1})
    x[-1:], dy[-1:], weight, mean[-1:], rstd[-1:] = drawn(few, seed)
    inputs = (x[-1:], dy[-1:], weight, mean[-1:], rstd[-1:])
    partial = torch.empty(2, problem.rows, length)
    assert partial[1].data_ptr() - partial.data_ptr() > 2**31 * 4
    with repaired(), watched(), placed((problem.rows - 1,), (problem.rows,)):
        backward.gradient[(1,)](
            *(x, dy, weight, mean, rstd, dx, partial, problem.rows, length),
            **{"ALIGN": 8, "EVEN": False, "ROWS": 1, "BLOCK": 1024, "STAGES": 2},
        )
    found = (dx[-1:], partial[0, -1], partial[1, -1])
    assert used(OPERATOR, "triton", few, inputs, found) <= 1

    sums = torch.empty(2, problem.rows)
    dx[-1] = math.nan
    with repaired(), watched(), placed((problem.rows - 1,), (problem.rows,)):
        backward_long.row_sums[(1,)](*(x, dy, weight, mean, rstd, sums, length), **{"ALIGN": 8, "BLOCK": 256})
    # With a slice for every row, the first slice is the last row.
    columns = backward_long.columns
    grid = (math.ceil(length / 256), problem.rows)
    for block in range(grid[0]):
        with repaired(), watched(), placed((block, 0), grid):
            columns[(1,)](
                *(x, dy, weight, mean, rstd, sums, dx, partial, problem.rows, length),
                **{"ALIGN": 8, "ROWS": 1, "BLOCK": 256},
            )
    found = (dx[-1:], partial[0, 0], partial[1, 0])
    assert used(OPERATOR, "triton", few, inputs, found) <= 1


def test_partial_sums_beyond_two_to_the_31(seed: int) -> None:
    """dbias from partial sums that begin beyond 2^31 elements, all but the last rows zero."""
    length, count = 2**26, 33
    partial = torch.empty(2, count, length)
    generator = torch.Generator().manual_seed(seed)
    last = torch.rand(count, 32, generator=generator)
    partial[1, :, -32:] = last
    dweight, dbias = torch.empty(length, dtype=torch.float16), torch.empty(length, dtype=torch.float16)
    blocks = length // 32
    with repaired(), watched(), placed((blocks - 1, 1), (blocks, 2)):
        backward.add_partial_sums[(1,)](
            *(partial, dweight, dbias, count, length),
            **{"ALIGN": alignment(length, 4), "ROWS": 32, "BLOCK": 32},
        )
    torch.testing.assert_close(dbias[-32:], last.sum(0).half())
