"""Every tile that layer normalization may try, and what it promises of its compiled form.

The fullest tiles, where a spill would show first, are compiled for every architecture; the others each for
two, in turn. Lengths that are a multiple of 16 bytes but no power of two must load 16 bytes at once as well.
"""

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from bench.spec import ITEM_BYTE, Dtype
from kernels.layernorm import backward, backward_long, forward, forward_long
from kernels.layernorm.problem import EPSILON, LayerNorm
from kernels.layernorm.tiles import Tile, alignment, chunks
from tests.kernels.compiled import Built, pointer
from tests.kernels.streaming import CAPABILITIES, Variant, everywhere, family

FLOAT32 = ("mean_pointer", "rstd_pointer", "partial_pointer", "sums_pointer")
SIZES = ("rows", "length", "count")
BOTH: tuple[Dtype, ...] = ("float16", "float32")


def variant(
    kernel: Any, dtype: Dtype, length: int, tile: Tile, most: float | None = None, **more: Any
) -> Variant:
    """This kernel as its launching function calls it."""
    arguments = {}
    for name in kernel.arg_names:
        if name.endswith("_pointer"):
            arguments[name] = "*fp32" if name in FLOAT32 else pointer(dtype)
        elif name in SIZES:
            arguments[name] = "i32"
    summing = kernel is backward.add_partial_sums
    align = alignment(length, 4 if summing else ITEM_BYTE[dtype])
    constants = {
        **{"ALIGN": align, "EVEN": length == tile.block, "ROWS": tile.rows, "BLOCK": tile.block},
        **{"EPSILON": EPSILON, "STAGES": 2},
    }
    straight = kernel is forward.normalize
    return Variant(
        name=f"{kernel.fn.__name__} {dtype} {length} {tile}",
        kernel=kernel,
        arguments=arguments,
        constants={name: constants[name] for name in kernel.arg_names if name in constants},
        warps=tile.warps,
        # Of these two, one stores single numbers, the other as few as its threads can share.
        wide=align * ITEM_BYTE[dtype] == 16 and not summing and kernel is not backward_long.row_sums,
        element=tile.rows * tile.block // (32 * tile.warps) if straight else 0,
        most=most if straight else None,
        **more,
    )


def in_turn(kernel: Any, length: int, tiles: list[Tile]) -> Iterator[Variant]:
    """Each tile in either data type for one architecture, the architectures taking turns."""
    turns = itertools.cycle(CAPABILITIES)
    for tile in tiles:
        for dtype in BOTH:
            yield variant(kernel, dtype, length, tile, most=35, capabilities=(next(turns),))
        next(turns)  # so that a data type meets all of them


def variants() -> Iterator[Variant]:
    """What is compiled: about 100."""
    for length in (64, 1024, 8192):
        problem = LayerNorm(direction="forward", rows=1, length=length, dtype="float32")
        yield from in_turn(forward.normalize, length, forward.candidates(problem))
    for length in (64, 1024, 4096):
        problem = LayerNorm(direction="backward", rows=1, length=length, dtype="float32")
        yield from in_turn(backward.gradient, length, backward.candidates(problem))
    for dtype in BOTH:
        yield variant(forward.normalize, dtype, 16384, Tile(1, 16384, 16), most=35)
        yield variant(backward.gradient, dtype, 8192, Tile(1, 8192, 16))
        yield variant(forward_long.normalize_long, dtype, 32768, chunks(32768, ITEM_BYTE[dtype])[-1])
    long = LayerNorm(direction="backward", rows=1, length=32768, dtype="float32")
    yield from in_turn(backward_long.columns, 32768, list(backward_long.candidates(long)))
    yield from in_turn(forward_long.normalize_long, 32768, list(chunks(32768, 2)[:-1]))

    one = {"capabilities": (90,)}
    summing = Tile(backward.SUM_ROWS, backward.SUM_BLOCK, 4)
    for dtype, length in (("bfloat16", 32776), ("float16", 32775)):
        chunk = chunks(length, ITEM_BYTE[dtype])[1]
        yield variant(backward_long.row_sums, dtype, length, chunk, **one)
        yield variant(backward.add_partial_sums, dtype, length, summing, **one)
        yield variant(forward_long.normalize_long, dtype, length, chunk, **one)
        yield variant(backward_long.columns, dtype, length, Tile(8, 256, 4), **one)
    for dtype, length in (("bfloat16", 1000), ("float32", 1004), ("float16", 1001)):
        yield variant(forward.normalize, dtype, length, Tile(4, 1024, 4), **one)
        yield variant(backward.gradient, dtype, length, Tile(2, 1024, 4), **one)
    # Ragged and odd, as full as can be: narrow loads must not spill either.
    for kernel, length, block in ((forward.normalize, 16001, 16384), (backward.gradient, 4001, 4096)):
        yield variant(kernel, "float16", length, Tile(1, block, 16), capabilities=(70, 90))
    aligned = variant(backward_long.row_sums, "float16", 32776, chunks(32776, 2)[1], **one)
    yield replace(aligned, promises=(narrow_row_sums,))


def narrow_row_sums(built: Built) -> list[str]:
    """Whether the sums of these aligned rows are not loaded 16 bytes at a time, as phrases."""
    wide = sum(n for name, n in built.instructions.items() if name.startswith("LDG") and ".128" in name)
    if not built.instructions or (wide == 6 and not built.count("LDG.E.U16")):
        return []
    return [f"{wide} loads of 16 bytes, promised 6"]


FAMILY = family(variants, lambda: everywhere(variants()))
