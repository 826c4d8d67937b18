"""Every tile that quantisation may try, and what it promises of its compiled form.

The fullest tiles are compiled for every architecture, the others each for one, in turn.
"""

import itertools
from collections.abc import Iterator
from typing import Any

from bench.spec import ITEM_BYTE, Dtype
from kernels.layernorm.tiles import Tile, alignment
from kernels.quantize import casting
from kernels.quantize.problem import LARGEST, Eight, Quantize
from tests.kernels.compiled import pointer
from tests.kernels.streaming import Variant, everywhere, family


def variant(kernel: Any, dtype: Dtype, to: Eight, tile: Tile, length: int, mx: bool, **more: Any) -> Variant:
    """This kernel as its launching function calls it."""
    kinds = {
        "x_pointer": pointer(dtype), "y_pointer": pointer(to), "part_pointer": "*fp32",
        "scale_pointer": "*u8" if mx else "*fp32",
    }  # fmt: skip
    kinds |= dict.fromkeys(("rows", "length", "elements", "blocks", "parts"), "i32")
    constants = {
        "LARGEST": LARGEST[to], "POWER": int(LARGEST[to]).bit_length() if mx else 0, "EVEN": True,
        "ALIGN": alignment(length, ITEM_BYTE[dtype]), "ROWS": tile.rows, "BLOCK": tile.block,
        "PARTS": casting.PARTS,
    }  # fmt: skip
    if kernel is casting.in_registers:
        constants["EVEN"] = length == tile.block
    return Variant(
        name=f"{kernel.fn.__name__} {dtype} {to} {tile}",
        kernel=kernel,
        arguments={name: kind for name, kind in kinds.items() if name in kernel.arg_names},
        constants={name: value for name, value in constants.items() if name in kernel.arg_names},
        warps=tile.warps,
        wide=False,  # y is of one byte: a thread of 8 elements writes 8; `_wide` asks for loads
        promises=(_wide,) if length * ITEM_BYTE[dtype] % 16 == 0 else (),
        **more,
    )


def _wide(built: Any) -> list[str]:
    loads = sum(n for name, n in built.instructions.items() if name.startswith("LDG") and ".128" in name)
    return [] if loads else ["no 16-byte load"]


def variants() -> Iterator[Variant]:
    """What is compiled: about 40."""
    turns = itertools.cycle(((90,), (100,), (90,)))
    both: tuple[tuple[Dtype, Eight], ...] = (
        ("bfloat16", "float8_e4m3"), ("float32", "float8_e5m2"), ("float16", "int8")
    )  # fmt: skip
    for dtype, to in both:
        old = () if to == "float8_e4m3" else (80,)
        of_row = Quantize(rows=1, length=4096, dtype=dtype, to=to, scaling="row")
        for tile in casting.candidates(of_row):
            yield variant(casting.in_registers, dtype, to, tile, 4096, False, capabilities=next(turns))
        fullest = Tile(1, 16384, 16)
        yield variant(casting.in_registers, dtype, to, fullest, 16384, False, capabilities=(*old, 90, 100))
        yield variant(casting.in_registers, dtype, to, fullest, 16001, False, capabilities=(90,))
        of_tensor = Quantize(rows=1, length=4096, dtype=dtype, to=to, scaling="tensor")
        for tile in casting.candidates(of_tensor):
            for kernel in (casting.largest_of_parts, casting.cast_by_parts):
                yield variant(kernel, dtype, to, tile, 4096, False, capabilities=(*old, *next(turns)))
        if to != "int8":
            of_block = Quantize(rows=1, length=4096, dtype=dtype, to=to, scaling="mx")
            for tile in casting.candidates(of_block):
                yield variant(
                    casting.in_registers, dtype, to, tile, 32, True, capabilities=(*old, *next(turns))
                )


FAMILY = family(variants, lambda: everywhere(variants()))
