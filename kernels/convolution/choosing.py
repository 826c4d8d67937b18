"""Our convolution kernels by direction: the device chooses the tile (bench/launching/tuning.py)."""

from __future__ import annotations

from collections.abc import Callable

import torch

from bench.launching.tuning import tuned
from bench.spec import Launch
from kernels.convolution import activation_gradient, forward, tiles, weight_gradient
from kernels.convolution.problem import Convolution, Direction
from kernels.linear import bias_gradient
from kernels.prepared import Prepared

_KERNELS: dict[Direction, Callable[..., Prepared]] = {
    "forward": forward.prepare,
    "activation_gradient": activation_gradient.prepare,
    "weight_gradient": weight_gradient.prepare,
}


def launch(problem: Convolution, *tensors: torch.Tensor) -> Launch:
    """y, dx, or dw and with bias db; tensors as operator.py has them, NHWC, on the current device.

    The first launch of a problem compiles and times the candidates; later ones remember.
    """
    prepare = _KERNELS[problem.direction]
    product = tuned(
        ("convolution", problem),
        tiles.candidates(problem),
        lambda tile: prepare(problem, tile, *tensors).launch(),
        lambda tile: prepare(problem, tile, *tensors).compile(),
    )
    if not problem.sums_bias_gradient:
        return product
    pixels_by_channels = tensors[0].permute(0, 2, 3, 1).view(-1, problem.k)
    return product.then(bias_gradient.tuned_launch(pixels_by_channels), "db")
