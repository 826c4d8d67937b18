"""Which problems there are strips for, and that those are what the kernel can take."""

import itertools
from typing import get_args

import pytest

pytest.importorskip("triton")

from kernels.pooling import launching
from kernels.pooling.problem import Direction
from tests.kernels.pooling_cases import pooling

USUAL = {"n": 8, "c": 64, "h": 56, "w": 56, "stride": 1, "dtype": "float16"}
"""Max forward of float16 in NCHW, 3 x 3 at stride 1 over 56 x 56."""


@pytest.mark.parametrize(
    ("given", "columns"),
    [
        ({}, {8, 4}),
        ({"dtype": "float32"}, {4}),
        ({"stride": 2}, {8, 4}),
        ({"window": 2, "stride": 2, "padding": 0, "h": 112, "w": 112}, {8, 4}),
        ({"window": 5, "padding": 2}, {8, 4}),
        ({"window": 7, "padding": 3}, {4}),  # seven rows of eight are more than is kept
        ({"w": 28}, {4}),
        ({"w": 14}, {2}),
        ({"w": 7}, {1}),
        ({"w": 7, "window": 5, "padding": 2}, set()),  # reaches over the strip beside it
        ({"w": 7, "stride": 2}, set()),
        ({"window": 1, "stride": 2, "padding": 0}, set()),  # most of x is in no window
        ({"window": 15, "padding": 7}, set()),
        ({"h": 5, "w": 8, "window": 5, "window_w": 8, "padding": 0}, set()),  # the whole image
        ({"layout": "NHWC"}, set()),
        ({"direction": "backward"}, {8, 4}),
        ({"direction": "backward", "stride": 2}, {4}),  # stores of 16 bytes
        ({"direction": "backward", "dtype": "float32", "window": 2, "stride": 2, "padding": 0}, {2}),
        ({"direction": "backward", "window": 3, "stride": 3, "padding": 0, "w": 57}, set()),
        ({"direction": "backward", "window": 7, "padding": 3}, set()),  # 49 windows over a point spill
        ({"direction": "backward", "window": 56, "padding": 0}, set()),
        ({"w": 7, "n": 2**21}, set()),  # more than can be numbered with 32 bits
        ({"w": 8, "n": 2**21}, {8, 4}),
    ],
)
def test_strips_are_as_wide_as_a_load_of_a_row_can_be(given: dict[str, object], columns: set[int]) -> None:
    problem = pooling(**USUAL | given)
    strips = launching.strips(problem)
    assert {strip.columns for strip in strips} == columns
    assert launching.candidates(problem) == [*strips, *launching.tiles(problem)]
    assert len({str(one) for one in launching.candidates(problem)}) == len(launching.candidates(problem))


@pytest.mark.parametrize("direction", get_args(Direction))
def test_every_strip_is_one_that_the_kernel_takes(direction: Direction) -> None:
    """Whole strides, a divisor of the row that is read, no narrower than windows reach, nor half empty."""
    found = 0
    windows = itertools.product((1, 2, 3, 5, 7, 9), (1, 2, 3, 4), (1, 7, 8, 28, 30, 112), (1, 6, 56))
    for window, stride, w, h in windows:
        for padding in range(window // 2 + 1):
            if min(h, w) + 2 * padding < window:
                continue
            given = {"direction": direction, "window": window, "stride": stride, "padding": padding}
            problem = pooling(**USUAL | given | {"h": h, "w": w, "dtype": "bfloat16"})
            for strip in launching.strips(problem):
                found += 1
                assert stride <= window
                if direction == "forward":
                    assert w % strip.columns == 0 == strip.columns % stride
                    assert strip.columns >= max(padding, window - stride - padding)
                    assert strip.rows < 2 * problem.high and 2 * strip.columns <= 16
                else:
                    assert problem.wide % strip.columns == 0 == strip.rows % stride
                    # The last window to hold the last point starts no further than a strip behind it.
                    assert strip.columns * stride >= max(window - 1 - padding - stride + 1, padding)
                    assert strip.rows < 2 * h and 2 * strip.columns * stride <= 16
    assert found > 100
