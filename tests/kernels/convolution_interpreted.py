"""Our convolution kernels, run by the repaired interpreter under the sanitizer."""

import itertools
import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from operator import itemgetter
from types import SimpleNamespace
from typing import NamedTuple, get_args
from unittest.mock import patch

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from bench.spec import Dtype, Launch
from bench.worker.check import outputs_of
from kernels.convolution import activation_gradient, forward, tiles, weight_gradient
from kernels.convolution.operator import OPERATOR
from kernels.convolution.problem import Axis, Convolution, Direction
from kernels.gemm.tiles import Tile
from kernels.layernorm.rows import Tile as RowTile
from kernels.linear import bias_gradient
from kernels.prepared import Prepared
from tests.drawing import covering, run_seed
from tests.kernels.interpreted import Case, Kernels, Ran, Tensors, check, ran
from tests.kernels.interpreter import repaired
from tests.kernels.problems import inputs_of, usual
from tests.kernels.sanitizer import Watch, placed, watched
from tests.kernels.tensors import uniform

DTYPES: tuple[Dtype, ...] = ("float16", "bfloat16", "tf32", "float32")
DIRECTIONS = get_args(Direction)
TILES = (Tile(32, 16, 16, 4, 2), Tile(16, 32, 32, 4, 2), Tile(64, 16, 64, 4, 3))
"""Smaller than those to be tuned, so that small problems have several of them."""
WINDOWS = ((1, 1), (3, 3), (5, 5), (7, 7), (1, 7), (7, 1), (2, 3))
PREPARE: dict[Direction, Callable[..., Prepared]] = {
    "forward": forward.prepare,
    "activation_gradient": activation_gradient.prepare,
    "weight_gradient": weight_gradient.prepare,
}


class By(NamedTuple):
    """A tile, and the pixels that each part of dw has at least, so that small problems have several."""

    tile: Tile
    least: int = 256

    def __str__(self) -> str:
        return f"{self.tile} {self.least}"


convolution = partial(usual, "convolution", c=5, h=11, w=9, k=19)


def cases() -> Iterator[Case]:
    """Every window at strides 1 to 4 and dilations 1, 2, 4, padded beyond half of it, and the examples.

    dw is computed in 1, a few, or more than 8 parts.
    """
    turn = itertools.cycle(itertools.product(DTYPES, TILES, (False, True), (8, 40, 256)))
    for (r, s), stride, dilation in itertools.product(WINDOWS, (1, 2, 3, 4), (1, 2, 4)):
        padding = (max(r, s) * dilation + 1) // 2 + (stride == 3)
        geometry = {"window_h": r, "window_w": s, "stride": stride, "dilation": dilation, "padding": padding}
        channels = {"c": (3, 16, 5, 8)[(r + stride) % 4], "k": (19, 16, 8)[dilation % 3]}
        for direction in DIRECTIONS:
            dtype, tile, bias, least = next(turn)
            given = {**geometry, **channels, "bias": bias and direction == "forward"}
            yield convolution(**given, direction=direction, dtype=dtype), By(tile, least)
    of_group = ((2, 8, 8), (3, 3, 5), (8, 1, 1), (5, 1, 2), (4, 16, 24))
    for (groups, of_c, of_k), direction, padding in itertools.product(of_group, DIRECTIONS, (0, 1)):
        dtype, tile, bias, least = next(turn)
        sizes = {"c": groups * of_c, "k": groups * of_k, "groups": groups, "padding": padding}
        given = {**sizes, "bias": bias and direction == "forward"}
        yield convolution(**given, direction=direction, dtype=dtype), By(tile, least)
    # Fewer rows than the stride has residues, and padding beyond a window, so that some windows meet nothing.
    for direction, sizes in itertools.product(DIRECTIONS, ({"h": 2, "stride": 4}, {"padding": 4})):
        yield convolution(**sizes, direction=direction), By(TILES[0], 8)
    for problem in OPERATOR.examples:
        if not problem.missing("triton", "cuda", (8, 0)) and not problem.refusal("triton"):
            kernel = problem.model_copy(update={"bias": problem.adds_bias})
            _, tile, _, least = next(turn)
            yield kernel, By(tile, max(least, 40))  # of many pixels: some ten parts


def arithmetic(problem: Convolution) -> tuple[int, int]:
    """What decides which of several taps a residue has: the common divisor and the inverse."""
    common = math.gcd(problem.stride, problem.dilation)
    if problem.window_h * problem.window_w == 1:
        return 0, 0
    return common, pow(problem.dilation // common, -1, problem.stride // common)


def parts(case: Case) -> tuple[int, bool]:
    """How parts of dw are added, not, once, or by eighths first; and whether there are several tiles."""
    problem, (tile, least) = case
    count = problem.n * problem.p * problem.q // least
    return (count > 1) + (count > 8), math.prod(weight_gradient.grid(problem, tile)[::2]) > 1


def anything(direction: Direction, chance: np.random.Generator) -> Convolution:
    """A possible problem."""
    while True:
        groups, *channels = (int(number) for number in chance.integers((1, 1, 1), (4, 20, 20)))
        names = "n", "h", "w", "window_h", "window_w", "stride", "dilation", "padding"
        drawn = chance.integers((1, 1, 1, 1, 1, 1, 1, 0), (4, 14, 14, 8, 8, 6, 5, 6))
        sizes = dict(zip(names, (int(size) for size in drawn), strict=True))
        with suppress(ValidationError):
            return convolution(
                **sizes, c=groups * channels[0], k=groups * channels[1], groups=groups, direction=direction,
                dtype=DTYPES[chance.integers(len(DTYPES))],
            )  # fmt: skip


def few() -> Iterator[Case]:
    """Every window, stride, dilation, number of groups, type and tile between them; all in a deep run.

    And a few shapes that nobody chose, and the largest and the smallest tile of either list of the tuner's.
    """
    yield from covering(
        list(cases()),
        "interpreted convolution",
        lambda case: (case[0].window_h, case[0].window_w),
        lambda case: (case[0].direction, case[0].stride),
        lambda case: case[0].dilation,
        lambda case: (case[0].direction, case[0].groups > 1, case[0].padding > 0),
        lambda case: (case[0].dtype, case[0].bias),
        lambda case: (case[0].direction, case[1].tile),
        lambda case: case[0].direction == "weight_gradient" and parts(case),
        lambda case: case[0].direction == "activation_gradient" and arithmetic(case[0]),
    )
    chance = np.random.default_rng(run_seed())
    for direction in DIRECTIONS * 3:
        yield anything(direction, chance), By(TILES[chance.integers(len(TILES))], 8)
    tuned = covering([*itertools.product(DIRECTIONS, DTYPES)], "tuned", itemgetter(0), itemgetter(1))
    for (direction, dtype), c in itertools.product(tuned, (3, 16)):
        k = 130 if direction == "forward" or c == 3 else 144
        problem = convolution(direction=direction, dtype=dtype, n=1, c=c, k=k, h=5, w=5)
        for tile in (tiles.candidates(problem)[0], tiles.candidates(problem)[-1]):
            yield problem, By(tile)


def parts_are_counted(problem: Convolution, tile: Tile, watch: Watch, dw: torch.Tensor) -> None:
    """Whole tiles of sums and the counters; of the sums `byte_moved` counts those of weights that exist."""
    count, number = weight_gradient.grid(problem, tile)[0] * problem.groups, problem.pixel_parts
    eighths = math.ceil(number / 8) if number > 8 else 0
    of_part = count * tile.m * tile.n * 4 if number > 1 else 0
    sums = of_part * (number + eighths)
    counters = count * (eighths + 1) if number > 1 else 0
    inputs_byte = sum(of_weights(problem, tile)) * problem.item_byte
    assert watch.loads.byte == inputs_byte + sums
    assert watch.stores.byte == dw.nbytes + sums + 4 * counters
    assert watch.stores.distinct_byte == dw.nbytes + of_part * number + 4 * counters  # no two programs share
    assert watch.atomics.byte == (4 * count * (number + eighths) if number > 1 else 0)
    assert watch.atomics.distinct_byte == 4 * counters
    exist = problem.w_byte // problem.item_byte
    assert problem.byte_again("triton") * count * tile.m * tile.n == sums * exist
    assert problem.moved_written("triton") == dw.nbytes + problem.byte_again("triton")


class TestConvolution(Kernels):
    operator = OPERATOR
    cases = tuple(few())

    def launch(self, problem: Convolution, inputs: Tensors, configuration: By) -> Launch:
        tile, least = configuration
        with patch("kernels.convolution.problem.LEAST_PIXELS", least):
            return PREPARE[problem.direction](problem, tile, *inputs).launch()

    def counted(self, problem: Convolution, configuration: By, inputs: Tensors, done: Ran) -> None:
        tile, least = configuration
        (written,), watch = done
        loaded = {"forward": of_forward, "activation_gradient": of_activation, "weight_gradient": of_weights}
        assert [watch.loads.within(tensor).byte for tensor in inputs[:2]] == [
            problem.item_byte * elements for elements in loaded[problem.direction](problem, tile)
        ]
        distinct = [watch.loads.within(tensor).distinct_byte for tensor in inputs]
        with patch("kernels.convolution.problem.LEAST_PIXELS", least):
            read = problem.byte_moved("triton") - 2 * problem.byte_again("triton") - written.nbytes
            if problem.direction == "weight_gradient":
                parts_are_counted(problem, tile, watch, written)
        if problem.direction != "weight_gradient":
            assert watch.atomics.byte == 0 and watch.stores.byte == written.nbytes
            assert watch.loads.distinct_byte == sum(distinct)
        if problem.direction == "activation_gradient":
            assert distinct == [problem.item_byte * elements for elements in met(problem)]
        else:
            assert sum(distinct) == read


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_nan_spreads_no_further_than_it_is_multiplied(direction: Direction, seed: int) -> None:
    problem = convolution(direction=direction, dtype="float32", stride=2, dilation=2, padding=3)
    first, second = inputs_of(problem, seed)
    image = second if direction == "weight_gradient" else first
    image[1, 2, 3, 3] = torch.nan
    (written,) = ran(PREPARE[direction](problem, TILES[0], first, second).launch()).outputs
    (wanted,) = outputs_of(OPERATOR.reference(problem, first, second))
    assert torch.equal(written.isnan(), wanted.isnan())
    assert 0 < int(written.isnan().sum()) < written.numel() / 2


FAR: dict[str, object] = {
    "n": 9,
    "c": 16,
    "h": 4096,
    "w": 4096,
    "k": 16,
    "stride": 32,
    "window_h": 1,
    "window_w": 1,
}
"""A batch of more than 2^31 elements, of which the last tile is computed; other pages are not touched."""


def far(direction: Direction) -> Convolution:
    problem = convolution(**FAR, direction=direction, dtype="float16")
    assert problem.x_byte > 2**32 and not problem.refusal("triton")
    return problem


def image(problem: Convolution, seed: int) -> tuple[torch.Tensor, torch.Tensor, int]:
    """x, its last pixel that a window meets, and that pixel's row."""
    x = torch.empty(problem.n, problem.h, problem.w, problem.c, dtype=torch.float16).permute(0, 3, 1, 2)
    x[-1] = 0
    row = (problem.p - 1) * 32 - 1
    last = uniform(problem, seed)(problem.c)
    x[-1, :, row, row] = last
    return x, last, row


def test_images_lie_beyond_32_bits(seed: int) -> None:
    problem = far("forward")
    x, last, _ = image(problem, seed)
    w = uniform(problem, seed)(problem.k, 1, 1, problem.c).permute(0, 3, 1, 2)
    ready = forward.prepare(problem, TILES[0], x, w)
    with repaired(), placed((ready.grid[0] - 1, 0), ready.grid), watched():
        ready.kernel[(1,)](**ready.arguments)
    got = ready.output[-1, :, -1, -1].double()
    torch.testing.assert_close(got, w[:, :, 0, 0].double() @ last.double(), rtol=2e-3, atol=2e-3)


def test_input_gradients_lie_beyond_32_bits(seed: int) -> None:
    """The last program: with a padding of 1 it has the residue whose pixels windows meet."""
    problem = far("activation_gradient")
    dy = uniform(problem, seed)(problem.n, problem.p, problem.q, problem.k).permute(0, 3, 1, 2)
    w = uniform(problem, seed + 1)(problem.k, 1, 1, problem.c).permute(0, 3, 1, 2)
    ready = activation_gradient.prepare(problem, TILES[0], dy, w)
    with repaired(), placed((ready.grid[0] - 1, 0), ready.grid), watched():
        ready.kernel[(1,)](**ready.arguments)
    got = ready.output[-1, :, -1, -1].double()
    wanted = dy[-1, :, -1, -1].double() @ w[:, :, 0, 0].double()
    torch.testing.assert_close(got, wanted, rtol=2e-3, atol=2e-3)


def test_weight_gradients_of_images_beyond_32_bits(seed: int) -> None:
    """The last part of the pixels, before it is added to the others."""
    problem = far("weight_gradient")
    x, last, row = image(problem, seed)
    dy = torch.zeros(problem.n, problem.p, problem.q, problem.k, dtype=torch.float16).permute(0, 3, 1, 2)
    point = (row + 1) // 32
    dy[-1, :, point, point] = uniform(problem, seed + 1)(problem.k)
    tile = TILES[0]
    ready = weight_gradient.prepare(problem, tile, dy, x)
    slots = ready.arguments["slots"].view(-1, tile.n, tile.m).fill_(torch.nan)
    with repaired(), placed((0, len(slots) - 1, 0), ready.grid), watched():
        ready.kernel[(1,)](**ready.arguments)
    wanted = dy[-1, :, point, point].float()[:, None] * last.float()[None, :]
    torch.testing.assert_close(slots[-1, : problem.k, : problem.c], wanted)
    assert slots[:-1].isnan().all()


def test_weights_and_bias_from_end_to_end(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """On a GPU of three multiprocessors, with one tile of each kernel, so that none is timed."""
    found = SimpleNamespace(major=8, minor=0, multi_processor_count=3)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: found)
    monkeypatch.setattr(tiles, "candidates", lambda problem: TILES[:1])
    monkeypatch.setattr(bias_gradient, "candidates", lambda dtype, columns: (RowTile(4, 16, 4, 2),))
    problem = convolution(direction="weight_gradient", dtype="bfloat16", bias=True)
    inputs = inputs_of(problem, seed)
    ready = OPERATOR.implementations["triton"](problem, *inputs)
    _, watch = check(OPERATOR, problem, inputs, ready)
    assert watch.loads.within(inputs[0]).distinct_byte == inputs[0].nbytes
    assert problem.byte_again("triton") == inputs[0].nbytes  # dy is read by two kernels
    assert ready.configuration == "32x16x16 w4 s2, db 4x16 w4 p2"


def test_every_type_is_here() -> None:
    implementation = Convolution.implementation("triton")
    assert set(DTYPES) == set(implementation.dtypes) <= set(get_args(Dtype))


# ---- what is loaded, by the formulas of the kernels' docstrings, counted point by point


def wrapped(counts: list[int], block: int) -> list[int]:
    """What the places of whole tiles hold: past the end they wrap around to the first."""
    return [counts[at % len(counts)] for at in range(-(-len(counts) // block) * block)]


def of_forward(problem: Convolution, tile: Tile) -> tuple[int, int]:
    """Elements of x and w that are loaded, by the formula of forward.py: of x every tap in the image."""
    meet = [
        [len([t for t in range(axis.window) if o in axis.meetings(t)[0]]) for o in range(axis.windows)]
        for axis in (problem.rows, problem.columns)
    ]
    pixels = wrapped([high * wide for high in meet[0] for wide in meet[1]] * problem.n, tile.m)
    tiles_n = -(-(problem.k // problem.groups) // tile.n)
    of_w = len(pixels) // tile.m * tiles_n * tile.n * problem.window_h * problem.window_w
    return sum(pixels) * tiles_n * problem.c, of_w * problem.c


def residues(axis: Axis) -> list[tuple[list[int], int]]:
    """Of each residue modulo the stride: the taps within dy that each point has, and the taps in all."""
    every = []
    for residue in range(min(axis.stride, axis.size)):
        points = range(residue, axis.size, axis.stride)
        taps = [
            tap
            for tap in range(axis.window)
            if (residue + axis.padding - tap * axis.dilation) % axis.stride == 0
        ]
        within = [
            sum(
                (i + axis.padding - tap * axis.dilation) // axis.stride in range(axis.windows) for tap in taps
            )
            for i in points
        ]
        every.append((within, len(taps)))
    return every


def of_activation(problem: Convolution, tile: Tile) -> tuple[int, int]:
    """Elements of dy and w that are loaded, by the formula of activation_gradient.py."""
    of_dy = of_w = 0
    tiles_n = -(-(problem.c // problem.groups) // tile.n)
    for (high, taps_h), (wide, taps_w) in itertools.product(
        residues(problem.rows), residues(problem.columns)
    ):
        pixels = wrapped([a * b for a in high for b in wide] * problem.n, tile.m)
        of_dy += sum(pixels) * tiles_n * problem.k
        of_w += len(pixels) // tile.m * tiles_n * tile.n * taps_h * taps_w * problem.k
    return of_dy, of_w


def met(problem: Convolution) -> tuple[int, int]:
    """Elements of dy whose window meets the image, and of w at taps that meet any pixel's residue.

    All of them, as `byte_moved` counts, unless padding is as large as the window, the stride is larger than
    the image, or the image fits between two taps of a dilated window.
    """
    axes = problem.rows, problem.columns
    windows = [len({o for t in range(axis.window) for o in axis.meetings(t)[0]}) for axis in axes]
    taps = [
        sum((t * axis.dilation - axis.padding) % axis.stride < axis.size for t in range(axis.window))
        for axis in axes
    ]
    if all(axis.padding < axis.extent and max(axis.stride, axis.dilation) <= axis.size for axis in axes):
        assert (windows, taps) == ([problem.p, problem.q], [problem.window_h, problem.window_w])
    of_w = math.prod(taps) * problem.k * problem.c // problem.groups
    return problem.n * math.prod(windows) * problem.k, of_w


def of_weights(problem: Convolution, tile: Tile) -> tuple[int, int]:
    """Elements of dy and x that are loaded, by the formula of weight_gradient.py."""
    meet = [
        [len(axis.meetings(t)[0]) for t in range(axis.window)] for axis in (problem.rows, problem.columns)
    ]
    of_group = problem.c // problem.groups
    pixels = [problem.n * high * wide for high in meet[0] for wide in meet[1] for _ in range(of_group)]
    columns = wrapped(pixels, tile.m)
    tiles_n = -(-(problem.k // problem.groups) // tile.n)
    of_dy = len(columns) // tile.m * tiles_n * tile.n * problem.n * problem.p * problem.q
    return of_dy * problem.groups, sum(columns) * tiles_n * problem.groups
