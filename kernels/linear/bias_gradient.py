"""The gradient of a linear layer's bias: dy [batch, outputs] summed over the batch.

**Why this algorithm.** A program takes tiles of ROWS x COLUMNS, so that it reads at least 128 bytes of each
row, 16 of them a thread, and sums down the columns in registers. The columns alone would leave most of the
device idle, so `parts` programs share a strip of columns: tiles p, p + parts, p + 2 parts... for program p.
Each leaves one partial sum a column, and the last of them to arrive adds these up, always in the same order:
one launch, no atomic addition of data, the same bits every time. A GEMM that reads dy could sum it on its
way; this is a kernel of its own, which finds in L2 what the product has just read and L2 holds.

**Bytes in flight.** Tiles come by asynchronous copies into shared memory, two under way while a third is
added up: 56 to 64 KB on a multiprocessor, where a B200 needs 43 (tests/kernels/in_flight.py). Loads into
registers left 8 to 16 KB: ptxas issues the second only when the first has been used.

**Bytes moved.** dy once, db once. In addition a partial sum a column for each part, written and read in L2.

**Arithmetic.** float32 (float64 for float64): running sums of batch / (ROWS parts) terms, added in pairs;
rounded once.

**Alignment.** 16 bytes at a time where a row's length is a multiple of 16 bytes.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator"
import torch
import triton
import triton.language as tl

from bench.autotune.tuning import tuned
from bench.spec import Launch
from kernels.batchnorm.channel import arrives_last
from kernels.layernorm.rows import Tile, alignment

_STAGES = tl.constexpr(3)
"""Stages of the copies of dy: two tiles are under way while a third is added up. Loads of 2 bytes, which
cannot be asynchronous, ignore it."""


@triton.jit
def _sums(
    pointer, column, first, step, rows, columns, SUM: tl.constexpr, ROWS: tl.constexpr,
    COLUMNS: tl.constexpr, CACHE: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """[COLUMNS] of SUM: rows of the tiles first, first + step... of ROWS rows, added up.

    Of a matrix [rows, columns], contiguous; `column` may lie past the last.
    """
    row = tl.arange(0, ROWS)
    at = row.to(tl.int64)[:, None] * columns + column[None, :]
    total = tl.zeros((ROWS, COLUMNS), dtype=SUM)
    for tile in tl.range(first, tl.cdiv(rows, ROWS), step, num_stages=STAGES):
        inside = (row < rows - tile * ROWS)[:, None] & (column < columns)[None, :]
        start = tl.cast(tile, tl.int64) * ROWS * columns
        total += tl.load(pointer + start + at, mask=inside, other=0.0, cache_modifier=CACHE).to(SUM)
    return tl.sum(total, 0)


@triton.jit(do_not_specialize=["rows", "columns", "parts"])
def column_sums(
    dy_pointer,  # [rows, columns], contiguous
    partial_pointer,  # [parts, columns] of SUM; each written once
    counter_pointer,  # [strips of columns], int32; 0 before and after
    sum_pointer,  # [columns]; each written once
    rows,
    columns,
    parts,  # programs of each strip
    SUM: tl.constexpr,
    ALIGN: tl.constexpr,  # a power of two that divides columns; at most 16 bytes' worth of elements
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Sums down the columns. Grid: strips of COLUMNS columns x parts, strips fastest."""
    columns = columns // ALIGN * ALIGN
    across = tl.cdiv(columns, COLUMNS)
    strip = tl.program_id(0) % across
    part = tl.program_id(0) // across
    column = strip * COLUMNS + tl.arange(0, COLUMNS)
    exists = column < columns
    mine = _sums(dy_pointer, column, part, parts, rows, columns, SUM, ROWS, COLUMNS, "", _STAGES)
    tl.store(partial_pointer + part.to(tl.int64) * columns + column, mine, mask=exists)
    if arrives_last(counter_pointer + strip, parts):
        # Past the first-level cache, which does not see what other multiprocessors wrote.
        whole = _sums(partial_pointer, column, 0, 1, parts, columns, SUM, ROWS, COLUMNS, ".cg", 1)
        tl.store(sum_pointer + column, whole.to(sum_pointer.dtype.element_ty), mask=exists)


def candidates(dtype: torch.dtype, columns: int) -> tuple[Tile, ...]:
    """Tiles worth trying, rows x columns: 32 or 64 bytes a thread; a multiprocessor holds all.

    Of odd rows of 2-byte elements 16 or 32 bytes a thread, one element by each load.
    """
    if alignment(columns, dtype.itemsize) * dtype.itemsize < 4:
        return Tile(16, 128, 4, 6), Tile(16, 64, 4, 5)
    tiles = Tile(32, 64, 4, 7), Tile(32, 128, 4, 4), Tile(64, 64, 8, 4)
    return tuple(tile._replace(rows=tile.rows * 2 // dtype.itemsize) for tile in tiles)


def parts(rows: int, columns: int, tile: Tile, sm_count: int) -> int:
    """Programs that share a strip of columns: enough to fill the device, none without a tile."""
    strips = -(-columns // tile.block)
    return min(-(-tile.per_sm * sm_count // strips), -(-rows // tile.rows))


def launch(dy: torch.Tensor, tile: Tile, sm_count: int) -> Launch:
    """db [outputs] of dy [batch, outputs], contiguous; fewer than 2^31 - 128 of each."""
    rows, columns = dy.shape
    of_sum = torch.float64 if dy.dtype == torch.float64 else torch.float32
    count, strips = parts(rows, columns, tile, sm_count), -(-columns // tile.block)
    db = dy.new_empty(columns)
    partial = dy.new_empty(count, columns, dtype=of_sum)
    counters = dy.new_zeros(strips, dtype=torch.int32)
    arguments = dy, partial, counters, db, rows, columns, count
    options = {"ALIGN": alignment(columns, dy.element_size()), "ROWS": tile.rows, "COLUMNS": tile.block}
    options |= {"num_warps": tile.warps, "num_stages": 1}
    kind = tl.float64 if of_sum == torch.float64 else tl.float32
    return Launch.of(column_sums[(strips * count,)], (db,), *arguments, SUM=kind, **options)


def tuned_launch(dy: torch.Tensor) -> Launch:
    """The launch with the tile that is fastest for this shape on the current device."""
    sm_count: int = torch.cuda.get_device_properties(dy.device).multi_processor_count
    kind = str(dy.dtype).removeprefix("torch.")
    question = ("linear", "bias gradient", kind, "x".join(map(str, dy.shape)))
    return tuned(question, candidates(dy.dtype, dy.shape[1]), lambda tile: launch(dy, tile, sm_count))
