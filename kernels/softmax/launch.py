"""Which of our kernels solves a problem, and with which tile."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from bench.launching.tuning import tuned
from bench.spec import Launch, Tensors
from kernels.layernorm.shared_memory import Share
from kernels.layernorm.tiles import Tile
from kernels.softmax import shared_rows, two_pass_rows, whole_rows
from kernels.softmax.problem import Softmax


def candidates(problem: Softmax) -> Sequence[Tile | Share]:
    """What is worth trying for this problem: tiles, and for a long row shares of it in shared memory."""
    if problem.in_registers:
        return whole_rows.candidates(problem)
    return (*shared_rows.candidates(problem), *two_pass_rows.candidates(problem))


def with_tile(problem: Softmax, inputs: Tensors, tile: Tile | Share) -> Launch:
    """The launch with this tile, or with these shares."""
    if isinstance(tile, Share):
        return shared_rows.launch(problem, inputs, tile)
    launch_rows = whole_rows.launch if problem.in_registers else two_pass_rows.launch
    return launch_rows(problem, inputs, tile)


def launch(problem: Softmax, *inputs: torch.Tensor) -> Launch:
    """The launch with what is fastest for this problem on the current device."""
    return tuned(("softmax", problem), candidates(problem), lambda tile: with_tile(problem, inputs, tile))
