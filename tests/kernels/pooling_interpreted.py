"""Our pooling kernels, run by the repaired interpreter under the sanitizer."""

import itertools
import math
from functools import partial

import pytest
import torch

from bench.spec import Launch
from bench.worker.check import outputs_of
from kernels.pooling import launching
from kernels.pooling.launching import Tile
from kernels.pooling.operator import OPERATOR
from kernels.pooling.problem import Direction, Kind, Layout, Pooling
from tests.drawing import covering
from tests.kernels.interpreted import Case, Kernels, Ran, Tensors
from tests.kernels.interpreter import repaired
from tests.kernels.problems import inputs_of, usual
from tests.kernels.sanitizer import at_the_end, watched

pooling = partial(usual, "pooling")
LAYOUTS: tuple[Layout, ...] = ("NHWC", "NCHW")


def launched(problem: Pooling, inputs: tuple[torch.Tensor, ...], tile: Tile | None = None) -> Launch:
    """What `triton` would launch, in this tile or the first to be tried."""
    return launching.launch(problem, *inputs, tile=tile or launching.candidates(problem)[0])


def case(kind: str, direction: str, layout: str, **sizes: object) -> Pooling:
    """Five channels of float32."""
    return pooling(**{"kind": kind, "direction": direction, "layout": layout, "c": 5} | sizes)


def cases() -> list[tuple[Pooling, Tile]]:
    """Half of the examples, over the tiles in turn; several blocks of lanes."""
    found: list[tuple[Pooling, Tile]] = []
    for place, problem in enumerate(OPERATOR.examples):
        if (place + place // 8) % 2:
            continue
        tiles = launching.candidates(problem)
        found.append((problem, tiles[-1 - place % 3 % len(tiles)]))
    for layout, direction in itertools.product(LAYOUTS, ("forward", "backward")):
        # Nine in the window: loops in which nothing is unrolled. Six: a whole image.
        for kind, window, padding, h, w in (
            ("max", 3, 1, 9, 6),
            ("max", 6, 0, 6, 6),
            ("average", 9, 4, 2, 5),
        ):
            sizes = {"n": 2 if window == 3 else 1, "h": h, "w": w, "window": window, "padding": padding}
            found.append((case(kind, direction, layout, **sizes), Tile(2, 4, 4, 4)))
        # A row by which nothing is unrolled, a column by which all is.
        for kind, (window, window_w), (stride, stride_w), (padding, padding_w) in (
            ("max", (2, 9), (3, 2), (1, 4)),
            ("max", (7, 1), (2, 1), (3, 0)),
            ("average", (3, 2), (2, 1), (1, 0)),
        ):
            sizes = {"n": 1, "h": 11, "w": 13, "window": window, "window_w": window_w, "stride": stride}
            sizes |= {"stride_w": stride_w, "padding": padding, "padding_w": padding_w}
            found.append((case(kind, direction, layout, **sizes), Tile(2, 4, 4, 4)))
    return found


def taps(problem: Pooling) -> int:
    """Loads that visiting every tap of every window takes, padding left out."""
    return problem.n * problem.c * sum(problem.down.taps) * sum(problem.across.taps)


class TestPooling(Kernels):
    operator = OPERATOR
    cases: tuple[Case, ...] = tuple(
        covering(
            cases(),
            "interpreted pooling",
            lambda case: (case[0].kind, case[0].direction, case[0].layout),
            lambda case: (case[0].down, case[0].across),
            lambda case: case[0].dtype,
        )
    )

    def launch(self, problem: Pooling, inputs: Tensors, configuration: Tile) -> Launch:
        return launched(problem, inputs, configuration)

    def counted(self, problem: Pooling, configuration: Tile, inputs: Tensors, done: Ran) -> None:
        stored = sum(one.nbytes for one in done.outputs)
        place = 8 if problem.kind == "max" and problem.direction == "backward" else 0
        assert done.byte == (taps(problem) * (problem.item_byte + place), stored, 0)
        assert done.watch.loads.distinct_byte + stored == problem.byte_moved("triton")


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("h", "w", "window", "padding"), [(5, 9, 3, 1), (5, 16, 3, 1), (7, 7, 7, 0)])
def test_ties_nan_and_infinities_as_pytorch(
    layout: Layout, h: int, w: int, window: int, padding: int, seed: int
) -> None:
    """Bit for bit, the indices too: few different values, several NaN, whole windows of minus infinity."""
    problem = pooling(n=4, c=8, h=h, w=w, window=window, padding=padding, layout=layout)
    (x,) = inputs_of(problem, seed)
    x = (x * 1.5).round()
    x[0] = -math.inf
    chance = torch.rand(x[1:3].shape, generator=torch.Generator().manual_seed(seed))
    x[1:3] = torch.where(chance < 0.05, math.nan, x[1:3])
    x[2:3] = torch.where(chance[1:] > 0.8, math.inf, x[2:3])
    launch = launched(problem, (x,))
    with repaired():
        y, places = outputs_of(launch.call())
    want, indices = torch.nn.functional.max_pool2d(x, window, 2, padding, return_indices=True)
    torch.testing.assert_close(y, want, rtol=0, atol=0, equal_nan=True)
    assert torch.equal(places, indices)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("kind", "direction", "w"),
    [
        ("average", "forward", 7),
        ("average", "forward", 8),
        ("average", "backward", 7),
        ("max", "backward", 7),
    ],
)
def test_nan_and_infinity_spread_no_further_than_in_pytorch(
    layout: Layout, kind: Kind, direction: Direction, w: int, seed: int
) -> None:
    """Into the averages of their windows, and back into the points that those came from."""
    problem = case(kind, direction, layout, h=9, w=w)
    first, *rest = inputs_of(problem, seed)
    chance = torch.rand(first.shape, generator=torch.Generator().manual_seed(seed))
    first[chance < 0.05], first[chance > 0.95] = math.nan, math.inf
    first[0, 0, 1, 1], first[1, 4, 0, 0] = math.nan, math.inf
    inputs = (first, *rest)
    with repaired():
        (got,) = outputs_of(launched(problem, inputs).call())
    (want,) = outputs_of(OPERATOR.implementations["aten"](problem, *inputs).call())
    assert want.isnan().any() and want.isinf().any() and want.isfinite().any()
    torch.testing.assert_close(got, want, equal_nan=True)


FAR: list[tuple[Kind, Direction, int, int, Layout]] = [
    (kind, direction, window, size, layout)
    for kind, direction, window, size in (
        ("max", "forward", 3, 16),
        ("max", "backward", 3, 16),
        ("average", "backward", 2, 16),
    )
    for layout in LAYOUTS
]


@pytest.mark.parametrize(
    ("kind", "direction", "window", "size", "layout"),
    covering(FAR, "pooling beyond 32 bits", lambda case: case[:4], lambda case: case[4]),
)
def test_the_far_end_beyond_32_bits(
    kind: Kind, direction: Direction, window: int, size: int, layout: Layout, seed: int
) -> None:
    """The last program of tensors of more than 2^31 elements: its offsets need 64 bits."""
    c = 32
    n = 2**31 // (c * size * size) + 3
    of = {"kind": kind, "direction": direction, "layout": layout, "dtype": "float16", "stride": 1}
    problem = pooling(**of, n=n, c=c, h=size, w=size, window=window, padding=window // 2)
    assert problem.input_elements > 2**31
    last = problem.model_copy(update={"n": 1})
    some = inputs_of(last, seed)
    order = torch.channels_last if layout == "NHWC" else torch.contiguous_format
    inputs = []
    for one in some:
        large = torch.empty((n, *one.shape[1:]), dtype=one.dtype, memory_format=order)  # pages not touched
        large[-1:] = one
        inputs.append(large)

    tile = Tile(4, 8, 16, 4)
    with repaired(), watched() as watch, at_the_end(1):
        outputs = outputs_of(launching.launch(problem, *inputs, tile=tile).call())
    with repaired():
        want = outputs_of(launching.launch(last, *some, tile=tile).call())
    for large, small in zip(outputs, want, strict=True):
        written = watch.stores.within(large).addresses
        offsets = torch.cat([torch.from_numpy(one.astype("int64")) for one in written]) - large.data_ptr()
        at = offsets // large.element_size()
        assert at.max() == large.numel() - 1
        rest = at - (large.numel() - small.numel())
        flat = [one.permute(0, 2, 3, 1) if layout == "NHWC" else one for one in (large, small)]
        assert (rest >= 0).all()
        assert torch.equal(flat[0].reshape(-1)[at], flat[1].reshape(-1)[rest])
