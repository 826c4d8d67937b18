"""Launching the two-pass kernels: which tile, how many programs, which buffers.

Two launches for forward and backward, one for inference. `parts`, the programs that share a channel (NHWC: a
block of columns), is what fills the device a few times over, so that no part is longer than the others by
more than a block; when channels alone do that, it is 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from bench.spec import Launch
from kernels.batchnorm import nchw, nhwc
from kernels.batchnorm.problem import EPSILON, MOMENTUM, BatchNorm
from kernels.batchnorm.running import running_statistics
from kernels.tuning import fastest, tuned

if TYPE_CHECKING:
    from bench.spec import Tensors


class Tile(NamedTuple):
    """A block of one channel (NCHW: `rows` elements, one column) or of a matrix (NHWC), and its workers."""

    rows: int
    columns: int
    warps: int
    programs: int
    """On each multiprocessor."""

    def __str__(self) -> str:
        """`32x64 w4 x8`: rows x columns, warps, programs on each multiprocessor."""
        return f"{self.rows}x{self.columns} w{self.warps} x{self.programs}"


_WIDE = {
    "NCHW": (Tile(1024, 1, 4, 8), Tile(2048, 1, 4, 8), Tile(4096, 1, 8, 4), Tile(8192, 1, 16, 4)),
    "NHWC": (Tile(32, 64, 4, 8), Tile(16, 128, 4, 8), Tile(64, 64, 8, 4), Tile(128, 64, 8, 2)),
}
"""8 to 32 elements a thread, for rows (NHWC) or planes (NCHW) of whole 16 bytes."""
_NARROW = {
    "NCHW": (Tile(1024, 1, 4, 8), Tile(2048, 1, 8, 4)),
    "NHWC": (Tile(32, 64, 4, 8), Tile(16, 128, 4, 8), Tile(64, 64, 8, 4)),
}
"""For others, whose elements take an address each: more of them would spill."""


def candidates(problem: BatchNorm) -> tuple[Tile, ...]:
    """What may be tried, all of which compiles without spilling.

    Many programs keep more loads in flight; few leave fewer partial sums for the last of them to add.
    """
    contiguous = problem.h * problem.w if problem.layout == "NCHW" else problem.c
    return (_NARROW if contiguous * problem.item_byte % 16 else _WIDE)[problem.layout]


def kernels(problem: BatchNorm) -> ModuleType:
    """The file that holds the layout's four kernels."""
    return nchw if problem.layout == "NCHW" else nhwc


def groups(problem: BatchNorm, tile: Tile) -> int:
    """Programs needed to touch every channel once: channels, or blocks of columns."""
    return -(-problem.c // tile.columns)


def parts(problem: BatchNorm, tile: Tile, multiprocessors: int) -> int:
    """Programs that share a channel or a block of columns; never more than it has blocks."""
    wanted = -(-multiprocessors * tile.programs // groups(problem, tile))
    return min(wanted, -(-problem.channel_elements // tile.rows))


def sizes(problem: BatchNorm, tile: Tile, of_parts: int) -> dict[str, Any]:
    """What all four kernels of a layout are called with besides tensors."""
    if problem.layout == "NCHW":
        return {
            "images": problem.n,
            "channels": problem.c,
            "parts": of_parts,
            "PLANE": problem.h * problem.w,
            "BLOCK": tile.rows,
        }
    return {
        "rows": problem.channel_elements,
        "channels": problem.c,
        "parts": of_parts,
        "ALIGN": math.gcd(problem.c, 16 // problem.item_byte),
        "ROWS": tile.rows,
        "COLUMNS": tile.columns,
    }


def launch(
    problem: BatchNorm, tensors: Tensors, tile: Tile | None = None, multiprocessors: int | None = None
) -> Launch:
    """The problem's outputs as operator.py has them; the fastest of the candidates unless a tile is given.

    `multiprocessors` defaults to those of the tensors' device.
    """
    if tile is None:
        return tuned(*_question(problem, tensors))
    if multiprocessors is None:
        multiprocessors = torch.cuda.get_device_properties(tensors[0].device).multi_processor_count
    of_parts = parts(problem, tile, multiprocessors)
    grid = (groups(problem, tile) * of_parts,)
    options = sizes(problem, tile, of_parts) | {"num_warps": tile.warps}
    build = {"forward": _forward, "inference": _inference, "backward": _backward}[problem.direction]
    return build(kernels(problem), grid, tensors, _scratch(problem, tile, of_parts, tensors), options)


def chosen(problem: BatchNorm, tensors: Tensors) -> Tile:
    """The candidate that was fastest for this problem on this device."""
    return fastest(*_question(problem, tensors))


def _question(
    problem: BatchNorm, tensors: Tensors
) -> tuple[tuple[object, ...], Sequence[Tile], Callable[[Tile], Launch]]:
    """What the tuner is asked."""
    question = ("batchnorm", "triton", problem)
    return question, candidates(problem), lambda tile: launch(problem, tensors, tile)


def _scratch(problem: BatchNorm, tile: Tile, of_parts: int, tensors: Tensors) -> Tensors:
    """Partial sums, and counters that are 0 between launches; nothing for inference."""
    if problem.direction == "inference":
        return ()
    device = tensors[0].device
    counters = torch.zeros(groups(problem, tile), dtype=torch.int32, device=device)
    return torch.empty(2 * of_parts * problem.c, device=device), counters


def _forward(
    module: ModuleType, grid: tuple[int], tensors: Tensors, scratch: Tensors, options: dict[str, Any]
) -> Launch:
    x, weight, bias = tensors
    y, mean, rstd = torch.empty_like(x), torch.empty_like(weight), torch.empty_like(weight)
    running = running_statistics(weight.numel(), x.device)
    collect, write = module.statistics[grid], module.normalize[grid]

    def call() -> Tensors:
        collect(x, *scratch, mean, rstd, *running, **options, EPSILON=EPSILON, MOMENTUM=MOMENTUM)
        write(x, y, mean, rstd, weight, bias, **options, EPSILON=EPSILON, FROM_VARIANCE=False)
        return y, mean, rstd

    return Launch(call, (y, mean, rstd))


def _inference(
    module: ModuleType, grid: tuple[int], tensors: Tensors, scratch: Tensors, options: dict[str, Any]
) -> Launch:
    x, weight, bias, mean, variance = tensors
    y = torch.empty_like(x)
    write = module.normalize[grid]

    def call() -> Tensors:
        write(x, y, mean, variance, weight, bias, **options, EPSILON=EPSILON, FROM_VARIANCE=True)
        return (y,)

    return Launch(call, (y,))


def _backward(
    module: ModuleType, grid: tuple[int], tensors: Tensors, scratch: Tensors, options: dict[str, Any]
) -> Launch:
    x, dy, weight, mean, rstd = tensors
    dx, dweight, dbias = torch.empty_like(x), torch.empty_like(weight), torch.empty_like(weight)
    collect, write = module.gradient_sums[grid], module.input_gradient[grid]

    def call() -> Tensors:
        collect(x, dy, *scratch, mean, rstd, dweight, dbias, **options)
        write(x, dy, dx, mean, rstd, weight, dweight, dbias, **options)
        return dx, dweight, dbias

    return Launch(call, (dx, dweight, dbias))
