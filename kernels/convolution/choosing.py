"""Our convolution kernels by direction: the device chooses the tile (kernels/tuning.py)."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch

from bench.spec import Launch
from kernels.convolution import activation_gradient, forward, tiles, weight_gradient
from kernels.convolution.problem import Convolution, Direction
from kernels.convolution.tiles import Prepared
from kernels.gemm.tiles import Tile
from kernels.linear import bias_gradient
from kernels.linear.operator import followed_by
from kernels.tuning import fastest, tuned

_KERNELS: dict[Direction, Callable[..., Prepared]] = {
    "forward": forward.prepare,
    "activation_gradient": activation_gradient.prepare,
    "weight_gradient": weight_gradient.prepare,
}


class _Asked(NamedTuple):
    """What the tuner is asked: kernels/tuning.py says how."""

    question: tuple[object, ...]
    candidates: tuple[Tile, ...]
    launch: Callable[[Tile], Launch]
    compile: Callable[[Tile], None]


def launch(problem: Convolution, *tensors: torch.Tensor) -> Launch:
    """y, dx, or dw and with bias db; tensors as operator.py has them, NHWC, on the current device.

    The first launch of a problem compiles and times the candidates; later ones remember.
    """
    chosen = tuned(*_asked(problem, *tensors))
    if not problem.sums_bias_gradient:
        return chosen
    return followed_by(chosen, bias_gradient.tuned_launch(_as_rows(problem, tensors[0])))


def configuration(problem: Convolution, *tensors: torch.Tensor) -> str:
    """The tile that `launch` chose, `128x64x64 w4 s3`, and that of the bias gradient."""
    tile = fastest(*_asked(problem, *tensors))
    if not problem.sums_bias_gradient:
        return str(tile)
    return f"{tile}, db {bias_gradient.chosen(_as_rows(problem, tensors[0]))}"


def _asked(problem: Convolution, *tensors: torch.Tensor) -> _Asked:
    prepare = _KERNELS[problem.direction]
    return _Asked(
        ("convolution", problem),
        tiles.candidates(problem),
        lambda tile: prepare(problem, tile, *tensors).launch(),
        lambda tile: prepare(problem, tile, *tensors).compile(),
    )


def _as_rows(problem: Convolution, dy: torch.Tensor) -> torch.Tensor:
    """dy [n, k, p, q] as a matrix of pixels by channels: a view."""
    return dy.permute(0, 2, 3, 1).view(-1, problem.k)
