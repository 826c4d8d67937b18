"""Every tile that the kernels by bulk copies may try, and what they promise of their compiled form.

Nothing spilled, shared memory within the limit and within what tma_tiles.py computes, the architecture's
matrix instruction used and no other, operands brought and D taken away by bulk copies and by nothing else,
and no matrix operand from registers (ptxas before 13.1 can overwrite those too early). Every tile, type,
layout and addend take an hour on two cores.
"""

from collections.abc import Iterator
from typing import NamedTuple, get_args

from bench.spec import Dtype
from kernels.gemm import persistent, tma
from kernels.gemm.problem import Gemm, Layout
from kernels.gemm.tiles import Tile
from kernels.gemm.tma_tiles import shared_byte
from tests.kernels.compiled import (
    FROM_REGISTERS,
    Built,
    Family,
    arithmetic,
    arithmetic_faults,
    build_launch,
    resource_faults,
)
from tests.kernels.gemm_cases import meta_operands, sizeless

CAPABILITIES = (90, 100, 120)
VARIANTS = {"tma": tma, "persistent": persistent}
TYPES = tuple(Gemm.implementation("triton-tma").dtypes)
LAYOUTS: tuple[Layout, ...] = get_args(Layout)
ADDENDS = ("none", "matrix", "bias")


class Form(NamedTuple):
    """One compilation."""

    variant: str
    capability: int
    dtype: Dtype
    layout: Layout
    add: str
    tile: Tile

    def __str__(self) -> str:
        return f"{self.variant:12} {self.dtype:11} {self.layout:6} {self.add:7} {self.tile!s}"

    @property
    def instruction(self) -> str:
        """What multiplies."""
        return arithmetic(self.dtype, self.capability)

    def compiled(self) -> Built:
        """As `compiled.Form` has it, and so are the others."""
        operands = meta_operands(sizeless(self.dtype, self.layout, self.add), self.add)
        return build_launch(VARIANTS[self.variant].prepare(operands, self.tile, 132), self.capability)

    def faults(self, built: Built) -> list[str]:
        found = resource_faults(built, self.capability) + arithmetic_faults(built, self.instruction)
        if FROM_REGISTERS.search(built.ptx):
            found.append("a matrix operand from registers")
        if not built.count("UTMALDG") or not built.count("UTMASTG"):
            found.append("no bulk copies")
        has_scales = self.dtype == "float8_e4m3"
        if built.count("STG", "LDGSTS") or (built.count("LDG") and not has_scales):
            found.append("copies by pointers")
        of = sizeless(self.dtype, self.layout, self.add)
        walks = self.variant == "persistent"
        computed = shared_byte(of, (self.capability // 10, 0), self.tile, persistent=walks)
        if built.shared_byte > computed:
            found.append(f"{built.shared_byte} bytes of shared memory, {computed} computed")
        return found

    def counts(self, built: Built) -> str:
        return f"{built.count(self.instruction)} {self.instruction}"


def every() -> Iterator[Form]:
    """All that could ever be compiled, float16 standing for bfloat16 too."""
    for capability in CAPABILITIES:
        for dtype in (one for one in TYPES if one != "bfloat16"):
            for layout in LAYOUTS:
                for add in ADDENDS if dtype in ("float16", "tf32") else ("none",):
                    for variant in VARIANTS:
                        yield from cases(variant, capability, dtype, layout, add)


def cases(variant: str, capability: int, dtype: Dtype, layout: Layout, add: str) -> Iterator[Form]:
    """Of every tile that the variant lists."""
    for one in VARIANTS[variant].candidates(sizeless(dtype, layout, add), (capability // 10, 0), 132):
        yield Form(variant, capability, dtype, layout, add, one)


def chosen() -> Iterator[Form]:
    """The two largest tiles of each list and one small.

    Layouts, addends and how many tiles run together take turns.
    """
    turn = 0
    for capability in CAPABILITIES:
        for dtype in TYPES:
            for variant in VARIANTS:
                layout = ("TN", "NT", "NN", "TT")[turn % 4]
                add = ADDENDS[turn % 3] if dtype in ("float16", "tf32") else "none"
                listed = list(cases(variant, capability, dtype, layout, add))
                group = (4, 8, 16)[turn % 3]
                large = [one._replace(tile=one.tile._replace(group=group)) for one in listed[:3:2]]
                yield from (*large, listed[-3])
                turn += 1


FAMILY = Family(chosen, every)
