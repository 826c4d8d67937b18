"""Every tile that the pointer kernel may try, and what it promises of its compiled form.

Nothing spilled within the walk along K and next to nothing outside it, shared memory within the limit, the
architecture's matrix instruction used, and 16-byte loads wherever rows allow them. Every layout, alignment
and mask takes half an hour.
"""

import itertools
from collections.abc import Iterator
from typing import NamedTuple

import triton

from bench.spec import ITEM_BYTE, Dtype
from kernels.gemm import pointer
from kernels.gemm.problem import FORCED_TILES, Gemm, Layout
from kernels.gemm.tiles import Tile, forced, pointer_tiles
from tests.kernels.compiled import (
    PARKED_ANYWHERE_BYTE,
    PARKED_BYTE,
    Built,
    Family,
    arithmetic,
    arithmetic_faults,
    build_launch,
    resource_faults,
)
from tests.kernels.gemm_cases import meta_operands, sizeless

CAPABILITIES = (70, 80, 90, 100)
LAYOUTS: tuple[Layout, ...] = ("NN", "NT", "TN", "TT")
TRITON = tuple(int(part) for part in triton.__version__.split(".")[:2])


class Form(NamedTuple):
    """One compilation: what Triton would make for this data type, layout and alignment."""

    capability: int
    dtype: Dtype
    tile: Tile
    layout: Layout
    alignment: int
    """Elements: the largest power of two that divides the sizes, up to 16 bytes' worth."""
    even_k: bool
    addend: str = "none"
    """`none`, `bias` or `matrix`."""
    batched: bool = False
    spills_in_loops: int = 0
    """Most of them: of all forms a few float32 ones spill now and then; 3 among 1,000 FFMA are not felt."""

    def __str__(self) -> str:
        mask = "no" if self.even_k else "yes"
        return f"{self.dtype:11} {self.layout:6} {self.addend:6} {self.alignment:5} {mask:4} {self.tile!s}"

    @property
    def instruction(self) -> str:
        """What multiplies."""
        return arithmetic(self.dtype, self.capability, self.tile.n)

    def compiled(self) -> Built:
        """As `compiled.Form` has it, and so are the others."""
        of = meta_operands(sizeless(self.dtype, self.layout, self.addend), self.addend)
        prepared = pointer.prepare(of, self.tile, 132)
        arguments = prepared.arguments | {
            "ALIGN": (self.alignment,) * 6,
            "EVEN_K": self.even_k,
            "BATCHED": self.batched,
        }
        return build_launch(prepared._replace(arguments=arguments), self.capability)

    def faults(self, built: Built) -> list[str]:
        parks_more = self.spills_in_loops or TRITON < (3, 7) or self.addend == "matrix"
        found = resource_faults(
            built,
            self.capability,
            parked_byte=PARKED_BYTE if parks_more else PARKED_ANYWHERE_BYTE,
            # Where a matrix C is added those few are spilled while it waits for its sums.
            spills_in_loops=built.spills_in_loops if self.addend == "matrix" else self.spills_in_loops,
        )
        if self.capability < 75:
            fma = "fma.rn.f64" if self.dtype == "float64" else "fma.rn.f32"
            computed = fma in built.ptx and "mma." not in built.ptx
            return found if computed else [*found, f"not computed by {fma}"]
        found += arithmetic_faults(built, self.instruction)
        if self.alignment * ITEM_BYTE[self.dtype] == 16:
            if not built.count("LDGSTS.E.BYPASS.128"):
                found.append("no 16-byte copy to shared memory")
            # Of a bias each thread loads one element.
            if built.count("LDG.E.U16") > (self.addend == "bias") or not built.count("STG.E.128"):
                found.append("narrow loads or stores")
        return found

    def counts(self, built: Built) -> str:
        count = built.count(self.instruction) if built.program else built.ptx.count("fma.rn.f")
        return f"{count} {self.instruction}"


def chosen() -> Iterator[Form]:
    """Each tile once in its plainest and once in its most laborious form, over all data types and layouts."""
    addends, groups = itertools.cycle(("bias", "matrix")), itertools.cycle((4, 8, 16))
    for capability, dtype in _types():
        full = 16 // ITEM_BYTE[dtype]
        if dtype != "bfloat16":
            for tile in _forced(capability, dtype, "NN", wide=True):
                yield Form(capability, dtype, tile, "NN", full, False)
        for tile in pointer_tiles((capability // 10, 0), dtype, "NN", wide=True):
            # The two 16-bit types compile to the same but for one letter, so they share the work.
            if dtype != "bfloat16":
                yield Form(capability, dtype, tile, "NN", full, True)
            layout = "NT" if dtype == "bfloat16" else "TN"
            yield Form(capability, dtype, tile._replace(group=next(groups)), layout, full, False)
            if dtype != "bfloat16":
                yield Form(capability, dtype, tile, "TN", full, False, batched=True)
            if dtype not in ("bfloat16", "int8", "float8_e4m3"):
                yield Form(capability, dtype, tile, "TN", full, False, next(addends))
        for tile in pointer_tiles((capability // 10, 0), dtype, "NN", wide=False):
            yield Form(capability, dtype, tile, "TT" if dtype == "bfloat16" else "NN", 1, False)


def every() -> Iterator[Form]:
    """All that could ever be compiled with the same alignment of every size."""
    for capability, dtype in _types():
        for alignment in (16, 8, 4, 2, 1):
            full = 16 // ITEM_BYTE[dtype]
            if alignment > full:
                continue
            for layout in LAYOUTS:
                wide = alignment == full
                listed = pointer_tiles((capability // 10, 0), dtype, layout, wide=wide)
                for tile in (*listed, *_forced(capability, dtype, layout, wide=wide)):
                    for even_k in (True, False):
                        yield Form(capability, dtype, tile, layout, alignment, even_k, spills_in_loops=3)


def _forced(capability: int, dtype: Dtype, layout: str, *, wide: bool) -> list[Tile]:
    """The tiles that can be asked for by name and stand in no list, in their shallowest form."""
    listed = pointer_tiles((capability // 10, 0), dtype, layout, wide=wide)
    return [
        tile
        for m, n in (map(int, name.split("x")) for name in FORCED_TILES)
        for tile in forced((capability // 10, 0), dtype, layout, m, n, wide=wide)
        if tile.stages == 3 and tile not in listed
    ]


def _types() -> Iterator[tuple[int, Dtype]]:
    exists = Gemm.implementation("triton-pointer").dtypes
    for capability in CAPABILITIES:
        for dtype, lowest in exists.items():
            if (capability // 10, 0) >= lowest:
                yield capability, dtype


FAMILY = Family(chosen, every)
