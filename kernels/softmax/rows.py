"""Softmax and its gradient: rows up to 16384 in registers, each read once; longer ones in two walks.

**Why these algorithms.** `forward` and `backward` hold whole rows in registers: kernels/layernorm/rows.py
says why, and how they are aligned. A longer row does not fit. So one program walks along it twice: the first
walk gathers the sum, the second writes. It goes backwards: what was read last is still in cache. The forward
sum needs the largest element, not yet known: it is kept relative to the largest so far, and rescaled as that
grows (online softmax, Milakov and Gimelshein 2018), once a chunk, so that every element costs one exponential
a walk.

**Bytes moved.** The inputs once from memory, the result once: the least there is. In two walks the inputs
again, shortly after, from L2 as far as the rows under way fit there (132 programs of 64 KB rows are 8 MB).

**Arithmetic.** float32. The largest of the row is taken off before the exponential, so nothing overflows.
As in torch, a row with a NaN, with +inf, or of nothing but -inf becomes NaN: the first in its sum, the others
as inf - inf.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator"
import triton
import triton.language as tl

from kernels.layernorm.rows import known_length, rows_of


@triton.jit(do_not_specialize=["rows", "length"])
def forward(
    x_pointer,  # [rows, length], contiguous
    y_pointer,  # [rows, length], contiguous; every element is written once
    rows,
    length,
    ALIGN: tl.constexpr,  # a power of two that divides length; at most 16 bytes' worth of elements
    EVEN: tl.constexpr,  # length is BLOCK: columns need no mask
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,  # at least length
):
    """y of the rows from ROWS x program on."""
    length = known_length(length, ALIGN, EVEN, BLOCK)
    _, start, at, inside = rows_of(tl.program_id(0), rows, length, EVEN, ROWS, BLOCK)
    x = tl.load(x_pointer + start + at, mask=inside, other=float("-inf")).to(tl.float32)
    raised = tl.exp(x - tl.max(x, 1)[:, None])
    y = raised * (1.0 / tl.sum(raised, 1))[:, None]
    tl.store(y_pointer + start + at, y.to(y_pointer.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["rows", "length"])
def backward(
    y_pointer,  # [rows, length], contiguous
    dy_pointer,  # [rows, length], contiguous
    dx_pointer,  # [rows, length], contiguous; every element is written once
    rows,
    length,
    ALIGN: tl.constexpr,  # as above
    EVEN: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """dx of the rows from ROWS x program on."""
    length = known_length(length, ALIGN, EVEN, BLOCK)
    _, start, at, inside = rows_of(tl.program_id(0), rows, length, EVEN, ROWS, BLOCK)
    y = tl.load(y_pointer + start + at, mask=inside, other=0.0).to(tl.float32)
    dy = tl.load(dy_pointer + start + at, mask=inside, other=0.0).to(tl.float32)
    dx = y * (dy - tl.sum(y * dy, 1)[:, None])
    tl.store(dx_pointer + start + at, dx.to(dx_pointer.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["length"])
def forward_two_pass(
    x_pointer,  # [rows, length], contiguous; rows is the number of programs
    y_pointer,  # [rows, length], contiguous; every element is written once
    length,
    ALIGN: tl.constexpr,  # a power of two that divides length; at most 16 bytes' worth of elements
    BLOCK: tl.constexpr,
):
    """y of the row of this program's number."""
    # Changes no value: it is how the compiler learns what divides it.
    length = length // ALIGN * ALIGN
    row = tl.program_id(0).to(tl.int64)
    x_pointer += row * length
    y_pointer += row * length
    along = tl.arange(0, BLOCK)
    chunks = tl.cdiv(length, BLOCK)

    # A vector of one, for a number that a loop carries is a scalar, and of those a max is no method.
    largest = tl.full((1,), float("-inf"), dtype=tl.float32)
    sums = tl.zeros((BLOCK,), dtype=tl.float32)
    for chunk in range(0, chunks):
        start = chunk * BLOCK
        x = tl.load(x_pointer + start + along, mask=along < length - start, other=float("-inf"))
        x = x.to(tl.float32)
        grown = tl.maximum(largest, tl.max(x, 0))
        # While all there was is -inf, -inf - -inf must not spoil the sum; any number serves instead.
        relative = tl.where(grown == float("-inf"), 0.0, grown)
        sums = sums * tl.exp(largest - relative) + tl.exp(x - relative)
        largest = grown
    inverse = 1.0 / tl.sum(sums, 0)

    for back in range(0, chunks):
        start = (chunks - 1 - back) * BLOCK
        inside = along < length - start
        x = tl.load(x_pointer + start + along, mask=inside, other=float("-inf")).to(tl.float32)
        y = tl.exp(x - largest) * inverse
        tl.store(y_pointer + start + along, y.to(y_pointer.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["length"])
def backward_two_pass(
    y_pointer,  # [rows, length], contiguous; rows is the number of programs
    dy_pointer,  # [rows, length], contiguous
    dx_pointer,  # [rows, length], contiguous; every element is written once
    length,
    ALIGN: tl.constexpr,  # as above
    BLOCK: tl.constexpr,
):
    """dx of the row of this program's number."""
    length = length // ALIGN * ALIGN
    row = tl.program_id(0).to(tl.int64)
    y_pointer += row * length
    dy_pointer += row * length
    dx_pointer += row * length
    along = tl.arange(0, BLOCK)
    chunks = tl.cdiv(length, BLOCK)

    sums = tl.zeros((BLOCK,), dtype=tl.float32)
    for chunk in range(0, chunks):
        start = chunk * BLOCK
        inside = along < length - start
        y = tl.load(y_pointer + start + along, mask=inside, other=0.0).to(tl.float32)
        dy = tl.load(dy_pointer + start + along, mask=inside, other=0.0).to(tl.float32)
        sums += y * dy
    total = tl.sum(sums, 0)

    for back in range(0, chunks):
        start = (chunks - 1 - back) * BLOCK
        inside = along < length - start
        y = tl.load(y_pointer + start + along, mask=inside, other=0.0).to(tl.float32)
        dy = tl.load(dy_pointer + start + along, mask=inside, other=0.0).to(tl.float32)
        dx = y * (dy - total)
        tl.store(dx_pointer + start + along, dx.to(dx_pointer.dtype.element_ty), mask=inside)
