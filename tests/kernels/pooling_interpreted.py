"""Our pooling kernels, run by the repaired interpreter under the sanitizer."""

import itertools
import math
from functools import partial

import pytest
import torch

from bench.spec import Launch
from bench.worker.check import outputs_of
from kernels.pooling import launching
from kernels.pooling.launching import Shape, Strip, Tile
from kernels.pooling.operator import OPERATOR, codes, indices_of
from kernels.pooling.problem import Direction, Kind, Layout, Pooling
from tests.drawing import covering, drawn
from tests.kernels.interpreted import Case, Kernels, Ran, Tensors
from tests.kernels.interpreter import repaired
from tests.kernels.problems import inputs_of, usual
from tests.kernels.sanitizer import at_the_end, watched

pooling = partial(usual, "pooling")
LAYOUTS: tuple[Layout, ...] = ("NHWC", "NCHW")
DIRECTIONS: tuple[Direction, ...] = ("forward", "backward")


def launched(
    problem: Pooling, inputs: tuple[torch.Tensor, ...], as_codes: bool, shape: Shape | None = None
) -> Launch:
    """What `triton` or `triton-codes` would launch, in this shape or the first to be tried."""
    if as_codes and problem.direction == "backward":
        inputs = (inputs[0], codes(problem, inputs[1]))
    shape = shape or launching.candidates(problem)[0]
    return launching.launch(problem, *inputs, as_codes=as_codes, shape=shape)


def case(kind: str, direction: str, layout: str, **sizes: object) -> Pooling:
    """Five channels of float32; padding counts where there is a maximum."""
    of = {"kind": kind, "direction": direction, "layout": layout, "c": 5, "count_include_pad": kind == "max"}
    return pooling(**of | {"ceil_mode": True} | sizes)


def cases() -> list[tuple[Pooling, bool, Shape]]:
    """Half of the examples, as indices and codes in turn, over the tiles in turn; several blocks of lanes."""
    found: list[tuple[Pooling, bool, Shape]] = []
    for place, problem in enumerate(OPERATOR.examples):
        if (place + place // 8) % 2:
            continue
        tiles = launching.tiles(problem)
        found.append(
            (problem, problem.kind == "max" and place // 4 % 2 == 0, tiles[-1 - place % 3 % len(tiles)])
        )
    for layout, direction in itertools.product(LAYOUTS, ("forward", "backward")):
        # Nine in the window: loops in which nothing is unrolled. Six: forward a reduction of a whole image.
        for kind, window, padding, h, w in (
            ("max", 3, 1, 9, 6),
            ("max", 6, 0, 6, 6),
            ("average", 9, 4, 2, 5),
        ):
            sizes = {"n": 2 if window == 3 else 1, "h": h, "w": w, "window": window, "padding": padding}
            problem = case(kind, direction, layout, **sizes)
            found.append((problem, direction == "backward" and kind == "max", Tile(2, 4, 4, 4)))
        # A row by which nothing is unrolled, a column by which all is, and cells of two rows and one column.
        for kind, (window, window_w), (stride, stride_w), (padding, padding_w) in (
            ("max", (2, 9), (3, 2), (1, 4)),
            ("max", (7, 1), (2, 1), (3, 0)),
            ("average", (3, 2), (2, 1), (1, 0)),
        ):
            sizes = {"h": 11, "w": 13, "window": window, "window_w": window_w, "stride": stride}
            sizes |= {"stride_w": stride_w, "padding": padding, "padding_w": padding_w}
            problem = case(kind, direction, layout, **sizes)
            found.append((problem, layout == "NHWC" and kind == "max", Tile(2, 4, 4, 4)))
    return found


# (h, w, window, stride, padding, ceil_mode), pairs where the width's differ. Rows of 16 bytes and of 8, 4 and
# one point; ends of rows that fill no store; an output beyond the last strip of x; a row left over below; an
# overhang; windows as wide as a strip, as high as all it keeps, higher than the image.
STRIPS: list[tuple[int, int, int | tuple[int, int], int | tuple[int, int], int | tuple[int, int], bool]] = [
    (9, 16, 3, 1, 1, False),
    (11, 24, 3, 2, 1, False),
    (9, 16, 2, 2, 0, False),
    (7, 16, 5, 1, 2, False),
    (10, 28, 3, 1, 1, False),
    (6, 14, 3, 2, 1, False),
    (7, 7, 3, 1, 1, False),
    (9, 16, 3, 1, 0, False),
    (5, 8, 2, 1, 1, False),
    (12, 16, 3, 2, 1, True),
    (6, 8, 7, 1, 3, False),
    (4, 32, (1, 9), 1, (0, 4), False),
    (17, 8, (9, 1), 1, (4, 0), False),
    (12, 16, (3, 5), 2, (1, 2), True),
    (1, 8, 3, 1, 1, False),
    (9, 8, 4, 4, 0, True),
]


def strip_cases() -> list[tuple[Pooling, bool, Shape]]:
    """Each of those in the types in turn, as average, codes and indices, either way, over strips in turn."""
    found: list[tuple[Pooling, bool, Shape]] = []
    forms: list[tuple[Kind, Direction, bool]] = [
        (kind, direction, as_codes)
        for direction in DIRECTIONS
        for kind, as_codes in (("average", False), ("max", True), ("max", False))
    ]
    for place, (h, w, *windows, ceil_mode) in enumerate(STRIPS):
        pairs = [size if isinstance(size, tuple) else (size, size) for size in windows]
        for turn, (kind, direction, as_codes) in enumerate(forms):
            names = ("window", "window_w", "stride", "stride_w", "padding", "padding_w")
            sizes = dict(zip(names, itertools.chain(*pairs), strict=True)) | {"h": h, "w": w}
            sizes |= dict(zip("nc", ((2, 3), (1, 5), (3, 17))[(place + turn) % 3], strict=True))
            dtype = ("float16", "bfloat16", "float32")[(place + turn + place // 3) % 3]
            counted = kind == "max" or place % 2 == 0
            more = {"dtype": dtype, "ceil_mode": ceil_mode, "count_include_pad": counted}
            problem = case(kind, direction, "NCHW", **sizes, **more)
            if strips := launching.strips(problem):
                found.append((problem, as_codes, strips[(place + turn) % len(strips)]))
    return found


def few(as_codes: bool) -> list[Case]:
    """Every kernel in either layout, every window on its image, every type, of tiles and of strips."""
    return [
        (case[0], case[2])
        for name, every in (("pooling", cases()), ("strips", strip_cases()))
        for case in covering(
            every,
            f"interpreted {name}",
            lambda case: (case[0].kind, case[0].direction, case[0].layout, case[1]),
            lambda case: (case[0].down, case[0].across),
            lambda case: case[0].dtype,
        )
        if case[1] == as_codes
    ]


def visits(problem: Pooling) -> int:
    """Loads of a window's dy by `gather_cells`: every cell visits the windows that exist of its few."""
    total = problem.n * problem.c
    for axis in (problem.down, problem.across):
        cells = math.ceil((axis.size + axis.padding) / axis.stride)
        total *= sum(0 <= cell - i < axis.windows for cell in range(cells) for i in range(axis.overlap))
    return total


def taps(problem: Pooling) -> int:
    """Loads that visiting every tap of every window takes, padding left out."""
    return problem.n * problem.c * sum(problem.down.taps) * sum(problem.across.taps)


def loads(problem: Pooling, shape: Shape) -> int:
    """Loads of elements of x forward, of dy backward, that our kernel makes of this problem in this shape."""
    if isinstance(shape, Strip):
        rows, columns = strip_points(problem, shape)
        return problem.n * problem.c * len(rows) * len(columns)
    return visits(problem) if launching.has_cells(problem) else taps(problem)


def strip_points(problem: Pooling, strip: Strip) -> tuple[list[int], list[int]]:
    """The rows and the columns of a plane of x, or of dy, that its strips load, as often as they do."""
    down, across = problem.down, problem.across
    rows, columns = [], []
    if problem.direction == "forward":
        end = min(down.size, (down.windows - 1) * down.stride - down.padding + down.window)
        for output in range(0, down.windows, strip.rows):
            top = output * down.stride - down.padding
            rows += list(range(max(top, 0), min(top + (strip.rows - 1) * down.stride + down.window, end)))
        beside = across.padding, max(0, across.window - across.stride - across.padding)
        starts = range(0, across.windows * across.stride, strip.columns)
        size = across.size
    else:
        # Every window that holds a point of the strip, or would if there were no end.
        for row in range(0, down.size, strip.rows):
            first = (row + down.padding - down.window) // down.stride + 1
            last = (row + strip.rows - 1 + down.padding) // down.stride
            rows += list(range(max(first, 0), min(last + 1, down.windows)))
        last_of = strip.columns * across.stride - 1 + across.padding
        beside = (across.window - 1 - across.padding) // across.stride, last_of // across.stride + 1
        beside = beside[0], beside[1] - strip.columns
        starts = range(0, -(-across.size // across.stride), strip.columns)
        size = across.windows
    left, right = (1 << (reach - 1).bit_length() if reach else 0 for reach in beside)
    for start in starts:
        columns += list(range(max(start - left, 0), min(start + strip.columns + right, size)))
    return rows, columns


class TestIndices(Kernels):
    operator = OPERATOR
    cases = few(as_codes=False)

    def launch(self, problem: Pooling, inputs: Tensors, configuration: Shape) -> Launch:
        return launched(problem, inputs, self.way == "triton-codes", configuration)

    def counted(self, problem: Pooling, configuration: Shape, inputs: Tensors, done: Ran) -> None:
        stored = sum(one.nbytes for one in done.outputs)
        place = 0
        if problem.kind == "max" and problem.direction == "backward":
            place = 1 if self.way == "triton-codes" else 8
        assert done.byte == (loads(problem, configuration) * (problem.item_byte + place), stored, 0)
        moved = problem.byte_moved(self.way)
        # Wide loads bring columns that no window holds.
        if isinstance(configuration, Strip) and problem.direction == "forward":
            rows, columns = (set(along) for along in strip_points(problem, configuration))
            unread = len(rows) * (len(columns) - problem.across.read)
            moved += problem.n * problem.c * unread * problem.item_byte
        assert done.watch.loads.distinct_byte + stored == moved


class TestCodes(TestIndices):
    way = "triton-codes"
    cases = few(as_codes=True)


@pytest.mark.parametrize(("problem", "as_codes", "shape"), drawn(strip_cases(), 4, "strips"), ids=str)
def test_strips_write_what_tiles_write(problem: Pooling, as_codes: bool, shape: Shape, seed: int) -> None:
    """Of a maximum bit for bit: its place, NaN, infinities and the sign of zero."""
    x, *places = inputs_of(problem, seed)
    x = (x * 1.5).round()
    chance = torch.rand(x.shape)
    x[chance < 0.04], x[chance > 0.96], x[(chance > 0.5) & (chance < 0.8)] = math.nan, math.inf, -math.inf
    with repaired():
        got, want = (
            [one.clone() for one in outputs_of(launched(problem, (x, *places), as_codes, each).call())]
            for each in (shape, launching.tiles(problem)[0])
        )
    if problem.kind == "average":
        torch.testing.assert_close(got, want, equal_nan=True)
        return
    assert got[0].isnan().any() or x.numel() < 200
    torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)
    assert torch.equal(got[0].signbit() & ~got[0].isnan(), want[0].signbit() & ~want[0].isnan())


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("h", "w", "window", "padding"), [(5, 9, 3, 1), (5, 16, 3, 1), (7, 7, 7, 0)])
@pytest.mark.parametrize("as_codes", [False, True])
def test_ties_nan_and_infinities_as_pytorch(
    layout: Layout, h: int, w: int, window: int, padding: int, as_codes: bool, seed: int
) -> None:
    """Bit for bit, the indices too: few different values, several NaN, whole windows of minus infinity."""
    problem = pooling(n=4, c=8, h=h, w=w, window=window, padding=padding, layout=layout)
    (x,) = inputs_of(problem, seed)
    x = (x * 1.5).round()
    x[0] = -math.inf
    chance = torch.rand(x[1:3].shape, generator=torch.Generator().manual_seed(seed))
    x[1:3] = torch.where(chance < 0.05, math.nan, x[1:3])
    x[2:3] = torch.where(chance[1:] > 0.8, math.inf, x[2:3])
    launch = launched(problem, (x,), as_codes)
    with repaired():
        y, places = outputs_of(launch.call())
    want, indices = torch.nn.functional.max_pool2d(x, window, 2, padding, return_indices=True)
    torch.testing.assert_close(y, want, rtol=0, atol=0, equal_nan=True)
    assert torch.equal(indices_of(problem, places) if as_codes else places, indices)


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
    problem = case(kind, direction, layout, h=9, w=w, ceil_mode=False)
    first, *rest = inputs_of(problem, seed)
    chance = torch.rand(first.shape, generator=torch.Generator().manual_seed(seed))
    first[chance < 0.05], first[chance > 0.95] = math.nan, math.inf
    first[0, 0, 1, 1], first[1, 4, 0, 0] = math.nan, math.inf
    inputs = (first, *rest)
    with repaired():
        (got,) = outputs_of(launched(problem, inputs, False).call())
    (want,) = outputs_of(OPERATOR.implementations["aten"](problem, *inputs).call())
    assert want.isnan().any() and want.isinf().any() and want.isfinite().any()
    torch.testing.assert_close(got, want, equal_nan=True)


FAR: list[tuple[Kind, Direction, int, int, Layout, bool]] = [
    (kind, direction, window, size, layout, False)
    for kind, direction, window, size in (
        ("max", "forward", 3, 16),
        ("max", "backward", 3, 16),
        ("average", "backward", 2, 16),
        ("max", "forward", 7, 7),
    )
    for layout in LAYOUTS
] + [("max", "forward", 3, 16, "NCHW", True)]
"""The last says whether it is by strips."""


@pytest.mark.parametrize(
    ("kind", "direction", "window", "size", "layout", "by_strips"),
    covering(FAR, "pooling beyond 32 bits", lambda case: (*case[:4], case[5]), lambda case: case[4]),
)
def test_the_far_end_beyond_32_bits(
    kind: Kind, direction: Direction, window: int, size: int, layout: Layout, by_strips: bool, seed: int
) -> None:
    """The last program of tensors of more than 2^31 elements: its offsets need 64 bits."""
    c = 32
    n = 2**31 // (c * size * size) + 3
    of = {"kind": kind, "direction": direction, "layout": layout, "dtype": "float16", "stride": 1}
    padding = window // 2 if size > window else 0
    problem = pooling(**of, n=n, c=c, h=size, w=size, window=window, padding=padding)
    assert problem.input_elements > 2**31
    last = problem.model_copy(update={"n": 1})
    some = inputs_of(last, seed)
    if kind == "max" and direction == "backward":
        some = (some[0], codes(last, some[1]))
    order = torch.channels_last if layout == "NHWC" else torch.contiguous_format
    inputs = []
    for one in some:
        large = torch.empty((n, *one.shape[1:]), dtype=one.dtype, memory_format=order)  # pages not touched
        large[-1:] = one
        inputs.append(large)

    shape = launching.strips(problem)[0] if by_strips else Tile(4, 8, 16, 4)
    with repaired(), watched() as watch, at_the_end(1):
        outputs = outputs_of(launching.launch(problem, *inputs, as_codes=True, shape=shape).call())
    with repaired():
        want = outputs_of(launching.launch(last, *some, as_codes=True, shape=shape).call())
    for large, small in zip(outputs, want, strict=True):
        written = watch.stores.within(large).addresses
        offsets = torch.cat([torch.from_numpy(one.astype("int64")) for one in written]) - large.data_ptr()
        at = offsets // large.element_size()
        assert at.max() == large.numel() - 1
        rest = at - (large.numel() - small.numel())
        flat = [one.permute(0, 2, 3, 1) if layout == "NHWC" else one for one in (large, small)]
        assert (rest >= 0).all()
        assert torch.equal(flat[0].reshape(-1)[at], flat[1].reshape(-1)[rest])
