"""Compile a Triton kernel for any NVIDIA GPU on a machine without one, and read what came out.

Registers, spills, shared memory and instructions are facts of the compiled program, so a tuning list can
be held to them before it ever meets a device. compile_table.py prints them. Must run without
TRITON_INTERPRET.
"""

import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.experimental.gluon._runtime import GluonASTSource
from triton.runtime.jit import mangle_type

from bench.spec import Dtype
from kernels.prepared import Prepared
from tests.kernels.listing import Line, listing, overwritten, register_operands

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


class Form(Protocol):
    """One kernel in one configuration for one architecture, and what is promised of it.

    Its text names it in the table.
    """

    @property
    def capability(self) -> int:
        """Compute capability; 90 means 9.0."""

    def compiled(self) -> Built:
        """Compile and disassemble; Triton's own errors pass through."""

    def faults(self, built: Built) -> list[str]:
        """What breaks a promise, as phrases; empty if nothing does."""

    def counts(self, built: Built) -> str:
        """What the table shows of its instructions: `16 HGMMA`."""


class Family(NamedTuple):
    """The compilations of a family of kernels."""

    chosen: Callable[[], Iterable[Form]]
    """A sample: every configuration in some form."""
    every: Callable[[], Iterable[Form]]
    """All that may ever be compiled."""
    slow: Callable[[Any], bool] = lambda form: False
    """Whether a form takes ten seconds and more to compile: more than an ordinary run of tests has for it."""


PARKED_BYTE = 64
"""Of a thread's registers, what may be put aside before the loop and fetched after it: a few addresses of C.
The compiler does so to fit one more block on a multiprocessor. Triton 3.7 needs it where a matrix C is added,
3.6 up to 56 bytes of it, and some of all the forms."""
PARKED_ANYWHERE_BYTE = 8
"""What any kernel may put aside: two registers, as Hopper's masked tile of 128 x 16 with six stages does."""


def resource_faults(
    built: Built, capability: int, *, parked_byte: int = 0, spills_in_loops: int = 0
) -> list[str]:
    """What is spilled, and shared memory beyond the architecture's limit, as phrases.

    `parked_byte` of a thread's registers may be put aside outside of loops.
    """
    faults = []
    spilled = built.spills_in_loops > spills_in_loops or built.stack_byte > parked_byte
    if spilled or (built.spills and not parked_byte):
        spills = f"{built.spills} spills, {built.spills_in_loops} in loops"
        faults.append(f"{spills}, {built.stack_byte} bytes of stack")
    if built.shared_byte > SHARED_LIMIT_BYTE[capability]:
        faults.append(f"{built.shared_byte} bytes of shared memory")
    return faults


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


def arithmetic_faults(built: Built, expected: str) -> list[str]:
    """Whether this instruction is missing, or another matrix instruction is there, as phrases."""
    others = [name for name in MATRIX_UNITS if name != expected and built.count(name)]
    missing = [] if built.count(expected) else [f"no {expected}"]
    return missing + ([f"{expected} but also {others}"] if others else [])


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


def build_launch(prepared: Prepared, capability: int) -> Built:
    """Compile what this would launch; tensors may be without memory."""
    kernel, arguments = prepared.kernel, prepared.arguments
    constants = {parameter.name for parameter in kernel.params if parameter.is_constexpr}
    constants |= {name for name, value in arguments.items() if value is None}
    return build(
        kernel,
        {name: mangle_type(arguments[name]) for name in kernel.arg_names if name not in constants},
        {name: arguments[name] for name in kernel.arg_names if name in constants},
        capability,
        warps=arguments["num_warps"],
        stages=arguments.get("num_stages", 1),
        registers=arguments.get("maxnreg"),
        blocks=arguments.get("num_ctas", 1),
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
