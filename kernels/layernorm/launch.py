"""Which of our kernels solves a problem, and with which tile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch

from bench.spec import Launch
from kernels.layernorm import backward, backward_long, forward, forward_long
from kernels.layernorm.problem import LayerNorm
from kernels.layernorm.tiles import Tile
from kernels.tuning import fastest, tuned

if TYPE_CHECKING:
    from bench.spec import Tensors


def candidates(problem: LayerNorm) -> Sequence[Tile]:
    """Tiles worth trying for this problem."""
    if problem.direction == "forward":
        return forward.candidates(problem) if problem.in_registers else forward_long.candidates(problem)
    return backward.candidates(problem) if problem.in_registers else backward_long.candidates(problem)


def with_tile(problem: LayerNorm, inputs: Tensors, tile: Tile, multiprocessors: int) -> Launch:
    """The launch with this tile, on a device of so many multiprocessors."""
    if problem.direction == "forward":
        x, weight, bias = inputs
        normalize = forward.launch if problem.in_registers else forward_long.launch
        return normalize(problem, x, weight, bias, tile)
    x, dy, weight, mean, rstd = inputs
    mean, rstd = mean.float(), rstd.float()
    gradient = backward.launch if problem.in_registers else backward_long.launch
    return gradient(problem, x, dy, weight, mean, rstd, tile, multiprocessors)


def launch(problem: LayerNorm, *inputs: torch.Tensor) -> Launch:
    """The launch with the tile that is fastest for this problem on the current device."""
    return tuned(("layernorm", problem), candidates(problem), _attempt(problem, inputs))


def chosen(problem: LayerNorm, *inputs: torch.Tensor) -> Tile:
    """The fastest tile; timed when first asked for this problem."""
    return fastest(("layernorm", problem), candidates(problem), _attempt(problem, inputs))


def _attempt(problem: LayerNorm, inputs: tuple[torch.Tensor, ...]) -> Callable[[Tile], Launch]:
    return lambda tile: with_tile(problem, inputs, tile, _multiprocessors(inputs[0]))


def _multiprocessors(x: torch.Tensor) -> int:
    count: int = torch.cuda.get_device_properties(x.device).multi_processor_count
    return count
