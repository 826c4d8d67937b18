"""GEMM by one program an SM that walks over tiles, moved by bulk copies (TMA), on Hopper and later.

**Why this algorithm.** The kernel is tma.py's, but a program does not end with its tile: it goes on to the
next, as many tiles on as there are programs. The two loops, over tiles and along K, are made one (`flatten`),
so the first steps of the next tile are already in flight while the sums of this one leave. What a block costs
to begin and to end is paid once an SM, not once a tile; the shorter K, the more that is.

The price is the last wave: with T tiles and P programs the time is that of ceil(T / P) tiles, however few
are in the last round (MM-13). stream_k.py is for where that hurts. Which program does which tile is fixed,
so all SMs are taken to be equally fast and free.

**Bytes moved.** As in tma.py, in the same grouped order: programs that run at the same time are at
neighbouring tiles.
"""

from kernels.gemm import duration, tma
from kernels.gemm.operands import Operands
from kernels.gemm.parts import tiles_of
from kernels.gemm.problem import Gemm
from kernels.gemm.tiles import Tile
from kernels.prepared import Prepared


def candidates(problem: Gemm, capability: tuple[int, int], sm_count: int) -> tuple[Tile, ...]:
    """The tiles to try on a device of this compute capability; it decides (choosing.py)."""
    return tma.bulk_tiles(problem, capability, persistent=True)


def cost(problem: Gemm, tile: Tile, capability: tuple[int, int], sm_count: int) -> float:
    """How long a launch takes by count (duration.py)."""
    return duration.walking(problem, tile, sm_count)


def prepare(of: Operands, tile: Tile, sm_count: int) -> Prepared:
    """D in `of.d`, in tiles of this size. The tensors' device must be the current one."""
    return tma.by(of, tile, programs(of.problem, tile, sm_count), walks=True)


def programs(problem: Gemm, tile: Tile, sm_count: int) -> int:
    """One an SM, or one a tile where those are fewer."""
    return min(sm_count, tiles_of(problem, tile))
