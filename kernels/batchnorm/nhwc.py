"""Two-pass batch normalization of NHWC tensors: a matrix of n h w rows (pixels) and c columns (channels).

**Why this algorithm.** A program takes tiles of ROWS x COLUMNS, so that it reads at least 128 bytes of each
row, 16 of them a thread, and sums down the columns: each thread keeps the sums of its own columns in
registers, and threads meet only at the end. A column block of 32 to 128 channels alone would leave most of
the device idle, so `parts` programs share it, tiles p, p + parts, p + 2 parts... for program p, and the last
to finish adds up their sums (channel.py). Programs next to each other take columns next to each other in
memory.

**Bytes moved**, S those of x: `statistics` reads S, `normalize` reads S and writes S: 3 S. Backward,
`gradient_sums` reads 2 S, `input_gradient` reads 2 S and writes S: 5 S. The second kernel of each pair walks
the first one's path backwards, from the last program's last tile to the first's first, so that it begins with
what the cache still holds; it tells the cache to drop what it reads and writes. Besides: 16 bytes of a
channel for each program, and 16 for each of its partial sums.

**Alignment.** Rows begin at multiples of c elements, so accesses are 16 bytes wide only if the compiler knows
that c is a multiple of 8 (16-bit types) or 4: ALIGN, a compile-time constant. Masks along the columns then
hold for whole vectors. An odd c makes accesses of one element.

**Arithmetic** is float32 whatever the tensors hold, rounded once when stored.
"""

import triton
import triton.language as tl

from kernels.batchnorm.channel import (
    arrives_last,
    finish_gradients,
    finish_statistics,
    scale_and_bias,
    slopes,
)

_SIZES = ["rows", "channels", "parts"]
"""Integers that a compilation does not depend on."""


@triton.jit  # type: ignore[untyped-decorator]
def _elements(block, column, rows, channels, ROWS: tl.constexpr):  # type: ignore[no-untyped-def]
    """Offset of a tile's first row (64-bit), offsets of its elements from there, and which of them exist."""
    within = tl.arange(0, ROWS)
    inside = (block * ROWS + within < rows)[:, None] & (column < channels)[None, :]
    return tl.cast(block, tl.int64) * ROWS * channels, within[:, None] * channels + column[None, :], inside


@triton.jit  # type: ignore[untyped-decorator]
def _total(  # type: ignore[no-untyped-def]
    partials_pointer, column, channels, parts, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    """Sums of `parts` partials of each of these columns, past the first-level cache."""
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for start in range(0, parts, ROWS):
        first, offset, inside = _elements(start // ROWS, column, parts, channels, ROWS)
        total += tl.load(partials_pointer + first + offset, mask=inside, other=0.0, cache_modifier=".cg")
    return tl.sum(total, axis=0)


@triton.jit(do_not_specialize=_SIZES)  # type: ignore[untyped-decorator]
def statistics(  # type: ignore[no-untyped-def]
    x_pointer,  # [rows, channels], contiguous
    partials_pointer,  # [2, parts, channels]
    counter_pointer,  # [column blocks], int32; 0 before and after
    mean_pointer,  # [channels], written
    rstd_pointer,  # [channels], written
    running_mean_pointer,  # [channels], updated
    running_variance_pointer,  # [channels], updated
    rows,
    channels,
    parts,  # programs of each column block
    EPSILON: tl.constexpr,
    MOMENTUM: tl.constexpr,
    ALIGN: tl.constexpr,  # power of two that divides channels; at most 16 bytes' worth
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Mean, 1/deviation and running statistics. Grid: column blocks x parts, column blocks fastest."""
    channels = channels // ALIGN * ALIGN  # changes no value, tells the compiler what divides it
    across = tl.cdiv(channels, COLUMNS)
    strip = tl.program_id(0) % across
    part = tl.program_id(0) // across
    column = strip * COLUMNS + tl.arange(0, COLUMNS)
    exists = column < channels
    shift = tl.load(x_pointer + column, mask=exists, other=0.0).to(tl.float32)
    sums = tl.zeros((ROWS, COLUMNS), tl.float32)
    squares = tl.zeros((ROWS, COLUMNS), tl.float32)
    for block in range(part, tl.cdiv(rows, ROWS), parts):
        first, offset, inside = _elements(block, column, rows, channels, ROWS)
        x = tl.load(x_pointer + first + offset, mask=inside, other=0.0).to(tl.float32)
        d = tl.where(inside, x - shift[None, :], 0.0)
        sums += d
        squares += d * d
    mine = partials_pointer + part.to(tl.int64) * channels + column
    second = tl.cast(channels, tl.int64) * parts
    tl.store(mine, tl.sum(sums, axis=0), mask=exists)
    tl.store(mine + second, tl.sum(squares, axis=0), mask=exists)
    if arrives_last(counter_pointer + strip, parts):
        finish_statistics(
            column,
            exists,
            shift,
            _total(partials_pointer, column, channels, parts, ROWS, COLUMNS),
            _total(partials_pointer + second, column, channels, parts, ROWS, COLUMNS),
            rows,
            mean_pointer,
            rstd_pointer,
            running_mean_pointer,
            running_variance_pointer,
            EPSILON,
            MOMENTUM,
        )


@triton.jit(do_not_specialize=_SIZES)  # type: ignore[untyped-decorator]
def normalize(  # type: ignore[no-untyped-def]
    x_pointer,  # [rows, channels], contiguous
    y_pointer,  # the same; every element is written once
    mean_pointer,  # [channels]
    spread_pointer,  # [channels]: variance if FROM_VARIANCE, else 1/deviation
    weight_pointer,  # [channels]
    bias_pointer,  # [channels]
    rows,
    channels,
    parts,
    EPSILON: tl.constexpr,
    FROM_VARIANCE: tl.constexpr,
    ALIGN: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """y = (x - mean) weight / deviation + bias, on the path of `statistics` but backwards."""
    channels = channels // ALIGN * ALIGN
    across = tl.cdiv(channels, COLUMNS)
    program = tl.num_programs(0) - 1 - tl.program_id(0)
    part = program // across
    column = program % across * COLUMNS + tl.arange(0, COLUMNS)
    mean, a, b = scale_and_bias(
        column,
        column < channels,
        mean_pointer,
        spread_pointer,
        weight_pointer,
        bias_pointer,
        EPSILON,
        FROM_VARIANCE,
    )
    steps = tl.cdiv(tl.cdiv(rows, ROWS) - part, parts)
    for step in range(0, steps):
        block = part + (steps - 1 - step) * parts
        first, offset, inside = _elements(block, column, rows, channels, ROWS)
        x = tl.load(x_pointer + first + offset, mask=inside, other=0.0, eviction_policy="evict_first").to(
            tl.float32
        )
        y = (x - mean[None, :]) * a[None, :] + b[None, :]
        y = y.to(y_pointer.dtype.element_ty)
        tl.store(y_pointer + first + offset, y, mask=inside, eviction_policy="evict_first")


@triton.jit(do_not_specialize=_SIZES)  # type: ignore[untyped-decorator]
def gradient_sums(  # type: ignore[no-untyped-def]
    x_pointer,  # [rows, channels], contiguous
    dy_pointer,  # the same
    partials_pointer,  # [2, parts, channels]
    counter_pointer,  # [column blocks], int32; 0 before and after
    mean_pointer,  # [channels]
    rstd_pointer,  # [channels]
    dweight_pointer,  # [channels], written
    dbias_pointer,  # [channels], written
    rows,
    channels,
    parts,
    ALIGN: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """dbias = sum dy, dweight = sum dy (x - mean) / deviation. Grid: as `statistics`."""
    channels = channels // ALIGN * ALIGN
    across = tl.cdiv(channels, COLUMNS)
    strip = tl.program_id(0) % across
    part = tl.program_id(0) // across
    column = strip * COLUMNS + tl.arange(0, COLUMNS)
    exists = column < channels
    mean = tl.load(mean_pointer + column, mask=exists, other=0.0)
    sums = tl.zeros((ROWS, COLUMNS), tl.float32)
    products = tl.zeros((ROWS, COLUMNS), tl.float32)
    for block in range(part, tl.cdiv(rows, ROWS), parts):
        first, offset, inside = _elements(block, column, rows, channels, ROWS)
        x = tl.load(x_pointer + first + offset, mask=inside, other=0.0).to(tl.float32)
        dy = tl.load(dy_pointer + first + offset, mask=inside, other=0.0).to(tl.float32)
        sums += dy
        products += dy * (x - mean[None, :])
    mine = partials_pointer + part.to(tl.int64) * channels + column
    second = tl.cast(channels, tl.int64) * parts
    tl.store(mine, tl.sum(sums, axis=0), mask=exists)
    tl.store(mine + second, tl.sum(products, axis=0), mask=exists)
    if arrives_last(counter_pointer + strip, parts):
        finish_gradients(
            column,
            exists,
            _total(partials_pointer, column, channels, parts, ROWS, COLUMNS),
            _total(partials_pointer + second, column, channels, parts, ROWS, COLUMNS),
            tl.load(rstd_pointer + column, mask=exists, other=0.0),
            dweight_pointer,
            dbias_pointer,
        )


@triton.jit(do_not_specialize=_SIZES)  # type: ignore[untyped-decorator]
def input_gradient(  # type: ignore[no-untyped-def]
    x_pointer,  # [rows, channels], contiguous
    dy_pointer,  # the same
    dx_pointer,  # the same; every element is written once
    mean_pointer,  # [channels]
    rstd_pointer,  # [channels]
    weight_pointer,  # [channels]
    dweight_pointer,  # [channels]
    dbias_pointer,  # [channels]
    rows,
    channels,
    parts,
    ALIGN: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """dx from the channels' sums, on the path of `gradient_sums` but backwards."""
    channels = channels // ALIGN * ALIGN
    across = tl.cdiv(channels, COLUMNS)
    program = tl.num_programs(0) - 1 - tl.program_id(0)
    part = program // across
    column = program % across * COLUMNS + tl.arange(0, COLUMNS)
    mean, a, mean_dy, k = slopes(
        column,
        column < channels,
        rows,
        mean_pointer,
        rstd_pointer,
        weight_pointer,
        dweight_pointer,
        dbias_pointer,
    )
    steps = tl.cdiv(tl.cdiv(rows, ROWS) - part, parts)
    for step in range(0, steps):
        block = part + (steps - 1 - step) * parts
        first, offset, inside = _elements(block, column, rows, channels, ROWS)
        x = tl.load(x_pointer + first + offset, mask=inside, other=0.0, eviction_policy="evict_first").to(
            tl.float32
        )
        dy = tl.load(dy_pointer + first + offset, mask=inside, other=0.0, eviction_policy="evict_first").to(
            tl.float32
        )
        dx = a[None, :] * (dy - mean_dy[None, :] - (x - mean[None, :]) * k[None, :])
        dx = dx.to(dx_pointer.dtype.element_ty)
        tl.store(dx_pointer + first + offset, dx, mask=inside, eviction_policy="evict_first")
