"""GEMM with a short side, m or n up to 64: a stream of the other matrix (decoding, GEMV).

**Why this algorithm.** With few columns (or rows) of D each element of the large matrix serves few products,
so the time is that of reading it once from memory; arithmetic is hidden. What counts is that every
multiprocessor has enough bytes under way (some 40 KB on an H100): 16-byte asynchronous copies, three to six
steps of K ahead, one to three programs on each. The large matrix alone has too few tiles for that, so K is
cut into parts, summed by the last program to arrive: the kernel is split_k.py's, with tiles as long as the
short side and no longer, and one part where the tiles suffice.

**Orientation.** Hopper's and Blackwell's matrix instructions take no fewer than 64 rows, but as few as 8
columns. So where n is the short side, the transposed product is computed, with m in the place of the rows.

**Bytes moved.** The large matrix once. Of the short one, its rows once for each tile of the large, from L2:

    ceil(m / BLOCK_M) BLOCK_N k    elements, if n is short; ceil(n / BLOCK_N) BLOCK_M k, if m is

The short side is padded to 16, 32 or 64. Missing rows wrap around to rows that exist, so they cost copies
from the caches (for n = 1 and BLOCK_M = 128 a ninth of all copies) and matrix instructions, but nothing from
memory. Where the vector units multiply (float32; float64 but on 8.x and 9.x) the padding is to a power of two
only, since there it would cost time.

**Arithmetic.** As in split_k.py.
"""

from kernels.gemm.parts import Share
from kernels.gemm.parts_tiles import skinny_tiles
from kernels.gemm.problem import Gemm
from kernels.gemm.split_k import cost, prepare

__all__ = ["candidates", "cost", "prepare"]


def candidates(problem: Gemm, capability: tuple[int, int], sm_count: int) -> tuple[Share, ...]:
    """The tiles to try on a device of this compute capability; it decides (choosing.py)."""
    return skinny_tiles(problem, capability)
