"""Layer normalization: whole rows in registers, each read once.

row_tiles.py says how rows are cut among programs, and how they are aligned.

**Bytes moved.** x once, y once, 8 bytes of statistics a row: the least there is. Every program also reads
weight and bias, which stay in cache: `2 length ceil(rows / ROWS)` elements from there.

**Arithmetic.** float32. The variance is the mean of squares of x - mean, never a difference of large sums.
The float32 mean of numbers near 1000 is itself off by 3e-5; the mean of what remains says by how much, and
is taken off: right to the last digits of float32 however large the mean.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator"
import triton
import triton.language as tl

from kernels.layernorm.row_tiles import known_length, rows_of


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
