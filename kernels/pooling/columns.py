"""Taking a block of x apart into columns, and putting columns together again: in registers, moving nothing.

Blocks are `[strips, columns]` with a row of a block in the registers of one thread. A shift by a column is
then only another choice of registers, which costs no instruction; Triton has no slices of a block, but it
splits and joins pairs, and the compiler sees through those.
"""

import triton
import triton.language as tl


@triton.jit  # type: ignore[untyped-decorator]
def apart(block, STRIPS: tl.constexpr, COLUMNS: tl.constexpr):  # type: ignore[no-untyped-def]
    """The COLUMNS (a power of two) columns of a block, in order: each is [STRIPS, 1]."""
    parts = (block,)
    STEPS: tl.constexpr = COLUMNS.bit_length() - 1
    for step in tl.static_range(STEPS):
        halves = ()
        for k in tl.static_range(1 << step):
            pairs = tl.reshape(parts[k], (STRIPS, 2, COLUMNS >> (step + 1)))
            halves += tl.split(tl.permute(pairs, (0, 2, 1)))
        parts = halves  # type: ignore[assignment]
    return parts


@triton.jit  # type: ignore[untyped-decorator]
def together(  # type: ignore[no-untyped-def]
    columns, FIRST: tl.constexpr, STEP: tl.constexpr, COUNT: tl.constexpr, STRIPS: tl.constexpr
):
    """A block of COUNT (a power of two) of these columns: every STEP-th from FIRST on."""
    parts = ()
    for k in tl.static_range(COUNT):
        parts += (columns[FIRST + k * STEP],)  # type: ignore[assignment]
    STEPS: tl.constexpr = COUNT.bit_length() - 1
    for step in tl.static_range(STEPS):
        wider = ()
        for k in tl.static_range(COUNT >> (step + 1)):
            pairs = tl.permute(tl.join(parts[2 * k], parts[2 * k + 1]), (0, 2, 1))
            wider += (tl.reshape(pairs, (STRIPS, 2 << step)),)  # type: ignore[assignment]
        parts = wider
    return parts[0]  # type: ignore[misc]
