"""Compile a Triton kernel for any NVIDIA GPU on a machine without one, and read what came out.

Registers, spills, shared memory and instructions are facts of the compiled program, so a tuning list can
be held to them before it ever meets a device. Must run without TRITON_INTERPRET.
"""

import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.experimental.gluon._runtime import GluonASTSource

from tests.kernels.listing import Line, listing, overwritten, register_operands

SHARED_LIMIT_BYTE: Mapping[int, int] = {
    70: 96 * 1024,
    75: 64 * 1024,
    80: 163 * 1024,
    90: 227 * 1024,
    100: 227 * 1024,
}
"""Most shared memory of one block, by compute capability (CUDA C++ Programming Guide, "Technical
Specifications per Compute Capability")."""

_TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
_TRITON_TYPE = {
    "float16": "fp16",
    "bfloat16": "bf16",
    "tf32": "fp32",
    "float32": "fp32",
    "float64": "fp64",
    "float8_e4m3": "fp8e4nv",
    "float8_e5m2": "fp8e5",
    "uint8": "u8",
    "int8": "i8",
    "int32": "i32",
}


@dataclass(frozen=True)
class Built:
    """What the compiler made of one kernel for one architecture."""

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
    tensor_columns: int
    """Of tensor memory (Blackwell), of one block; of the 512 that a multiprocessor has."""
    instructions: Counter[str]
    """SASS instructions by full name (`LDG.E.128`), as they stand in the program, not as executed.

    Empty below compute capability 7.5, which CUDA 13's disassembler (Triton 3.7) no longer reads.
    """
    register_operands: int
    """Matrix instructions of Hopper that read their left operand from registers."""
    overwritten: int
    """Such registers that are written while they may still be read (tests/kernels/listing.py)."""
    program: list[Line]
    """The SASS instructions in their order."""
    ptx: str
    """The virtual assembly that they were made from; there for every architecture."""

    def count(self, *prefixes: str) -> int:
        """How many instructions have a name that begins with any of these."""
        return sum(n for name, n in self.instructions.items() if name.startswith(prefixes))


def pointer(dtype: str) -> str:
    """Triton's name of a pointer to this data type of ours."""
    return f"*{_TRITON_TYPE[dtype]}"


def build(
    kernel: Any,
    arguments: Mapping[str, str],
    constants: Mapping[str, Any],
    capability: int,
    *,
    warps: int,
    stages: int,
    divisible: Collection[str] = (),
    registers: int | None = None,
    blocks: int = 1,
) -> Built:
    """Compile for compute capability `capability` (90 means 9.0) and read the result.

    `arguments` are the run-time arguments with their Triton types; pointers are taken to be 16-byte
    aligned, as torch's allocations are, and the arguments named `divisible` to be multiples of 16, as
    Triton specialises when they are. `constants` are the compile-time ones. `registers` is the most that a
    thread may have, Triton's `maxnreg`, `blocks` how many blocks form a cluster, its `num_ctas`. Kernels of
    Gluon are compiled as such. Raises what Triton's compiler raises.
    """
    signature = {name: arguments.get(name, "constexpr") for name in kernel.arg_names}
    aligned = {
        (place,): [["tt.divisibility", 16]]
        for place, (name, kind) in enumerate(signature.items())
        if kind.startswith("*") or name in divisible
    }
    source = GluonASTSource if kernel.is_gluon() else ASTSource
    compiled = triton.compile(
        source(fn=kernel, signature=signature, constexprs=dict(constants), attrs=aligned),
        target=GPUTarget("cuda", capability, 32),
        options={"num_warps": warps, "num_stages": stages, "num_ctas": blocks, "maxnreg": registers},
    )
    usage, program = _disassemble(compiled.asm["cubin"], capability)
    spilling = [line.address for line in program if line.name.startswith(("LDL", "STL"))]
    loops = [(line.target, line.address) for line in program if line.target is not None]
    loops = [(target, at) for target, at in loops if target < at]
    return Built(
        registers=int(usage["REG"]),
        stack_byte=int(usage["STACK"]),
        spills=len(spilling),
        spills_in_loops=sum(any(start <= at <= end for start, end in loops) for at in spilling),
        shared_byte=compiled.metadata.shared,
        tensor_columns=getattr(compiled.metadata, "tmem_size", 0) or 0,
        instructions=Counter(line.name for line in program),
        register_operands=len(register_operands(program)),
        overwritten=overwritten(program),
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
