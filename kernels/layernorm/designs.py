"""Two kernels that compute the same of rows, each by itself: layer normalization forward, and softmax.

A row in registers is read once. A longer one is read twice, the second time at once, and from L2 as far as
that holds it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from bench.spec import Launch, Tensors
from kernels.layernorm.rows import Tile, along_rows, chunks, of_rows, whole_rows
from kernels.rows import Rows
from kernels.tensors import empty


class Designs(NamedTuple):
    """Kernels of one pass, each called with its inputs, its outputs and sizes; all tensors are contiguous."""

    registers: Any
    """For rows within a tile's block."""
    walk: Any
    """For rows of at least a chunk, each read twice."""
    constants: Mapping[str, Any] = {}
    """What they are compiled with beside their tiles."""

    def candidates(self, problem: Rows) -> Sequence[Tile]:
        """What is worth trying: tiles of up to 32 elements a thread; of a long row chunks."""
        if problem.in_registers:
            return whole_rows(problem.length, most=32)
        return chunks(problem.length, problem.item_byte)

    def launch(self, problem: Rows, inputs: Tensors, tile: Tile) -> Launch:
        """The launch with this tile."""
        return (self.of_tiles if problem.in_registers else self.of_chunks)(problem, inputs, tile)

    def of_tiles(self, problem: Rows, inputs: Tensors, tile: Tile) -> Launch:
        """By rows in registers."""
        run, sizes = self.registers[(-(-problem.rows // tile.rows),)], (problem.rows, problem.length)
        return self._of(run, problem, inputs, *sizes, **of_rows(tile, problem.length, problem.item_byte))

    def of_chunks(self, problem: Rows, inputs: Tensors, tile: Tile) -> Launch:
        """By rows that are read twice."""
        options = along_rows(tile, problem.length, problem.item_byte)
        return self._of(self.walk[(problem.rows,)], problem, inputs, problem.length, **options)

    def _of(self, run: Any, problem: Rows, inputs: Tensors, *sizes: Any, **options: Any) -> Launch:
        outputs = empty(problem, inputs[0])
        return Launch.of(run, outputs, *inputs, *outputs, *sizes, **options, **self.constants)
