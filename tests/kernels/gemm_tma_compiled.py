"""Every tile that the kernels by bulk copies may try, and what they promise of their compiled form.

Nothing spilled, shared memory within the limit and within what tma_tiles.py computes, the architecture's
matrix instruction used and no other, operands brought and D taken away by bulk copies and by nothing else,
and no matrix operand from registers (ptxas before 13.1 can overwrite those too early). Of specialized warps:
there are some, and no matrix instruction is under way when a buffer is handed back. Every tile, type, layout
and addend take an hour on two cores.
"""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple, get_args

from bench.spec import Dtype, Unsupported
from kernels.gemm import persistent, specialized, tma
from kernels.gemm.problem import Gemm, Layout
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
VARIANTS = {"tma": tma, "persistent": persistent, "specialized": specialized}
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
    configuration: Any

    def __str__(self) -> str:
        return f"{self.variant:12} {self.dtype:11} {self.layout:6} {self.add:7} {self.configuration!s}"

    @property
    def instruction(self) -> str:
        """What multiplies."""
        return arithmetic(self.dtype, self.capability)

    def compiled(self) -> Built:
        """As `compiled.Form` has it, and so are the others."""
        operands = meta_operands(sizeless(self.dtype, self.layout, self.add), self.add)
        arguments = VARIANTS[self.variant].arguments(operands, self.configuration)
        kernel = tma.multiply if self.variant == "tma" else persistent.multiply
        return build_launch(kernel, arguments, self.capability)

    def faults(self, built: Built) -> list[str]:
        found = resource_faults(built, self.capability) + arithmetic_faults(built, self.instruction)
        if FROM_REGISTERS.search(built.ptx):
            found.append("a matrix operand from registers")
        if not built.count("UTMALDG") or not built.count("UTMASTG"):
            found.append("no bulk copies")
        if self.variant == "specialized":
            return found + _faults_of_specialization(self, built)
        has_scales = self.dtype == "float8_e4m3"
        if built.count("STG", "LDGSTS") or (built.count("LDG") and not has_scales):
            found.append("copies by pointers")
        of = sizeless(self.dtype, self.layout, self.add)
        walks = self.variant == "persistent"
        computed = shared_byte(of, (self.capability // 10, 0), self.configuration, persistent=walks)
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
    """Of every configuration that the variant lists; none where this version of Triton cannot compile it."""
    if variant == "specialized" and dtype not in ("float16", "bfloat16"):
        return
    of = sizeless(dtype, layout, add)
    try:
        listed = VARIANTS[variant].candidates(of, (capability // 10, 0), 132)
    except Unsupported:
        return
    for one in listed:
        yield Form(variant, capability, dtype, layout, add, one)


def chosen() -> Iterator[Form]:
    """The two largest tiles of each list and one small; all specialized.

    Layouts, addends and how many tiles run together take turns.
    """
    turn = 0
    for capability in CAPABILITIES:
        for dtype in TYPES:
            for variant in ("tma", "persistent"):
                layout = ("TN", "NT", "NN", "TT")[turn % 4]
                add = ADDENDS[turn % 3] if dtype in ("float16", "tf32") else "none"
                listed = list(cases(variant, capability, dtype, layout, add))
                group = (4, 8, 16)[turn % 3]
                large = [
                    one._replace(configuration=one.configuration._replace(group=group))
                    for one in listed[:3:2]
                ]
                yield from (*large, listed[-3])
                turn += 1
        yield from cases("specialized", capability, "bfloat16", "TN", "none")
        yield from list(cases("specialized", capability, "float16", "NN", "matrix"))[:1]


def _faults_of_specialization(form: Form, built: Built) -> list[str]:
    found = []
    threads = re.search(r"\.reqntid (\d+)", built.ptx)
    if not threads or int(threads[1]) <= 32 * form.configuration.tile.warps or "setmaxnreg" not in built.ptx:
        found.append("all warps alike")
    under_way = set(re.findall(r"wgmma\.wait_group\.sync\.aligned\s+(\d+)", built.ptx)) - {"0"}
    if under_way:
        found.append(f"{max(under_way)} matrix instructions under way")
    return found


FAMILY = Family(chosen, every)
