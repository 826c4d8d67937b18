"""Which of our kernels solves a problem of layer normalization, and with which tile."""

from __future__ import annotations

import torch

from bench.autotune.tuning import tuned
from bench.spec import Launch, Tensors
from kernels.layernorm import backward, forward
from kernels.layernorm.problem import EPSILON, LayerNorm
from kernels.layernorm.row_tiles import Tile, launch_rows, whole_rows


def candidates(problem: LayerNorm) -> list[Tile]:
    """Tiles worth trying: forward up to 32 elements a thread."""
    if problem.direction == "backward":
        return backward.candidates(problem)
    return whole_rows(problem.length, most=32)


def with_tile(problem: LayerNorm, inputs: Tensors, tile: Tile, multiprocessors: int) -> Launch:
    """The launch with this tile on a device of so many multiprocessors."""
    if problem.direction == "forward":
        return launch_rows(forward.normalize, problem, inputs, tile, EPSILON=EPSILON)
    x, dy, weight, mean, rstd = inputs
    inputs = x, dy, weight, mean.float(), rstd.float()
    return backward.launch(problem, inputs, tile, multiprocessors)


def launch(problem: LayerNorm, *inputs: torch.Tensor) -> Launch:
    """The launch with what is fastest for this problem on the current device."""
    multiprocessors = torch.cuda.get_device_properties(inputs[0].device).multi_processor_count
    return tuned(
        ("layernorm", problem),
        candidates(problem),
        lambda tile: with_tile(problem, inputs, tile, multiprocessors),
    )
