"""The tiles that our convolution kernels may try, and what they promise of their compiled form.

Nothing spilled within the walk along the sum and at most two registers outside it, shared memory within the
limit, the architecture's matrix instruction used, and, where channels allow it, stores of 16 bytes and both
factors copied 16 bytes at a time while earlier steps compute; but Hopper and Blackwell multiply tf32 only
with the sum contiguous, and a gradient's other factors are transposed on their way, 4 bytes at a time.
"""

import itertools
from collections.abc import Iterator
from functools import partial
from typing import Any

from bench.spec import Dtype
from kernels.convolution import activation_gradient, forward, tiles, weight_gradient
from kernels.convolution.problem import Convolution, Direction
from kernels.gemm.tiles import Tile
from tests.kernels.compiled import (
    PARKED_ANYWHERE_BYTE,
    Built,
    Family,
    Form,
    arithmetic,
    arithmetic_faults,
    launched,
    resource_faults,
    without_memory,
)

CAPABILITIES = (80, 90, 100)
DTYPES: tuple[Dtype, ...] = ("float16", "bfloat16", "tf32", "float32")
KERNELS: dict[Direction, Any] = {
    "forward": forward,
    "activation_gradient": activation_gradient,
    "weight_gradient": weight_gradient,
}


def form(problem: Convolution, tile: Tile, capability: int) -> Form:
    """One compilation."""
    rows = tile.n if problem.direction == "weight_gradient" else tile.m
    instruction = arithmetic(problem.dtype, capability, rows)
    # Of a bias gradient the kernel has no part.
    of = problem.model_copy(update={"bias": problem.adds_bias})
    (call,) = launched(KERNELS[problem.direction].prepare(of, tile, *without_memory(of)).launch())
    promises = (
        partial(resource_faults, parked_byte=PARKED_ANYWHERE_BYTE),
        partial(arithmetic_faults, expected=instruction, alone=False),
        partial(copy_faults, problem, tile),
    )
    return Form(f"{problem} {tile}", call, promises, (capability,))


def copy_faults(problem: Convolution, tile: Tile, built: Built) -> list[str]:
    """Whether factors or the result do not move 16 bytes at a time, where channels allow it."""
    if not tiles.has_wide_loads(problem):
        return []
    faults, item_byte = [], problem.item_byte
    pieces = (tile.m + tile.n) * tile.k * item_byte // (16 * 32 * tile.warps)  # of a thread and step
    wide = built.count("LDGSTS.E.BYPASS.128", "LDGSTS.E.BYPASS.LTC128B.128")
    gradient_of_tf32 = problem.dtype == "tf32" and problem.direction != "forward"
    wanted = max(pieces * tile.stages, built.count("LDGSTS"))
    if wide < wanted and not (gradient_of_tf32 and built.capability > 80):
        faults.append(f"{wide} copies of 16 bytes, wanted {wanted}")
    if tile.m * tile.n * item_byte >= 16 * 32 * tile.warps and not built.count("STG.E.128"):
        faults.append("no 16-byte stores")
    return faults


def convolution(direction: Direction, dtype: Dtype, summed: int, **given: int) -> Convolution:
    """`summed` channels of x forward and for dw, of dy for dx; enough of the others for every tile."""
    others = 128 if summed % 8 == 0 else 127
    c, k = (others, summed) if direction == "activation_gradient" else (summed, others)
    usual = {"n": 8, "c": c, "h": 28, "w": 28, "k": k, "stride": 2, "layout": "NHWC"}
    return Convolution.model_validate({"direction": direction, "dtype": dtype, **usual, **given})


def forms(everything: bool) -> Iterator[Form]:
    """Every tile of every type: steps that end with the sum or not, padded or not, wide or narrow loads."""
    shapes: list[tuple[int, dict[str, int]]] = [
        (64, {"window_h": 3, "window_w": 3, "padding": 1}),
        (3, {"window_h": 7, "window_w": 7, "padding": 3}),
        (24, {"window_h": 3, "window_w": 3, "padding": 1, "stride": 1}),
        (64, {"window_h": 1, "window_w": 1}),
    ]
    turn = itertools.cycle(CAPABILITIES)
    for direction, dtype, (place, (summed, shape)) in itertools.product(KERNELS, DTYPES, enumerate(shapes)):
        if dtype == "bfloat16" and not everything:  # compiles to what float16 does, but for one letter
            continue
        hardest = place < 2
        problem = convolution(direction, dtype, summed, **shape, bias=hardest and direction == "forward")
        for tile in tiles.candidates(problem):
            for capability in CAPABILITIES if everything or hardest else (next(turn),):
                yield form(problem, tile, capability)
    for dtype, channels in itertools.product(DTYPES, (16, 128)):
        few = convolution(
            "weight_gradient", dtype, 0, c=channels, k=channels, groups=16, window_h=1, window_w=1
        )
        yield from (form(few, tile, next(turn)) for tile in tiles.candidates(few))


FAMILIES = {"convolution": Family(partial(forms, everything=False), partial(forms, everything=True))}
