"""Every tile that the bias gradient may try, compiled and held to its promises.

    python -m tests.kernels.linear_compiled            a table; exit code 1 on a fault
    python -m tests.kernels.linear_compiled --drawn    two of its rows, by the seed of the tests' run
    python -m tests.kernels.linear_compiled --all      each tile for every architecture: two minutes

The layer's GEMM is compiled by gemm_compiled.py. This kernel writes next to nothing, so of 16-byte accesses
it promises the loads: as many as its elements fill, and none of 1 or 2 bytes.
"""

import itertools
import sys
from collections.abc import Iterator
from dataclasses import replace

import triton.language as tl

from bench.spec import ITEM_BYTE, Dtype
from kernels.layernorm.tiles import Tile, alignment
from kernels.linear import bias_gradient
from tests.drawing import drawn
from tests.kernels.compiled import pointer
from tests.kernels.streaming import CAPABILITIES, Variant, compile_one, everywhere, main
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


def narrow(few: bool) -> list[str]:
    """Aligned rows, of dy and of partial sums, that are not loaded 16 bytes at a time on sm_90."""
    found = []
    tiles = [(dtype, tile) for dtype in DTYPES for tile in bias_gradient.candidates(TORCH_TYPE[dtype], 1024)]
    for dtype, tile in drawn(tiles, 1, "aligned rows of the bias gradient") if few else tiles:
        built = compile_one(variant(dtype, 1024, tile), 90)
        loads = [name for name in built.instructions.elements() if name.startswith("LDG")]
        wide = sum(".128" in name for name in loads)
        read = ITEM_BYTE[dtype] + (8 if dtype == "float64" else 4)  # an element of dy, a partial sum
        wanted = tile.rows * tile.block * read // (16 * 32 * tile.warps)
        if wide < wanted or any(".U16" in name or ".S16" in name for name in loads):
            found.append(f"{dtype} {tile}: {wide} loads of 16 bytes, wanted {wanted}, of {loads}")
    return found


def check(everything: bool, few: bool) -> int:
    """Print the table and what is narrow; the number of faults."""
    listed = list(everywhere(variants()) if everything else variants())
    faults = main(drawn(listed, 1, "compiled bias gradient") if few else listed)
    broken = narrow(few)
    print("\n".join(broken) or "every aligned row is read 16 bytes at a time")
    return faults + len(broken)


if __name__ == "__main__":
    sys.exit(1 if check("--all" in sys.argv[1:], "--drawn" in sys.argv[1:]) else 0)
