"""Which of our kernels solves a problem, and with which tile."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from bench.autotune.tuning import tuned
from bench.spec import Launch, Tensors
from kernels.layernorm import backward, backward_two_pass, forward
from kernels.layernorm.designs import Designs
from kernels.layernorm.problem import EPSILON, LayerNorm
from kernels.layernorm.rows import Tile

FORWARD = Designs(
    forward.normalize,
    forward.normalize_two_pass,
    constants={"EPSILON": EPSILON},
)


def candidates(problem: LayerNorm) -> Sequence[Tile]:
    """What is worth trying for this problem."""
    if problem.direction == "forward":
        return FORWARD.candidates(problem)
    if problem.in_registers:
        return backward.candidates(problem)
    return backward_two_pass.candidates(problem)


def with_tile(problem: LayerNorm, inputs: Tensors, tile: Tile, multiprocessors: int) -> Launch:
    """The launch with this tile on a device of so many multiprocessors."""
    if problem.direction == "forward":
        return FORWARD.launch(problem, inputs, tile)
    x, dy, weight, mean, rstd = inputs
    inputs = x, dy, weight, mean.float(), rstd.float()
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
