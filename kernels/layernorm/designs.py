"""Three designs that compute the same of rows, each by itself: layer normalization forward, and softmax.

A row in registers is read once. A longer one is held in shared memory, by a block or by a cluster of them,
and read once too; or it is read twice, the second time at once, and from L2 as far as that holds it. Which of
the two, the device chooses by time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from bench.spec import Launch, Tensors
from kernels.layernorm import shared_memory
from kernels.layernorm.rows import Tile, along_rows, chunks, of_rows, whole_rows
from kernels.layernorm.shared_memory import Share
from kernels.rows import Rows
from kernels.tensors import empty


class Designs(NamedTuple):
    """Kernels of one pass, each called with its inputs, its outputs and sizes; all tensors are contiguous."""

    registers: Any
    """For rows within a tile's block."""
    walk: Any
    """For rows of at least a chunk, each read twice."""
    shared: Any
    """For rows of a multiple of 16 bytes, in shared memory."""
    numbers: int
    """What a block of a cluster tells the others of a row."""
    constants: Mapping[str, Any] = {}
    """What they are compiled with beside their tiles."""

    def candidates(self, problem: Rows) -> Sequence[Tile | Share]:
        """What is worth trying: tiles of up to 32 elements a thread; of a long row shares, and chunks."""
        if problem.in_registers:
            return whole_rows(problem.length, most=32)
        held = sum(spec.shape == (problem.rows, problem.length) for spec in problem.tensors[0].values())
        shares = shared_memory.candidates(problem.length, problem.item_byte, held)
        return (*shares, *chunks(problem.length, problem.item_byte))

    def launch(self, problem: Rows, inputs: Tensors, tile: Tile | Share) -> Launch:
        """The launch with this tile, or with these shares."""
        if isinstance(tile, Share):
            return self.of_shares(problem, inputs, tile)
        return (self.of_tiles if problem.in_registers else self.of_chunks)(problem, inputs, tile)

    def of_tiles(self, problem: Rows, inputs: Tensors, tile: Tile) -> Launch:
        """By rows in registers."""
        run, sizes = self.registers[(-(-problem.rows // tile.rows),)], (problem.rows, problem.length)
        return self._of(run, problem, inputs, *sizes, **of_rows(tile, problem.length, problem.item_byte))

    def of_chunks(self, problem: Rows, inputs: Tensors, tile: Tile) -> Launch:
        """By rows that are read twice."""
        options = along_rows(tile, problem.length, problem.item_byte)
        return self._of(self.walk[(problem.rows,)], problem, inputs, problem.length, **options)

    def of_shares(self, problem: Rows, inputs: Tensors, share: Share) -> Launch:
        """By rows in shared memory. Unsupported on a device that lacks what they need."""
        sizes = shared_memory.partial_sums(share, inputs[0], self.numbers), problem.length
        options = share.constants(problem.item_byte)
        return self._of(self.shared[(problem.rows,)], problem, inputs, *sizes, **options)

    def _of(self, run: Any, problem: Rows, inputs: Tensors, *sizes: Any, **options: Any) -> Launch:
        outputs = empty(problem, inputs[0])
        return Launch.of(run, outputs, *inputs, *outputs, *sizes, **options, **self.constants)
