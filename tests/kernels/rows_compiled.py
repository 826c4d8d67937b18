"""Every tile that kernels on rows may try, and what they promise of their compiled form.

The fullest tiles, where a spill would show first, are compiled for every architecture; the others each for
two, in turn. Lengths that are a multiple of 16 bytes but no power of two must load 16 bytes at once as well.
"""

import itertools
from collections.abc import Iterator
from functools import partial

from bench.spec import Launch
from kernels.layernorm import launch as of_layernorm
from kernels.layernorm.problem import LayerNorm
from kernels.layernorm.row_tiles import Tile
from kernels.quantize import casting
from kernels.quantize.problem import Quantize
from kernels.softmax import forward_backward as of_softmax
from kernels.softmax.problem import Softmax
from kernels.tensors import empty
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

Kind = type[LayerNorm] | type[Softmax]
WAYS = ("forward", "backward")
BOTH = ("float16", "float32")
FULL = {
    (LayerNorm, "forward"): (16384, 16001),
    (LayerNorm, "backward"): (8192, 4001),
    (Softmax, "forward"): (16384, 16001),
    (Softmax, "backward"): (16384, 16001),
}
"""The longest row that registers hold, and an odd one in the largest block for that."""
MULTIPROCESSORS = 132


def row(kind: Kind, direction: str, length: int, dtype: str) -> LayerNorm | Softmax:
    """One row."""
    return kind.model_validate({"direction": direction, "rows": 1, "length": length, "dtype": dtype})


def launch(problem: LayerNorm | Softmax, tile: Tile) -> Launch:
    """What would be launched with this tile."""
    tensors = without_memory(problem)
    if isinstance(problem, Softmax):
        return of_softmax.with_tile(problem, tensors, tile)
    return of_layernorm.with_tile(problem, tensors, tile, MULTIPROCESSORS)


def forms(
    problem: LayerNorm | Softmax, tile: Tile, capabilities: tuple[int, ...] = CAPABILITIES
) -> Iterator[Form]:
    """The kernels of the launch with this tile."""
    for call in launched(launch(problem, tile)):
        yield Form(f"{call.name} {problem} {tile}", call, promised(call.name, problem, tile), capabilities)


def promised(name: str, problem: LayerNorm | Softmax, tile: Tile) -> tuple[Promise, ...]:
    """What a kernel of this name promises; of one without loops so few instructions for each element, too."""
    straight = name in ("normalize", "forward", "backward")
    element = tile.rows * tile.block // (32 * tile.warps)
    if problem.length * problem.item_byte % 16 or name == "add_partial_sums":  # stores as few as it can share
        return (resource_faults,)
    few = (partial(length_faults, element=element, most=35),) if straight else ()
    return (resource_faults, narrow_faults, *few)


def chosen(kind: Kind) -> Iterator[Form]:
    """About 100."""
    turns = itertools.cycle(CAPABILITIES)
    for direction in WAYS:
        full, ragged = FULL[kind, direction]
        of = partial(row, kind, direction)
        for length in (64, 1024, full // 2):
            for tile in tiles(of(length, "float32")):
                for dtype in BOTH:
                    yield from forms(of(length, dtype), tile, (next(turns),))
                next(turns)  # so that a data type meets all of them
        for dtype in BOTH:
            yield from forms(of(full, dtype), Tile(1, full, 16))
        small = Tile(4 if direction == "forward" else 2, 1024, 4)
        for dtype, length in (("bfloat16", 1000), ("float32", 1004), ("float16", 1001)):
            yield from forms(of(length, dtype), small, (90,))
        # Ragged and odd, as full as can be: narrow loads must not spill either.
        block = 1 << (ragged - 1).bit_length()
        yield from forms(of(ragged, "float16"), Tile(1, block, 16), (70, 90))


def tiles(problem: LayerNorm | Softmax) -> list[Tile]:
    """The candidates."""
    return list((of_softmax if isinstance(problem, Softmax) else of_layernorm).candidates(problem))


def quantized() -> Iterator[Form]:
    """Every tile of quantisation, about 60."""
    turns = itertools.cycle(((90,), (100,), (90,)))
    for dtype in ("bfloat16", "float32", "float16"):
        given = {"rows": 64, "dtype": dtype, "to": "float8_e4m3"}
        for scaling in ("row", "tensor", "mx"):
            problem = Quantize.model_validate({"length": 4096, "scaling": scaling, **given})
            for tile in casting.candidates(problem):
                yield from casts(problem, tile, next(turns))
        for length, capabilities in ((16384, (90, 100)), (16001, (90,))):
            problem = Quantize.model_validate({"length": length, "scaling": "row", **given})
            yield from casts(problem, Tile(1, 16384, 16), capabilities)


def casts(problem: Quantize, tile: Tile, capabilities: tuple[int, ...]) -> Iterator[Form]:
    """The kernels of a quantisation; y is of one byte, so a thread of 8 elements writes 8."""
    (x,) = without_memory(problem)
    aligned = problem.length * problem.item_byte % 16 == 0
    wide = (partial(narrow_faults, stores=0, narrow=None),) if aligned else ()
    for call in launched(casting.with_tile(problem, x, empty(problem, x), tile)):
        yield Form(f"{call.name} {problem} {tile}", call, (resource_faults, *wide), capabilities)


FAMILIES = {
    "layernorm": partial(chosen, LayerNorm),
    "softmax": partial(chosen, Softmax),
    "quantize": quantized,
}
