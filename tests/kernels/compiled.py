"""Compile a Triton kernel for any NVIDIA GPU on a machine without one, and read what came out.

Registers, spills, shared memory and instructions are facts of the compiled program, so a tuning list can
be held to them before it ever meets a device. Must run without TRITON_INTERPRET.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.jit import JITFunction, mangle_type

from bench.spec import Dtype, Launch, Problem
from kernels.tensors import inputs, stored_dtype

SHARED_LIMIT_BYTE: Mapping[int, int] = {
    70: 96 * 1024,
    75: 64 * 1024,
    80: 163 * 1024,
    89: 99 * 1024,
    90: 227 * 1024,
    100: 227 * 1024,
    120: 99 * 1024,
}
"""Most shared memory of one block, by compute capability (CUDA C++ Programming Guide, "Technical
Specifications per Compute Capability")."""

CAPABILITIES = (70, 80, 90, 100)
"""The architectures that kernels are compiled for, unless they need or lack something."""

_TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"


class Line(NamedTuple):
    """One instruction."""

    address: int
    name: str
    """In full: `LDG.E.128`."""
    target: int | None
    """The address that a branch goes to."""


@dataclass(frozen=True)
class Built:
    """What the compiler made of one kernel for one architecture."""

    capability: int
    """Compute capability; 90 means 9.0."""
    registers: int
    """Of one thread."""
    stack_byte: int
    """Of one thread; more than 0 means that registers were spilled or an array is indexed."""
    spills: int
    """Loads and stores of local memory, where spilled registers live."""
    spills_in_loops: int
    """Those of them that are executed again and again; the rest cost a few cycles once."""
    shared_byte: int
    """Of one block."""
    instructions: Counter[str]
    """SASS instructions by full name (`LDG.E.128`), as they stand in the program, not as executed.

    Empty below compute capability 7.5, which CUDA 13's disassembler (Triton 3.7) no longer reads.
    """
    program: list[Line]
    """The SASS instructions in their order."""
    ptx: str
    """The virtual assembly that they were made from; there for every architecture."""

    def count(self, *prefixes: str) -> int:
        """How many instructions have a name that begins with any of these."""
        return sum(n for name, n in self.instructions.items() if name.startswith(prefixes))

    def sized(self, prefix: str, size: str) -> int:
        """How many are such as LDG.E.EF.128: this name, this size, any cache policy between."""
        return sum(
            n for name, n in self.instructions.items() if name.startswith(prefix) and size in name.split(".")
        )

    def wide(self, what: str) -> int:
        """Accesses of 16 bytes to global memory, `ld` or `st`.

        Where nothing disassembles, the virtual assembly says it: 4 words of 4 bytes, or 2 of 8.
        """
        if self.program:
            return self.sized({"ld": "LDG", "st": "STG"}[what], "128")
        return len(re.findall(rf"\b{what}\.global\S*\.(?:v4\.b32|v2\.b64)", self.ptx))


Promise = Callable[[Built], list[str]]
"""What breaks it, as phrases; empty if it is kept."""


class Call(NamedTuple):
    """A kernel and the arguments that it is launched with."""

    kernel: Any
    arguments: dict[str, Any]

    @property
    def name(self) -> str:
        """The kernel's."""
        return str(self.kernel.fn.__name__)


@dataclass(frozen=True)
class Form:
    """A kernel as it is launched, and what is promised of its compiled form."""

    name: str
    """Kernel, problem, configuration."""
    call: Call
    promises: tuple[Promise, ...]
    capabilities: tuple[int, ...] = CAPABILITIES
    """Compute capabilities that it is compiled for; 90 means 9.0."""

    def faults(self, capability: int) -> list[str]:
        """What breaks a promise once it is compiled, as phrases; Triton's own errors pass through."""
        built = compile_call(self.call, capability)
        return [phrase for promise in self.promises for phrase in promise(built)]


def without_memory(problem: Problem) -> tuple[torch.Tensor, ...]:
    """The tensors that the problem reads, on no device."""

    def make(*shape: int, dtype: torch.dtype | None = None) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype or stored_dtype(problem.dtype), device="meta")

    return inputs(problem, make)


def launched(launch: Launch) -> list[Call]:
    """The kernels that a launch runs, in their order; none is run, so tensors need no memory."""
    calls: list[Call] = []

    def record(kernel: Any, *arguments: Any, grid: Any, warmup: bool, **named: Any) -> None:
        calls.append(Call(kernel, dict(zip(kernel.arg_names, arguments, strict=False)) | named))

    with patch.object(JITFunction, "run", record):
        launch.call()
    return calls


PARKED_BYTE = 64
"""Of a thread's registers, what may be put aside before the loop and fetched after it: a few addresses of C.
The compiler does so to fit one more block on a multiprocessor. Triton 3.7 needs it where a matrix C is added,
3.6 up to 56 bytes of it, and some of all the forms."""
PARKED_ANYWHERE_BYTE = 8
"""What any kernel may put aside: two registers, as Hopper's masked tile of 128 x 16 with six stages does."""


def resource_faults(built: Built, *, parked_byte: int = 0, in_loops: bool = False) -> list[str]:
    """What is spilled, and shared memory beyond the architecture's limit.

    `parked_byte` of a thread's registers may be put aside, `in_loops` also there.
    """
    faults = []
    spilled = (built.spills_in_loops and not in_loops) or built.stack_byte > parked_byte
    if spilled or (built.spills and not parked_byte):
        spills = f"{built.spills} spills, {built.spills_in_loops} in loops"
        faults.append(f"{spills}, {built.stack_byte} bytes of stack")
    if built.shared_byte > SHARED_LIMIT_BYTE[built.capability]:
        faults.append(f"{built.shared_byte} bytes of shared memory")
    return faults


def narrow_faults(built: Built, *, loads: int = 1, stores: int = 1, narrow: int | None = 0) -> list[str]:
    """Whether fewer accesses than these move 16 bytes at a time, or more than `narrow` move 1 or 2.

    None: any number may. Narrow stores count only where wide ones are promised.
    """
    wide = {"loads": (built.wide("ld"), loads), "stores": (built.wide("st"), stores)}
    faults = [
        f"{count} {what} of 16 bytes, promised {of}" for what, (count, of) in wide.items() if count < of
    ]
    accesses = ("LDG", "STG") if stores else ("LDG",)
    few = sum(built.sized(what, size) for what in accesses for size in ("U8", "S8", "U16", "S16"))
    return faults if narrow is None or few <= narrow else [*faults, f"{few} accesses of 1 or 2 bytes"]


def length_faults(built: Built, *, element: int, most: float) -> list[str]:
    """Whether there are more SASS instructions for each element on sm_90, padding left out."""
    count = sum(n for name, n in built.instructions.items() if not name.startswith("NOP")) / element
    if built.capability != 90 or not built.program or count <= most:
        return []
    return [f"{count} instructions an element, promised {most}"]


MATRIX_UNITS = (
    *("HMMA", "QMMA", "IMMA", "DMMA", "HGMMA", "QGMMA", "IGMMA"),
    *("UTCHMMA", "UTCQMMA", "UTCIMMA", "UTCOMMA", "UTCMXQMMA"),
)
"""Matrix instructions, as the beginning of their SASS names."""


FROM_REGISTERS = re.compile(r"wgmma\.mma_async\S*\s*\{[^}]*\}\s*,\s*\{")
"""Of PTX, a matrix operand in registers: after the sums stands a list of them, not a block's description."""


def arithmetic(dtype: Dtype, capability: int, rows: int = 64) -> str:
    """What a product with so many rows must be computed by, as the beginning of a SASS name."""
    if dtype == "float32":
        return "FFMA"
    if dtype == "float64":
        return "DMMA" if capability in (80, 90) else "DFMA"
    letter = {"float8_e4m3": "Q", "int8": "I"}.get(dtype, "H")
    # The instructions of Hopper and Blackwell take 64 rows at least; below, Ampere's serve. Blackwell has
    # none for int8. Ampere's of 8-bit floats is Ada's; elsewhere they are widened to 16 bits.
    if rows < 64 and capability in (90, 100):
        return "HMMA" if letter == "Q" else f"{letter}MMA"
    if capability == 90:
        return f"{letter}GMMA"
    return f"UTC{letter}MMA" if capability == 100 and letter != "I" else f"{letter}MMA"


def arithmetic_faults(built: Built, expected: str, *, alone: bool = True) -> list[str]:
    """Whether this instruction is missing, or, if it is to be alone, another matrix instruction is there."""
    others = [name for name in MATRIX_UNITS if alone and name != expected and built.count(name)]
    missing = [] if built.count(expected) else [f"no {expected}"]
    return missing + ([f"{expected} but also {others}"] if others else [])


def register_faults(built: Built) -> list[str]:
    """Whether a matrix operand comes from registers, which ptxas before 13.1 can overwrite too early."""
    return ["a matrix operand from registers"] if FROM_REGISTERS.search(built.ptx) else []


def fma_faults(dtype: Dtype, built: Built, *, alone: bool = False) -> list[str]:
    """Whether an architecture without matrix instructions does not multiply and add, or not by that alone."""
    fma = "fma.rn.f64" if dtype == "float64" else "fma.rn.f32"
    computed = fma in built.ptx and not (alone and "mma." in built.ptx)
    return [] if computed else [f"not computed by {fma}"]


_OPTIONS = ("num_warps", "num_stages", "maxnreg")
"""Of a launch, what is Triton's and not the kernel's."""


def compile_call(call: Call, capability: int) -> Built:
    """Compile what this would launch for compute capability `capability` (90 means 9.0) and read the result.

    Types are those of its arguments; pointers are taken to be 16-byte aligned, as torch's allocations are.
    Raises what Triton's compiler raises.
    """
    kernel, arguments = call
    names, constants = kernel.arg_names, {p.name for p in kernel.params if p.is_constexpr}
    constants |= {name for name, value in arguments.items() if value is None}
    signature = {n: "constexpr" if n in constants else mangle_type(arguments[n]) for n in names}
    aligned = {
        (place,): [["tt.divisibility", 16]]
        for place, kind in enumerate(signature.values())
        if kind.startswith("*")
    }
    given = {name: arguments[name] for name in names if name in constants}
    compiled = triton.compile(
        ASTSource(fn=kernel, signature=signature, constexprs=given, attrs=aligned),
        target=GPUTarget("cuda", capability, 32),
        options={"num_stages": 1} | {name: arguments[name] for name in _OPTIONS if name in arguments},
    )
    usage, program = _disassemble(compiled.asm["cubin"], capability)
    spilling = [line.address for line in program if line.name.startswith(("LDL", "STL"))]
    loops = [(line.target, line.address) for line in program if line.target is not None]
    loops = [(target, at) for target, at in loops if target < at]
    return Built(
        capability=capability,
        registers=int(usage["REG"]),
        stack_byte=int(usage["STACK"]),
        spills=len(spilling),
        spills_in_loops=sum(any(start <= at <= end for start, end in loops) for at in spilling),
        shared_byte=compiled.metadata.shared,
        instructions=Counter(line.name for line in program),
        program=program,
        ptx=compiled.asm["ptx"],
    )


def _disassemble(cubin: bytes, capability: int) -> tuple[dict[str, str], list[Line]]:
    """Resources by name, and the program."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        text = subprocess.run(
            [_TOOLS / "cuobjdump", *(["-sass"] if capability >= 75 else []), "-res-usage", file.name],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
    return dict(re.findall(r"\b(REG|STACK|SHARED|LOCAL):(\d+)", text)), listing(text)


def listing(text: str) -> list[Line]:
    """The instructions in cuobjdump's text."""
    # A line of it: "/*0b10*/    @!P0 BRA 0x890 ;    /* 0x... */"
    program = []
    line = r"^\s+/\*([0-9a-f]{4,})\*/\s+(@!?U?P\w+\s+)?([A-Z][A-Z0-9x_.]*)\s*([^;]*?)\s*;"
    for address, _, name, operands in re.findall(line, text, re.M):
        target = re.search(r"\b0x([0-9a-f]+)$", operands) if name.startswith("BRA") else None
        to = int(target[1], 16) if target else None
        program.append(Line(int(address, 16), name, to))
    return program
