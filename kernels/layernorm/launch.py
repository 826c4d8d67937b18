"""Which of our kernels solves a problem, and with which tile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from bench.launching.tuning import tuned
from bench.spec import Launch
from kernels.layernorm import backward, backward_held, backward_long, forward, forward_held, forward_long
from kernels.layernorm.held import Held
from kernels.layernorm.problem import LayerNorm
from kernels.layernorm.tiles import Tile

if TYPE_CHECKING:
    from bench.spec import Tensors


def candidates(problem: LayerNorm) -> Sequence[Tile | Held]:
    """What is worth trying for this problem: tiles, and for a long row shares of it."""
    if problem.direction == "backward":
        if problem.in_registers:
            return backward.candidates(problem)
        return (*backward_held.candidates(problem), *backward_long.candidates(problem))
    if problem.in_registers:
        return forward.candidates(problem)
    return (*forward_held.candidates(problem), *forward_long.candidates(problem))


def with_tile(problem: LayerNorm, inputs: Tensors, tile: Tile | Held, multiprocessors: int) -> Launch:
    """The launch with this tile, or with these shares, on a device of so many multiprocessors."""
    if problem.direction == "forward":
        x, weight, bias = inputs
        if isinstance(tile, Held):
            return forward_held.launch(problem, x, weight, bias, tile)
        normalize = forward.launch if problem.in_registers else forward_long.launch
        return normalize(problem, x, weight, bias, tile)
    x, dy, weight, mean, rstd = inputs
    mean, rstd = mean.float(), rstd.float()
    if isinstance(tile, Held):
        return backward_held.launch(problem, x, dy, weight, mean, rstd, tile, multiprocessors)
    gradient = backward.launch if problem.in_registers else backward_long.launch
    return gradient(problem, x, dy, weight, mean, rstd, tile, multiprocessors)


def launch(problem: LayerNorm, *inputs: torch.Tensor) -> Launch:
    """The launch with what is fastest for this problem on the current device."""
    multiprocessors = _multiprocessors(inputs[0])
    return tuned(
        ("layernorm", problem),
        candidates(problem),
        lambda tile: with_tile(problem, inputs, tile, multiprocessors),
    )


def _multiprocessors(x: torch.Tensor) -> int:
    count: int = torch.cuda.get_device_properties(x.device).multi_processor_count
    return count
