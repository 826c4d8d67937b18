"""Gradient of layer normalization, of rows up to 8192: every program takes many rows, and each is read once.

**Why this algorithm.** dx needs two sums along each row, dweight and dbias a sum down each column. A program
holds whole rows in registers, so dx costs one reading; and since it takes one tile of rows after the other,
the column sums stay in its registers as well. A few programs run on each multiprocessor, not one for each
tile: each leaves one partial sum a column, and a second, small kernel adds those, in a fixed order. Were the
last program to arrive to do that, one multiprocessor would read all partial sums alone (megabytes), far
slower than a launch. No atomics: the result is the same bits every time. The next tile's loads are under way
while one is computed (`STAGES`).

8192 elements are 16 a thread of 16 warps; x, dy and both column sums of 32 do not fit. Of rows that are no
multiple of 16 bytes, loaded narrowly, 4096 are the most.

**Bytes moved.** x and dy once, dx once, 8 bytes of statistics a row, dweight and dbias. In addition
`length` elements of weight for each program, from cache, and `2 programs length` float32 partial sums,
written and read again from L2.

**Arithmetic.** float32; sums down a column are as long as a program's share of the rows.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator"
import torch
import triton
import triton.language as tl

from bench.spec import Launch, Tensors
from kernels.layernorm.problem import LayerNorm
from kernels.layernorm.row_tiles import Tile, alignment, known_length, of_rows, rows_of, whole_rows
from kernels.tensors import empty


@triton.jit(do_not_specialize=["rows", "length"])
def gradient(
    x_pointer,  # [rows, length], contiguous
    dy_pointer,  # [rows, length], contiguous
    weight_pointer,  # [length]
    mean_pointer,  # [rows], float32
    rstd_pointer,  # [rows], float32
    dx_pointer,  # [rows, length], contiguous; every element is written once
    partial_pointer,  # [2, programs, length], float32: sums for dweight, then dbias; each written once
    rows,
    length,
    ALIGN: tl.constexpr,  # a power of two that divides length; at most 16 bytes' worth of elements
    EVEN: tl.constexpr,  # length is BLOCK: columns need no mask
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,  # at least length
    STAGES: tl.constexpr,  # tiles under way at a time
):
    """Tiles `program`, `program + programs`...: dx, and this program's share of dweight and dbias."""
    length = known_length(length, ALIGN, EVEN, BLOCK)
    along = tl.arange(0, BLOCK)
    here = along < length
    weight = tl.load(weight_pointer + along, mask=here, other=0.0).to(tl.float32)

    weight_sums = tl.zeros((ROWS, BLOCK), dtype=tl.float32)
    bias_sums = tl.zeros((ROWS, BLOCK), dtype=tl.float32)
    program, of = tl.program_id(0), tl.num_programs(0)
    for tile in tl.range(program, tl.cdiv(rows, ROWS), of, num_stages=STAGES):
        row, start, at, inside = rows_of(tile, rows, length, EVEN, ROWS, BLOCK)
        # Where masked, dy is 0 and so is all that is summed below.
        x = tl.load(x_pointer + start + at, mask=inside, other=0.0).to(tl.float32)
        dy = tl.load(dy_pointer + start + at, mask=inside, other=0.0).to(tl.float32)
        mean = tl.load(mean_pointer + row, mask=row < rows, other=0.0)[:, None]
        rstd = tl.load(rstd_pointer + row, mask=row < rows, other=0.0)[:, None]

        standard = (x - mean) * rstd
        scaled = dy * weight[None, :]
        offset = tl.sum(scaled, 1)[:, None] / length
        slope = tl.sum(scaled * standard, 1)[:, None] / length
        dx = (scaled - (offset + standard * slope)) * rstd
        tl.store(dx_pointer + start + at, dx.to(dx_pointer.dtype.element_ty), mask=inside)
        weight_sums += dy * standard
        bias_sums += dy

    mine = partial_pointer + program.to(tl.int64) * length + along
    tl.store(mine, tl.sum(weight_sums, 0), mask=here)
    tl.store(mine + tl.cast(of, tl.int64) * length, tl.sum(bias_sums, 0), mask=here)


@triton.jit(do_not_specialize=["count", "length"])
def add_partial_sums(
    partial_pointer,  # [2, count, length], float32
    dweight_pointer,  # [length]; written once
    dbias_pointer,  # [length]; written once
    count,
    length,
    ALIGN: tl.constexpr,  # a power of two that divides length
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """BLOCK columns of dweight (second program index 0) or dbias (1)."""
    length = length // ALIGN * ALIGN
    along = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    here = along < length
    which = tl.program_id(1)
    partial_pointer += which.to(tl.int64) * count * length
    total = tl.zeros((ROWS, BLOCK), dtype=tl.float32)
    for first in range(0, count, ROWS):
        row = first + tl.arange(0, ROWS)
        at = row.to(tl.int64)[:, None] * length + along[None, :]
        total += tl.load(partial_pointer + at, mask=(row < count)[:, None] & here[None, :], other=0.0)
    result = tl.sum(total, 0).to(dweight_pointer.dtype.element_ty)
    if which == 0:
        tl.store(dweight_pointer + along, result, mask=here)
    else:
        tl.store(dbias_pointer + along, result, mask=here)


SUM_ROWS, SUM_BLOCK = 128, 32
"""Partial sums by columns that one program of `add_partial_sums` takes at a time: 128 bytes of a row."""


def add(partial: torch.Tensor, dweight: torch.Tensor, dbias: torch.Tensor) -> Launch:
    """dweight and dbias `[length]` from their partial sums `[2, count, length]`."""
    count, length = partial.shape[1:]
    options = {"ALIGN": alignment(length, partial.element_size()), "ROWS": SUM_ROWS, "BLOCK": SUM_BLOCK}
    options |= {"num_warps": 4, "num_stages": 1}
    run, arguments = add_partial_sums[(-(-length // SUM_BLOCK), 2)], (partial, dweight, dbias, count, length)
    return Launch.of(run, (dweight, dbias), *arguments, **options)


def candidates(problem: LayerNorm) -> list[Tile]:
    """Tiles worth trying, up to 16 elements a thread; 16 warps on a multiprocessor, 32 of few registers.

    Up to 8 of short rows, whose sums over many rows of a program take registers too.
    """
    tiles = []
    for tile in whole_rows(problem.length, most=16 if problem.length > 512 else 8):
        few = tile.rows * tile.block <= 8 * 32 * tile.warps
        tiles.append(tile._replace(per_sm=(32 if few else 16) // tile.warps))
    return tiles


def launch(problem: LayerNorm, inputs: Tensors, tile: Tile, multiprocessors: int) -> Launch:
    """dx, dweight and dbias of rows within 8192 elements; mean and rstd float32, all contiguous."""
    count = min(tile.per_sm * multiprocessors, -(-problem.rows // tile.rows))
    dx, dweight, dbias = empty(problem, inputs[0])
    partial = dx.new_empty(2, count, problem.length, dtype=torch.float32)
    options = of_rows(tile, problem.length, problem.item_byte) | {"STAGES": 2}
    arguments = *inputs, dx, partial, problem.rows, problem.length
    return Launch.of(gradient[(count,)], (dx,), *arguments, **options).then(add(partial, dweight, dbias))
