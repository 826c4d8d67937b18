"""Every tile that softmax may try, and what it promises of its compiled form.

The fullest tiles, where a spill would show first, are compiled for every architecture; the others each for
two, in turn. Lengths that are a multiple of 16 bytes but no power of two must load 16 bytes at once as well.
"""

import itertools
from collections.abc import Iterator
from typing import Any

from bench.spec import ITEM_BYTE, Dtype
from kernels.layernorm.tiles import Tile, alignment, chunks
from kernels.softmax import long_rows, whole_rows
from kernels.softmax.problem import Softmax
from tests.kernels.compiled import pointer
from tests.kernels.streaming import CAPABILITIES, Variant, everywhere, family

BOTH: tuple[Dtype, ...] = ("float16", "float32")
WHOLE = (whole_rows.forward, whole_rows.backward)
LONG = (long_rows.forward_long, long_rows.backward_long)


def variant(kernel: Any, dtype: Dtype, length: int, tile: Tile, **more: Any) -> Variant:
    """This kernel as its launching function calls it."""
    align = alignment(length, ITEM_BYTE[dtype])
    arguments = {name: pointer(dtype) for name in kernel.arg_names if name.endswith("_pointer")}
    arguments |= {name: "i32" for name in kernel.arg_names if name in ("rows", "length")}
    constants = {"ALIGN": align, "EVEN": length == tile.block, "ROWS": tile.rows, "BLOCK": tile.block}
    straight = kernel in WHOLE
    return Variant(
        name=f"{kernel.fn.__name__} {dtype} {length} {tile}",
        kernel=kernel,
        arguments=arguments,
        constants={name: constants[name] for name in kernel.arg_names if name in constants},
        warps=tile.warps,
        wide=align * ITEM_BYTE[dtype] == 16,
        element=tile.rows * tile.block // (32 * tile.warps) if straight else 0,
        most=35 if straight and align * ITEM_BYTE[dtype] == 16 else None,
        **more,
    )


def variants() -> Iterator[Variant]:
    """What is compiled: about 120."""
    turns = itertools.cycle(CAPABILITIES)
    for kernel in WHOLE:
        for length in (64, 1024, 8192):
            problem = Softmax(direction="forward", rows=1, length=length, dtype="float32")
            for tile in whole_rows.candidates(problem):
                for dtype in BOTH:
                    yield variant(kernel, dtype, length, tile, capabilities=(next(turns),))
                next(turns)  # so that a data type meets all of them
        for dtype in BOTH:
            yield variant(kernel, dtype, 16384, Tile(1, 16384, 16))
        for dtype, length in (("bfloat16", 1000), ("float32", 1004), ("float16", 1001)):
            yield variant(kernel, dtype, length, Tile(4, 1024, 4), capabilities=(90,))
        # Ragged and odd, as full as can be: narrow loads must not spill either.
        yield variant(kernel, "float16", 16001, Tile(1, 16384, 16), capabilities=(70, 90))
    for kernel in LONG:
        for tile in chunks(32768, 2):
            for dtype in BOTH:
                yield variant(kernel, dtype, 32768, tile, capabilities=(next(turns),))
            next(turns)
        for dtype, length in (("bfloat16", 32776), ("float16", 32775)):
            yield variant(kernel, dtype, length, chunks(length, ITEM_BYTE[dtype])[1], capabilities=(90,))


FAMILY = family(variants, lambda: everywhere(variants()))
