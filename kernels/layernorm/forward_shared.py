"""Layer normalization, rows beyond 16384: shared memory holds the row, and x is read once.

**Why this algorithm.** forward.py reads such a row twice, the second time from L2 as far as that holds
it. Here all of the row is on its way at once into the shared memory of a block, or of a cluster's
blocks (shared_memory.py), and the walks along it for the mean, for the variance and for the result stay
there.

**Bytes moved.** x once, y once, 8 bytes of statistics a row: the least there is. In addition, from cache,
weight and bias once a row, some chunks ahead of their use, and in a cluster 12 bytes of each block, written
once and read by all of them (the first mean twice).

**Arithmetic.** float32, as forward.py: every block takes its share's mean off, then what that has missed by
its own rounding, and squares differences only. Means of shares are merged as differences from the first one
(Chan, Golub and LeVeque 1979), which are small where the mean is large: right however large it is.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator,assignment,misc"
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy

from kernels.layernorm.shared_memory import bring, exchange, inside, parts, places, read

AHEAD = gl.constexpr(2)
"""Chunks of weight and bias that are on their way at a time."""


@gluon.jit
def elements(part, length, BLOCKS: gl.constexpr, CHUNKS: gl.constexpr, CHUNK: gl.constexpr):
    """How many elements of the row each part has: the last chunk may be ragged."""
    rest = length - (CHUNKS - 1) * BLOCKS * CHUNK - part * CHUNK
    rest = gl.where(rest < 0, 0, gl.where(rest > CHUNK, CHUNK, rest))
    return ((CHUNKS - 1) * CHUNK + rest).to(gl.float32)


@gluon.jit(do_not_specialize=["length"])
def normalize_shared(
    x_pointer,  # [rows, length], contiguous; rows is the number of programs
    weight_pointer,  # [length]
    bias_pointer,  # [length]
    y_pointer,  # [rows, length], contiguous; every element is written once
    mean_pointer,  # [rows], float32; written once
    rstd_pointer,  # [rows], float32; written once
    partial_pointer,  # [rows, 3, blocks], float32: mean, what it missed, squares; None for one block
    length,
    EPSILON: gl.constexpr,
    VECTOR: gl.constexpr,  # 16 bytes' worth of elements; divides length
    CHUNKS: gl.constexpr,  # CHUNKS x blocks x CHUNK is at least length, and CHUNKS the least for that
    CHUNK: gl.constexpr,
):
    """The row of this program's number."""
    # Changes no value: it is how the compiler learns what divides it.
    length = length // VECTOR * VECTOR
    BLOCKS: gl.constexpr = gl.num_ctas()
    LAYOUT: gl.constexpr = parts(BLOCKS, VECTOR, gl.num_warps())
    row = gl.program_id(0).to(gl.int64)
    part, along = places(LAYOUT, BLOCKS, CHUNK)
    (kept,) = bring((x_pointer + row * length,), along, length, BLOCKS, CHUNKS, CHUNK)
    y_pointer += row * length
    last = (CHUNKS - 1) * BLOCKS * CHUNK + along < length

    sums = gl.full([BLOCKS, CHUNK], 0.0, gl.float32, LAYOUT)
    for chunk in gl.static_range(CHUNKS):
        async_copy.wait_group(CHUNKS - 1 - chunk)
        x = read(kept, chunk, LAYOUT)
        if chunk == CHUNKS - 1:
            x = gl.where(last, x, 0.0)
        sums += x
    count = elements(part, length, BLOCKS, CHUNKS, CHUNK)
    divisor = gl.where(count > 0, count, 1.0)
    mean = gl.sum(sums, 1) / divisor
    missing = gl.full([BLOCKS, CHUNK], 0.0, gl.float32, LAYOUT)
    squares = gl.full([BLOCKS, CHUNK], 0.0, gl.float32, LAYOUT)
    for chunk in gl.static_range(CHUNKS):
        centred = read(kept, chunk, LAYOUT) - mean[:, None]
        if chunk == CHUNKS - 1:
            centred = gl.where(last, centred, 0.0)
        missing += centred
        squares += centred * centred
    missed = gl.sum(missing, 1) / divisor
    square = gl.sum(squares, 1) - count * missed * missed

    if BLOCKS > 1:
        partial_pointer += row * (3 * BLOCKS)
        other, received = exchange(partial_pointer, (mean, missed, square), part, BLOCKS)
        means, misses, within = received
        counts = elements(other, length, BLOCKS, CHUNKS, CHUNK)
        first = gl.load(partial_pointer, cache_modifier=".cg")
        away = means - first + misses
        beyond = gl.sum(counts * away, 0) / length
        away -= beyond
        rstd = gl.rsqrt(gl.sum(within + counts * away * away, 0) / length + EPSILON)
        gl.store(mean_pointer + row, first + beyond)
        gl.store(rstd_pointer + row, rstd)
    else:
        first, beyond = mean[:, None], missed[:, None]
        rstd = gl.rsqrt(square / length + EPSILON)
        gl.store(mean_pointer + row + part, mean + missed)
        gl.store(rstd_pointer + row + part, rstd)
        rstd = rstd[:, None]

    ahead = ()
    for chunk in gl.static_range(CHUNKS + AHEAD):
        if chunk < CHUNKS:
            at = chunk * BLOCKS * CHUNK + along
            here = inside(at, length, chunk == CHUNKS - 1)
            weight = gl.load(weight_pointer + at, mask=here, other=0.0)
            bias = gl.load(bias_pointer + at, mask=here, other=0.0)
            ahead = ahead + ((weight, bias),)  # noqa: RUF005  (Triton has no starred tuples)
        if chunk >= AHEAD:
            at = (chunk - AHEAD) * BLOCKS * CHUNK + along
            scale, shift = ahead[0]
            ahead = ahead[1:]
            y = ((read(kept, chunk - AHEAD, LAYOUT) - first) - beyond) * rstd
            y = y * scale.to(gl.float32) + shift.to(gl.float32)
            here = inside(at, length, chunk - AHEAD == CHUNKS - 1)
            gl.store(y_pointer + at, y.to(y_pointer.dtype.element_ty), mask=here)
