from functools import partial

import pytest

from kernels.quantize.operator import LARGEST, OPERATOR
from tests.kernels.problems import inputs_of, usual

quantize = partial(usual, "quantize")


@pytest.mark.parametrize("scaling", ["tensor", "row", "mx"])
def test_y_times_its_scale_is_x_to_the_precision_of_the_type(scaling: str, seed: int) -> None:
    """What the numbers are for, by a way of its own: no formula of the reference."""
    problem = quantize(scaling=scaling, rows=32, length=128)
    (x,) = inputs_of(problem, seed)
    y, scales = OPERATOR.implementations["aten"](problem, x).call()
    scale = 2.0 ** (scales.double() - 127) if scaling == "mx" else scales.double()
    back = (y.double().view(scale.numel(), -1) * scale.view(-1, 1)).view_as(x)
    largest = x.double().abs().view(scale.numel(), -1).amax(1).repeat_interleave(x.numel() // scale.numel())
    off = (back - x).abs() / largest.view_as(x)
    # mx cuts what lies beyond the largest number: 512 - 448 of at least 448, which is an eighth of it.
    assert off.max() <= 2.0**-4 * (2.001 if scaling == "mx" else 1.001)
    assert y.double().abs().max() <= LARGEST
