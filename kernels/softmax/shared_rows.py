"""Softmax and its gradient, rows beyond 16384: shared memory holds the row, and each is read once.

**Why this algorithm.** rows.py reads such a row twice, the second time from L2 as far as that holds
it. Here all of the row is on its way at once into the shared memory of a block, or of a cluster's blocks
(kernels/layernorm/shared_memory.py), and every further walk along it stays there: for the largest element,
for the sum, and for the result. Two blocks of 112 KB, or three of 74 KB, run on a multiprocessor, so that one
computes while another waits for its row; which size of clusters does best the device decides.

**Bytes moved.** Each input once, the result once: the least there is. The blocks of a cluster tell each other
two numbers each (forward) or one, of 4 bytes, written once and read by all of them: 128 bytes a row at most.

**Arithmetic.** As rows.py. Every block takes its own largest element off; its sum is brought to the
largest of the row when all are known. A block of nothing but -inf sums to 0.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator"
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy

from kernels.layernorm.shared_memory import bring, exchange, inside, parts, places, read


@gluon.jit(do_not_specialize=["length"])
def forward_shared(
    x_pointer,  # [rows, length], contiguous; rows is the number of programs
    y_pointer,  # [rows, length], contiguous; every element is written once
    partial_pointer,  # [rows, 2, blocks], float32: largest and sum of each share; None for one block
    length,
    VECTOR: gl.constexpr,  # 16 bytes' worth of elements; divides length
    CHUNKS: gl.constexpr,  # CHUNKS x blocks x CHUNK is at least length, and CHUNKS the least for that
    CHUNK: gl.constexpr,
):
    """y of the row of this program's number."""
    # Changes no value: it is how the compiler learns what divides it.
    length = length // VECTOR * VECTOR
    BLOCKS: gl.constexpr = gl.num_ctas()
    LAYOUT: gl.constexpr = parts(BLOCKS, VECTOR, gl.num_warps())
    row = gl.program_id(0).to(gl.int64)
    part, along = places(LAYOUT, BLOCKS, CHUNK)
    (kept,) = bring((x_pointer + row * length,), along, length, BLOCKS, CHUNKS, CHUNK)
    y_pointer += row * length
    last = (CHUNKS - 1) * BLOCKS * CHUNK + along < length

    largest = gl.full([BLOCKS, CHUNK], float("-inf"), gl.float32, LAYOUT)
    for chunk in gl.static_range(CHUNKS):
        async_copy.wait_group(CHUNKS - 1 - chunk)
        x = read(kept, chunk, LAYOUT)
        if chunk == CHUNKS - 1:
            x = gl.where(last, x, float("-inf"))
        largest = gl.maximum(largest, x)
    most = gl.max(largest, 1)
    # Of nothing but -inf, -inf - -inf must not spoil the sum; any number serves instead.
    relative = gl.where(most == float("-inf"), 0.0, most)[:, None]
    sums = gl.full([BLOCKS, CHUNK], 0.0, gl.float32, LAYOUT)
    for chunk in gl.static_range(CHUNKS):
        x = read(kept, chunk, LAYOUT)
        if chunk == CHUNKS - 1:
            x = gl.where(last, x, float("-inf"))
        sums += gl.exp(x - relative)
    total = gl.sum(sums, 1)

    if BLOCKS > 1:
        _, received = exchange(partial_pointer + row * (2 * BLOCKS), (most, total), part, BLOCKS)
        mosts, totals = received
        highest = gl.max(mosts, 0)
        inverse = 1.0 / gl.sum(totals * gl.exp(mosts - highest), 0)
    else:
        highest = most[:, None]
        inverse = (1.0 / total)[:, None]
    for chunk in gl.static_range(CHUNKS):
        at = chunk * BLOCKS * CHUNK + along
        y = gl.exp(read(kept, chunk, LAYOUT) - highest) * inverse
        here = inside(at, length, chunk == CHUNKS - 1)
        gl.store(y_pointer + at, y.to(y_pointer.dtype.element_ty), mask=here)


@gluon.jit(do_not_specialize=["length"])
def backward_shared(
    y_pointer,  # [rows, length], contiguous; rows is the number of programs
    dy_pointer,  # [rows, length], contiguous
    dx_pointer,  # [rows, length], contiguous; every element is written once
    partial_pointer,  # [rows, 1, blocks], float32: sum of y dy of each share; None for one block
    length,
    VECTOR: gl.constexpr,  # as above
    CHUNKS: gl.constexpr,
    CHUNK: gl.constexpr,
):
    """dx of the row of this program's number."""
    length = length // VECTOR * VECTOR
    BLOCKS: gl.constexpr = gl.num_ctas()
    LAYOUT: gl.constexpr = parts(BLOCKS, VECTOR, gl.num_warps())
    row = gl.program_id(0).to(gl.int64)
    start = row * length
    part, along = places(LAYOUT, BLOCKS, CHUNK)
    kept_y, kept_dy = bring((y_pointer + start, dy_pointer + start), along, length, BLOCKS, CHUNKS, CHUNK)
    dx_pointer += start

    sums = gl.full([BLOCKS, CHUNK], 0.0, gl.float32, LAYOUT)
    for chunk in gl.static_range(CHUNKS):
        async_copy.wait_group(CHUNKS - 1 - chunk)
        product = read(kept_y, chunk, LAYOUT) * read(kept_dy, chunk, LAYOUT)
        if chunk == CHUNKS - 1:
            product = gl.where((CHUNKS - 1) * BLOCKS * CHUNK + along < length, product, 0.0)
        sums += product
    total = gl.sum(sums, 1)

    if BLOCKS > 1:
        _, received = exchange(partial_pointer + row * BLOCKS, (total,), part, BLOCKS)
        whole = gl.sum(received[0], 0)
    else:
        whole = total[:, None]
    for chunk in gl.static_range(CHUNKS):
        at = chunk * BLOCKS * CHUNK + along
        dx = read(kept_y, chunk, LAYOUT) * (read(kept_dy, chunk, LAYOUT) - whole)
        here = inside(at, length, chunk == CHUNKS - 1)
        gl.store(dx_pointer + at, dx.to(dx_pointer.dtype.element_ty), mask=here)
