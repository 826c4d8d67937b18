"""Every tile that the bias gradient may try, and what it promises of its compiled form.

The layer's GEMM has families of its own. This kernel writes next to nothing, so of 16-byte accesses it
promises the loads: as many as its elements fill, and none of 1 or 2 bytes.
"""

import itertools
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import triton.language as tl

from bench.spec import ITEM_BYTE, Dtype
from kernels.layernorm.tiles import Tile, alignment
from kernels.linear import bias_gradient
from tests.kernels.compiled import Built, pointer
from tests.kernels.streaming import CAPABILITIES, Variant, everywhere, family
from tests.kernels.tensors import TORCH_TYPE

DTYPES: tuple[Dtype, ...] = ("float16", "bfloat16", "float32", "float64")


def variant(dtype: Dtype, columns: int, tile: Tile) -> Variant:
    """The kernel as its launching function calls it."""
    of_sum: Dtype = "float64" if dtype == "float64" else "float32"
    return Variant(
        name=f"column_sums {dtype} {columns} {tile}",
        kernel=bias_gradient.column_sums,
        arguments={
            "dy_pointer": pointer(dtype),
            "partial_pointer": pointer(of_sum),
            "counter_pointer": "*i32",
            "sum_pointer": pointer(dtype),
            **dict.fromkeys(("rows", "columns", "parts"), "i32"),
        },
        constants={
            "SUM": getattr(tl, of_sum),
            "ALIGN": alignment(columns, ITEM_BYTE[dtype]),
            "ROWS": tile.rows,
            "COLUMNS": tile.block,
        },
        warps=tile.warps,
        wide=False,
    )


def variants() -> Iterator[Variant]:
    """Every tile for aligned rows, odd ones, and some that 4 but not 8 divides; architectures take turns."""
    turns = itertools.cycle(CAPABILITIES)
    for columns in (1024, 1001, 1004):
        for dtype in DTYPES:
            for tile in bias_gradient.candidates(TORCH_TYPE[dtype], columns):
                yield replace(variant(dtype, columns, tile), capabilities=(next(turns),))
            next(turns)  # so that a tile meets all of them


def aligned() -> Iterator[Variant]:
    """Every tile for aligned rows, whose loads are counted."""
    for dtype in DTYPES:
        for tile in bias_gradient.candidates(TORCH_TYPE[dtype], 1024):
            promises = (partial(narrow, dtype, tile),)
            yield replace(variant(dtype, 1024, tile), capabilities=(90,), promises=promises)


def narrow(dtype: Dtype, tile: Tile, built: Built) -> list[str]:
    """Whether rows, of dy and of partial sums, are not loaded 16 bytes at a time, as phrases."""
    loads = [name for name in built.instructions.elements() if name.startswith("LDG")]
    wide = sum(".128" in name for name in loads)
    read = ITEM_BYTE[dtype] + (8 if dtype == "float64" else 4)  # an element of dy, a partial sum
    wanted = tile.rows * tile.block * read // (16 * 32 * tile.warps)
    if wide < wanted or any(".U16" in name or ".S16" in name for name in loads):
        return [f"{wide} loads of 16 bytes, wanted {wanted}, of {loads}"]
    return []


FAMILY = family(lambda: (*variants(), *aligned()), lambda: (*everywhere(variants()), *aligned()))
