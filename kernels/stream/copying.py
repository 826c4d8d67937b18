"""STREAM's copy by any number of programs: what one SM can draw, and what all can.

**Why this algorithm.** The programs walk over blocks in turns, each every P-th of them, P being their number;
so the same work can be done by one SM or by all, and neighbours in time are neighbours in memory. A GPU gives
each SM one program before any gets a second, so up to the SM count a program is an SM. An SM draws as many
bytes a second as it has in flight, over the latency of memory (Little's law): at 700 ns and 100 GB/s 70 KB.
So a block is 128 KiB, eight loads of 16 bytes for each of 1024 threads, none of which waits for another:
while some warps wait for theirs, others write and ask for the next. It is about the most that one program can
have in flight, for 64 registers a thread are all there are.

As many as fill the device is one an SM, whose registers hold no second. The slowest SM ends last, and so does
the one that gets a block more than others: only long arrays, of a dozen blocks an SM, tell the bandwidth of
memory. Arrays that fit a cache are shorter: their blocks are so small that each program has one.

What is left after the last whole block goes in small pieces, an element a thread: with a mask, a block would
need more registers than there are.

**Bytes moved.** x once and y once: 2 n e bytes for n elements of e bytes.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator"
import torch
import triton
import triton.language as tl

from bench.spec import Launch
from kernels.stream.problem import Stream

WARPS = 32
LEAST_BLOCK_BYTE, BLOCK_BYTE = WARPS * 32 * 16, WARPS * 32 * 8 * 16
"""Bytes of one program's loads at once: one to eight of 16 bytes for each thread."""
PIECE = WARPS * 32


@triton.jit(do_not_specialize=["count"])
def copy(
    x_pointer,  # [count], contiguous
    y_pointer,  # [count], contiguous, in the type of x; every element is written once
    count,
    BLOCK: tl.constexpr,
    PIECE: tl.constexpr,  # elements that what is left is copied by
):
    """y = x: the whole blocks in turns, what is left by the program whose turn it is."""
    along = tl.arange(0, BLOCK)
    blocks = count // BLOCK
    for block in range(tl.program_id(0), blocks, tl.num_programs(0)):
        # A tensor may have more than 2^31 elements: where a block starts is 64-bit, and that alone.
        start = tl.cast(block, tl.int64) * BLOCK
        tl.store(y_pointer + start + along, tl.load(x_pointer + start + along))
    if blocks % tl.num_programs(0) == tl.program_id(0):
        rest = tl.cast(blocks, tl.int64) * BLOCK
        few = tl.arange(0, PIECE)
        for piece in range(0, tl.cdiv((count - rest).to(tl.int32), PIECE)):
            start = rest + piece * PIECE
            inside = few < (count - start).to(tl.int32)
            x = tl.load(x_pointer + start + few, mask=inside)
            tl.store(y_pointer + start + few, x, mask=inside)


def block(item_byte: int, length: int, programs: int) -> int:
    """Elements of one block, of so many bytes each, of an array of so many elements."""
    share_byte = int(triton.next_power_of_2(triton.cdiv(length * item_byte, programs)))
    return min(max(LEAST_BLOCK_BYTE, share_byte), BLOCK_BYTE) // item_byte


def launch(problem: Stream, x: torch.Tensor) -> Launch:
    """One copy of x `[length]` into y allocated here, by `problem.programs` programs (0: one for each SM)."""
    programs = problem.programs or torch.cuda.get_device_properties(x.device).multi_processor_count
    return launch_with(programs, problem, x)


def launch_with(programs: int, problem: Stream, x: torch.Tensor) -> Launch:
    """The same by this many programs; on CPU tensors if Triton interprets."""
    y = torch.empty_like(x)
    elements = block(problem.item_byte, problem.length, programs)
    options = {"BLOCK": elements, "PIECE": PIECE, "num_warps": WARPS}
    return Launch.of(copy[(programs,)], (y,), x, y, problem.length, **options)
