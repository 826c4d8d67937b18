"""Launching the two-pass kernels: which tile, how many programs, which buffers.

Two launches for forward and backward, one for inference. `parts`, the programs that share a channel (NHWC: a
block of columns), is what fills the device once: as many programs as run at the same time, none of which is
longer than the others by more than a block. When channels alone do that, it is 1.

**Bytes in flight.** A loop over blocks reads the next blocks by asynchronous copies into shared memory while
it works on one, and takes no registers for those. Loads into registers leave 12 to 32 KB under way on a
multiprocessor, because ptxas issues a load only when the one before was used, if that saves a register;
copies 48 KB or more. An H200 needs 29 KB, a B200 43 (tests/kernels/in_flight.py).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch

from bench.autotune.tuning import tuned
from bench.spec import Launch, Tensors
from kernels.batchnorm import passes
from kernels.batchnorm.blocks import Cut
from kernels.batchnorm.problem import EPSILON, MOMENTUM, BatchNorm
from kernels.batchnorm.running import running_statistics
from kernels.tensors import empty


class Tile(NamedTuple):
    """A block of one channel (NCHW: `rows` elements, one column) or of a matrix, and its workers.

    A matrix has pixels and channels (NHWC), or images and the elements of a group of odd planes.
    """

    rows: int
    columns: int
    warps: int
    programs: int
    """Programs on each multiprocessor: not more than it holds at once, or the last would run alone."""
    stages: int = 1
    """Stages of asynchronous copies, one of them in registers; 1: loads into registers only."""

    def __str__(self) -> str:
        """`32x64 w4 x6 s4`: rows x columns, warps, programs on each multiprocessor, stages."""
        return f"{self.rows}x{self.columns} w{self.warps} x{self.programs} s{self.stages}"


_COPIED = {
    "NCHW": (Tile(4096, 1, 4, 4, 3), Tile(1024, 1, 4, 10, 4), Tile(2048, 1, 8, 5, 4), Tile(2048, 1, 4, 8)),
    "NHWC": (Tile(32, 64, 4, 6, 4), Tile(64, 64, 8, 2, 4), Tile(32, 64, 4, 6)),
}
"""Tiles for rows (NHWC) or planes (NCHW) of whole 8 or 16 bytes: 16 to 64 bytes a thread in each stage. The
last of each has more loads in registers instead, in case copies through shared memory cost more than they
hide."""
_SMALL_COPIES = {
    "NCHW": (Tile(1024, 1, 4, 7, 4), Tile(1024, 1, 4, 8)),
    "NHWC": (Tile(16, 64, 4, 8, 4), Tile(16, 64, 4, 8)),
}
"""Tiles for whole 4 bytes, the least that is copied asynchronously: each takes an address of its own."""
_IN_REGISTERS = {"NCHW": (Tile(512, 1, 2, 20), Tile(512, 1, 4, 16)), "NHWC": (Tile(16, 64, 4, 5),)}
"""Tiles for odd rows or planes of 2-byte elements; larger ones would spill."""
_GROUP = 8
"""Channels of a program of odd planes: as many planes of 2-byte elements as begin 16 bytes apart."""
_GROUPED = 4096
"""Elements of a tile of odd planes, lanes that idle included: 32 bytes a thread of 8 warps."""
_ODD = range(33, 128, 2)
"""Elements of a plane by groups, 7 x 7 to 11 x 11: with 5 x 5 or 13 x 13 some tile spills."""


def candidates(problem: BatchNorm) -> tuple[Tile, ...]:
    """What may be tried, all of which compiles without spilling and fits a multiprocessor at once.

    Of 4-byte elements half as many rows as of 2-byte ones: the same bytes in flight. Many programs leave more
    partial sums for the last of them to add.
    """
    if grouped(problem):
        columns = 1 << (_GROUP * problem.h * problem.w - 1).bit_length()
        return tuple(Tile(_GROUPED // columns, columns, 8, 2, stages) for stages in (6, 1))
    contiguous = problem.h * problem.w if problem.layout == "NCHW" else problem.c
    aligned = math.gcd(contiguous * problem.item_byte, 16)
    tiles = _COPIED if aligned >= 8 else _SMALL_COPIES if aligned == 4 else _IN_REGISTERS
    return tuple(tile._replace(rows=tile.rows * 2 // problem.item_byte) for tile in tiles[problem.layout])


def grouped(problem: BatchNorm) -> bool:
    """Whether channels are taken in groups of odd planes, which begin at multiples of 16 bytes."""
    whole = problem.h * problem.w in _ODD and problem.c % _GROUP == 0
    return problem.layout == "NCHW" and problem.item_byte == 2 and whole


def groups(problem: BatchNorm, tile: Tile) -> int:
    """Programs needed to touch every channel once: channels, groups of them, or blocks of columns."""
    return -(-problem.c // _group(problem, tile))


def _group(problem: BatchNorm, tile: Tile) -> int:
    """Channels that a program takes."""
    return _GROUP if grouped(problem) else tile.columns


def parts(problem: BatchNorm, tile: Tile, multiprocessors: int) -> int:
    """Programs that share a channel or a block of columns; never more than it has blocks."""
    wanted = -(-multiprocessors * tile.programs // groups(problem, tile))
    rows = problem.n if grouped(problem) else problem.channel_elements
    return min(wanted, -(-rows // tile.rows))


def sizes(problem: BatchNorm, tile: Tile, of_parts: int) -> dict[str, Any]:
    """What all four kernels are called with besides tensors."""
    plane = problem.h * problem.w if problem.layout == "NCHW" else 1
    align = 1 if tile.columns == 1 else math.gcd(problem.c, 16 // problem.item_byte)
    cut = Cut(plane, _group(problem, tile), tile.rows, tile.columns, align, tile.stages)
    images = problem.channel_elements // plane
    return {"images": images, "channels": problem.c, "parts": of_parts, "CUT": cut}


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
    grid = (groups(problem, tile) * of_parts,)
    options = sizes(problem, tile, of_parts) | {"num_warps": tile.warps}
    outputs, scratch = empty(problem, tensors[0]), _scratch(problem, tile, of_parts, tensors)
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


def _scratch(problem: BatchNorm, tile: Tile, of_parts: int, tensors: Tensors) -> Tensors:
    """Partial sums, and counters that are 0 between launches; nothing for inference."""
    if problem.direction == "inference":
        return ()
    device = tensors[0].device
    counters = torch.zeros(groups(problem, tile), dtype=torch.int32, device=device)
    return torch.empty(2 * of_parts * problem.c, device=device), counters
