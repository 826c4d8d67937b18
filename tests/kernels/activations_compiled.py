"""What the activation kernels promise of their compiled form.

Nothing spilled, 16-byte loads and stores where no block is masked, and few enough instructions for each
element. The masked form must still have them on the path of its full blocks.
"""

import itertools
from collections.abc import Iterator
from typing import get_args

from bench.spec import Dtype
from kernels.activations import elementwise
from kernels.activations.elementwise import CANDIDATES, Tile
from kernels.activations.problem import Direction, Function
from tests.kernels.compiled import Built, pointer
from tests.kernels.streaming import CAPABILITIES, Variant, everywhere, family

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
_POINTERS = {
    "forward": ("x_pointer", "y_pointer"),
    "backward": ("saved_pointer", "dy_pointer", "dx_pointer"),
}


def variant(
    function: Function,
    direction: Direction,
    dtype: Dtype,
    tile: Tile,
    capabilities: tuple[int, ...] = (90,),
    even: bool = True,
    count: str = "i32",
) -> Variant:
    """One compilation; of masked blocks neither widths nor instructions are promised as a whole."""
    form = "" if even else f" masked {count}"
    return Variant(
        name=f"{direction} {function} {dtype} {tile}{form}",
        kernel=getattr(elementwise, direction),
        arguments={name: pointer(dtype) for name in _POINTERS[direction]} | {"count": count},
        constants={"FUNCTION": function, "EVEN": even, "BLOCK": tile.block},
        warps=tile.warps,
        wide=even,
        element=tile.block // (32 * tile.warps) if even else 0,
        most=MOST[function, direction] if even and tile == USUAL else None,
        capabilities=capabilities,
        promises=() if even else (narrow,),
    )


def variants() -> Iterator[Variant]:
    """Every function and direction everywhere; every type, tile and form of the most laborious ones."""
    for direction in get_args(Direction):
        for function in get_args(Function):
            yield variant(function, direction, "bfloat16", USUAL, CAPABILITIES)
    for function in get_args(Function):
        yield variant(function, "forward", "float32", USUAL)
    for tile in CANDIDATES:
        yield variant("gelu", "backward", "float16", tile)
        yield variant("gelu", "backward", "float32", tile)
    yield variant("relu", "forward", "float16", USUAL, (70, 90))
    yield variant("relu", "backward", "float16", USUAL)
    yield from masked()


def every() -> Iterator[Variant]:
    """All that the tuner may try, in both forms."""
    for direction, function, dtype, tile in itertools.product(
        get_args(Direction), get_args(Function), ("float16", "bfloat16", "float32"), CANDIDATES
    ):
        yield variant(function, direction, dtype, tile)
        if tile.block <= 2048:  # see `candidates`
            yield variant(function, direction, dtype, tile, even=False)


def masked() -> Iterator[Variant]:
    """With the branch for a ragged last block; the last one takes more registers than any other form."""
    yield variant("gelu", "forward", "float16", USUAL, even=False)
    yield variant("gelu", "backward", "float32", USUAL, CAPABILITIES, even=False, count="i64")


def narrow(built: Built) -> list[str]:
    """Whether a masked form has no 16-byte accesses, which the path of its full blocks needs, as phrases."""
    names = [name for name in built.instructions if "128" in name.split(".")]
    missing = [what for what in ("LDG", "STG") if not any(name.startswith(what) for name in names)]
    return [f"no 16-byte {what}" for what in missing if built.instructions]


FAMILY = family(variants, lambda: everywhere(every()))
