"""Gradient of layer normalization, rows beyond 8192 (or 4096, see backward.py): row sums first, then columns.

**Why this algorithm.** A program cannot hold such rows and their column sums at once. So one kernel walks
along each row for the two sums that dx needs. A second takes blocks of columns by slices of the rows: it
writes dx and keeps the column sums of its block in registers. A third, small one adds the slices' sums, as
in backward.py. The second takes the rows in reverse order: what the first read last is still in L2.

**Bytes moved.** x and dy twice, dx once; the second reading comes from L2 as far as that holds them. Beside
them, from cache: weight once a row and once a slice, four float32 numbers a row for every block of columns,
and the partial sums, `2 slices length` float32, written and read.

**Arithmetic.** float32; as backward.py.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator"
from collections.abc import Sequence

import torch
import triton
import triton.language as tl

from bench.spec import Launch, Tensors
from kernels.layernorm.backward import add
from kernels.layernorm.problem import LayerNorm
from kernels.layernorm.rows import Tile, along_rows, chunks
from kernels.tensors import empty


def walking(problem: LayerNorm) -> Tile:
    """What one program of `row_sums` reads at a time, and its warps."""
    return chunks(problem.length, problem.item_byte)[1]


@triton.jit(do_not_specialize=["length"])
def row_sums(
    x_pointer,  # [rows, length], contiguous; rows is the number of programs
    dy_pointer,  # [rows, length], contiguous
    weight_pointer,  # [length]
    mean_pointer,  # [rows], float32
    rstd_pointer,  # [rows], float32
    sums_pointer,  # [2, rows], float32: mean of dy weight, then of dy weight h; each written once
    length,
    ALIGN: tl.constexpr,  # a power of two that divides length; at most 16 bytes' worth of elements
    BLOCK: tl.constexpr,
):
    """The two sums of the row of this program's number."""
    length = length // ALIGN * ALIGN
    row = tl.program_id(0).to(tl.int64)
    x_pointer += row * length
    dy_pointer += row * length
    mean = tl.load(mean_pointer + row)
    rstd = tl.load(rstd_pointer + row)
    along = tl.arange(0, BLOCK)
    offset = tl.zeros((BLOCK,), dtype=tl.float32)
    slope = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, length, BLOCK):
        inside = along < length - start
        x = tl.load(x_pointer + start + along, mask=inside, other=0.0).to(tl.float32)
        dy = tl.load(dy_pointer + start + along, mask=inside, other=0.0).to(tl.float32)
        weight = tl.load(weight_pointer + start + along, mask=inside, other=0.0).to(tl.float32)
        scaled = dy * weight
        offset += scaled
        slope += scaled * ((x - mean) * rstd)
    tl.store(sums_pointer + row, tl.sum(offset, 0) / length)
    tl.store(sums_pointer + tl.num_programs(0) + row, tl.sum(slope, 0) / length)


@triton.jit(do_not_specialize=["rows", "length"])
def columns(
    x_pointer,  # [rows, length], contiguous
    dy_pointer,  # [rows, length], contiguous
    weight_pointer,  # [length]
    mean_pointer,  # [rows], float32
    rstd_pointer,  # [rows], float32
    sums_pointer,  # [2, rows], float32: as row_sums leaves them
    dx_pointer,  # [rows, length], contiguous; every element is written once
    partial_pointer,  # [2, slices, length], float32; slices is the second grid dimension; each written once
    rows,
    length,
    ALIGN: tl.constexpr,  # a power of two that divides length; at most 16 bytes' worth of elements
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """dx of BLOCK columns in every slices-th tile of ROWS rows, and those rows' sums down the columns."""
    length = length // ALIGN * ALIGN
    along = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    here = along < length
    weight = tl.load(weight_pointer + along, mask=here, other=0.0).to(tl.float32)
    at = tl.arange(0, ROWS).to(tl.int64)[:, None] * length + along[None, :]

    weight_sums = tl.zeros((ROWS, BLOCK), dtype=tl.float32)
    bias_sums = tl.zeros((ROWS, BLOCK), dtype=tl.float32)
    part, slices = tl.program_id(1), tl.num_programs(1)
    tiles = tl.cdiv(rows, ROWS)
    for back in range(part, tiles, slices):
        tile = tiles - 1 - back
        row = tile * ROWS + tl.arange(0, ROWS)
        there = row < rows
        inside = there[:, None] & here[None, :]
        start = tl.cast(tile, tl.int64) * ROWS * length
        x = tl.load(x_pointer + start + at, mask=inside, other=0.0).to(tl.float32)
        dy = tl.load(dy_pointer + start + at, mask=inside, other=0.0).to(tl.float32)
        mean = tl.load(mean_pointer + row, mask=there, other=0.0)[:, None]
        rstd = tl.load(rstd_pointer + row, mask=there, other=0.0)[:, None]
        offset = tl.load(sums_pointer + row, mask=there, other=0.0)[:, None]
        slope = tl.load(sums_pointer + rows + row, mask=there, other=0.0)[:, None]

        standard = (x - mean) * rstd
        dx = (dy * weight[None, :] - (offset + standard * slope)) * rstd
        tl.store(dx_pointer + start + at, dx.to(dx_pointer.dtype.element_ty), mask=inside)
        weight_sums += dy * standard
        bias_sums += dy

    mine = partial_pointer + part.to(tl.int64) * length + along
    tl.store(mine, tl.sum(weight_sums, 0), mask=here)
    tl.store(mine + tl.cast(slices, tl.int64) * length, tl.sum(bias_sums, 0), mask=here)


def candidates(problem: LayerNorm) -> Sequence[Tile]:
    """Tiles of the second kernel worth trying, and how many programs of it run on a multiprocessor."""
    return (Tile(4, 512, 4, 4), Tile(8, 256, 4, 4), Tile(4, 1024, 8, 2), Tile(8, 512, 8, 2))


def slices(problem: LayerNorm, tile: Tile, multiprocessors: int) -> int:
    """Into how many slices the rows are cut, so that blocks of columns x slices fill the device."""
    blocks = -(-problem.length // tile.block)
    wanted = -(-tile.per_sm * multiprocessors // blocks)
    return min(wanted, -(-problem.rows // tile.rows))


def launch(problem: LayerNorm, inputs: Tensors, tile: Tile, multiprocessors: int) -> Launch:
    """dx, dweight and dbias of rows of any length; mean and rstd float32, all contiguous."""
    count = slices(problem, tile, multiprocessors)
    dx, dweight, dbias = empty(problem, inputs[0])
    partial = dx.new_empty(2, count, problem.length, dtype=torch.float32)
    sums = dx.new_empty(2, problem.rows, dtype=torch.float32)
    of_walk = along_rows(walking(problem), problem.length, problem.item_byte)
    of_tile = along_rows(tile, problem.length, problem.item_byte)
    run, arguments = columns[(-(-problem.length // tile.block), count)], (*inputs, sums, dx, partial)
    of_sums = Launch.of(row_sums[(problem.rows,)], (), *inputs, sums, problem.length, **of_walk)
    of_dx = Launch.of(run, (dx,), *arguments, problem.rows, problem.length, ROWS=tile.rows, **of_tile)
    return of_sums.then(of_dx).then(add(partial, dweight, dbias))
