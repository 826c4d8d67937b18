"""Every tile of split-K, and what it promises of its compiled form.

Nothing spilled, shared memory within the limit, the architecture's matrix instruction used, operands moved
16 bytes at a time wherever rows allow, and around each arrival a barrier, a release, an acquire,
and loads that pass the L1 cache. Every layout takes minutes on two cores.
"""

import re
from collections.abc import Iterator
from functools import partial

from bench.spec import Dtype
from kernels.gemm import split_k
from kernels.gemm.operands import has_wide_loads
from kernels.gemm.problem import Gemm, Layout
from kernels.gemm.tiles import Tile
from tests.kernels.compiled import (
    Built,
    Form,
    Promise,
    arithmetic,
    arithmetic_faults,
    fma_faults,
    launched,
    resource_faults,
)
from tests.kernels.gemm_cases import meta_operands

CAPABILITIES = (70, 80, 89, 90, 100)
LAYOUTS: tuple[Layout, ...] = ("NN", "NT", "TN", "TT")
SAMPLE = 29
"""Of so many forms one is in the sample. A prime, so that the sample follows no property of the list."""

Case = tuple[Gemm, Tile, int]
"""A problem in a tile, on an architecture."""


def form(problem: Gemm, tile: Tile, capability: int, parts: int = 8) -> Form:
    """One compilation."""
    prepared = split_k.in_parts(meta_operands(problem), tile, parts)
    promises: list[Promise] = [resource_faults, *([arrival_faults] if parts > 1 else [])]
    if capability < 75:
        promises.append(partial(fma_faults, problem.dtype))
    else:
        expected = arithmetic(problem.dtype, capability, tile.n)
        promises.append(partial(arithmetic_faults, expected=expected, alone=False))
        if has_wide_loads(problem) and is_copied_wide(problem):
            promises.append(_copy_faults)
    (call,) = launched(prepared.launch())
    return Form(f"{problem!s:55} {tile}", call, tuple(promises), (capability,))


def _copy_faults(built: Built) -> list[str]:
    """Whether operands are moved less than 16 bytes at a time."""
    faults = [] if built.count("LDGSTS.E.BYPASS.128") else ["no 16-byte copy to shared memory"]
    return [*faults, "narrow loads"] if built.count("LDG.E.U16", "LDG.E.U8") else faults


def types() -> Iterator[tuple[int, Dtype]]:
    """The architectures, and the data types that Triton does there; 8.9 for 8-bit floats only."""
    for capability in CAPABILITIES:
        for dtype, lowest in Gemm.implementation("triton-split-k").dtypes.items():
            if divmod(capability, 10) >= lowest and (capability != 89 or dtype == "float8_e4m3"):
                yield capability, dtype


def cases() -> Iterator[Case]:
    """All layouts; the two 16-bit types compile to the same but for one letter, so one will do.

    Aligned with K even and ragged, and unaligned.
    """
    for capability, dtype in types():
        for layout in LAYOUTS if dtype != "bfloat16" else ():
            for m, n, k in ((1024, 1024, 4096), (1008, 1008, 4080), (1007, 1009, 4093)):
                problem = Gemm(m=m, n=n, k=k, layout=layout, dtype=dtype)
                for tile in split_k.candidates(problem, divmod(capability, 10)):
                    yield problem, tile, capability


def chosen() -> Iterator[Form]:
    """A sample that meets all types and architectures; and one that splits nothing."""
    everything = list(cases())
    yield form(*everything[0], parts=1)
    yield from (form(*case) for case in everything[::SAMPLE])


def is_copied_wide(problem: Gemm) -> bool:
    """Whether the matrix units take operands as they lie: any of 16 bits, others with K contiguous."""
    return problem.item_byte == 2 or problem.layout == "TN" or problem.dtype == "float32"


def arrival_faults(built: Built) -> list[str]:
    """Before a program counts itself all its threads meet; who then reads what others stored must see it."""
    lines = [line.strip() for line in built.ptx.splitlines()]
    counts = [i for i, line in enumerate(lines) if " atom." in line or line.startswith("atom.")]
    faults = [] if len(counts) == 1 else [f"{len(counts)} arrivals"]
    for at in counts:
        faults += [] if "atom.global.gpu.acq_rel.add" in lines[at] else ["relaxed arrival"]
        before = next(i for i in range(at, -1, -1) if re.search(r"\bst\.global|\bbar\.sync", lines[i]))
        after = next(i for i in range(at, len(lines)) if re.search(r"\bld\.global|\bbar\.sync", lines[i]))
        faults += [] if "bar.sync" in lines[before] and "bar.sync" in lines[after] else ["no barrier"]
    loads = [line for line in lines[counts[0] :] if re.search(r"\bld\.global", line)] if counts else []
    faults += [] if any(".cg" in line for line in loads) else ["parts loaded through L1"]
    return faults


FAMILIES = {"gemm_split_k": chosen}
