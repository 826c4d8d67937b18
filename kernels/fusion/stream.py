"""A chain without layernorm as one stream: y = gelu(x + bias) and the like, in a single pass.

**Why this algorithm.** Nothing is reused but the bias, so all that counts is to keep memory busy. x, the
residual and y are taken as one line of n = rows length elements, cut into blocks; where rows begin does not
matter to them. So every load and store of theirs is 16 bytes wide whatever `length` is, where a tile of rows
and columns would fall to single elements as soon as rows stop beginning at multiples of 16 bytes. The bias
runs along with the line and starts again at the end of each row: one remainder a block, one comparison an
element, or a remainder an element if rows are shorter than a block.

**Bytes moved.**

    loads  = n (1 + [bias] + [residual])   elements; the bias comes from memory once, then from the cache
    stores = n                             elements

The bias is loaded 16 bytes at a time if `length` is a multiple of 16 bytes, else element by element: eight
more instructions for eight elements of 16 bits, which the first-level cache answers, so that memory stays
the limit (about 25 elements a clock and multiprocessor against the 4 that memory delivers).

**Masks.** If n is a multiple of 16 bytes, a mask is the same for each 16 bytes, and loads stay wide under
it. If not, full blocks take a path without a mask, and only the last block loads single elements.

**Arithmetic.** All in float32, rounded once to the type of the tensors. gelu is s times the logistic function
of 2 sqrt(2/pi) (s + 0.044715 s^3), which equals 0.5 s (1 + tanh(...)) and needs one exponential.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator"
from typing import Any

import torch
import triton
import triton.language as tl

from bench.autotune.tuning import tuned
from bench.spec import Launch
from kernels.activations.elementwise import Tile
from kernels.fusion.problem import Fusion

CANDIDATES = (Tile(1024, 4), Tile(2048, 4), Tile(2048, 8), Tile(4096, 8))
"""8 or 16 elements a thread: one to four loads of 16 bytes in flight from each tensor."""


@triton.jit(do_not_specialize=["n", "length"])
def chain(
    x_pointer,  # [n], contiguous
    bias_pointer,  # [length], or None; n is a multiple of length
    residual_pointer,  # [n], contiguous, or None
    y_pointer,  # [n], contiguous; every element is written once
    n,
    length,
    GELU: tl.constexpr,
    ALIGN_N: tl.constexpr,  # 16 bytes' worth of elements if that divides n, else 1
    ALIGN_LENGTH: tl.constexpr,  # the same of length
    SHORT: tl.constexpr,  # length < BLOCK: several rows in a block
    BLOCK: tl.constexpr,
):
    """y = x + bias + residual, or what of it there is, then gelu if asked for."""
    # Changes no value: it is how the compiler learns what divides them (a hint on an argument is lost).
    n = n // ALIGN_N * ALIGN_N
    length = length // ALIGN_LENGTH * ALIGN_LENGTH

    # As wide as n: 64 bits only where n needs them.
    start = tl.cast(tl.program_id(0), n.dtype) * BLOCK
    i = tl.arange(0, BLOCK)
    if bias_pointer is not None:
        first = tl.cast(start % length, tl.int32)  # where in its row the block begins
        if SHORT:
            column = (first + i) % length
        else:
            column = first + i
            column = tl.where(column >= length, column - length, column)
        # What the compiler cannot see: a row ends where 16 bytes do, so the columns of each are contiguous.
        column = tl.max_contiguous(tl.multiple_of(column, ALIGN_LENGTH), ALIGN_LENGTH)
    else:
        column = i  # not used

    if ALIGN_N > 1:
        block(x_pointer, bias_pointer, residual_pointer, y_pointer, start, i, column, i < n - start, GELU)
    elif n - start >= BLOCK:
        block(x_pointer, bias_pointer, residual_pointer, y_pointer, start, i, column, None, GELU)
    else:
        block(x_pointer, bias_pointer, residual_pointer, y_pointer, start, i, column, i < n - start, GELU)


@triton.jit
def block(x_pointer, bias_pointer, residual_pointer, y_pointer, start, i, column, mask, GELU: tl.constexpr):
    """One block of the line, from `start`: the chain for those of its elements `i` that `mask` keeps."""
    value = tl.load(x_pointer + start + i, mask=mask).to(tl.float32)
    if bias_pointer is not None:
        value += tl.load(bias_pointer + column, mask=mask).to(tl.float32)
    if residual_pointer is not None:
        value += tl.load(residual_pointer + start + i, mask=mask).to(tl.float32)
    if GELU:
        value = gelu(value)
    tl.store(y_pointer + start + i, value.to(y_pointer.dtype.element_ty), mask=mask)


@triton.jit
def gelu(s):
    """0.5 s (1 + tanh(sqrt(2/pi) (s + 0.044715 s^3))); infinite and NaN where PyTorch's is."""
    # exp(-2 u) is 2 to the power of minus this; 2.302208... = 2 sqrt(2/pi) / ln 2, times 0.044715.
    power = s * (2.302208198 + 0.1029432397 * s * s)
    return s / (1.0 + tl.exp2(-power))


def arguments(problem: Fusion, tile: Tile, y: torch.Tensor, *tensors: torch.Tensor) -> dict[str, Any]:
    """What `chain` is called with, in blocks of this size.

    x, residual, y [rows, length], contiguous and 16-byte aligned; bias [length] likewise.
    """
    wide = 16 // problem.item_byte
    of = dict(zip(problem.tensors[0], tensors, strict=True))
    return {
        **{f"{name}_pointer": of.get(name) for name in ("x", "bias", "residual")},
        "y_pointer": y,
        "n": problem.elements,
        "length": problem.length,
        "GELU": "gelu" in problem.steps,
        "ALIGN_N": wide if problem.elements % wide == 0 else 1,
        "ALIGN_LENGTH": wide if problem.length % wide == 0 else 1,
        "SHORT": problem.length < tile.block,
        "BLOCK": tile.block,
        "num_warps": tile.warps,
    }


def launch(problem: Fusion, *tensors: torch.Tensor, chosen: Tile | None = None) -> Launch:
    """y [rows, length] in the type of x, on its device, in blocks of `chosen`; else of what is fastest.

    The first launch of a problem in a process compiles and times every candidate; later ones remember.
    """
    if chosen is None:
        return tuned(("fusion", problem), CANDIDATES, lambda tile: launch(problem, *tensors, chosen=tile))
    y = torch.empty_like(tensors[0])
    run = chain[(triton.cdiv(problem.elements, chosen.block),)]
    return Launch.of(run, (y,), **arguments(problem, chosen, y, *tensors))
