"""Rows, one or a few to a program: how they are cut among programs, and where their elements lie.

For layer normalization, softmax and quantisation by rows: every element of their results needs a sum, or the
largest, of its row. Held in registers the row is read from memory once and the
sums cost shuffles, not bandwidth. 16384 elements are 32 a thread of 16 warps, the most that any supported
architecture holds without spilling. A row takes a block of the next power of two; rows shorter than 1024
share a program, so that each thread has several 16-byte loads under way.

**Alignment.** A row whose length is a multiple of 16 bytes is read and written 16 bytes at a time; any
other length is right but narrower, down to one element at a time for odd ones.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator"
from typing import Any, NamedTuple

import triton
import triton.language as tl

from bench.spec import Launch, Tensors
from kernels.row_wise import Rows
from kernels.tensors import empty


@triton.jit
def known_length(length, ALIGN: tl.constexpr, EVEN: tl.constexpr, BLOCK: tl.constexpr):
    """The length as it is: so the compiler learns what divides it (a hint on an argument is lost)."""
    return BLOCK if EVEN else length // ALIGN * ALIGN


@triton.jit
def rows_of(tile, rows, length, EVEN: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """The tile with this number: its rows, where they start (64-bit), elements from there, which exist.

    EVEN: `length` is BLOCK, and columns need no mask.
    """
    row = tile * ROWS + tl.arange(0, ROWS)
    along = tl.arange(0, BLOCK)
    inside = (row < rows)[:, None]
    if not EVEN:
        inside = inside & (along < length)[None, :]
    start = tl.cast(tile, tl.int64) * ROWS * length
    return row, start, tl.arange(0, ROWS)[:, None] * length + along[None, :], inside


class Tile(NamedTuple):
    """What one program holds at a time, and by how many threads."""

    rows: int
    block: int
    """Elements of a row: all of it and some padding."""
    warps: int
    per_sm: int = 1
    """Programs started for each multiprocessor, where a program takes one tile after the other."""

    def __str__(self) -> str:
        """`4x1024 w4`, rows x elements and warps; `4x1024 w4 p2` if 2 programs run on a multiprocessor."""
        return f"{self.rows}x{self.block} w{self.warps}" + (f" p{self.per_sm}" if self.per_sm > 1 else "")


def whole_rows(length: int, most: int) -> list[Tile]:
    """Tiles for rows of `length` in registers, 8 to `most` elements a thread; the smallest tile first.

    `most` is a power of two; at most five tiles.
    """
    block = max(2, 1 << (length - 1).bit_length())
    tiles: list[Tile] = []
    for elements in sorted({max(block, least) for least in (1024, 2048, 4096)}):
        for warps in (4, 8, 16):
            if 8 <= elements // (32 * warps) <= most:
                tiles.append(Tile(elements // block, block, warps))
    return tiles[:5]


def alignment(length: int, item_byte: int) -> int:
    """Elements, a power of two: the largest that divides every row's start, up to 16 bytes' worth.

    A compile-time constant of the kernels: the compiler loads 16 bytes at once only if it can prove it may.
    """
    wide = 16 // item_byte
    return min(wide, length & -length)


def of_rows(tile: Tile, length: int, item_byte: int) -> dict[str, Any]:
    """Compile-time arguments of kernels that hold some rows whole."""
    cut = {"ALIGN": alignment(length, item_byte), "EVEN": length == tile.block}
    return cut | {"ROWS": tile.rows, "BLOCK": tile.block, "num_warps": tile.warps, "num_stages": 1}


def launch_rows(kernel: Any, problem: Rows, inputs: Tensors, tile: Tile, **constants: Any) -> Launch:
    """The launch of a kernel that takes inputs, outputs, rows and length: a program for each tile of rows."""
    outputs = empty(problem, inputs[0])
    run, sizes = kernel[(-(-problem.rows // tile.rows),)], (problem.rows, problem.length)
    options = of_rows(tile, problem.length, problem.item_byte)
    return Launch.of(run, outputs, *inputs, *outputs, *sizes, **options, **constants)
