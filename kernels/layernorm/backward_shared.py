"""Gradient of layer normalization, rows of 8 Ki to 128 Ki: clusters take many rows each, and read them once.

**Why this algorithm.** backward_two_pass.py reads x and dy twice, since no block holds a long row and its
column sums at once: 5 times the bytes of x in all, where 3 are needed. A cluster does hold them: every block
has its columns of a few rows in shared memory, and their column sums in registers. It writes the two sums
along a row where the others read them (shared_memory.py). While they arrive at the cluster's barrier it makes
those of the row after, and the row after that is on its way from memory; dx is written when all have arrived.
Where the registers allow, two blocks run on a multiprocessor.

How many clusters run at a time depends on how multiprocessors are grouped, and differs between devices of one
kind. So four programs are started for each that could: one that must wait for its turn is a quarter as long.

**Bytes moved.** x and dy once, dx once, 8 bytes of statistics a row, dweight and dbias. In addition, from
cache, `length` elements of weight for each program and the statistics for every further block of a cluster;
`2 programs length` float32 partial sums, written and read again; and 8 bytes of each block for every row,
written once and read by all of its cluster.

Two rows of x and dy are under way while a third is worked on: 64 KiB on a multiprocessor in 16 bits. The
statistics are copied with their row. Loaded where they are used, they made every row wait for memory once
more, which halved what was under way.

**Arithmetic.** float32, in a fixed order; as backward.py.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator"
from __future__ import annotations

from collections.abc import Sequence

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy

from bench.spec import Launch, Tensors
from kernels.layernorm import shared_memory
from kernels.layernorm.backward import add
from kernels.layernorm.problem import LONGEST_IN_CLUSTER, LayerNorm
from kernels.layernorm.shared_memory import Share, arrive, everywhere, fetch, meet, parts, places, read, room
from kernels.tensors import empty

STAGES = 3
"""Rows of x and dy in shared memory: one waits for its cluster, one is summed, one is on its way."""
_WAVES = 4


@gluon.jit
def terms(kept_x, kept_dy, stage, mean, rstd, here, LAYOUT: gl.constexpr):
    """h and dy of a row that has arrived, 0 where there is none."""
    standard = gl.where(here, (read(kept_x, stage, LAYOUT) - mean) * rstd, 0.0)
    return standard, gl.where(here, read(kept_dy, stage, LAYOUT), 0.0)


@gluon.jit(do_not_specialize=["rows", "length"])
def gradient_shared(
    x_pointer,  # [rows, length], contiguous
    dy_pointer,  # [rows, length], contiguous
    weight_pointer,  # [length]
    mean_pointer,  # [rows], float32
    rstd_pointer,  # [rows], float32
    dx_pointer,  # [rows, length], contiguous; every element is written once
    sums_pointer,  # [2, programs, length], float32: sums for dweight, then dbias; each written once
    partial_pointer,  # [rows, 2, blocks], float32: sums of g and of g h of each share
    rows,
    length,
    VECTOR: gl.constexpr,  # 16 bytes' worth of elements; divides length
    CHUNKS: gl.constexpr,  # rows under way
    CHUNK: gl.constexpr,  # blocks x CHUNK is at least length
):
    """Rows `program`, `program + programs`...: dx, and this program's share of dweight and dbias."""
    length = length // VECTOR * VECTOR
    BLOCKS: gl.constexpr = gl.num_ctas()
    LAYOUT: gl.constexpr = parts(BLOCKS, VECTOR, gl.num_warps())
    part, along = places(LAYOUT, BLOCKS, CHUNK)
    other = gl.arange(0, BLOCKS, layout=gl.SliceLayout(0, everywhere(BLOCKS, gl.num_warps())))
    here = along < length
    program, of = gl.program_id(0), gl.num_programs(0)

    kept_x = room(x_pointer, BLOCKS, CHUNKS, CHUNK)
    kept_dy = room(dy_pointer, BLOCKS, CHUNKS, CHUNK)
    kept_mean = room(mean_pointer, BLOCKS, CHUNKS, 1)
    kept_rstd = room(rstd_pointer, BLOCKS, CHUNKS, 1)
    one = part[:, None] * 0
    for ahead in gl.static_range(CHUNKS):
        row = program + ahead * of
        start = row.to(gl.int64) * length
        left = gl.where(row < rows, length, 0)
        fetch(kept_x, x_pointer + start, along, along < left, ahead)
        fetch(kept_dy, dy_pointer + start, along, along < left, ahead)
        fetch(kept_mean, mean_pointer + row, one, one < left, ahead)
        fetch(kept_rstd, rstd_pointer + row, one, one < left, ahead)
        async_copy.commit_group()
    weight = gl.load(weight_pointer + along, mask=here, other=0.0).to(gl.float32)
    weight_sums = gl.full([BLOCKS, CHUNK], 0.0, gl.float32, LAYOUT)
    bias_sums = gl.full([BLOCKS, CHUNK], 0.0, gl.float32, LAYOUT)

    # The sums of one row are written, and while the cluster's blocks arrive those of the next are made.
    async_copy.wait_group(CHUNKS - 1)
    mean, rstd = read(kept_mean, 0, LAYOUT), read(kept_rstd, 0, LAYOUT)
    standard, dy = terms(kept_x, kept_dy, 0, mean, rstd, here, LAYOUT)
    offset, slope = gl.sum(dy * weight, 1), gl.sum(dy * weight * standard, 1)
    stage = 0
    for row in range(program, rows, of):
        row_sums = partial_pointer + gl.cast(row, gl.int64) * (2 * BLOCKS)
        gl.store(row_sums + part, offset)
        gl.store(row_sums + BLOCKS + part, slope)
        arrive()
        after = (stage + 1) % CHUNKS
        async_copy.wait_group(CHUNKS - 2)
        next_mean, next_rstd = read(kept_mean, after, LAYOUT), read(kept_rstd, after, LAYOUT)
        standard, dy = terms(kept_x, kept_dy, after, next_mean, next_rstd, here, LAYOUT)
        offset, slope = gl.sum(dy * weight, 1), gl.sum(dy * weight * standard, 1)

        meet()
        mean_of_g = gl.sum(gl.load(row_sums + other, cache_modifier=".cg"), 0) / length
        mean_of_gh = gl.sum(gl.load(row_sums + BLOCKS + other, cache_modifier=".cg"), 0) / length
        standard, dy = terms(kept_x, kept_dy, stage, mean, rstd, here, LAYOUT)
        weight_sums += dy * standard
        bias_sums += dy
        dx = (dy * weight - (mean_of_g + standard * mean_of_gh)) * rstd
        at = gl.cast(row, gl.int64) * length
        gl.store(dx_pointer + at + along, dx.to(dx_pointer.dtype.element_ty), mask=here)

        # Into the place of this row, which all threads have read.
        later = row + CHUNKS * of
        start = gl.cast(later, gl.int64) * length
        left = gl.where(later < rows, length, 0)
        fetch(kept_x, x_pointer + start, along, along < left, stage)
        fetch(kept_dy, dy_pointer + start, along, along < left, stage)
        fetch(kept_mean, mean_pointer + later, one, one < left, stage)
        fetch(kept_rstd, rstd_pointer + later, one, one < left, stage)
        async_copy.commit_group()
        mean, rstd, stage = next_mean, next_rstd, after

    sums_pointer += program.to(gl.int64) * length
    gl.store(sums_pointer + along, weight_sums, mask=here)
    gl.store(sums_pointer + of.to(gl.int64) * length + along, bias_sums, mask=here)


def candidates(problem: LayerNorm) -> Sequence[Share]:
    """Shares worth trying: 16 elements a thread, of 16 warps, or of 8 where the cluster is no larger than 16.

    None of rows that are no multiple of 16 bytes, or longer than 128 Ki.
    """
    if problem.length * problem.item_byte % 16 or problem.length > LONGEST_IN_CLUSTER:
        return []
    shares = []
    for warps in (16, 8):
        chunk = 16 * 32 * warps
        blocks = 1 << (-(-problem.length // chunk) - 1).bit_length()
        if 2 <= blocks <= 16:
            shares.append(Share(blocks, STAGES, chunk, warps))
    return shares


def count(problem: LayerNorm, share: Share, multiprocessors: int) -> int:
    """Programs to start."""
    at_a_time = multiprocessors * 16 // share.warps // share.blocks
    return min(_WAVES * max(1, at_a_time), problem.rows)


def launch(problem: LayerNorm, inputs: Tensors, share: Share, multiprocessors: int) -> Launch:
    """dx, dweight and dbias of rows of a multiple of 16 bytes; mean and rstd float32, all contiguous."""
    started = count(problem, share, multiprocessors)
    dx, dweight, dbias = empty(problem, inputs[0])
    sums = dx.new_empty(2, started, problem.length, dtype=torch.float32)
    partial = shared_memory.partial_sums(share, dx, 2)
    arguments = *inputs, dx, sums, partial, problem.rows, problem.length
    gradient = Launch.of(gradient_shared[(started,)], (dx,), *arguments, **share.constants(problem.item_byte))
    return gradient.then(add(sums, dweight, dbias))
