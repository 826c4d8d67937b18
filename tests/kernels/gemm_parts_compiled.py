"""Every tile of the kernels that share out tiles, and what they promise of their compiled form.

Nothing spilled, shared memory within the limit, the architecture's matrix instruction used, operands moved
16 bytes at a time or in bulk wherever rows allow, and around each arrival a barrier, a release, an acquire,
and loads that pass the L1 cache. Every layout and side takes half an hour on two cores.
"""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

from bench.spec import Dtype
from kernels.gemm import skinny, split_k, stream_k
from kernels.gemm.operands import has_wide_loads
from kernels.gemm.problem import Gemm, Layout
from kernels.gemm.stream_k import Streams
from kernels.gemm.tiles import Tile
from tests.kernels.compiled import MATRIX_UNITS, Built, Family, arithmetic, build_launch, resource_faults
from tests.kernels.gemm_cases import meta_operands

CAPABILITIES = (70, 80, 89, 90, 100)
LAYOUTS: tuple[Layout, ...] = ("NN", "NT", "TN", "TT")
SAMPLE = 29
"""Of so many forms one is in the sample. A prime, so that the sample follows no property of the list."""
UNITS = (*MATRIX_UNITS, "FFMA", "DFMA")


class Form(NamedTuple):
    """One compilation: a kernel in a configuration, for a problem on an architecture."""

    kernel: str
    problem: Gemm
    configuration: Any
    capability: int
    parts: int = 8

    @property
    def tile(self) -> Tile:
        """Of its configuration."""
        tile: Tile = self.configuration.tile
        return tile

    @property
    def bulk(self) -> bool:
        """Whether operands are moved by bulk copies."""
        return isinstance(self.configuration, Streams) and self.configuration.bulk

    def __str__(self) -> str:
        return f"{self.kernel:8} {self.problem!s:55} {self.configuration!s}"

    @property
    def instruction(self) -> str:
        """What multiplies."""
        turned = self.kernel != "stream-k" and split_k.turned(self.problem, self.tile)
        return arithmetic(self.problem.dtype, self.capability, self.tile.m if turned else self.tile.n)

    def compiled(self) -> Built:
        """As `compiled.Form` has it, and so are the others."""
        of = meta_operands(self.problem)
        if self.kernel == "stream-k":
            return build_launch(stream_k.prepare(of, self.configuration, 132), self.capability)
        return build_launch(split_k.in_parts(of, self.configuration, self.parts), self.capability)

    def faults(self, built: Built) -> list[str]:
        found = resource_faults(built, self.capability)
        if self.parts > 1:
            found += arrival_faults(built)
        if self.capability < 75:
            fma = "fma.rn.f64" if self.problem.dtype == "float64" else "fma.rn.f32"
            return found if fma in built.ptx else [*found, f"not computed by {fma}"]
        found += [] if built.count(self.instruction) else [f"no {self.instruction}"]
        if self.bulk:
            found += [] if built.count("UTMALDG") else ["no bulk copies"]
            found += ["copies by pointer as well"] if built.count("LDGSTS") else []
        elif has_wide_loads(self.problem) and is_copied_wide(self):
            found += [] if built.count("LDGSTS.E.BYPASS.128") else ["no 16-byte copy to shared memory"]
            found += ["narrow loads"] if built.count("LDG.E.U16", "LDG.E.U8") else []
        return found

    def counts(self, built: Built) -> str:
        kinds = Counter(name.split(".")[0] for name in built.instructions.elements())
        return ", ".join(f"{kinds[one]} {one}" for one in UNITS if kinds[one])


def of_kernel(kernel: str, problem: Gemm, capability: int) -> tuple[Any, ...]:
    """What this kernel tries for this problem."""
    module = {"split-k": split_k, "stream-k": stream_k, "skinny": skinny}[kernel]
    found: tuple[Any, ...] = module.candidates(problem, divmod(capability, 10), 132)
    return found


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


def every() -> Iterator[Form]:
    """All layouts; the two 16-bit types compile to the same but for one letter, so one will do."""
    for capability, dtype in types():
        for layout in LAYOUTS if dtype != "bfloat16" else ():
            for kernel, problem in problems(dtype, layout):
                for configuration in of_kernel(kernel, problem, capability):
                    yield Form(kernel, problem, configuration, capability)


def chosen() -> Iterator[Form]:
    """A sample in which every kernel meets all types and architectures; and one that splits nothing."""
    everything = list(every())
    yield everything[0]._replace(parts=1)
    yield from everything[::SAMPLE]


def is_copied_wide(form: Form) -> bool:
    """Whether the matrix units take operands as they lie: any of 16 bits, others with K contiguous."""
    return form.problem.item_byte == 2 or form.problem.layout == "TN" or form.problem.dtype == "float32"


def arrival_faults(built: Built) -> list[str]:
    """Before a program counts itself all its threads meet; who then reads what others stored must see it."""
    lines = [line.strip() for line in built.ptx.splitlines()]
    counts = [i for i, line in enumerate(lines) if " atom." in line or line.startswith("atom.")]
    found = [] if len(counts) == 2 else [f"{len(counts)} arrivals"]
    for at in counts:
        found += [] if "atom.global.gpu.acq_rel.add" in lines[at] else ["relaxed arrival"]
        before = next(i for i in range(at, -1, -1) if re.search(r"\bst\.global|\bbar\.sync", lines[i]))
        after = next(i for i in range(at, len(lines)) if re.search(r"\bld\.global|\bbar\.sync", lines[i]))
        found += [] if "bar.sync" in lines[before] and "bar.sync" in lines[after] else ["no barrier"]
    loads = [line for line in lines[counts[0] :] if re.search(r"\bld\.global", line)] if counts else []
    found += [] if any(".cg" in line for line in loads) else ["parts loaded through L1"]
    return found


FAMILY = Family(chosen, every)
