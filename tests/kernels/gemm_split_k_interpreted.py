"""Split-K by the repaired interpreter under the sanitizer: right in any order.

The interpreter runs one program after the other, so a kernel that waits would hang, and any order of arrival
can be chosen.
"""

import itertools
import math
import random
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from gc import collect
from operator import itemgetter
from typing import Any
from unittest.mock import patch
from weakref import ref

import pytest
import torch
from triton.runtime.interpreter import InterpreterBuilder

from bench.spec import Dtype, Launch
from kernels.gemm import split_k
from kernels.gemm.operands import Operands, operands
from kernels.gemm.operator import OPERATOR, tolerance
from kernels.gemm.partial_sums import Workspace, workspace
from kernels.gemm.problem import Gemm
from kernels.gemm.tiles import Tile
from tests.drawing import covering, drawn
from tests.kernels.gemm_cases import KINDS, error
from tests.kernels.interpreter import repaired
from tests.kernels.sanitizer import watched
from tests.kernels.tensors import uniform

SMALL = Tile(32, 16, 32, warps=1, stages=1)
"""So few warps that parts are added by halves of the tile."""
SHORT = Tile(64, 16, 32, warps=4, stages=1)
POISON = -77_777_777
"""Of integers, what NaN is of floats: more than any sum in these tests."""


@dataclass(frozen=True)
class Way:
    """A tile, and parts for each."""

    tile: Tile
    count: int

    def __str__(self) -> str:
        """For pytest: `32x16x32 w4 s1 3`."""
        return f"{self.tile} {self.count}"

    def launch(self, of: Operands) -> Launch:
        """Without the rules that limit parts, which are tested elsewhere."""
        return split_k.in_parts(of, self.tile, self.count).launch()


@contextmanager
def poisoned() -> Iterator[list[Workspace]]:
    """While entered, new memory is full of NaN (or POISON); the workspaces of launches are listed."""
    empty, room = torch.empty, workspace
    found: list[Workspace] = []

    def filled(*shape: Any, **named: Any) -> torch.Tensor:
        tensor = empty(*shape, **named)
        if tensor.dtype.is_floating_point:
            return tensor.fill_(math.nan)
        return tensor.fill_(max(POISON, torch.iinfo(tensor.dtype).min))

    def listed(*arguments: Any, **named: Any) -> Workspace:
        found.append(room(*arguments, **named))
        return found[-1]

    with patch.object(torch, "empty", filled), patch.object(split_k, "workspace", listed):
        yield found


@contextmanager
def shuffled(seed: int) -> Iterator[None]:
    """While entered, the programs of a grid run in a random order."""
    chance = random.Random(seed)
    orders: dict[tuple[int, ...], list[tuple[int, int, int]]] = {}

    def set_index(self: Any, x: int, y: int, z: int) -> None:
        if (x, y, z) == (0, 0, 0):
            every = [(i, j, 0) for i in range(self.grid_dim[0]) for j in range(self.grid_dim[1])]
            orders[self.grid_dim] = chance.sample(every, len(every))
        self.grid_idx = orders[self.grid_dim][x * self.grid_dim[1] + y]

    with patch.object(InterpreterBuilder, "set_grid_idx", set_index):
        yield


def new_problem(problem: Gemm, seed: int) -> tuple[tuple[torch.Tensor, ...], Operands]:
    """Inputs, and the operands made of them, D new."""
    inputs = OPERATOR.inputs(problem, uniform(problem, seed))
    return inputs, operands(problem, *inputs)


def check(problem: Gemm, way: Way, seed: int) -> None:
    """One launch: D right, each element written once, nothing beside it; counters back at zero."""
    with repaired(), poisoned() as rooms, watched() as watch:
        inputs, of = new_problem(problem, seed)
        launch = way.launch(of)
        assert launch.call() is of.d is launch.outputs[0]
    assert error(problem, inputs, of.d) <= tolerance(problem, "triton")  # and so no NaN reached it
    written = watch.stores.within(of.d)
    assert written.byte == problem.byte_written and written.repeated == 0
    if of.d._base is not None:
        gaps = of.d._base[:, problem.m :]
        assert (gaps == POISON if problem.dtype == "int8" else gaps.isnan()).all()
    (room,) = rooms
    assert not room.counters.any()
    assert watch.stores.within(room.parts).byte == room.parts.nbytes


WAYS = (Way(SMALL, 1), Way(SMALL, 3), Way(SHORT, 2), Way(SMALL, 5), Way(SMALL, 13))


SINGLE = [p for p in OPERATOR.examples if not p.missing("triton-split-k", "cuda", (9, 0))]
EXAMPLES = [(problem, WAYS[i % len(WAYS)]) for i, problem in enumerate(SINGLE[::3])]


def of_problem(value: Callable[[Gemm], Hashable]) -> Callable[[tuple[Gemm, Way]], Hashable]:
    return lambda case: value(case[0])


@pytest.mark.parametrize(
    "problem, way", covering(EXAMPLES, "parts", *map(of_problem, KINDS), itemgetter(1)), ids=str
)
def test_right_at_the_examples(problem: Gemm, way: Way, seed: int) -> None:
    """Every third, so that all types meet all layouts, addends and pitches; the five ways take turns."""
    check(problem, way, seed)


def _with(k: int, *, m: int = 45, n: int = 33, dtype: Dtype = "float32", **more: Any) -> Gemm:
    return Gemm(m=m, n=n, k=k, dtype=dtype, **more)


AWKWARD = [
    # K no multiple of parts x BLOCK_K; more parts than steps; as many as are loaded together, and one more.
    (_with(333), Way(SMALL, 4)),
    (_with(95, layout="TN"), Way(SMALL, 7)),
    (_with(300, dtype="bfloat16"), Way(SMALL, 8)),
    (_with(300, m=20, n=9), Way(SMALL, 9)),
    (_with(32 * 70 + 5, m=9, n=13, layout="TT"), Way(SMALL, 70)),
    (_with(32 * 17 + 3, m=70, n=3, dtype="bfloat16", beta=1), Way(SHORT, 16)),
    (_with(333, layout="NT", beta=1, pitch="padded"), Way(SMALL, 6)),
]


@pytest.mark.parametrize("problem, way", drawn(AWKWARD, 3, "steps"), ids=str)
def test_right_at_awkward_parts(problem: Gemm, way: Way, seed: int) -> None:
    check(problem, way, seed)


@pytest.mark.parametrize(
    "problem, way", drawn([case for case in AWKWARD if case[1].count < 60], 1, "orders"), ids=str
)
def test_same_bits_whatever_the_order_of_programs(problem: Gemm, way: Way, seed: int) -> None:
    """By the same launch again, in two random orders."""
    with repaired(), poisoned() as rooms:
        _, of = new_problem(problem, seed)
        launch = way.launch(of)
        launch.call()
        first = of.d.clone()
        for order in (seed, seed + 1):
            of.d.fill_(math.nan)
            rooms[0].parts.fill_(math.nan)
            with shuffled(order):
                launch.call()
            assert torch.equal(of.d, first)
            assert not rooms[0].counters.any()


@pytest.mark.parametrize(
    "count, dtype",
    covering(
        list(itertools.product((1, 4), ("float16", "float8_e4m3", "int8"))),
        "bias of parts",
        *(itemgetter(place) for place in range(2)),
    ),
)
def test_a_bias_is_added_once(count: int, dtype: Dtype, seed: int) -> None:
    """A vector [m], to every row of D, whoever finishes the tile; scales first."""
    problem = _with(200, dtype=dtype)
    make = uniform(problem, seed)
    bias = make(problem.m, dtype=torch.int32) if dtype == "int8" else make(problem.m, dtype=torch.bfloat16)
    with repaired(), poisoned():
        inputs, of = new_problem(problem, seed)
        Way(SMALL, count).launch(replace(of, c=bias)).call()
    assert error(problem, inputs, of.d, bias) <= tolerance(problem, "triton")


def test_launches_that_live_together_share_a_workspace(seed: int) -> None:
    """And still give what each gives alone. The launches alone keep it: it is gone with the last of them."""
    problem, way = _with(130, m=20, n=9), Way(SMALL, 4)
    with repaired(), poisoned() as rooms:
        pairs = [new_problem(problem, seed + i) for i in range(2)]
        launches = [way.launch(pairs[0][1])]
        kept = [ref(tensor) for tensor in rooms.pop()]
        collect()
        launches.append(way.launch(pairs[1][1]))
        assert all(tensor is one() for tensor, one in zip(rooms.pop(), kept, strict=True))
        for call in [launch.call for launch in launches] * 2:
            call()
    for inputs, of in pairs:
        assert error(problem, inputs, of.d) <= tolerance(problem, "triton")
    del call, launches
    collect()
    assert [one() for one in kept] == [None, None]
