"""Softmax and its gradient, rows beyond 16384: one program walks along its row twice.

**Why this algorithm.** Such a row does not fit into registers. The first walk gathers the sum, the second
writes. It goes backwards: what was read last is still in cache. The forward sum needs the largest element,
not yet known: it is kept relative to the largest so far, and rescaled as that grows (online softmax,
Milakov and Gimelshein 2018), once a chunk, so that every element costs one exponential a walk.

**Bytes moved.** The inputs once from memory; again, shortly after, from L2 as far as the rows under way fit
there (132 programs of 64 KB rows are 8 MB); the result once.

**Arithmetic.** float32; NaN, +inf and rows of -inf as in whole_rows.py.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator"
from collections.abc import Sequence

import triton
import triton.language as tl

from bench.spec import Launch, Tensors
from kernels.layernorm.tiles import Tile, along_rows, chunks
from kernels.softmax.problem import Softmax
from kernels.tensors import empty


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


def candidates(problem: Softmax) -> Sequence[Tile]:
    """Chunks worth trying."""
    return chunks(problem.length, problem.item_byte)


def launch(problem: Softmax, inputs: Tensors, tile: Tile) -> Launch:
    """y of x, or dx of y and dy: rows of any length, all contiguous."""
    outputs = empty(problem, inputs[0])
    run = (forward_two_pass if problem.direction == "forward" else backward_two_pass)[(problem.rows,)]
    options = along_rows(tile, problem.length, problem.item_byte)
    return Launch.of(run, outputs, *inputs, *outputs, problem.length, **options)
