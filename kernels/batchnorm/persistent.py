"""Batch normalization in one read: a program holds all elements of its channels in registers.

**Why this algorithm.** Mean and variance need all of x before the first y can be written, so x is read twice,
unless it stays on chip. Here it stays in the registers of one program: 32,768 float32 values are 64 registers
of each of 512 threads, what fits without spilling. NCHW: one channel a program, its planes strung together as
in passes.py. NHWC: a few columns a program, all rows of them, at least 16 bytes of each row; half as many
values, since their addresses and masks take registers too. Whatever is this small has fewer than 2^31
elements (or is refused), so offsets are 32-bit.

**Bytes moved**: x once, y once: 2 S where two kernels move 3 S. One launch instead of two, no partial sums,
no counters. The price is parallelism: a program for each channel (NHWC: for each group of 4 or more), so that
a tensor of few channels leaves most of the device idle.

**Arithmetic**: float32; sums about the first element, as channel.py says.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator"
from __future__ import annotations

import itertools
import math

import torch
import triton
import triton.language as tl

from bench.launching.tuning import tuned
from bench.spec import Launch
from kernels.batchnorm.channel import finish_statistics
from kernels.batchnorm.problem import EPSILON, MOMENTUM, BatchNorm
from kernels.batchnorm.running import running_statistics
from kernels.layernorm.rows import Tile
from kernels.tensors import empty

_THREADS = 32
_HELD = {"NCHW": 64, "NHWC": 32}
"""Most elements of a thread: more would spill."""


@triton.jit(do_not_specialize=["images", "channels"])
def normalize_persistent(
    x_pointer,  # [images, channels, PLANE], contiguous; an image of NHWC is a pixel, of PLANE 1
    y_pointer,  # the same; every element is written once
    weight_pointer,  # [channels]
    bias_pointer,  # [channels]
    mean_pointer,  # [channels], written
    rstd_pointer,  # [channels], written
    running_mean_pointer,  # [channels], updated
    running_variance_pointer,  # [channels], updated
    images,
    channels,
    EPSILON: tl.constexpr,
    MOMENTUM: tl.constexpr,
    PLANE: tl.constexpr,
    ALIGN: tl.constexpr,  # power of two that divides channels; at most 16 bytes' worth
    ROWS: tl.constexpr,  # at least images PLANE
    COLUMNS: tl.constexpr,  # channels of a program: 1 of NCHW
):
    """COLUMNS channels. Grid: as many as cover all."""
    channels = channels // ALIGN * ALIGN
    row = tl.arange(0, ROWS)
    if COLUMNS == 1:
        channel = tl.program_id(0)
        exists = channel < channels
        offset = (row // PLANE * channels + channel) * PLANE + row % PLANE
        inside = row < images * PLANE
    else:
        channel = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
        exists = channel < channels
        offset = row[:, None] * channels + channel[None, :]
        inside = (row < images)[:, None] & exists[None, :]
    shift = tl.load(x_pointer + channel * PLANE, mask=exists, other=0.0).to(tl.float32)
    x = tl.load(x_pointer + offset, mask=inside, other=0.0).to(tl.float32)
    d = tl.where(inside, x - shift, 0.0)
    sum_d = tl.sum(d, axis=0)
    count = images * PLANE
    pointers = mean_pointer, rstd_pointer, running_mean_pointer, running_variance_pointer
    sum_dd = tl.sum(d * d, axis=0)
    rstd = finish_statistics(channel, exists, shift, sum_d, sum_dd, count, pointers, EPSILON, MOMENTUM)
    a = rstd * tl.load(weight_pointer + channel, mask=exists, other=0.0)
    b = tl.load(bias_pointer + channel, mask=exists, other=0.0)
    y = (d - sum_d / tl.cast(count, tl.float32)) * a + b
    tl.store(y_pointer + offset, y.to(y_pointer.dtype.element_ty), mask=inside)


def candidates(problem: BatchNorm) -> list[Tile]:
    """What may be tried: the smallest power of two that holds a channel, NHWC with 16 to 128 bytes of a row.

    Tiles are elements of a channel x channels. Of each the warps that hold it at 16 elements a thread, and at
    the most that a thread can hold.
    """
    rows = triton.next_power_of_2(problem.channel_elements)
    wide = 16 // problem.item_byte
    columns = [1] if problem.layout == "NCHW" else [wide, 2 * wide, 4 * wide, 8 * wide]
    most = _HELD[problem.layout]
    tiles: list[Tile] = []
    for each, a_thread in itertools.product(columns, (16, most)):
        tile = Tile(rows, each, min(16, max(1, rows * each // (_THREADS * a_thread))))
        if rows * each <= most * _THREADS * tile.warps and tile not in tiles:
            tiles.append(tile)
    return tiles


def launch(
    problem: BatchNorm, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, tile: Tile | None = None
) -> Launch:
    """(y, mean, 1/deviation), with the fastest of the candidates unless one is given."""
    if tile is None:
        question = ("batchnorm", "triton-persistent", problem)
        return tuned(question, candidates(problem), lambda tile: launch(problem, x, weight, bias, tile))
    y, mean, rstd = outputs = empty(problem, x)[:3]
    plane = problem.h * problem.w if problem.layout == "NCHW" else 1
    align = 1 if problem.layout == "NCHW" else math.gcd(problem.c, 16 // problem.item_byte)
    options = {"EPSILON": EPSILON, "MOMENTUM": MOMENTUM, "num_warps": tile.warps}
    cut = {"PLANE": plane, "ALIGN": align, "ROWS": tile.rows, "COLUMNS": tile.block}
    run = normalize_persistent[(-(-problem.c // tile.block),)]
    tensors = (x, y, weight, bias, mean, rstd, *running_statistics(problem.c, x.device))
    sizes = problem.channel_elements // plane, problem.c
    return Launch.of(run, outputs, *tensors, *sizes, **options, **cut)
