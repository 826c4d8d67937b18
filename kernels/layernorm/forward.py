"""Layer normalization: rows up to 16384 in registers, each read once; longer ones in two walks.

**Why these algorithms.** `normalize` holds whole rows in registers: rows.py says why, and how they are
aligned. A longer row does not fit. So one program of `normalize_two_pass` walks along it twice: the first
walk gathers the statistics, the second normalises. It goes backwards: what was read last is still in cache.

**Bytes moved.** `normalize`: x once, y once, 8 bytes of statistics a row: the least there is. Every program
also reads weight and bias, which stay in cache: `2 length ceil(rows / ROWS)` elements from there.
`normalize_two_pass`: x from memory once; again, shortly after, from L2 as far as the rows under way fit there
(132 programs of 64 KB rows are 8 MB); y once. Loads are `rows (2 length + BLOCK)` elements of x, and `2 rows
length` of weight and bias, which stay in cache.

**Arithmetic.** float32. The variance is the mean of squares of x - mean, never a difference of large sums.
The float32 mean of numbers near 1000 is itself off by 3e-5; the mean of what remains says by how much, and
is taken off: right to the last digits of float32 however large the mean.

In the two walks every lane keeps the mean and the sum of squared deviations of its own elements (Welford
1962), so the first needs no sum over threads; at the end lanes are merged (Chan, Golub and LeVeque 1979),
with the mean's own rounding taken off likewise. All is relative to the mean of the first chunk, or running
means near 1000 would lose digits. Right however large the mean, outliers or not.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator"
import triton
import triton.language as tl

from kernels.layernorm.rows import known_length, rows_of


@triton.jit(do_not_specialize=["rows", "length"])
def normalize(
    x_pointer,  # [rows, length], contiguous
    weight_pointer,  # [length]
    bias_pointer,  # [length]
    y_pointer,  # [rows, length], contiguous; every element is written once
    mean_pointer,  # [rows], float32; written once
    rstd_pointer,  # [rows], float32; written once
    rows,
    length,
    EPSILON: tl.constexpr,
    ALIGN: tl.constexpr,  # a power of two that divides length; at most 16 bytes' worth of elements
    EVEN: tl.constexpr,  # length is BLOCK: columns need no mask
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,  # at least length
):
    """The rows from ROWS x program on."""
    length = known_length(length, ALIGN, EVEN, BLOCK)
    row, start, at, inside = rows_of(tl.program_id(0), rows, length, EVEN, ROWS, BLOCK)
    along = tl.arange(0, BLOCK)
    here = along < length

    x = tl.load(x_pointer + start + at, mask=inside, other=0.0, eviction_policy="evict_first").to(tl.float32)
    mean = tl.sum(x, 1) / length
    centred = x - mean[:, None]
    if not EVEN:
        centred = tl.where(here[None, :], centred, 0.0)
    missed = tl.sum(centred, 1) / length  # of the mean, by its own rounding
    variance = tl.sum(centred * centred, 1) / length - missed * missed
    rstd = tl.rsqrt(variance + EPSILON)
    tl.store(mean_pointer + row, mean + missed, mask=row < rows)
    tl.store(rstd_pointer + row, rstd, mask=row < rows)

    weight = tl.load(weight_pointer + along, mask=here, other=0.0).to(tl.float32)
    bias = tl.load(bias_pointer + along, mask=here, other=0.0).to(tl.float32)
    y = (centred - missed[:, None]) * rstd[:, None] * weight[None, :] + bias[None, :]
    tl.store(y_pointer + start + at, y.to(y_pointer.dtype.element_ty), mask=inside)


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
