"""Launches of our pooling kernels: their arguments, and the tiles to try, among which the device chooses."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from triton import cdiv, next_power_of_2

from bench.autotune.tuning import tuned
from bench.spec import Launch
from kernels.pooling.backward import gather
from kernels.pooling.forward import pool
from kernels.pooling.problem import Pooling
from kernels.pooling.windows import Points, Windows
from kernels.tensors import empty


class Tile(NamedTuple):
    """What one program computes (windows.py), in powers of two, and its warps."""

    high: int
    wide: int
    lanes: int
    warps: int

    def __str__(self) -> str:
        """`4x8x64 w4`: rows x columns of points x channels (NHWC) or planes (NCHW), and warps."""
        return f"{self.high}x{self.wide}x{self.lanes} w{self.warps}"


def candidates(problem: Pooling) -> list[Tile]:
    """Tiles worth timing: one to four 16-byte accesses a thread and tap, no larger than the problem.

    More in a tile means more loads in flight and fewer halos; fewer means more programs for a small problem.
    In NCHW every element of a thread is a load of its own, so eight of them are enough, and sixteen spill;
    where more than four windows hold a point, already four may.
    """
    h, w = computed(problem)
    listed: dict[Tile, None] = {}
    overlap = problem.down.overlap * problem.across.overlap
    if problem.layout == "NHWC":
        small = max(problem.window, problem.window_w) <= 3
        for elements, warps in ((512, 2), (1024, 4), (2048, 4), *(((2048, 8),) if small else ())):
            for channels in (64, 128):
                lanes = min(next_power_of_2(problem.c), channels)
                points = elements // lanes
                # As square as the image allows.
                wide = min(next_power_of_2(w), 1 << (points.bit_length() // 2))
                listed[Tile(min(next_power_of_2(h), points // wide), wide, lanes, warps)] = None
    else:
        many = ((256, 4), (512, 8)) if overlap > 4 else ()
        for elements, warps in many or ((512, 2), (512, 4), (1024, 4), (2048, 8)):
            for run in (elements, 64 if many else elements // 8):
                wide = min(next_power_of_2(h * w), run)
                lanes = min(next_power_of_2(problem.n * problem.c), elements // wide)
                listed[Tile(1, wide, lanes, warps)] = None
    return list(listed)


def computed(problem: Pooling) -> tuple[int, int]:
    """Rows and columns that tiles are cut from: outputs forward, inputs backward."""
    return (problem.high, problem.wide) if problem.direction == "forward" else (problem.h, problem.w)


def constants(problem: Pooling, tile: Tile) -> dict[str, Any]:
    """The compile-time arguments of the kernel."""
    window = Windows(
        problem.kind,
        *(problem.window, problem.window_w, problem.stride, problem.stride_w),
        *(problem.padding, problem.padding_w),
    )
    channels_last = problem.layout == "NHWC"
    area = math.prod(computed(problem))
    align = math.gcd(problem.c if channels_last else area, 16 // problem.item_byte)
    return {"WINDOW": window, "TILE": Points(channels_last, align, tile.high, tile.wide, tile.lanes)}


def grid(problem: Pooling, tile: Tile) -> tuple[int]:
    """One program for each tile, ragged ones included."""
    h, w = computed(problem)
    if problem.layout == "NHWC":
        patches = cdiv(h, tile.high) * cdiv(w, tile.wide)
        return (problem.n * patches * cdiv(problem.c, tile.lanes),)
    return (cdiv(h * w, tile.high * tile.wide) * cdiv(problem.n * problem.c, tile.lanes),)


def launch(problem: Pooling, *tensors: torch.Tensor, tile: Tile | None = None) -> Launch:
    """Forward (x): y, and for max indices. Backward (dy, and for max indices): dx.

    Shapes and layouts as `kernels.pooling.problem` and `kernels.pooling.operator` say; on the tensors'
    device, which must be the current one. Without a `tile` the first launch of a problem in a process
    compiles and times the candidates (seconds); later ones remember.
    """
    outputs = empty(problem, tensors[0])
    kernel, arguments = gather, (tensors[0], tensors[-1], *outputs)
    if problem.direction == "forward":
        if problem.kind == "max":
            outputs += (torch.empty_like(outputs[0], dtype=torch.int64),)
        # An average has no places; its kernel never touches the pointer.
        kernel, arguments = pool, (tensors[0], outputs[0], outputs[-1])
    sizes = problem.h, problem.w, problem.high, problem.wide
    lanes = problem.c if problem.layout == "NHWC" else problem.n * problem.c

    def tiled(tile: Tile) -> Launch:
        options = constants(problem, tile) | {"num_warps": tile.warps, "num_stages": 1}
        return Launch.of(kernel[grid(problem, tile)], outputs, *arguments, *sizes, lanes, **options)

    return tiled(tile) if tile else tuned(("pooling", problem), candidates(problem), tiled)
