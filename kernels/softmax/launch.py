"""Which of our kernels solves a problem, and with which tile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from bench.spec import Launch
from kernels.layernorm.tiles import Tile
from kernels.softmax import long_rows, whole_rows
from kernels.softmax.problem import Softmax
from kernels.tuning import fastest, tuned

if TYPE_CHECKING:
    from bench.spec import Tensors


def candidates(problem: Softmax) -> Sequence[Tile]:
    """Tiles worth trying for this problem."""
    return whole_rows.candidates(problem) if problem.in_registers else long_rows.candidates(problem)


def with_tile(problem: Softmax, inputs: Tensors, tile: Tile) -> Launch:
    """The launch with this tile."""
    launch_rows = whole_rows.launch if problem.in_registers else long_rows.launch
    return launch_rows(problem, inputs, tile)


def launch(problem: Softmax, *inputs: torch.Tensor) -> Launch:
    """The launch with the tile that is fastest for this problem on the current device."""
    return tuned(("softmax", problem), candidates(problem), lambda tile: with_tile(problem, inputs, tile))


def chosen(problem: Softmax, *inputs: torch.Tensor) -> Tile:
    """The fastest tile; timed when first asked for this problem."""
    return fastest(("softmax", problem), candidates(problem), lambda tile: with_tile(problem, inputs, tile))
