"""Softmax and its gradient: whole rows in registers, each read once.

kernels/layernorm/row_tiles.py says how rows are cut among programs, and how they are aligned.

**Bytes moved.** The inputs once, the result once: the least there is.

**Arithmetic.** float32. The largest of the row is taken off before the exponential, so nothing overflows.
As in torch, a row with a NaN, with +inf, or of nothing but -inf becomes NaN: the first in its sum, the others
as inf - inf.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator"
import torch
import triton
import triton.language as tl

from bench.autotune.tuning import tuned
from bench.spec import Launch, Tensors
from kernels.layernorm.row_tiles import Tile, known_length, launch_rows, rows_of, whole_rows
from kernels.softmax.problem import Softmax


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


def candidates(problem: Softmax) -> list[Tile]:
    """Tiles worth trying: up to 32 elements a thread."""
    return whole_rows(problem.length, most=32)


def with_tile(problem: Softmax, inputs: Tensors, tile: Tile) -> Launch:
    """The launch with this tile."""
    return launch_rows(forward if problem.direction == "forward" else backward, problem, inputs, tile)


def launch(problem: Softmax, *inputs: torch.Tensor) -> Launch:
    """The launch with what is fastest for this problem on the current device."""
    return tuned(("softmax", problem), candidates(problem), lambda tile: with_tile(problem, inputs, tile))
