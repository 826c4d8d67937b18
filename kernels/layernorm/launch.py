"""Which of our kernels solves a problem, and with which tile."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from bench.launching.tuning import tuned
from bench.spec import Launch, Tensors
from kernels.layernorm import backward, backward_shared, backward_two_pass, forward, forward_shared
from kernels.layernorm.designs import Designs
from kernels.layernorm.problem import EPSILON, LayerNorm
from kernels.layernorm.rows import Tile
from kernels.layernorm.shared_memory import Share

FORWARD = Designs(
    forward.normalize,
    forward.normalize_two_pass,
    forward_shared.normalize_shared,
    numbers=3,
    constants={"EPSILON": EPSILON},
)


def candidates(problem: LayerNorm) -> Sequence[Tile | Share]:
    """What is worth trying for this problem: tiles, and for a long row shares of it."""
    if problem.direction == "forward":
        return FORWARD.candidates(problem)
    if problem.in_registers:
        return backward.candidates(problem)
    return (*backward_shared.candidates(problem), *backward_two_pass.candidates(problem))


def with_tile(problem: LayerNorm, inputs: Tensors, tile: Tile | Share, multiprocessors: int) -> Launch:
    """The launch with this tile, or with these shares, on a device of so many multiprocessors."""
    if problem.direction == "forward":
        return FORWARD.launch(problem, inputs, tile)
    x, dy, weight, mean, rstd = inputs
    inputs = x, dy, weight, mean.float(), rstd.float()
    if isinstance(tile, Share):
        return backward_shared.launch(problem, inputs, tile, multiprocessors)
    if problem.in_registers:
        return backward.launch(problem, inputs, tile, multiprocessors)
    return backward_two_pass.launch(problem, inputs, tile, multiprocessors)


def launch(problem: LayerNorm, *inputs: torch.Tensor) -> Launch:
    """The launch with what is fastest for this problem on the current device."""
    multiprocessors = torch.cuda.get_device_properties(inputs[0].device).multi_processor_count
    return tuned(
        ("layernorm", problem),
        candidates(problem),
        lambda tile: with_tile(problem, inputs, tile, multiprocessors),
    )
