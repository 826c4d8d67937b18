"""Launching the two-pass kernels: which tile, how many programs, which buffers.

Two launches for forward and backward, one for inference. `parts`, the programs that share a channel, is what
fills the device once: as many programs as run at the same time, none of which is longer than the others by
more than a block. When channels alone do that, it is 1.

**Bytes in flight.** A loop over blocks reads the next blocks by asynchronous copies into shared memory while
it works on one, and takes no registers for those. Loads into registers leave 12 to 32 KB under way on a
multiprocessor, because ptxas issues a load only when the one before was used, if that saves a register;
copies 48 KB or more. An H200 needs 29 KB, a B200 43.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch

from bench.autotune.tuning import tuned
from bench.spec import Launch, Tensors
from kernels.batchnorm import passes
from kernels.batchnorm.problem import EPSILON, MOMENTUM, BatchNorm
from kernels.batchnorm.running import running_statistics
from kernels.tensors import empty


class Tile(NamedTuple):
    """A block of one channel and its workers."""

    rows: int
    """Elements of a block."""
    warps: int
    programs: int
    """Programs on each multiprocessor: not more than it holds at once, or the last would run alone."""
    stages: int = 1
    """Stages of asynchronous copies, one of them in registers; 1: loads into registers only."""

    def __str__(self) -> str:
        """`1024 w4 x10 s4`: elements, warps, programs on each multiprocessor, stages."""
        return f"{self.rows} w{self.warps} x{self.programs} s{self.stages}"


_COPIED = (Tile(4096, 4, 4, 3), Tile(1024, 4, 10, 4), Tile(2048, 8, 5, 4), Tile(2048, 4, 8))
"""Tiles for planes of whole 8 or 16 bytes: 16 to 64 bytes a thread in each stage. The last has more loads in
registers instead, in case copies through shared memory cost more than they hide."""
_SMALL_COPIES = (Tile(1024, 4, 7, 4), Tile(1024, 4, 8))
"""Tiles for whole 4 bytes, the least that is copied asynchronously: each takes an address of its own."""
_IN_REGISTERS = (Tile(512, 2, 20), Tile(512, 4, 16))
"""Tiles for odd planes of 2-byte elements; larger ones would spill."""


def candidates(problem: BatchNorm) -> tuple[Tile, ...]:
    """What may be tried, all of which compiles without spilling and fits a multiprocessor at once.

    Of 4-byte elements half as many rows as of 2-byte ones: the same bytes in flight. Many programs leave more
    partial sums for the last of them to add.
    """
    aligned = math.gcd(problem.h * problem.w * problem.item_byte, 16)
    tiles = _COPIED if aligned >= 8 else _SMALL_COPIES if aligned == 4 else _IN_REGISTERS
    return tuple(tile._replace(rows=tile.rows * 2 // problem.item_byte) for tile in tiles)


def parts(problem: BatchNorm, tile: Tile, multiprocessors: int) -> int:
    """Programs that share a channel; never more than it has blocks."""
    wanted = -(-multiprocessors * tile.programs // problem.c)
    return min(wanted, -(-problem.channel_elements // tile.rows))


def sizes(problem: BatchNorm, tile: Tile, of_parts: int) -> dict[str, Any]:
    """What all four kernels are called with besides tensors."""
    cut = passes.Cut(problem.h * problem.w, tile.rows, tile.stages)
    return {"images": problem.n, "channels": problem.c, "parts": of_parts, "CUT": cut}


def launch(
    problem: BatchNorm, *tensors: torch.Tensor, tile: Tile | None = None, multiprocessors: int | None = None
) -> Launch:
    """The problem's outputs as operator.py has them; the fastest of the candidates unless a tile is given.

    `multiprocessors` defaults to those of the tensors' device.
    """
    if tile is None:
        question = ("batchnorm", "triton", problem)
        return tuned(question, candidates(problem), lambda tile: launch(problem, *tensors, tile=tile))
    if multiprocessors is None:
        multiprocessors = torch.cuda.get_device_properties(tensors[0].device).multi_processor_count
    of_parts = parts(problem, tile, multiprocessors)
    grid = (problem.c * of_parts,)
    options = sizes(problem, tile, of_parts) | {"num_warps": tile.warps}
    outputs, scratch = empty(problem, tensors[0]), _scratch(problem, of_parts, tensors)
    if problem.direction == "inference":
        x, weight, bias, mean, variance = tensors
        arguments = x, *outputs, mean, variance, weight, bias
        return Launch.of(
            passes.normalize[grid], outputs, *arguments, **options, EPSILON=EPSILON, FROM_VARIANCE=True
        )
    if problem.direction == "backward":
        x, dy, weight, mean, rstd = tensors
        dx, dweight, dbias = outputs
        arguments = x, dy, *scratch, mean, rstd, dweight, dbias
        sums = Launch.of(passes.gradient_sums[grid], (), *arguments, **options)
        arguments = x, dy, dx, mean, rstd, weight, dweight, dbias
        return sums.then(Launch.of(passes.input_gradient[grid], outputs, *arguments, **options))
    x, weight, bias = tensors
    y, mean, rstd = outputs = outputs[:3]
    running = running_statistics(problem.c, x.device)
    arguments, options = (x, *scratch, mean, rstd, *running), options | {"EPSILON": EPSILON}
    statistics = Launch.of(passes.statistics[grid], (), *arguments, MOMENTUM=MOMENTUM, **options)
    arguments = x, y, mean, rstd, weight, bias
    run = passes.normalize[grid]
    return statistics.then(Launch.of(run, outputs, *arguments, FROM_VARIANCE=False, **options))


def _scratch(problem: BatchNorm, of_parts: int, tensors: Tensors) -> Tensors:
    """Partial sums, and counters that are 0 between launches; nothing for inference."""
    if problem.direction == "inference":
        return ()
    device = tensors[0].device
    counters = torch.zeros(problem.c, dtype=torch.int32, device=device)
    return torch.empty(2 * of_parts * problem.c, device=device), counters
