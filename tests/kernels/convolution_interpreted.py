"""Our convolution kernel, run by the repaired interpreter under the sanitizer: right, in bounds, each once.

Needs its own process, because interpreting and compiling exclude each other:

    TRITON_INTERPRET=1 python -m pytest tests/kernels/convolution_interpreted.py

test_gemm_kernels.py starts it; its name keeps it out of an ordinary run.
"""

import itertools
from collections.abc import Iterator
from typing import get_args

import pytest
import torch

from bench.spec import Dtype
from bench.worker.check import outputs_of, poison
from kernels.convolution import forward
from kernels.convolution.forward import Tile
from kernels.convolution.operator import OPERATOR
from kernels.convolution.problem import Convolution
from kernels.convolution.rounding import tolerance
from tests.drawing import covering
from tests.kernels.interpreter import repaired
from tests.kernels.sanitizer import placed, watched
from tests.kernels.tensors import relative_error, uniform

DTYPES: tuple[Dtype, ...] = ("float16", "bfloat16", "tf32", "float32")
TILES = (Tile(32, 16, 16, 4, 2), Tile(16, 32, 32, 4, 2), Tile(64, 16, 64, 4, 3))
"""Smaller than those to be tuned, so that small problems have several of them."""
WINDOWS = ((1, 1), (3, 3), (5, 5), (7, 7), (1, 7), (7, 1), (2, 3))


def convolution(**given: object) -> Convolution:
    usual: dict[str, object] = {
        **{"direction": "forward", "n": 2, "c": 5, "h": 11, "w": 9, "k": 19, "window_h": 3, "window_w": 3},
        **{"padding": 1, "layout": "NHWC", "dtype": "float32"},
    }
    return Convolution.model_validate(usual | given)


def cases() -> Iterator[tuple[Convolution, Tile]]:
    """Every window at strides 1 to 4 and dilations 1, 2, 4, padded beyond half of it, and the examples."""
    turn = itertools.cycle(itertools.product(DTYPES, TILES, (False, True)))
    for (r, s), stride, dilation in itertools.product(WINDOWS, (1, 2, 3, 4), (1, 2, 4)):
        dtype, tile, bias = next(turn)
        padding = (max(r, s) * dilation + 1) // 2 + (stride == 3)
        geometry = {"window_h": r, "window_w": s, "stride": stride, "dilation": dilation, "padding": padding}
        channels = {"c": (3, 16, 5, 8)[(r + stride) % 4], "k": (19, 16, 8)[dilation % 3]}
        yield convolution(**geometry, **channels, dtype=dtype, bias=bias), tile
    for groups, of_c, of_k in ((2, 8, 8), (3, 3, 5), (8, 1, 1), (5, 1, 2), (4, 16, 24)):
        for padding in (0, 1):
            dtype, tile, bias = next(turn)
            sizes = {"c": groups * of_c, "k": groups * of_k, "groups": groups, "padding": padding}
            yield convolution(**sizes, dtype=dtype, bias=bias), tile
    for problem in OPERATOR.examples:
        if not problem.missing("triton", "cuda", (8, 0)):
            yield problem, next(turn)[1]


def few() -> list[tuple[Convolution, Tile]]:
    """Every window, stride, dilation, number of groups, type and tile between them; all in a deep run."""
    return covering(
        list(cases()),
        "interpreted convolution",
        lambda case: (case[0].window_h, case[0].window_w),
        lambda case: (case[0].stride, case[0].dilation),
        lambda case: (case[0].groups > 1, case[0].padding > 0),
        lambda case: (case[0].dtype, case[0].bias),
        lambda case: case[1],
    )


def loaded(problem: Convolution, tile: Tile) -> int:
    """Elements of x and w that are loaded, by the formula of forward.py: of x every tap in the image.

    A ragged tile's missing pixels wrap around to the first ones.
    """
    taps = [
        [len([t for t in range(axis.window) if o in axis.meetings(t)[0]]) for o in range(axis.windows)]
        for axis in (problem.rows, problem.columns)
    ]
    pixels = [high * wide for high in taps[0] for wide in taps[1]] * problem.n
    of_group, k = problem.c // problem.groups, problem.k // problem.groups
    tiles_m, tiles_n = -(-len(pixels) // tile.m), -(-k // tile.n)
    of_x = sum(pixels[at % len(pixels)] for at in range(tiles_m * tile.m)) * of_group * tiles_n
    of_w = tiles_m * tiles_n * tile.n * problem.window_h * problem.window_w * of_group
    return (of_x + of_w) * problem.groups


@pytest.mark.parametrize(("problem", "tile"), few(), ids=str)
def test_right_in_bounds_and_each_element_written_once(problem: Convolution, tile: Tile, seed: int) -> None:
    """Errors within the tolerance, bytes as the formulas say."""
    inputs = OPERATOR.inputs(problem, uniform(problem, seed))
    launch = forward.launch(problem, *inputs, tile=tile)
    poison(launch.outputs)
    with repaired(), watched() as watch:
        written = outputs_of(launch.call())
    allowed = tolerance(problem, "triton")
    assert isinstance(allowed, float)
    assert relative_error(OPERATOR, problem, inputs, written) <= allowed  # and so no poison is left

    (y,) = launch.outputs
    assert watch.atomics.byte == 0
    assert watch.stores.byte == watch.stores.within(y).byte == y.nbytes and watch.stores.repeated == 0
    tiles_m = forward.grid(problem, tile)[0] // -(-(problem.k // problem.groups) // tile.n)
    bias = tiles_m * problem.k if problem.bias else 0
    assert watch.loads.byte == (loaded(problem, tile) + bias) * problem.item_byte
    assert watch.loads.distinct_byte + y.nbytes == problem.byte_moved("triton")


def test_a_second_launch_writes_the_same(seed: int) -> None:
    problem = convolution(dtype="float16", bias=True)
    launch = forward.launch(problem, *OPERATOR.inputs(problem, uniform(problem, seed)), tile=TILES[0])
    with repaired():
        before = outputs_of(launch.call())[0].clone()
        poison(launch.outputs)
        assert torch.equal(outputs_of(launch.call())[0], before)


def test_what_is_tuned_would_run(seed: int) -> None:
    """Each type's largest and smallest tile of either list."""
    for dtype in DTYPES:
        for c in (3, 16):
            problem = convolution(dtype=dtype, n=1, c=c, k=130, h=5, w=5)
            inputs = OPERATOR.inputs(problem, uniform(problem, seed))
            for tile in (forward.candidates(problem)[0], forward.candidates(problem)[-1]):
                with repaired():
                    written = outputs_of(forward.launch(problem, *inputs, tile=tile).call())
                allowed = tolerance(problem, "triton")
                assert isinstance(allowed, float)
                assert relative_error(OPERATOR, problem, inputs, written) <= allowed


def test_nan_spreads_no_further_than_its_windows(seed: int) -> None:
    problem = convolution(dtype="float32", stride=2, dilation=2, padding=3)
    x, w = OPERATOR.inputs(problem, uniform(problem, seed))
    x[1, 2, 5, 5] = torch.nan
    with repaired():
        (y,) = outputs_of(forward.launch(problem, x, w, tile=TILES[0]).call())
    assert torch.equal(y.isnan(), torch.nn.functional.conv2d(x, w, None, 2, 3, 2).isnan())
    assert 0 < int(y.isnan().sum()) < y.numel() / 2


def test_images_lie_beyond_32_bits(seed: int) -> None:
    """The last tile of a batch of more than 2^31 elements, whose other pages are never touched."""
    problem = convolution(n=9, c=16, h=4096, w=4096, k=16, stride=32, dtype="float16", window_h=1, window_w=1)
    assert problem.x_byte > 2**32 and not problem.refusal("triton")
    x = torch.empty(problem.n, problem.h, problem.w, problem.c, dtype=torch.float16).permute(0, 3, 1, 2)
    x[-1] = 0
    last = uniform(problem, seed)(problem.c)
    row = (problem.p - 1) * 32 - 1
    x[-1, :, row, row] = last
    w = uniform(problem, seed)(problem.k, 1, 1, problem.c).permute(0, 3, 1, 2)
    tile = TILES[0]
    launch = forward.launch(problem, x, w, tile=tile)
    tiles, groups = forward.grid(problem, tile)
    with repaired(), placed((tiles - 1, 0), (tiles, groups)), watched():
        forward.convolve[(1,)](
            x_pointer=x, w_pointer=w, bias_pointer=None, y_pointer=launch.outputs[0],
            **forward.sizes(problem), **forward.constants(problem, tile), num_warps=4, num_stages=2,
        )  # fmt: skip
    got = launch.outputs[0][-1, :, -1, -1].double()
    want = w[:, :, 0, 0].double() @ last.double()
    torch.testing.assert_close(got, want, rtol=2e-3, atol=2e-3)


def test_every_type_is_here() -> None:
    implementation = Convolution.implementation("triton")
    assert set(DTYPES) == set(implementation.dtypes) <= set(get_args(Dtype))
