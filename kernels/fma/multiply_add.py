"""A chain of multiply-adds for every element: what vector units compute while memory moves so many bytes.

**Why this algorithm.** A thread holds 32 elements, whose chains are independent of each other: an SM issues a
multiply-add a cycle to each unit and needs four in flight for that, which even a single warp a scheduler has.
The loop is unrolled by four pairs, so that its counter takes one instruction in a hundred.

What is left after the last whole tile goes with a mask, by the program whose turn it is.

**Bytes moved.** x once and y once: 8 n bytes for n elements.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator"
import torch
import triton
import triton.language as tl

from bench.spec import Launch
from kernels.fma.problem import SHIFT, FusedMultiplyAdd


@triton.jit(do_not_specialize=["count", "pairs"])
def multiply_add(
    x_pointer,  # [count] float32, contiguous
    y_pointer,  # [count] float32, contiguous; every element is written once
    count,
    pairs,  # multiply-adds, two by two
    SHIFT: tl.constexpr,
    TILE: tl.constexpr,
):
    """y = x + pairs SHIFT, by multiply-adds: the whole tiles in turns, then what is left."""
    along = tl.arange(0, TILE)
    tiles = count // TILE
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        start = tl.cast(tile, tl.int64) * TILE
        tl.store(y_pointer + start + along, chain(tl.load(x_pointer + start + along), pairs, SHIFT))
    start = tl.cast(tiles, tl.int64) * TILE
    if (tiles % tl.num_programs(0) == tl.program_id(0)) & (start < count):
        inside = along < (count - start).to(tl.int32)
        value = chain(tl.load(x_pointer + start + along, mask=inside, other=0.0), pairs, SHIFT)
        tl.store(y_pointer + start + along, value, mask=inside)


@triton.jit
def chain(value, pairs, SHIFT: tl.constexpr):
    """`value` after so many pairs."""
    for _ in tl.range(0, pairs, loop_unroll_factor=4):
        value = tl.fma(value, 4.0, 1.0)
        value = tl.fma(value, 0.25, SHIFT - 0.25)
    return value


def launch(problem: FusedMultiplyAdd, x: torch.Tensor) -> Launch:
    """The chain of x `[length]` into y allocated here, by `problem.programs` blocks (0: one a tile)."""
    y = torch.empty_like(x)
    run = multiply_add[(problem.programs or -(-problem.length // problem.tile),)]
    constants = {"SHIFT": SHIFT, "TILE": problem.tile, "num_warps": problem.block_threads // 32}
    return Launch.of(run, (y,), x, y, problem.length, problem.pairs, **constants)
