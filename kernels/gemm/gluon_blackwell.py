"""GEMM on Blackwell (10.x) in Gluon: warps that copy, one that multiplies, four that take tiles away.

**Why this algorithm.** A program walks over tiles as in persistent.py, and three kinds of warps share the
work, meeting at barriers in shared memory alone:

* one warp *brings* blocks of A and B by bulk copies (TMA), `stages` steps of K ahead, across tiles;
* one warp *multiplies*: a tcgen05 instruction reads both blocks from shared memory and adds to sums in tensor
  memory, without a register; when it has ended it frees the blocks by itself (commit);
* four warps *take away*: sums from tensor memory to registers, addend, rounding, shared memory, bulk store.

Tensor memory has room for two tiles of sums (2 x 128 x 256 float32, all 512 columns), so one is taken away
while the next is multiplied: the end of a tile costs time only where K is so short that it takes longer than
the tile's products. persistent.py has the room too, but one kind of warps for everything: each step of K
there is a loop of some 290 instructions and 7 barriers of all warps, here of some 60 and none.

**Two blocks to a product.** In a cluster of two, on neighbouring SMs, one instruction (`cta_group::2`)
multiplies 256 rows of D: each SM brings its own 128 rows of op(B) and half the columns of op(A), holds the
sums of its own rows, and reads the other's half where it lies. So a step brings 128 + m/2 rows an SM
instead of 128 + m, which is what shared memory and L2 have to carry.

**Barriers**, each with the number of arrivals that completes a phase:

    filled[stage]  1: expects the bytes of A and B, which the copies themselves report; of a pair one, the
                   first block's, which expects and gets those of both
    freed[stage]   1: the products of this step have read the blocks; reported to both blocks of a pair
    summed[half]   1: the sums of a tile are complete; to both blocks of a pair
    taken[half]    1: these sums have been read, each block's own
    brought[i]     1: C, or the bias, is in shared memory

Sums that are to be overwritten must have been read first. A block alone has its multiplying warp wait for
`taken`. Of a pair only the first block multiplies, and in Triton 3.7 an arrival stays within its own block,
also at a barrier of both (later versions send it to the first, as their examples expect). So there the warps
that bring wait for `taken`, each for its own block: no product starts without the operands of both.

**Bytes moved.** As in tma.py, with tiles of a pair as large as both blocks' together; loads of C are of D's
size, in the same parts.

**Layouts.** All four, for 16-bit types and float8_e4m3: tcgen05 reads blocks along K or across it.

**Arithmetic.** Products of 16-bit types are exact in float32, sums too are float32, in tensor memory, in the
order in which K is walked; deterministic. The addend is added in float32, the result rounded once.

Triton 3.6 has no barriers of a cluster in Gluon, nor copies of part of a block, so 3.7 is needed. Learned
from Triton's tutorials python/tutorials/gluon 06, 08, 14 and examples/gluon/03.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import torch
import triton
from triton.experimental.gluon.nvidia.blackwell import TensorDescriptor

from bench.spec import Unsupported
from kernels.gemm.gluon import described, shared_arguments
from kernels.gemm.gluon_blackwell_warps import LEAST_TRITON, multiply
from kernels.gemm.operands import Operands
from kernels.gemm.parts import tiles_of
from kernels.gemm.problem import Gemm
from kernels.gemm.tiles import Tile
from kernels.prepared import Prepared

ROWS = 128
"""Rows of D that one block computes: all lanes of tensor memory."""
SLACK_BYTE = 1024
"""Shared memory for barriers, and for what warps of several kinds hand to each other when they start."""


class Schedule(NamedTuple):
    """A tile of D, the blocks that compute it together, and how many tiles of N run together."""

    tile: Tile
    """Its rows are ROWS for each block; the warps are those that take it away."""
    blocks: int
    """1, or 2 that share products."""
    group: int

    def __str__(self) -> str:
        """`256x256x64 w4 s6 c2 g8`."""
        return f"{self.tile} c{self.blocks} g{self.group}"


_SHAPES = ((256, 2), (256, 1), (128, 2), (128, 1), (64, 1))
"""Columns of a tile, and the blocks that compute it: the largest first, which reuse operands most."""
GROUPS = (8, 4, 16)


def candidates(problem: Gemm, capability: tuple[int, int], sm_count: int) -> tuple[Schedule, ...]:
    """What to try on a device of this compute capability: first whose waves of tiles compute least in vain.

    Raises Unsupported with a Triton before 3.7 (module docstring).
    """
    check_version(triton.__version__)
    schedules = [
        Schedule(Tile(wide, ROWS * blocks, 128 // problem.item_byte, 4, stages), blocks, group)
        for wide, blocks in _SHAPES
        for stages in [_most_stages(problem, wide, blocks)]
        for group in (GROUPS if wide == 256 else GROUPS[:1])
    ]
    return tuple(sorted(schedules, key=functools.partial(computed, problem, sm_count=sm_count)))


def check_version(version: str) -> None:
    """Raise Unsupported where this version of Triton cannot compile or launch these kernels."""
    major, minor = version.split(".")[:2]
    if (int(major), int(minor)) < LEAST_TRITON:
        raise Unsupported(
            "triton-gluon needs Triton 3.7 or later on compute capability 10.x, whose barriers may be a "
            f"cluster's; this is Triton {version}"
        )


def computed(problem: Gemm, chosen: Schedule, sm_count: int) -> int:
    """Elements of D that the busiest SM computes, those beyond D's edges included."""
    tiles = tiles_of(problem, chosen.tile)
    return -(-tiles // (sm_count // chosen.blocks)) * chosen.tile.m * ROWS


def _most_stages(problem: Gemm, wide: int, blocks: int) -> int:
    """The most stages that fit beside the parts of D on their way out, at most 8, whatever is added."""
    step = 128 * (ROWS + wide // blocks)
    left = 227 * 1024 - SLACK_BYTE - 4 * wide - _staged_byte(problem, wide)
    return min(8, left // step)


def part(problem: Gemm, wide: int, add: str) -> tuple[int, int]:
    """(columns of the parts in which a tile leaves, how many of them are in shared memory at a time).

    A part's rows are 128 bytes, the widest pattern of TMA; half that where C is brought into the same
    buffers, four at a time.
    """
    columns = (64 if add == "matrix" else 128) // problem.output_item_byte
    return columns, min(4 if add == "matrix" else 2, wide // columns)


def shared_byte(problem: Gemm, chosen: Schedule) -> int:
    """The most shared memory that the compiler takes for this schedule, of one block, whatever is added."""
    of_step = 128 * (ROWS + chosen.tile.m // chosen.blocks)
    return (
        chosen.tile.stages * of_step + _staged_byte(problem, chosen.tile.m) + 4 * chosen.tile.m + SLACK_BYTE
    )


def _staged_byte(problem: Gemm, wide: int) -> int:
    columns, buffers = part(problem, wide, "none")
    return buffers * ROWS * columns * problem.output_item_byte


def programs(problem: Gemm, chosen: Schedule, sm_count: int) -> int:
    """How many walk over the tiles: one an SM or pair of SMs, or one a tile where those are fewer."""
    return min(sm_count // chosen.blocks, tiles_of(problem, chosen.tile))


def prepare(of: Operands, chosen: Schedule, sm_count: int) -> Prepared:
    """D in `of.d`, in tiles of this size. The tensors' device must be the current one.

    Raises ValueError if a row of anything does not begin at a multiple of 16 bytes.
    """
    problem, tile, paired = of.problem, chosen.tile, chosen.blocks == 2
    shared = shared_arguments(of, tile)
    a_rows_are_k, b_rows_are_k = shared["ROWS_ARE_K"]
    columns, buffers = part(problem, tile.m, of.addend)

    def block(name: str, tensor: torch.Tensor, shape: list[int], half: list[int]) -> TensorDescriptor:
        return described(name, tensor, shape, half if paired else None)

    # Of a pair each has one half: of the rows of op(B), C and D, of the columns of op(A); a bias whole.
    c = None
    if of.c is not None:
        c = block("c", of.c, *(([tile.n, columns], [1, 0]) if of.c.dim() == 2 else ([columns], [0])))
    arguments = {
        "a": block("a", of.a, *(([tile.k, tile.m], [0, 1]) if a_rows_are_k else ([tile.m, tile.k], [1, 0]))),
        "b": block("b", of.b, *(([tile.k, tile.n], [0, 1]) if b_rows_are_k else ([tile.n, tile.k], [1, 0]))),
        "c": c,
        "d": block("d", of.d, [tile.n, columns], [1, 0]),
        **shared,
        "PART": columns,
        "BUFFERS": buffers,
        "STAGES": tile.stages,
        "GROUP": chosen.group,
        "PAIRED": paired,
        "num_warps": tile.warps,
        "num_ctas": chosen.blocks,
    }
    return Prepared(multiply, (programs(problem, chosen, sm_count),), arguments, of.d)
