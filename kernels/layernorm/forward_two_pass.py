"""Layer normalization, rows beyond 16384: one program walks along its row twice.

**Why this algorithm.** Such a row does not fit into registers. The first walk gathers the statistics, the
second normalises. It goes backwards: what was read last is still in cache.

**Bytes moved.** x from memory once; again, shortly after, from L2 as far as the rows under way fit there
(132 programs of 64 KB rows are 8 MB); y once. Loads are `rows (2 length + BLOCK)` elements of x, and
`2 rows length` of weight and bias, which stay in cache.

**Arithmetic.** float32. Every lane keeps the mean and the sum of squared deviations of its own elements
(Welford 1962), so the walk needs no sum over threads; at the end lanes are merged (Chan, Golub and LeVeque
1979), with the mean's own rounding taken off as in forward.py. All is relative to the mean of the first
chunk, or running means near 1000 would lose digits. Right however large the mean, outliers or not.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator"
from collections.abc import Sequence

import triton
import triton.language as tl

from bench.spec import Launch, Tensors
from kernels.layernorm.problem import EPSILON, LayerNorm
from kernels.layernorm.tiles import Tile, along_rows, chunks
from kernels.tensors import empty


@triton.jit(do_not_specialize=["length"])
def normalize_two_pass(
    x_pointer,  # [rows, length], contiguous; rows is the number of programs
    weight_pointer,  # [length]
    bias_pointer,  # [length]
    y_pointer,  # [rows, length], contiguous; every element is written once
    mean_pointer,  # [rows], float32; written once
    rstd_pointer,  # [rows], float32; written once
    length,  # at least BLOCK, so that every lane has an element
    EPSILON: tl.constexpr,
    ALIGN: tl.constexpr,  # a power of two that divides length; at most 16 bytes' worth of elements
    BLOCK: tl.constexpr,
):
    """The row of this program's number."""
    length = length // ALIGN * ALIGN
    row = tl.program_id(0).to(tl.int64)
    x_pointer += row * length
    y_pointer += row * length
    along = tl.arange(0, BLOCK)
    chunks = tl.cdiv(length, BLOCK)

    shift = tl.sum(tl.load(x_pointer + along).to(tl.float32), 0) / BLOCK
    means = tl.zeros((BLOCK,), dtype=tl.float32)
    squares = tl.zeros((BLOCK,), dtype=tl.float32)
    for chunk in range(0, chunks):
        start = chunk * BLOCK
        inside = along < length - start
        x = tl.load(x_pointer + start + along, mask=inside, other=0.0).to(tl.float32) - shift
        away = tl.where(inside, x - means, 0.0)
        means += away * (1.0 / (chunk + 1))
        squares += tl.where(inside, away * (x - means), 0.0)

    count = chunks - 1 + (along < length - (chunks - 1) * BLOCK).to(tl.int32)  # elements of each lane
    mean = tl.sum(means * count, 0) / length
    away = means - mean
    missed = tl.sum(away * count, 0) / length  # of the mean, by its own rounding
    variance = tl.sum(squares + count * away * away, 0) / length - missed * missed
    rstd = tl.rsqrt(variance + EPSILON)
    tl.store(mean_pointer + row, shift + (mean + missed))
    tl.store(rstd_pointer + row, rstd)

    for back in range(0, chunks):
        start = (chunks - 1 - back) * BLOCK
        inside = along < length - start
        x = tl.load(x_pointer + start + along, mask=inside, other=0.0).to(tl.float32) - shift
        weight = tl.load(weight_pointer + start + along, mask=inside, other=0.0).to(tl.float32)
        bias = tl.load(bias_pointer + start + along, mask=inside, other=0.0).to(tl.float32)
        y = ((x - mean) - missed) * rstd * weight + bias
        tl.store(y_pointer + start + along, y.to(y_pointer.dtype.element_ty), mask=inside)


def candidates(problem: LayerNorm) -> Sequence[Tile]:
    """Chunks worth trying."""
    return chunks(problem.length, problem.item_byte)


def launch(problem: LayerNorm, inputs: Tensors, tile: Tile) -> Launch:
    """y, mean and rstd of rows of at least `tile.block` elements; all contiguous."""
    outputs = empty(problem, inputs[0])
    run = normalize_two_pass[(problem.rows,)]
    options = along_rows(tile, problem.length, problem.item_byte) | {"EPSILON": EPSILON}
    return Launch.of(run, outputs, *inputs, *outputs, problem.length, **options)
