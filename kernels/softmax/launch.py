"""Softmax's kernels, and how the one that is fastest is launched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import torch

from bench.autotune.tuning import tuned
from bench.spec import Launch, Tensors
from kernels.layernorm.designs import Designs
from kernels.layernorm.rows import Tile
from kernels.softmax import rows
from kernels.softmax.problem import Softmax

DESIGNS: Mapping[Literal["forward", "backward"], Designs] = {
    "forward": Designs(rows.forward, rows.forward_two_pass),
    "backward": Designs(rows.backward, rows.backward_two_pass),
}


def candidates(problem: Softmax) -> Sequence[Tile]:
    """What is worth trying for this problem."""
    return DESIGNS[problem.direction].candidates(problem)


def with_tile(problem: Softmax, inputs: Tensors, tile: Tile) -> Launch:
    """The launch with this tile."""
    return DESIGNS[problem.direction].launch(problem, inputs, tile)


def launch(problem: Softmax, *inputs: torch.Tensor) -> Launch:
    """The launch with what is fastest for this problem on the current device."""
    return tuned(("softmax", problem), candidates(problem), lambda tile: with_tile(problem, inputs, tile))
