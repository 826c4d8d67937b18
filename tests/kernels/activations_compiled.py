"""What the activation kernels promise of their compiled form.

Nothing spilled, 16-byte loads and stores where no block is masked, and few enough instructions for each
element. The masked form must still have them on the path of its full blocks.
"""

import itertools
from collections.abc import Iterator
from functools import partial
from typing import get_args

from bench.spec import Dtype
from kernels.activations.elementwise import CANDIDATES, Tile, launch_with
from kernels.activations.problem import Activation, Direction, Function
from tests.kernels.compiled import (
    CAPABILITIES,
    Form,
    Promise,
    launched,
    length_faults,
    narrow_faults,
    resource_faults,
    without_memory,
)

DTYPES: tuple[Dtype, ...] = ("float16", "bfloat16", "float32")
USUAL = Tile(2048, 4)
MOST = {
    # SASS instructions for each element of bfloat16 on sm_90, loads, stores and conversions included. With
    # division and libdevice's erf they were, forward, 4.6, 15.7, 15.7, 35.8, 21.7 and 16.7.
    ("relu", "forward"): 4,
    ("sigmoid", "forward"): 9,
    ("tanh", "forward"): 14,
    ("gelu", "forward"): 16,
    ("gelu-tanh", "forward"): 13,
    ("silu", "forward"): 10,
    ("relu", "backward"): 4.5,
    ("sigmoid", "backward"): 8.5,
    ("tanh", "backward"): 7.5,
    ("gelu", "backward"): 22,
    ("gelu-tanh", "backward"): 22.5,
    ("silu", "backward"): 16.5,
}


def form(
    function: Function,
    direction: Direction,
    dtype: Dtype,
    tile: Tile,
    capabilities: tuple[int, ...] = (90,),
    ragged: int = 0,
) -> Form:
    """Whole blocks, or so many elements; of masked blocks neither widths nor instructions are promised."""
    problem = Activation(function=function, direction=direction, n=ragged or tile.block, dtype=dtype)
    (call,) = launched(launch_with(tile, problem, *without_memory(problem)))
    promises: list[Promise] = [resource_faults, partial(narrow_faults, narrow=None if ragged else 0)]
    if not ragged and tile == USUAL:
        element = tile.block // (32 * tile.warps)
        promises.append(partial(length_faults, element=element, most=MOST[function, direction]))
    return Form(f"{problem} {tile}", call, tuple(promises), capabilities)


def chosen() -> Iterator[Form]:
    """Every function and direction everywhere; every type, tile and form of the most laborious ones."""
    for direction, function in itertools.product(get_args(Direction), get_args(Function)):
        yield form(function, direction, "bfloat16", USUAL, CAPABILITIES)
    for function in get_args(Function):
        yield form(function, "forward", "float32", USUAL)
    for tile, dtype in itertools.product(CANDIDATES, DTYPES[::2]):
        yield form("gelu", "backward", dtype, tile)
    yield form("relu", "forward", "float16", USUAL, (70, 90))
    yield form("relu", "backward", "float16", USUAL)
    # With the branch for a ragged last block; the second takes more registers than any other form.
    yield form("gelu", "forward", "float16", USUAL, ragged=9)
    yield form("gelu", "backward", "float32", USUAL, CAPABILITIES, ragged=2**31 + 9)


FAMILIES = {"activations": chosen}
