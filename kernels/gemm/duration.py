"""How long a launch takes by count: one model of all our GEMM kernels, to order what is to be tried.

A multiprocessor (SM) computes its tiles in steps along K, and the whole launch takes as long as the SM that
has most of them. With T tiles on P SMs an SM has up to q = ceil(T / P), the number of *waves*; a tile has S
steps:

    a program a tile, r at a time on an SM     q S step + ceil(q / r) (fill + leave)
    one that walks over its tiles              q S step + fill + q leave
    the same, where a tile leaves beside the
    next one's steps                           q S step + fill + leave

Programs that share an SM share its loads and its matrix units, so that their steps add up; but one fills its
pipeline (`fill`) or writes its tile (`leave`) while the others multiply. What cutting up K costs besides is
with the kernels that do (split_k.py, stream_k.py), in the same units.

Everything is in bytes that an SM could load from the L2 cache meanwhile, BYTE_A_CYCLE. The figures in it are
Hopper's, of the others they are off by up to a factor of two, nearly the same one for every candidate. The
model puts candidates in order; which is fastest the device says (choosing.py).

Relatives: the cost model of Stream-K (Osama et al., PPoPP 2023), and bench/model/tile_wave.py, which predicts
seconds of libraries, whose tiles it has to guess, and therefore knows nothing of warps, stages and programs.
"""

import math

from kernels.gemm.parts import step, tiles_of
from kernels.gemm.problem import Gemm
from kernels.gemm.tiles import Tile

BYTE_A_CYCLE = 64
"""Bytes a cycle from the L2 cache to an SM: the unit of all that follows."""
FILL_STEPS = 4
"""Steps along K that it takes to fill a pipeline, about as many as are in flight."""
_SHARED_KIB = {(7, 0): 96, (7, 5): 64, (8, 0): 164, (8, 7): 164, (9, 0): 228, (10, 0): 228, (10, 3): 228}
"""Shared memory of an SM, KiB (CUDA C++ Programming Guide, technical specifications per compute
capability)."""
_OTHER_KIB = 100
"""Shared memory of an SM of 8.6, 8.9 and 12.x."""


def each_alone(problem: Gemm, tile: Tile, sm_count: int, at_a_time: int) -> float:
    """Duration of one program a tile, `at_a_time` on an SM; infinite where not even one has room."""
    if not at_a_time:
        return math.inf
    waves, steps = waves_of(problem, tile, sm_count)
    ends = FILL_STEPS * step(problem, tile) + leave(problem, tile)
    return steps + math.ceil(waves / at_a_time) * ends


def walking(problem: Gemm, tile: Tile, sm_count: int, *, leaves_beside: bool = False) -> float:
    """Of one program an SM that goes from tile to tile; `leaves_beside`: one leaves under the next's
    steps."""
    waves, steps = waves_of(problem, tile, sm_count)
    leaving = 1 if leaves_beside else waves
    fill = FILL_STEPS * step(problem, tile)
    return steps + fill + leaving * leave(problem, tile)


def waves_of(problem: Gemm, tile: Tile, sm_count: int) -> tuple[int, float]:
    """The most tiles that an SM has to compute, and how long all of their steps take."""
    waves = math.ceil(tiles_of(problem, tile) / sm_count)
    return waves, waves * math.ceil(problem.k / tile.k) * step(problem, tile)


def leave(problem: Gemm, tile: Tile) -> float:
    """Duration of writing a tile of D."""
    return float(tile.m * tile.n * problem.output_item_byte)


def at_a_time(tile: Tile, shared_byte: int, capability: tuple[int, int]) -> int:
    """Programs that an SM holds: by their shared memory, and by registers, two of 4 warps, one of 8."""
    return min(8 // tile.warps, shared_room(capability) // shared_byte)


def shared_room(capability: tuple[int, int]) -> int:
    """Bytes of shared memory that an SM has for one program; the 1024 kept back for each are not counted."""
    return (_SHARED_KIB.get(capability, _OTHER_KIB) - 1) * 1024


def sharing(programs: int, per_sm: int, sm_count: int) -> int:
    """How many programs share the loads and matrix units of the fullest SM."""
    return min(per_sm, max(1, math.ceil(programs / sm_count)))


def turned_inside(problem: Gemm, capability: tuple[int, int]) -> tuple[bool, bool]:
    """Whether A, and whether B, goes through registers in small pieces where it is multiplied as it lies.

    Read off the compiled kernels. Hopper turns both. Elsewhere tf32 is loaded from
    shared memory one by one in any layout, but for the units of Blackwell that read it there; those take
    8-bit floats as they lie. From Blackwell on 8-bit blocks of B are turned as they are loaded, by LDSM.
    """
    of_a, of_b = problem.layout[0] == "N", problem.layout[1] == "T"
    generation, tf32 = capability[0], problem.dtype == "tf32"
    if problem.dtype not in Gemm.implementation("triton-turned").dtypes:
        return False, False
    if (tf32 and generation in (8, 12)) or (problem.dtype == "float8_e4m3" and generation in (10, 11)):
        return False, False
    return of_a, of_b and (tf32 or generation < 10)


def slowdown(problem: Gemm, tile: Tile, capability: tuple[int, int]) -> float:
    """How many times as long a tile takes of operands as they lie as of K-major ones: 1 or more.

    Of a block that goes through registers 32 elements are stored a cycle, one by each thread of a warp, and
    what multiplies waits for them. So 256 x 128 x 128 of 8 bits takes twice as long in layout NN.
    """
    of_a, of_b = turned_inside(problem, capability)
    stored = (of_a * tile.m + of_b * tile.n) * tile.k
    return 1 + stored / 32 * BYTE_A_CYCLE / step(problem, tile)
