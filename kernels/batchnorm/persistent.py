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

import math
from typing import NamedTuple

import torch
import triton
import triton.language as tl

from bench.launching.tuning import tuned
from bench.spec import Launch
from kernels.batchnorm.channel import finish_statistics
from kernels.batchnorm.problem import EPSILON, MOMENTUM, BatchNorm
from kernels.batchnorm.running import running_statistics
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


class Block(NamedTuple):
    """What one program holds: `rows` x `columns` (NCHW: elements of one channel), and its warps."""

    rows: int
    columns: int
    warps: int

    def __str__(self) -> str:
        """`4096x1 w8`."""
        return f"{self.rows}x{self.columns} w{self.warps}"


def candidates(problem: BatchNorm) -> list[Block]:
    """What may be tried: the smallest power of two that holds a channel, NHWC with 16 to 128 bytes of a row.

    Of each the warps that hold it at 16 elements a thread, and at the most that a thread can hold.
    """
    rows = triton.next_power_of_2(problem.channel_elements)
    wide = 16 // problem.item_byte
    columns = [1] if problem.layout == "NCHW" else [wide, 2 * wide, 4 * wide, 8 * wide]
    most = _HELD[problem.layout]
    blocks: list[Block] = []
    for block in (Block(rows, each, 0) for each in columns):
        elements = block.rows * block.columns
        for a_thread in (16, most):
            warps = min(16, max(1, elements // (_THREADS * a_thread)))
            chosen = block._replace(warps=warps)
            if elements <= most * _THREADS * warps and chosen not in blocks:
                blocks.append(chosen)
    return blocks


def launch(
    problem: BatchNorm, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, block: Block | None = None
) -> Launch:
    """(y, mean, 1/deviation), with the fastest of the candidates unless one is given."""
    if block is None:
        question = ("batchnorm", "triton-persistent", problem)
        return tuned(question, candidates(problem), lambda block: launch(problem, x, weight, bias, block))
    y, mean, rstd = outputs = empty(problem, x)[:3]
    plane = problem.h * problem.w if problem.layout == "NCHW" else 1
    align = 1 if problem.layout == "NCHW" else math.gcd(problem.c, 16 // problem.item_byte)
    options = {"EPSILON": EPSILON, "MOMENTUM": MOMENTUM, "num_warps": block.warps}
    cut = {"PLANE": plane, "ALIGN": align, "ROWS": block.rows, "COLUMNS": block.columns}
    run = normalize_persistent[(-(-problem.c // block.columns),)]
    tensors = (x, y, weight, bias, mean, rstd, *running_statistics(problem.c, x.device))
    sizes = problem.channel_elements // plane, problem.c
    return Launch.of(run, outputs, *tensors, *sizes, **options, **cut)
