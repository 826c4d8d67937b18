"""Whole rows in registers: which of them a program has, and where their elements lie.

For layer normalization, softmax, quantisation by rows, and chains that end in a norm: every element of their
results needs a sum, or the largest, of its row. Held in registers the row is read from memory once and the
sums cost shuffles, not bandwidth. 16384 elements are 32 a thread of 16 warps, the most that any supported
architecture holds without spilling. Rows shorter than 1024 share a program, so that each thread has several
16-byte loads under way.

**Alignment.** A row whose length is a multiple of 16 bytes is read and written 16 bytes at a time; any
other length is right but narrower, down to one element at a time for odd ones.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator"
import triton
import triton.language as tl


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
