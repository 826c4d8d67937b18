"""Every tile of the kernels that share out tiles, compiled for every architecture and held to its promises.

    python -m tests.kernels.gemm_parts_compiled            a sample of all forms, as a table
    python -m tests.kernels.gemm_parts_compiled --drawn    a few of it, by the seed of the tests' run
    python -m tests.kernels.gemm_parts_compiled --all      every layout and side: half an hour on two cores

Exit code 1 on a fault. Promises: nothing spilled, shared memory within the limit, the architecture's matrix
instruction used, operands moved 16 bytes at a time or in bulk wherever rows allow, and around each arrival a
barrier, a release, an acquire, and loads that pass the L1 cache. Needs no GPU; must run without
TRITON_INTERPRET. It says what the compiler made, not that it runs, nor how fast.
"""

import re
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from operator import attrgetter
from typing import Any, NamedTuple

import torch
from triton.tools.tensor_descriptor import TensorDescriptor

from bench.spec import Dtype
from kernels.gemm import skinny, split_k, stream_k
from kernels.gemm.operands import has_wide_loads, operands
from kernels.gemm.operator import OPERATOR
from kernels.gemm.parts import workspace
from kernels.gemm.problem import Gemm, Layout
from kernels.gemm.stream_k import Streams
from kernels.gemm.tiles import Tile
from tests.drawing import covering
from tests.kernels.compiled import SHARED_LIMIT_BYTE, Built, build
from tests.kernels.tensors import TORCH_TYPE

CAPABILITIES = (70, 80, 89, 90, 100)
LAYOUTS: tuple[Layout, ...] = ("NN", "NT", "TN", "TT")
LIMIT_BYTE = {89: 99 * 1024, **SHARED_LIMIT_BYTE}
TRITON_NAME = {
    torch.float16: "fp16",
    torch.bfloat16: "bf16",
    torch.float32: "fp32",
    torch.float64: "fp64",
    torch.float8_e4m3fn: "fp8e4nv",
    torch.int8: "i8",
    torch.int32: "i32",
}
SAMPLE = 29
"""Of so many forms one is in the sample. A prime, so that the sample follows no property of the list."""
UNITS = ("HMMA", "HGMMA", "UTCHMMA", "QMMA", "QGMMA", "UTCQMMA", "IMMA", "IGMMA", "DMMA", "FFMA", "DFMA")


class Case(NamedTuple):
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


def every() -> Iterator[Case]:
    """All layouts; the two 16-bit types compile to the same but for one letter, so one will do."""
    for capability, dtype in types():
        for layout in LAYOUTS if dtype != "bfloat16" else ():
            for kernel, problem in problems(dtype, layout):
                for configuration in of_kernel(kernel, problem, capability):
                    yield Case(kernel, problem, configuration, capability)


def chosen() -> Iterator[Case]:
    """A sample in which every kernel meets all types and architectures; and one that splits nothing."""
    everything = list(every())
    yield everything[0]._replace(parts=1)
    yield from everything[::SAMPLE]


def compile_one(case: Case) -> Built:
    """Compile and disassemble what `launch` would run; Triton's own errors pass through."""

    def unreal(*shape: int, dtype: torch.dtype | None = None) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype or TORCH_TYPE[case.problem.dtype], device="meta")

    of = operands(case.problem, *OPERATOR.inputs(case.problem, unreal))
    room = workspace(case.problem, of.d, elements=0, counters=0)
    if case.kernel == "stream-k":
        kernel, given = stream_k.multiply, stream_k.arguments(of, case.configuration, 8, room)
    else:
        kernel, given = split_k.multiply, split_k.arguments(of, case.configuration, case.parts, room)
    types, constants = {}, {}
    for name in kernel.arg_names:
        value = given[name]
        if isinstance(value, TensorDescriptor):
            block = ", ".join(map(str, value.block_shape))
            types[name] = f"tensordesc<{TRITON_NAME[value.base.dtype]}[{block}]>"
        elif isinstance(value, torch.Tensor):
            types[name] = f"*{TRITON_NAME[value.dtype]}"
        elif value is None or name.isupper():
            constants[name] = value
        else:
            types[name] = "i32"
    return build(
        kernel,
        types,
        constants,
        case.capability,
        warps=given["num_warps"],
        stages=given["num_stages"],
        registers=given["maxnreg"],
    )


def expected_instruction(case: Case) -> str:
    """The arithmetic that this tile must compile to, as the beginning of a SASS name."""
    dtype, capability = case.problem.dtype, case.capability
    if dtype == "float32":
        return "FFMA"
    if dtype == "float64":
        return "DMMA" if capability in (80, 90) else "DFMA"
    turned = case.kernel != "stream-k" and split_k.turned(case.problem, case.tile)
    rows = case.tile.m if turned else case.tile.n
    family = {"float8_e4m3": "Q", "int8": "I"}.get(dtype, "H")
    if rows < split_k.UNIT_ROWS or capability < 90 or (dtype == "int8" and capability == 100):
        return f"{family}MMA"
    return f"{family}GMMA" if capability == 90 else f"UTC{family}MMA"


def faults(case: Case, built: Built) -> list[str]:
    """What breaks a promise, as phrases; empty if nothing does."""
    found = []
    if built.stack_byte or built.spills:
        found.append(
            f"{built.spills} spills, {built.spills_in_loops} in loops, {built.stack_byte} bytes of stack"
        )
    if built.shared_byte > LIMIT_BYTE[case.capability]:
        found.append(f"{built.shared_byte} bytes of shared memory")
    if case.parts > 1:
        found += arrival_faults(built)
    if case.capability < 75:
        fma = "fma.rn.f64" if case.problem.dtype == "float64" else "fma.rn.f32"
        return found if fma in built.ptx else [*found, f"not computed by {fma}"]

    expected = expected_instruction(case)
    found += [] if built.count(expected) else [f"no {expected}"]
    if case.bulk:
        found += [] if built.count("UTMALDG") else ["no bulk copies"]
        found += ["copies by pointer as well"] if built.count("LDGSTS") else []
    elif has_wide_loads(case.problem) and is_copied_wide(case):
        found += [] if built.count("LDGSTS.E.BYPASS.128") else ["no 16-byte copy to shared memory"]
        found += ["narrow loads"] if built.count("LDG.E.U16", "LDG.E.U8") else []
    return found


def is_copied_wide(case: Case) -> bool:
    """Whether the matrix units take operands as they lie: any of 16 bits, others with K contiguous."""
    return case.problem.item_byte == 2 or case.problem.layout == "TN" or case.problem.dtype == "float32"


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


def _compiled(case: Case) -> Built | str:
    try:
        return compile_one(case)
    except Exception as error:  # the table goes on; it is a fault
        return f"{type(error).__name__}: {str(error).strip().splitlines()[-1][:200]}"


def main(everything: bool, few: bool) -> int:
    """Print the table; the number of faults."""
    cases = list(every() if everything else chosen())
    if few:
        cases = covering(cases, "compiled in parts", attrgetter("kernel"))
    bad = 0
    print(f"{'variant':8} {'sm':4} {'problem':55} {'configuration':30}regs  shared spills  arithmetic")
    with ThreadPoolExecutor(2) as pool:
        for case, built in zip(cases, pool.map(_compiled, cases), strict=True):
            wrong = [built] if isinstance(built, str) else faults(case, built)
            bad += len(wrong)
            figures = ""
            if not isinstance(built, str):
                kinds = Counter(name.split(".")[0] for name in built.instructions.elements())
                units = [f"{kinds[one]} {one}" for one in UNITS if kinds[one]]
                figures = f"{built.registers:4} {built.shared_byte:7} {built.spills:4}  {', '.join(units)}"
            print(
                f"{case.kernel:8} {case.capability:<4} {case.problem!s:55} {case.configuration!s:30}"
                f"{figures} {'; '.join(wrong)}",
                flush=True,
            )
    print(f"{len(cases)} compiled, {bad} faults")
    return bad


if __name__ == "__main__":
    sys.exit(1 if main("--all" in sys.argv[1:], "--drawn" in sys.argv[1:]) else 0)
