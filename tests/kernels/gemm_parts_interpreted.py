"""The kernels that share out tiles, by the repaired interpreter under the sanitizer: right in any order.

The interpreter runs one program after the other, so a kernel that waits would hang, and any order of arrival
can be chosen.
"""

import itertools
import math
import random
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from gc import collect
from operator import itemgetter
from typing import Any, Literal
from unittest.mock import patch
from weakref import ref

import pytest
import torch
from triton.runtime.interpreter import InterpreterBuilder

from bench.spec import Dtype, Launch
from kernels.gemm import parts, skinny, split_k, stream_k
from kernels.gemm.operands import Operands, operands
from kernels.gemm.operator import OPERATOR, tolerance
from kernels.gemm.parts import FAN, Share, Workspace, sum_byte, workspace
from kernels.gemm.problem import SKINNY, Gemm, Layout
from kernels.gemm.stream_k import Streams
from kernels.gemm.tiles import Tile
from tests.drawing import covering, drawn
from tests.kernels.gemm_cases import KINDS, error
from tests.kernels.interpreter import repaired
from tests.kernels.sanitizer import Watch, watched
from tests.kernels.tensors import uniform

SMALL = Tile(32, 16, 32, warps=1, stages=1)
"""So few warps that parts are added by halves of the tile."""
SHORT = Tile(64, 16, 32, warps=4, stages=1)
"""Turned: its M is the matrix unit's."""
POISON = -77_777_777
"""Of integers, what NaN is of floats: more than any sum in these tests."""


@dataclass(frozen=True)
class Way:
    """A kernel in a configuration: parts for each tile, or programs."""

    kernel: str
    tile: Tile
    count: int

    def __str__(self) -> str:
        """For pytest: `split-k 32x16x32 w4 s1 3`."""
        return f"{self.kernel} {self.tile} {self.count}"

    def launch(self, of: Operands) -> Launch:
        """Without the rules that limit parts and programs, which are tested elsewhere."""
        if self.kernel == "split-k":
            return split_k.in_parts(of, Share(self.tile, 1), self.count).launch()
        streams = Streams(self.tile, 1, bulk=self.kernel == "stream-k-bulk")
        with patch.object(stream_k, "LEAST_STEPS", 1):
            return stream_k.prepare(of, streams, self.count).launch()


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

    with patch.object(torch, "empty", filled), patch.object(parts, "workspace", listed):
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


@contextmanager
def counted() -> Iterator[Counter[tuple[int, ...]]]:
    """While entered, steps along K are counted for each program."""
    steps: Counter[tuple[int, ...]] = Counter()
    dot = InterpreterBuilder.create_dot

    def counting(self: Any, *arguments: Any) -> Any:
        steps[self.grid_idx] += 1
        return dot(self, *arguments)

    with patch.object(InterpreterBuilder, "create_dot", counting):
        yield steps


def new_problem(problem: Gemm, seed: int) -> tuple[tuple[torch.Tensor, ...], Operands]:
    """Inputs, and the operands made of them, D new."""
    inputs = OPERATOR.inputs(problem, uniform(problem, seed))
    return inputs, operands(problem, *inputs)


@dataclass(frozen=True)
class Seen:
    """What one launch did."""

    watch: Watch
    steps: Counter[tuple[int, ...]]
    of: Operands
    room: Workspace

    @property
    def operand_byte(self) -> int:
        """Loaded from A and B, repeats included."""
        return self.watch.loads.within(self.of.a).byte + self.watch.loads.within(self.of.b).byte


def check(problem: Gemm, way: Way, seed: int) -> Seen:
    """One launch: D right, each element written once, nothing beside it; counters back at zero."""
    with repaired(), counted() as steps, poisoned() as rooms, watched() as watch:
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
    return Seen(watch, steps, of, room)


WAYS = (
    Way("split-k", SMALL, 1),
    Way("split-k", SMALL, 3),
    Way("split-k", SHORT, 2),
    Way("stream-k", SMALL, 5),
    Way("stream-k", SMALL, 13),
)


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
    # Parts: K no multiple of parts x BLOCK_K; more parts than steps; one step past a fan; two stages.
    (_with(333), Way("split-k", SMALL, 4)),
    (_with(95, layout="TN"), Way("split-k", SMALL, 7)),
    (_with(300, dtype="bfloat16"), Way("split-k", SMALL, FAN.value)),
    (_with(300, m=20, n=9), Way("split-k", SMALL, FAN.value + 1)),
    (_with(32 * 70 + 5, m=9, n=13, layout="TT"), Way("split-k", SMALL, 70)),
    (_with(32 * 17 + 3, m=70, n=3, dtype="bfloat16", beta=1), Way("split-k", SHORT, 2 * FAN.value)),
    # Tiles are 2 x 3: fewer than programs, a divisor, between, prime; each program a step or none.
    (_with(333), Way("stream-k", SMALL, 1)),
    (_with(333, layout="NT", dtype="bfloat16"), Way("stream-k", SMALL, 4)),
    (_with(333, layout="TT"), Way("stream-k", SMALL, 6)),
    (_with(333, beta=1, pitch="padded"), Way("stream-k", SMALL, 7)),
    (_with(320), Way("stream-k", SMALL, 59)),
    (_with(320), Way("stream-k", SMALL, 60)),
    (_with(20), Way("stream-k", SMALL, 61)),
    # One tile of many parts; several whole waves before the tail; a share that ends where a tile does.
    (_with(32 * 37, m=30, n=10, dtype="bfloat16"), Way("stream-k", SMALL, 31)),
    (_with(100, m=32 * 7, n=16 * 3), Way("stream-k", SMALL, 5)),
    (_with(32 * 8, m=32 * 3, n=16), Way("stream-k", SMALL, 2)),
]


BY_KERNEL = [[case for case in AWKWARD if case[1].kernel == kernel] for kernel in ("split-k", "stream-k")]
FEW = [case for cases in BY_KERNEL for case in drawn(cases, 2, f"steps of {cases[0][1].kernel}")]


@pytest.mark.parametrize("problem, way", FEW, ids=str)
def test_every_step_is_done_once(problem: Gemm, way: Way, seed: int) -> None:
    """Operands are read by pointer.py's formula, steps shared out evenly, parts written once."""
    tile = way.tile
    tiles = math.ceil(problem.m / tile.m) * math.ceil(problem.n / tile.n)
    all_steps = tiles * math.ceil(problem.k / tile.k)
    seen = check(problem, way, seed)

    assert seen.operand_byte == tiles * (tile.m + tile.n) * problem.k * problem.item_byte
    assert seen.steps.total() == all_steps
    if way.kernel == "stream-k" or all_steps // tiles >= way.count:
        busy = tiles * way.count if way.kernel == "split-k" else min(way.count, all_steps)
        assert len(seen.steps) == busy
        assert max(seen.steps.values()) - min(seen.steps.values()) <= 1
    stored = seen.watch.stores.within(seen.room.parts)
    if way.kernel == "stream-k":
        one = tile.m * tile.n * sum_byte(problem)
        assert stored.byte <= 2 * way.count * one * (1 + 1 / FAN.value)
    elif way.count > 1:
        whole = seen.room.parts.nbytes
        again = math.ceil(way.count / FAN.value) / way.count * whole if way.count > FAN.value else 0
        assert stored.byte == pytest.approx(whole + again)
    else:
        assert not stored.byte


@pytest.mark.parametrize(
    "problem, way", drawn([case for case in AWKWARD if 1 < case[1].count < 60], 2, "orders"), ids=str
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


BULK = [
    (_with(333, m=48, n=32, dtype="bfloat16", layout="TN", pitch="padded"), 4),
    (_with(336, m=48, n=40, dtype="float16", layout="NN"), 7),
    (_with(96, m=104, n=56, dtype="float16", layout="NT", beta=1), 3),
    (_with(328, m=40, n=40, dtype="bfloat16", layout="TT"), 13),
    (_with(332, m=44, n=36, dtype="tf32", layout="TN"), 5),
    (_with(336, m=48, n=33, dtype="int8", layout="TN"), 5),
    (_with(336, m=48, n=33, dtype="float8_e4m3", layout="TN"), 5),
]


@pytest.mark.parametrize("problem, programs", drawn(BULK, 1, "stream-k in bulk"), ids=str)
def test_stream_k_by_bulk_copies(problem: Gemm, programs: int, seed: int) -> None:
    """Right, with K ragged too; what lies beyond a tensor is not read."""
    check(problem, Way("stream-k-bulk", SMALL, programs), seed)


BIASED: list[tuple[str, int, Dtype]] = list(
    itertools.product(("split-k", "stream-k"), (1, 4), ("float16", "float8_e4m3", "int8"))
)


@pytest.mark.parametrize(
    "kernel, count, dtype", covering(BIASED, "bias of parts", *(itemgetter(place) for place in range(3)))
)
def test_a_bias_is_added_once(kernel: str, count: int, dtype: Dtype, seed: int) -> None:
    """A vector [m], to every row of D, whoever finishes the tile; scales first."""
    problem = _with(200, dtype=dtype)
    make = uniform(problem, seed)
    bias = make(problem.m, dtype=torch.int32) if dtype == "int8" else make(problem.m, dtype=torch.bfloat16)
    with repaired(), poisoned():
        inputs, of = new_problem(problem, seed)
        Way(kernel, SMALL, count).launch(replace(of, c=bias)).call()
    assert error(problem, inputs, of.d, bias) <= tolerance(problem, "triton")


SKINNY_TYPES: tuple[tuple[Layout, Dtype], ...] = (
    ("NN", "float16"),
    ("NT", "bfloat16"),
    ("TN", "tf32"),
    ("NN", "tf32"),
    ("TT", "float32"),
    ("TN", "float64"),
    ("TN", "float8_e4m3"),
    ("TN", "int8"),
)
SKINNY_SIZES: tuple[tuple[int, int, int, Literal[0, 1]], ...] = (
    (70, 1, 600, 0),
    (1, 70, 515, 0),
    (150, 17, 300, 1),
    (SKINNY, 200, 260, 0),
)
SKINNY_CASES = [
    Gemm(m=m, n=n, k=k, layout=layout, dtype=dtype, beta=beta)
    for m, n, k, beta in SKINNY_SIZES
    for layout, dtype in SKINNY_TYPES
    if not (beta and dtype in ("float8_e4m3", "int8"))
]


@pytest.mark.parametrize("problem", covering(SKINNY_CASES, "skinny", *KINDS), ids=str)
def test_skinny_reads_the_large_matrix_once(problem: Gemm, seed: int) -> None:
    """As the harness calls it, with the first configuration of a device of 6 multiprocessors."""
    share = skinny.candidates(problem, (9, 0), 6)[0]
    with repaired(), poisoned() as rooms, watched() as watch:
        inputs, of = new_problem(problem, seed)
        skinny.prepare(of, share, 6).launch().call()
    assert error(problem, inputs, of.d) <= tolerance(problem, "triton")
    assert watch.stores.within(of.d).repeated == 0
    assert not rooms[0].counters.any()

    m, n = problem.m, problem.n
    long, short = (of.a, of.b) if n <= m else (of.b, of.a)
    wide, high = (share.tile.m, share.tile.n) if n <= m else (share.tile.n, share.tile.m)
    tiles = math.ceil(max(m, n) / wide)
    assert min(m, n) <= high
    of_long, of_short = watch.loads.within(long), watch.loads.within(short)
    assert of_long.distinct_byte == long.numel() * long.element_size()
    assert of_long.byte == tiles * wide * problem.k * problem.item_byte  # a ragged last tile wraps
    assert of_short.byte == tiles * high * problem.k * problem.item_byte


@pytest.mark.parametrize("kernel", ["split-k", "stream-k"])
def test_launches_that_live_together_share_a_workspace(kernel: str, seed: int) -> None:
    """And still give what each gives alone. The launches alone keep it: it is gone with the last of them."""
    problem, way = _with(130, m=20, n=9), Way(kernel, SMALL, 4)
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
