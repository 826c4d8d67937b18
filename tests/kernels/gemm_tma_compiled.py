"""Every tile that the kernels by bulk copies may try, and what they promise of their compiled form.

Nothing spilled, shared memory within the limit and within what tma_tiles.py computes, the architecture's
matrix instruction used and no other, operands brought and D taken away by bulk copies and by nothing else,
and no matrix operand from registers (ptxas before 13.1 can overwrite those too early). Every tile, type,
layout and addend take an hour on two cores.
"""

from collections.abc import Iterator
from functools import partial
from typing import get_args

from bench.spec import Dtype
from kernels.gemm import persistent, tma
from kernels.gemm.problem import Gemm, Layout
from kernels.gemm.tiles import Tile
from kernels.gemm.tma_tiles import shared_byte
from tests.kernels.compiled import (
    Built,
    Family,
    Form,
    arithmetic,
    arithmetic_faults,
    launched,
    register_faults,
    resource_faults,
)
from tests.kernels.gemm_cases import meta_operands, sizeless

CAPABILITIES = (90, 100, 120)
VARIANTS = {"tma": tma, "persistent": persistent}
TYPES = tuple(Gemm.implementation("triton-tma").dtypes)
LAYOUTS: tuple[Layout, ...] = get_args(Layout)
ADDENDS = ("none", "matrix", "bias")


def form(variant: str, capability: int, dtype: Dtype, layout: Layout, add: str, tile: Tile) -> Form:
    """One compilation."""
    of = sizeless(dtype, layout, add)
    (call,) = launched(VARIANTS[variant].prepare(meta_operands(of, add), tile, 132).launch())
    at = (capability // 10, 0)
    computed = shared_byte(of, at, tile, persistent=variant == "persistent")
    promises = (
        resource_faults,
        register_faults,
        partial(arithmetic_faults, expected=arithmetic(dtype, capability)),
        partial(_faults, dtype == "float8_e4m3", computed),
    )
    return Form(f"{variant:12} {dtype:11} {layout:6} {add:7} {tile}", call, promises, (capability,))


def _faults(has_scales: bool, computed_byte: int, built: Built) -> list[str]:
    """Whether data moves otherwise than in bulk, or takes more shared memory than tma_tiles.py computes."""
    faults = [] if built.count("UTMALDG") and built.count("UTMASTG") else ["no bulk copies"]
    if built.count("STG", "LDGSTS") or (built.count("LDG") and not has_scales):
        faults.append("copies by pointers")
    if built.shared_byte > computed_byte:
        faults.append(f"{built.shared_byte} bytes of shared memory, {computed_byte} computed")
    return faults


Case = tuple[str, int, Dtype, Layout, str, Tile]
"""What `form` takes."""


def every() -> Iterator[Form]:
    """All that could ever be compiled, float16 standing for bfloat16 too."""
    for capability in CAPABILITIES:
        for dtype in (one for one in TYPES if one != "bfloat16"):
            for layout in LAYOUTS:
                for add in ADDENDS if dtype in ("float16", "tf32") else ("none",):
                    for variant in VARIANTS:
                        yield from (form(*case) for case in cases(variant, capability, dtype, layout, add))


def cases(variant: str, capability: int, dtype: Dtype, layout: Layout, add: str) -> Iterator[Case]:
    """Of every tile that the variant lists."""
    for one in VARIANTS[variant].candidates(sizeless(dtype, layout, add), (capability // 10, 0), 132):
        yield variant, capability, dtype, layout, add, one


def chosen() -> Iterator[Form]:
    """The two largest tiles of each list and one small.

    Layouts, addends and how many tiles run together take turns.
    """
    turn = 0
    for capability in CAPABILITIES:
        for dtype in TYPES:
            for variant in VARIANTS:
                layout = LAYOUTS[turn % 4]
                add = ADDENDS[turn % 3] if dtype in ("float16", "tf32") else "none"
                listed = list(cases(variant, capability, dtype, layout, add))
                group = (4, 8, 16)[turn % 3]
                large = [(*case[:5], case[5]._replace(group=group)) for case in listed[:3:2]]
                yield from (form(*case) for case in (*large, listed[-3]))
                turn += 1


FAMILIES = {"gemm_tma": Family(chosen, every)}
