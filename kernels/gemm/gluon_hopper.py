"""GEMM in Gluon for Hopper: one warp copies, two groups of four warps multiply, a few steps apart.

**Why this algorithm.** A block walks over tiles of D (persistent.py). The warp that copies fills a ring of
`stages` buffers by bulk copies, as far ahead as the ring is long, past the ends of tiles too. Each of the two
groups multiplies one half of the tile's rows (N), so both read the same block of A, and a tile has twice the
sums that one group's registers hold. It is the division of work that CUTLASS calls cooperative. There both
groups end a tile together, and the matrix units wait while D leaves. Here the second group begins every tile
`lag` steps after the first, and so ends it as much later: while one group rounds and writes its half, the
other has the matrix units to itself. CUTLASS's other division (ping-pong, a tile for each group) is for the
same, but its tiles are half as large, so it moves more operands. The price is that a buffer is held `lag`
steps longer.

**Hand-overs**, each a barrier in shared memory (mbarrier):

    full[stage]    the copies of a step have arrived; by the bytes of them
    empty[stage]   both groups have done with it: each says so when its *next* step is under way and this one
                   is complete (one group of matrix instructions outstanding), so the units never run dry
    lead[tile]     the first group is `lag` steps into a tile. As many barriers as stages: a step of a later
                   tile cannot overwrite a buffer that the second group has not read, so the first is never as
                   many tiles ahead, and no barrier completes twice before it is waited for
    addend[half]   of C: the half tile that is to be added has arrived

D leaves in pieces of 64 x 64, whose rows are as wide as the swizzle of 128 bytes, through `staged` buffers of
each group. A copy to D is waited for when its buffer is next written, not before, so it goes on under the
products of the next tile. C comes into the same buffers, all of them, under the products of its own tile; for
that a group waits for its last pieces before it goes on, while the other multiplies.

**Bytes moved.** As in tma.py. No copy goes to two blocks of a cluster at once (multicast): who overwrites a
buffer of another block must know that it is free, and in Triton 3.7.1 an arrival at a barrier of another
block compiles to one at the block's own (`mbarrier.arrive.shared::cta`).

**Layouts.** 16-bit types as they are stored: both the row-wise and the column-wise block are what Hopper's
matrix instructions read, turned by their descriptor. 8-bit floats only along K: layout TN.

**Arithmetic.** As in pointer.py: sums in float32; of 8-bit floats within Hopper's matrix units, which keep
fewer bits, as cuBLAS with fast accumulation.

**Registers.** 168 for each of 384 threads at launch; then 240 for those that multiply, which hold 128 sums
each, and 24 for those that copy (`setmaxnreg`).

**Schedules.** A group of warps multiplies 64 rows (N) at least, and holds 128 sums a thread at most: so 256 x
128, 128 x 256 and 128 x 128 (M x N). A step along K is 128 bytes, as wide as the swizzle of shared memory. Of
stages there are as many as fit beside the pieces of D: four of the large tiles, six of the small, and one
fewer of the large where a matrix is added, for which each group has a buffer for all of its half.

While one group writes its half, the other has as many steps to itself as it lags: of 64 x 256 or 128 x 128
512 cycles each, of 64 x 128 half as many. A copy must arrive within stages - 1 - lag steps of both groups,
1024 cycles each: with four stages 2048 cycles at a lag of one, 3072 at none; of the small tile, whose steps
take half as long, 1536 at a lag of two. Of the groups of tiles of N that comes first with which a wave of 132
tiles is about as wide as it is high.

Sources: Gluon's tutorials 05, 07 and 08 (triton-lang/triton) for the calls; the CUTLASS documentation,
"Efficient GEMM in CUDA", for the two divisions of work.
"""

from __future__ import annotations

from typing import NamedTuple

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from kernels.gemm import persistent
from kernels.gemm.blocks import grouped
from kernels.gemm.gluon import described
from kernels.gemm.operands import Operands
from kernels.gemm.problem import Gemm
from kernels.gemm.tiles import Tile
from kernels.prepared import Prepared

PIECE = 64
"""Columns of D that leave at once: 128 bytes, as wide as the widest swizzle of shared memory."""


@gluon.jit(do_not_specialize=["m", "n", "k"])  # type: ignore[untyped-decorator]
def multiply(  # type: ignore[no-untyped-def]
    a,  # descriptor of op(A): [k, m] if ROWS_ARE_K[0] else [m, k]
    b,  # of op(B): [k, n] if ROWS_ARE_K[1] else [n, k]
    c,  # of [n, m] (ADD matrix); a pointer to [m] (ADD bias); or None
    d,  # of D: [n, m]; every element is written once
    a_scale,  # None, or one float32 each
    b_scale,
    m,
    n,
    k,
    ROWS_ARE_K: gl.constexpr,  # of A, of B
    ADD: gl.constexpr,  # "none", "matrix" or "bias"
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    BLOCK_K: gl.constexpr,
    STAGES: gl.constexpr,  # steps along K that shared memory holds
    STAGED: gl.constexpr,  # pieces of D that it holds, of each group
    LAG: gl.constexpr,  # steps that the second group is behind the first; fewer than STAGES
    GROUP: gl.constexpr,
):
    """D [n, m] = op(B) [n, k] op(A) [k, m] + C, every num_programs(0)-th tile of it."""
    right = gl.allocate_shared_memory(a.dtype, [STAGES] + a.block_type.shape, a.layout)  # noqa: RUF005
    left = gl.allocate_shared_memory(b.dtype, [2 * STAGES] + b.block_type.shape, b.layout)  # noqa: RUF005
    staging = gl.allocate_shared_memory(d.dtype, [2 * STAGED] + d.block_type.shape, d.layout)  # noqa: RUF005
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(STAGES):
        mbarrier.init(full.index(i), count=1)
        mbarrier.init(empty.index(i), count=2)
    lead, addend = full, full  # stand-ins where there is no lag, no matrix to add
    if LAG > 0:
        lead = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
        for i in gl.static_range(STAGES):
            mbarrier.init(lead.index(i), count=1)
    if ADD == "matrix":
        addend = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
        for i in gl.static_range(2):
            mbarrier.init(addend.index(i), count=1)

    operands = (right, left, full, empty)
    outputs = (c, d, a_scale, b_scale, staging, lead, addend)
    sizes = (m, n, k)
    tile: gl.constexpr = (BLOCK_M, BLOCK_N, BLOCK_K, STAGES, GROUP)
    gl.warp_specialize(
        [
            (_multiply, (operands, outputs, sizes, ROWS_ARE_K, tile, ADD, STAGED, LAG, 0)),
            (_multiply, (operands, outputs, sizes, ROWS_ARE_K, tile, ADD, STAGED, LAG, 1)),
            (_copy, (a, b, operands, sizes, ROWS_ARE_K, tile)),
        ],
        [4, 1],  # warps of the last two; the first has num_warps
        [240, 24],  # registers of a thread of them; the first has what is left, 240
    )


@gluon.jit  # type: ignore[untyped-decorator]
def _copy(  # type: ignore[no-untyped-def]
    a,
    b,
    operands,
    sizes,
    ROWS_ARE_K: gl.constexpr,
    TILE: gl.constexpr,
):
    """Blocks of A and B into the ring: every step of every tile of this program, in the order of use."""
    right, left, full, empty = operands
    m, n, k = sizes
    BLOCK_M: gl.constexpr = TILE[0]
    BLOCK_N: gl.constexpr = TILE[1]
    BLOCK_K: gl.constexpr = TILE[2]
    STAGES: gl.constexpr = TILE[3]
    GROUP: gl.constexpr = TILE[4]
    ROWS: gl.constexpr = BLOCK_N // 2
    BYTE: gl.constexpr = (BLOCK_M + BLOCK_N) * BLOCK_K * a.dtype.primitive_bitwidth // 8
    tiles_m = gl.cdiv(m, BLOCK_M)
    tiles_n = gl.cdiv(n, BLOCK_N)
    step = 0
    for tile in range(gl.program_id(0), tiles_m * tiles_n, gl.num_programs(0)):
        tile_m, tile_n = grouped(tile, tiles_m, tiles_n, GROUP)
        at_m = tile_m * BLOCK_M
        at_n = tile_n * BLOCK_N
        for at_k in range(0, k, BLOCK_K):
            stage = step % STAGES
            # Of a barrier that was never used the phase before the first counts as complete.
            mbarrier.wait(empty.index(stage), (step // STAGES & 1) ^ 1)
            mbarrier.expect(full.index(stage), BYTE)
            if ROWS_ARE_K[0]:
                tma.async_copy_global_to_shared(a, [at_k, at_m], full.index(stage), right.index(stage))
            else:
                tma.async_copy_global_to_shared(a, [at_m, at_k], full.index(stage), right.index(stage))
            for half in gl.static_range(2):
                buffer = left.index(2 * stage + half)
                if ROWS_ARE_K[1]:
                    tma.async_copy_global_to_shared(b, [at_k, at_n + half * ROWS], full.index(stage), buffer)
                else:
                    tma.async_copy_global_to_shared(b, [at_n + half * ROWS, at_k], full.index(stage), buffer)
            step += 1


@gluon.jit  # type: ignore[untyped-decorator]
def _multiply(  # type: ignore[no-untyped-def]
    operands,
    outputs,
    sizes,
    ROWS_ARE_K: gl.constexpr,
    TILE: gl.constexpr,
    ADD: gl.constexpr,
    STAGED: gl.constexpr,
    LAG: gl.constexpr,
    HALF: gl.constexpr,
):
    """Half of every tile of this program: its first rows (HALF 0) or its last."""
    right, left, full, empty = operands
    c, d, a_scale, b_scale, staging, lead, addend = outputs
    m, n, k = sizes
    BLOCK_M: gl.constexpr = TILE[0]
    BLOCK_N: gl.constexpr = TILE[1]
    BLOCK_K: gl.constexpr = TILE[2]
    STAGES: gl.constexpr = TILE[3]
    GROUP: gl.constexpr = TILE[4]
    ROWS: gl.constexpr = BLOCK_N // 2
    PIECE: gl.constexpr = d.block_type.shape[1]
    ACROSS: gl.constexpr = BLOCK_M // PIECE
    DEPTH: gl.constexpr = 256 // left.dtype.primitive_bitwidth
    sums: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_M, DEPTH])
    tiles_m = gl.cdiv(m, BLOCK_M)
    tiles_n = gl.cdiv(n, BLOCK_N)
    steps = gl.cdiv(k, BLOCK_K)
    if a_scale is not None:
        scale = gl.load(a_scale) * gl.load(b_scale)
    step = 0
    turn = 0
    for tile in range(gl.program_id(0), tiles_m * tiles_n, gl.num_programs(0)):
        tile_m, tile_n = grouped(tile, tiles_m, tiles_n, GROUP)
        at_m = tile_m * BLOCK_M
        at_n = tile_n * BLOCK_N + HALF * ROWS
        if ADD == "matrix":
            # As a branch within the loop it would make ptxas wait for every single matrix instruction.
            tma.store_wait(0)
            _fetch(c, staging, addend.index(HALF), at_m, at_n, BLOCK_M, STAGED, HALF)
        if LAG > 0 and HALF == 1:
            mbarrier.wait(lead.index(turn % STAGES), turn // STAGES & 1)
        total = gl.zeros([ROWS, BLOCK_M], gl.float32, sums)
        for i in range(steps):
            stage = step % STAGES
            mbarrier.wait(full.index(stage), step // STAGES & 1)
            rows = left.index(2 * stage + HALF)
            columns = right.index(stage)
            if ROWS_ARE_K[1]:
                rows = rows.permute((1, 0))
            if not ROWS_ARE_K[0]:
                columns = columns.permute((1, 0))
            total = warpgroup_mma(rows, columns, total, is_async=True)
            total = warpgroup_mma_wait(1, deps=(total,))
            mbarrier.arrive(empty.index((step + STAGES - 1) % STAGES), pred=i > 0)
            if LAG > 0 and HALF == 0:
                mbarrier.arrive(lead.index(turn % STAGES), pred=i == gl.minimum(LAG, steps - 1))
            step += 1
        if ADD == "bias":
            along_m = at_m + gl.arange(0, BLOCK_M, gl.SliceLayout(0, sums))
            bias = gl.load(c + along_m, mask=along_m < m, other=0.0)
        total = warpgroup_mma_wait(0, deps=(total,))
        mbarrier.arrive(empty.index((step + STAGES - 1) % STAGES))
        if a_scale is not None:
            total *= scale
        if ADD == "bias":
            total += bias.to(gl.float32)[None, :]
        elif ADD == "matrix":
            mbarrier.wait(addend.index(HALF), turn & 1)
        pieces = _pieces(total, PIECE)
        for i in gl.static_range(ROWS // 64 * ACROSS):
            piece = pieces[i]
            buffer = staging.index(HALF * STAGED + i % STAGED)
            if ADD == "matrix":
                piece += buffer.load(piece.type.layout).to(gl.float32)
            tma.store_wait(STAGED - 1)
            buffer.store(piece.to(d.dtype))
            fence_async_shared()
            tma.async_copy_shared_to_global(d, [at_n + i // ACROSS * 64, at_m + i % ACROSS * PIECE], buffer)
        turn += 1
    tma.store_wait(0)


@gluon.jit  # type: ignore[untyped-decorator]
def _fetch(c, staging, arrived, at_m, at_n, BLOCK_M: gl.constexpr, STAGED: gl.constexpr, HALF: gl.constexpr):  # type: ignore[no-untyped-def]
    """C's pieces for this half of a tile, each into the buffer that the piece of D will leave from."""
    PIECE: gl.constexpr = c.block_type.shape[1]
    ACROSS: gl.constexpr = BLOCK_M // PIECE
    mbarrier.expect(arrived, STAGED * c.block_type.nbytes)
    for i in gl.static_range(STAGED):
        at = [at_n + i // ACROSS * 64, at_m + i % ACROSS * PIECE]
        tma.async_copy_global_to_shared(c, at, arrived, staging.index(HALF * STAGED + i))


@gluon.jit  # type: ignore[untyped-decorator]
def _pieces(whole, WIDTH: gl.constexpr):  # type: ignore[no-untyped-def]
    """[rows, columns] as a tuple of [64, WIDTH], row by row of them: each register stays where it is."""
    ROWS: gl.constexpr = whole.shape[0]
    COLUMNS: gl.constexpr = whole.shape[1]
    if ROWS > 64:
        parts = whole.reshape(2, ROWS // 2, COLUMNS).permute(1, 2, 0).split()
        return _pieces(parts[0], WIDTH) + _pieces(parts[1], WIDTH)
    elif COLUMNS > WIDTH:
        parts = whole.reshape(ROWS, 2, COLUMNS // 2).permute(0, 2, 1).split()
        return _pieces(parts[0], WIDTH) + _pieces(parts[1], WIDTH)
    else:
        return (whole,)


class Schedule(NamedTuple):
    """How tiles are computed: `lag` is the kernel's; the tile's warps are those that multiply."""

    tile: Tile
    lag: int

    def __str__(self) -> str:
        """`256x128x64 w8 s4 lag1 g8`."""
        return f"{self.tile.alone} lag{self.lag} g{self.tile.group}"


_SHAPES = {
    (256, 128): ((1, 0, 2), (16, 8, 4)),
    (128, 256): ((1, 0, 2), (8, 16, 4)),
    (128, 128): ((2, 0), (8, 16, 4)),
}
"""M x N -> lags and groups, the likeliest of both first."""
_ROOM_BYTE = 227 * 1024
_SLACK_BYTE = 1024
"""Shared memory of one block for barriers, and to begin on a multiple of 1024 bytes."""


def candidates(problem: Gemm, capability: tuple[int, int], sm_count: int) -> tuple[Schedule, ...]:
    """What to try on a device of compute capability 9.x, large tiles first; it decides (choosing.py)."""
    schedules = []
    for (m, n), (lags, groups) in _SHAPES.items():
        tile = Tile(m, n, 128 // problem.item_byte, 8, 1)
        block_byte = shared_byte(problem, tile)
        stages = 1 + (_ROOM_BYTE - block_byte) // (shared_byte(problem, tile._replace(stages=2)) - block_byte)
        tile = tile._replace(stages=stages, group=groups[0])
        schedules += [Schedule(tile, lag) for lag in lags if lag <= stages - 2]
        schedules += [Schedule(tile._replace(group=group), lags[0]) for group in groups[1:]]
    return tuple(schedules)


def shared_byte(problem: Gemm, tile: Tile) -> int:
    """The most shared memory that one block takes: the ring, the pieces of D on their way, barriers."""
    step = (tile.m + tile.n) * tile.k * problem.item_byte
    pieces = 2 * staged(problem, tile) * 64 * PIECE * problem.output_item_byte
    return tile.stages * step + pieces + _SLACK_BYTE


def staged(problem: Gemm, tile: Tile) -> int:
    """Pieces of D that each group of warps has buffers for: two, or all if they bring C as well."""
    return tile.n // 2 * tile.m // (64 * PIECE) if problem.beta else 2


def prepare(of: Operands, chosen: Schedule, sm_count: int) -> Prepared:
    """D in `of.d`, as scheduled. The tensors' device must be the current one.

    Raises ValueError if a row of anything does not begin at a multiple of 16 bytes.
    """
    tile, problem = chosen.tile, of.problem
    of_a, of_b = of.blocks(tile._replace(n=tile.n // 2))
    arguments = of.arguments(multiply, tile) | {
        "a": described("a", of.a, of_a),
        "b": described("b", of.b, of_b),
        "c": described("c", of.c, [64, PIECE]) if of.c is not None and of.addend == "matrix" else of.c,
        "d": described("d", of.d, [64, PIECE]),
        "STAGES": tile.stages,
        "STAGED": staged(problem, tile),
        "LAG": chosen.lag,
        "num_warps": 4,
    }
    return Prepared(multiply, (persistent.programs(problem, tile, sm_count),), arguments, of.d)
