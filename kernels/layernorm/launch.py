"""Which of our kernels solves a problem, and with which tile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from bench.launching.tuning import tuned
from bench.spec import Launch, Tensors
from kernels.layernorm import (
    backward,
    backward_shared,
    backward_two_pass,
    forward,
    forward_shared,
    forward_two_pass,
)
from kernels.layernorm.problem import LayerNorm
from kernels.layernorm.shared_memory import Share
from kernels.layernorm.tiles import Tile


def designs(problem: LayerNorm) -> tuple[Any, Any, Any]:
    """The modules for rows in registers, in shared memory, and read twice."""
    if problem.direction == "forward":
        return forward, forward_shared, forward_two_pass
    return backward, backward_shared, backward_two_pass


def candidates(problem: LayerNorm) -> Sequence[Tile | Share]:
    """What is worth trying for this problem: tiles, and for a long row shares of it."""
    whole, shared, long = designs(problem)
    if problem.in_registers:
        return whole.candidates(problem)  # type: ignore[no-any-return]
    return (*shared.candidates(problem), *long.candidates(problem))


def with_tile(problem: LayerNorm, inputs: Tensors, tile: Tile | Share, multiprocessors: int) -> Launch:
    """The launch with this tile, or with these shares, on a device of so many multiprocessors."""
    whole, shared, long = designs(problem)
    design = shared if isinstance(tile, Share) else whole if problem.in_registers else long
    if problem.direction == "forward":
        return design.launch(problem, inputs, tile)  # type: ignore[no-any-return]
    x, dy, weight, mean, rstd = inputs
    inputs = x, dy, weight, mean.float(), rstd.float()
    return design.launch(problem, inputs, tile, multiprocessors)  # type: ignore[no-any-return]


def launch(problem: LayerNorm, *inputs: torch.Tensor) -> Launch:
    """The launch with what is fastest for this problem on the current device."""
    multiprocessors = torch.cuda.get_device_properties(inputs[0].device).multi_processor_count
    return tuned(
        ("layernorm", problem),
        candidates(problem),
        lambda tile: with_tile(problem, inputs, tile, multiprocessors),
    )
