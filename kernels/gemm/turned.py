"""GEMM of operands that are not K-major: made so by kernels of their own, then multiplied as layout TN.

**Why this algorithm.** The matrix units take 16-bit operands as they lie. Operands of 8 bits and of tf32
Hopper's take from shared memory with K contiguous only, and so do Ampere's those of 8 bits, Blackwell's
those of tf32. Any other block is read into registers and written back element by element, between copy and
product, and again for each tile of D that needs it: on Hopper by 128 one-byte stores of a thread in each
step of 256 x 128 x 128, which take as long as the step's products, and those wait for them. Here each
operand is turned once, and the product is one of layout TN, by whichever kernel is best at that.

Turning an operand takes a pass over it, so it pays where each element is used often. `cost` and `slowdown`
(duration.py) count where, for `triton` to propose it (choosing.py): on Hopper for 8-bit squares of 2048 and
more, for tf32 from 4096 on.

**Bytes moved.** A turned operand is read, written to a workspace, and read again by the product, the latter
from L2 as far as that holds it (problem.py). A program turns a square of SIDE[item] x SIDE[item] elements:
16-byte loads and stores, whole lines of 128 bytes on both sides; the elements change places in shared
memory.

**Layouts.** All but TN. Rows must begin and end at multiples of 16 bytes before and after.

**Arithmetic.** That of the kernel which multiplies; turning is of bits.
"""

from __future__ import annotations

from dataclasses import replace

import torch
import triton
import triton.language as tl

from kernels.gemm import choosing
from kernels.gemm.blocks import known_multiple
from kernels.gemm.duration import BYTE_A_CYCLE
from kernels.gemm.operands import Operands
from kernels.gemm.parts import shared
from kernels.gemm.problem import Gemm
from kernels.prepared import Prepared

SIDE = {1: 128, 4: 64}
"""Elements of a side of the square that one program turns, by the bytes of an element."""
WARPS = 8
WORD = {1: torch.int8, 4: torch.int32}
"""Bytes of an element -> the type as which it is moved."""


@triton.jit(do_not_specialize=["rows", "length", "row_x", "row_y"])  # type: ignore[untyped-decorator]
def turn(  # type: ignore[no-untyped-def]
    x_pointer,  # [rows, length]
    y_pointer,  # [length, rows]: x transposed; every element is written once
    rows,
    length,
    row_x,  # elements from one row to the next
    row_y,
    WIDE: tl.constexpr,  # elements in 16 bytes; divides all four
    SIDE: tl.constexpr,
):
    """y = x transposed, one square of it."""
    rows = known_multiple(rows, WIDE)
    length = known_multiple(length, WIDE)
    row_x = known_multiple(row_x, WIDE)
    row_y = known_multiple(row_y, WIDE)
    across = tl.cdiv(length, SIDE)
    row = tl.program_id(0) // across * SIDE + tl.arange(0, SIDE)
    column = tl.program_id(0) % across * SIDE + tl.arange(0, SIDE)
    x = x_pointer + row.to(tl.int64)[:, None] * row_x + column[None, :]
    square = tl.load(x, mask=(row < rows)[:, None] & (column < length)[None, :])
    y = y_pointer + column.to(tl.int64)[:, None] * row_y + row[None, :]
    tl.store(y, square.T, mask=(column < length)[:, None] & (row < rows)[None, :])


def cost(problem: Gemm, product: choosing.Choice, capability: tuple[int, int], sm_count: int) -> float:
    """How long a launch takes by count (duration.py): turning, then the product.

    Each operand takes a launch, 3 us or 5000 cycles, and is read from memory and written there, 13 bytes a
    cycle and multiprocessor (3 TB/s of an H100).
    """
    launches = (problem.layout[0] == "N") + (problem.layout[1] == "T")
    cycles = 5000 * launches + 2 * problem.turned_byte / 13 / sm_count
    return cycles * BYTE_A_CYCLE + choosing.cost(k_major(problem), product, capability, sm_count)


def candidates(problem: Gemm, capability: tuple[int, int], sm_count: int) -> tuple[choosing.Choice, ...]:
    """Ways to multiply what has been turned: those of `triton` for layout TN."""
    if problem.missing("triton-turned", "cuda", capability):
        return ()
    return choosing.choices_of(k_major(problem), "triton", capability, sm_count)


def k_major(problem: Gemm) -> Gemm:
    """The same product with both operands turned."""
    return problem.model_copy(update={"layout": "TN"})


def prepare(of: Operands, product: choosing.Choice, sm_count: int) -> Prepared:
    """D in `of.d`. The tensors' device must be the current one; one stream runs all launches (parts.py)."""
    turns, operands = turned(of)
    prepared: Prepared = choosing.module(product.variant).prepare(operands, product.configuration, sm_count)
    return prepared._replace(before=turns)


def turned(of: Operands) -> tuple[tuple[Prepared, ...], Operands]:
    """What turns each operand that is not K-major, and the operands that there are afterwards."""
    problem = k_major(of.problem)
    item, turns = problem.item_byte, {}
    row_a, row_b, _ = problem.row_byte()
    if of.problem.layout[0] == "N":
        turns["a"] = _into_workspace("turned A", of.a, row_a // item)
    if of.problem.layout[1] == "T":
        turns["b"] = _into_workspace("turned B", of.b, row_b // item)
    there = {name: turn.output for name, turn in turns.items()}
    return tuple(turns.values()), replace(of, problem=problem, a=there.get("a", of.a), b=there.get("b", of.b))


def _into_workspace(use: str, x: torch.Tensor, row: int) -> Prepared:
    """x [rows, length] transposed, `row` elements from row to row."""
    (rows, length), item = x.shape, x.element_size()
    space = shared(use, torch.empty, length * row, WORD[item], x.device)
    arguments = {
        "x_pointer": x.view(WORD[item]),
        "y_pointer": space,
        "rows": rows,
        "length": length,
        "row_x": x.stride(0),
        "row_y": row,
        "WIDE": 16 // item,
        "SIDE": SIDE[item],
        "num_warps": WARPS,
        "num_stages": 1,
    }
    output = space.view(x.dtype).view(length, row)[:, :rows]
    return Prepared(turn, (programs(rows, length, item),), arguments, output)


def programs(rows: int, length: int, item: int) -> int:
    """One for each square, ragged ones included."""
    return -(-rows // SIDE[item]) * -(-length // SIDE[item])
