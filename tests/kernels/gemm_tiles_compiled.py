"""Every tile that GEMM's kernels by pointers and by bulk copies may try, and what they promise compiled.

*By pointers*: nothing spilled within the walk along K and next to nothing outside it, shared memory within
the limit, the architecture's matrix instruction used, and 16-byte loads wherever rows allow them.

*In bulk*: nothing spilled, shared memory within what tma.py computes, the architecture's matrix
instruction used and no other, operands brought and D taken away by bulk copies and by nothing else, and no
matrix operand from registers (ptxas before 13.1 can overwrite those too early).
"""

import itertools
from collections.abc import Iterator
from functools import partial
from typing import get_args

import triton

from bench.spec import ITEM_BYTE, Dtype
from kernels.gemm import pointer, tma
from kernels.gemm.problem import Gemm, Layout
from kernels.gemm.tiles import Tile, pointer_tiles
from tests.kernels.compiled import (
    CAPABILITIES,
    PARKED_ANYWHERE_BYTE,
    PARKED_BYTE,
    Built,
    Call,
    Form,
    Promise,
    arithmetic,
    arithmetic_faults,
    fma_faults,
    launched,
    register_faults,
    resource_faults,
)
from tests.kernels.gemm_cases import ADDENDS, meta_operands, sizeless

LAYOUTS: tuple[Layout, ...] = get_args(Layout)
TRITON = tuple(int(part) for part in triton.__version__.split(".")[:2])


def by_pointers(
    capability: int,
    dtype: Dtype,
    tile: Tile,
    layout: Layout,
    alignment: int,
    even_k: bool,
    addend: str = "none",
    batched: bool = False,
) -> Form:
    """One compilation: what Triton would make for this data type, layout and alignment.

    `alignment`, in elements, is the largest power of two that divides the sizes, up to 16 bytes' worth.
    """
    prepared = pointer.prepare(meta_operands(sizeless(dtype, layout, addend), addend), tile, 132)
    compiled_in = {"ALIGN": (alignment,) * 6, "EVEN_K": even_k, "BATCHED": batched}
    parks_more = TRITON < (3, 7) or addend == "matrix"
    parked_byte = PARKED_BYTE if parks_more else PARKED_ANYWHERE_BYTE
    # Where a matrix C is added those few are spilled while it waits for its sums.
    promises: list[Promise] = [partial(resource_faults, parked_byte=parked_byte, in_loops=addend == "matrix")]
    if capability < 75:
        promises.append(partial(fma_faults, dtype, alone=True))
    else:
        promises.append(partial(arithmetic_faults, expected=arithmetic(dtype, capability, tile.n)))
        if alignment * ITEM_BYTE[dtype] == 16:
            promises.append(partial(_copy_faults, addend))
    mask = "no" if even_k else "yes"
    name = f"{dtype:11} {layout:6} {addend:6} {alignment:5} {mask:4} {tile}{' batched' * batched}"
    return Form(name, Call(prepared.kernel, prepared.arguments | compiled_in), tuple(promises), (capability,))


def _copy_faults(addend: str, built: Built) -> list[str]:
    """Whether aligned data does not move 16 bytes at a time; of a bias each thread loads one element."""
    faults = [] if built.count("LDGSTS.E.BYPASS.128") else ["no 16-byte copy to shared memory"]
    if built.count("LDG.E.U16") > (addend == "bias") or not built.count("STG.E.128"):
        faults.append("narrow loads or stores")
    return faults


def chosen_by_pointers() -> Iterator[Form]:
    """Each tile once in its plainest and once in its most laborious form, over all data types and layouts."""
    addends = itertools.cycle(("bias", "matrix"))
    for capability, dtype in _types():
        full = 16 // ITEM_BYTE[dtype]
        for tile in pointer_tiles((capability // 10, 0), dtype, "NN", wide=True):
            # The two 16-bit types compile to the same but for one letter, so they share the work.
            if dtype != "bfloat16":
                yield by_pointers(capability, dtype, tile, "NN", full, True)
            layout: Layout = "NT" if dtype == "bfloat16" else "TN"
            yield by_pointers(capability, dtype, tile, layout, full, False)
            if dtype != "bfloat16":
                yield by_pointers(capability, dtype, tile, "TN", full, False, batched=True)
            if dtype not in ("bfloat16", "int8", "float8_e4m3"):
                yield by_pointers(capability, dtype, tile, "TN", full, False, next(addends))
        for tile in pointer_tiles((capability // 10, 0), dtype, "NN", wide=False):
            yield by_pointers(capability, dtype, tile, "TT" if dtype == "bfloat16" else "NN", 1, False)


def _types() -> Iterator[tuple[int, Dtype]]:
    exists = Gemm.implementation("triton-pointer").dtypes
    for capability in CAPABILITIES:
        for dtype, lowest in exists.items():
            if (capability // 10, 0) >= lowest:
                yield capability, dtype


VARIANTS = ("tma", "persistent")
BULK_CAPABILITIES = (90, 100, 120)
BULK_TYPES = tuple(Gemm.implementation("triton-tma").dtypes)


def in_bulk(variant: str, capability: int, dtype: Dtype, layout: Layout, add: str, tile: Tile) -> Form:
    """One compilation."""
    of = sizeless(dtype, layout, add)
    walks = variant == "persistent"
    (call,) = launched(tma.prepare(meta_operands(of, add), tile, 132, persistent=walks).launch())
    computed = tma.shared_byte(of, (capability // 10, 0), tile, persistent=walks)
    promises = (
        resource_faults,
        register_faults,
        partial(arithmetic_faults, expected=arithmetic(dtype, capability)),
        partial(_bulk_faults, dtype == "float8_e4m3", computed),
    )
    return Form(f"{variant:12} {dtype:11} {layout:6} {add:7} {tile}", call, promises, (capability,))


def _bulk_faults(has_scales: bool, computed_byte: int, built: Built) -> list[str]:
    """Whether data moves otherwise than in bulk, or takes more shared memory than tma.py computes."""
    faults = [] if built.count("UTMALDG") and built.count("UTMASTG") else ["no bulk copies"]
    if built.count("STG", "LDGSTS") or (built.count("LDG") and not has_scales):
        faults.append("copies by pointers")
    if built.shared_byte > computed_byte:
        faults.append(f"{built.shared_byte} bytes of shared memory, {computed_byte} computed")
    return faults


def bulk_tiles(variant: str, capability: int, dtype: Dtype, layout: Layout, add: str) -> tuple[Tile, ...]:
    """What the variant lists."""
    at = (capability // 10, 0)
    return tma.candidates(sizeless(dtype, layout, add), at, persistent=variant == "persistent")


def chosen_in_bulk() -> Iterator[Form]:
    """The two largest tiles of each list and one small.

    Layouts and addends take turns.
    """
    every = itertools.product(BULK_CAPABILITIES, BULK_TYPES, VARIANTS)
    for turn, (capability, dtype, variant) in enumerate(every):
        add = ADDENDS[turn % 3] if dtype in ("float16", "tf32") else "none"
        case = variant, capability, dtype, LAYOUTS[turn % 4], add
        listed = bulk_tiles(*case)
        yield from (in_bulk(*case, tile) for tile in (*listed[:3:2], listed[-3]))


FAMILIES = {
    "gemm_pointer": chosen_by_pointers,
    "gemm_tma": chosen_in_bulk,
}
