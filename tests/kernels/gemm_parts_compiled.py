"""Every tile of the kernels that share out tiles, and what they promise of their compiled form.

Nothing spilled, shared memory within the limit, the architecture's matrix instruction used, operands moved
16 bytes at a time or in bulk wherever rows allow, and around each arrival a barrier, a release, an acquire,
and loads that pass the L1 cache. Every layout and side takes half an hour on two cores.
"""

import re
from collections.abc import Iterator
from functools import partial
from typing import Any

from bench.spec import Dtype
from kernels.gemm import skinny, split_k, stream_k
from kernels.gemm.operands import has_wide_loads
from kernels.gemm.problem import Gemm, Layout
from kernels.gemm.stream_k import Streams
from tests.kernels.compiled import (
    Built,
    Family,
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

Case = tuple[str, Gemm, Any, int]
"""A kernel in a configuration, for a problem on an architecture."""


def form(kernel: str, problem: Gemm, configuration: Any, capability: int, parts: int = 8) -> Form:
    """One compilation."""
    of, tile = meta_operands(problem), configuration.tile
    if kernel == "stream-k":
        prepared = stream_k.prepare(of, configuration, 132)
    else:
        prepared = split_k.in_parts(of, configuration, parts)
    promises: list[Promise] = [resource_faults, *([arrival_faults] if parts > 1 else [])]
    if capability < 75:
        promises.append(partial(fma_faults, problem.dtype))
    else:
        turned = kernel != "stream-k" and split_k.turned(problem, tile)
        expected = arithmetic(problem.dtype, capability, tile.m if turned else tile.n)
        promises.append(partial(arithmetic_faults, expected=expected, alone=False))
        if isinstance(configuration, Streams) and configuration.bulk:
            promises.append(_bulk_faults)
        elif has_wide_loads(problem) and is_copied_wide(problem):
            promises.append(_copy_faults)
    (call,) = launched(prepared.launch())
    return Form(f"{kernel:8} {problem!s:55} {configuration}", call, tuple(promises), (capability,))


def _bulk_faults(built: Built) -> list[str]:
    """Whether operands are moved otherwise than in bulk."""
    faults = [] if built.count("UTMALDG") else ["no bulk copies"]
    return [*faults, "copies by pointer as well"] if built.count("LDGSTS") else faults


def _copy_faults(built: Built) -> list[str]:
    """Whether operands are moved less than 16 bytes at a time."""
    faults = [] if built.count("LDGSTS.E.BYPASS.128") else ["no 16-byte copy to shared memory"]
    return [*faults, "narrow loads"] if built.count("LDG.E.U16", "LDG.E.U8") else faults


def of_kernel(kernel: str, problem: Gemm, capability: int) -> tuple[Any, ...]:
    """What this kernel tries for this problem."""
    module = {"split-k": split_k, "stream-k": stream_k, "skinny": skinny}[kernel]
    configurations: tuple[Any, ...] = module.candidates(problem, divmod(capability, 10), 132)
    return configurations


def types() -> Iterator[tuple[int, Dtype]]:
    """The architectures, and the data types that Triton does there; 8.9 for 8-bit floats only."""
    for capability in CAPABILITIES:
        for dtype, lowest in Gemm.implementation("triton-split-k").dtypes.items():
            if divmod(capability, 10) >= lowest and (capability != 89 or dtype == "float8_e4m3"):
                yield capability, dtype


def problems(dtype: Dtype, layout: Layout) -> Iterator[tuple[str, Gemm]]:
    """For each kernel: aligned with K even and ragged, and unaligned; skinny ones with either side short."""
    for kernel in ("split-k", "stream-k"):
        for m, n, k in ((1024, 1024, 4096), (1008, 1008, 4080), (1007, 1009, 4093)):
            yield kernel, Gemm(m=m, n=n, k=k, layout=layout, dtype=dtype)
    for m, n, k in ((4096, 1, 4096), (64, 4080, 4080), (4096, 32, 4080), (4093, 7, 4093), (5, 4093, 4093)):
        yield "skinny", Gemm(m=m, n=n, k=k, layout=layout, dtype=dtype)


def cases() -> Iterator[Case]:
    """All layouts; the two 16-bit types compile to the same but for one letter, so one will do."""
    for capability, dtype in types():
        for layout in LAYOUTS if dtype != "bfloat16" else ():
            for kernel, problem in problems(dtype, layout):
                for configuration in of_kernel(kernel, problem, capability):
                    yield kernel, problem, configuration, capability


def every() -> Iterator[Form]:
    """All of them."""
    return (form(*case) for case in cases())


def chosen() -> Iterator[Form]:
    """A sample in which every kernel meets all types and architectures; and one that splits nothing."""
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
    faults = [] if len(counts) == 2 else [f"{len(counts)} arrivals"]
    for at in counts:
        faults += [] if "atom.global.gpu.acq_rel.add" in lines[at] else ["relaxed arrival"]
        before = next(i for i in range(at, -1, -1) if re.search(r"\bst\.global|\bbar\.sync", lines[i]))
        after = next(i for i in range(at, len(lines)) if re.search(r"\bld\.global|\bbar\.sync", lines[i]))
        faults += [] if "bar.sync" in lines[before] and "bar.sync" in lines[after] else ["no barrier"]
    loads = [line for line in lines[counts[0] :] if re.search(r"\bld\.global", line)] if counts else []
    faults += [] if any(".cg" in line for line in loads) else ["parts loaded through L1"]
    return faults


FAMILIES = {"gemm_parts": Family(chosen, every)}
