"""The tiles that our attention kernels may try, compiled for every architecture and held to their promises.

    python -m tests.kernels.attention_compiled            every tile in some forms
    python -m tests.kernels.attention_compiled --drawn    a few of them, by the seed of the tests' run
    python -m tests.kernels.attention_compiled --all      every combination

Exit code 1 on a fault. Promises: nothing spilled in a loop and at most 16 registers outside of one, shared
memory within the limit, the architecture's matrix instruction and no other, no left operand of it overwritten
while it may be read, and 16-byte loads and stores. Needs no GPU; must run without TRITON_INTERPRET. It says
what the compiler made, not that it runs, nor how fast.
"""

import itertools
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from operator import attrgetter
from typing import Any, NamedTuple

from kernels.attention import backward, forward
from kernels.attention.forward import Tile
from kernels.attention.problem import Attention
from tests.drawing import covering
from tests.kernels.compiled import SHARED_LIMIT_BYTE, Built, build, pointer
from tests.kernels.gemm_pointer_compiled import PARKED_BYTE

CAPABILITIES = (80, 90, 100)
INSTRUCTIONS = {80: "HMMA", 90: "HGMMA", 100: "UTCHMMA"}
"""Matrix instruction by compute capability, as the beginning of a SASS name."""
WIDTHS = (128, 64, 256, 32, 16, 24, 96)
"""Of a head: all powers of two, and two that are padded to one."""
KERNELS = {
    "forward": forward.attend,
    "dq": backward.query_gradient,
    "dk dv": backward.key_gradients,
}


class Form(NamedTuple):
    """One compilation."""

    kernel: str
    problem: Attention
    tile: Tile
    capability: int

    def __str__(self) -> str:
        problem = self.problem
        shape = f"{problem.q_length}x{problem.kv_length}{' causal' if problem.causal else ''}"
        return f"{self.kernel:8} {problem.head_width:<4} {shape:14} {self.tile!s:14} sm_{self.capability:<4}"


def attention(width: int, length: int, causal: bool) -> Attention:
    return Attention(
        direction="backward", batch=4, heads=32, kv_heads=8, q_length=length, kv_length=length,
        head_width=width, causal=causal, dtype="float16",
    )  # fmt: skip


def tiles(kernel: str, problem: Attention, capability: int) -> tuple[Tile, ...]:
    """All candidates of a kernel."""
    at = (capability // 10, capability % 10)
    if kernel == "forward":
        return forward.candidates(problem, at)
    return backward.query_candidates(problem, at) if kernel == "dq" else backward.key_candidates(problem)


def forms(everything: bool) -> Iterator[Form]:
    """Every tile for every architecture, causal, which needs most registers; of other forms one in three.

    The widths that are rare: one in three of the causal ones.
    """
    turn = itertools.cycle((True, False, False))
    shapes = ((4099, True), (4099, False), (4096, False))
    for width, (length, causal), kernel in itertools.product(WIDTHS, shapes, KERNELS):
        problem = attention(width, length, causal)
        often = width in (64, 128, 256)
        for capability in CAPABILITIES:
            for tile in tiles(kernel, problem, capability):
                if everything or (often and causal) or ((often or causal) and next(turn)):
                    yield Form(kernel, problem, tile, capability)


def compile_one(form: Form) -> Built:
    """Compile and disassemble; Triton's own errors pass through."""
    kernel: Any = KERNELS[form.kernel]
    kinds = {name: "i32" for name in forward.sizes(form.problem)} | {"to_log2": "fp32"}
    for name in kernel.arg_names:
        if name.endswith("_pointer"):
            kinds[name] = pointer(
                "float32" if name in ("lse_pointer", "delta_pointer") else form.problem.dtype
            )
    constants = backward.key_constants if form.kernel == "dk dv" else forward.constants
    return build(
        kernel,
        kinds,
        constants(form.problem, form.tile),
        form.capability,
        warps=form.tile.warps,
        stages=form.tile.stages,
    )


def expected_instruction(form: Form) -> str:
    """Hopper's and Blackwell's take 64 rows at least, of queries or of keys; below, Ampere's serve."""
    return INSTRUCTIONS[form.capability if rows(form) >= 64 else 80]


def rows(form: Form) -> int:
    """Rows of the result of one program."""
    return form.tile.n if form.kernel == "dk dv" else form.tile.m


def faults(form: Form, built: Built) -> list[str]:
    """What it promises and does not keep."""
    found = []
    if built.spills_in_loops or built.stack_byte > PARKED_BYTE:
        found.append(f"{built.spills_in_loops} spills in a loop, {built.stack_byte} bytes of stack")
    if built.shared_byte > SHARED_LIMIT_BYTE[form.capability]:
        found.append(f"{built.shared_byte} bytes of shared memory")
    expected = expected_instruction(form)
    found += [f"no {expected}"] if not built.count(expected) else []
    found += [f"also {other}" for other in INSTRUCTIONS.values() if other != expected and built.count(other)]
    if expected == "HGMMA" and not built.register_operands:
        found.append("no left operand from registers, whose fate was to be checked")
    if built.overwritten:
        found.append(f"{built.overwritten} registers overwritten that a matrix instruction may still read")
    if not built.count("LDGSTS.E.BYPASS.128", "LDGSTS.E.BYPASS.LTC128B.128"):
        found.append("no 16-byte copy to shared memory")
    # A small result leaves less than 16 bytes for each thread to write.
    elements = rows(form) * forward.padded(form.problem) // (32 * form.tile.warps)
    if built.count("LDG.E.U16", "STG.E.U16") or (elements >= 8 and not built.count("STG.E.128")):
        found.append("narrow loads or stores")
    return found


def main(everything: bool, few: bool) -> int:
    """Print the table; the number of faults."""
    cases = list(forms(everything))
    if few:
        cases = covering(cases, "compiled attention", attrgetter("capability"), attrgetter("kernel"))
    bad = 0
    print("kernel   width lengths        tile           device  regs  shared spills  instructions")
    with ThreadPoolExecutor(2) as pool:
        for form, built in zip(cases, pool.map(compile_one, cases), strict=True):
            wrong = faults(form, built)
            bad += len(wrong)
            kind = expected_instruction(form)
            print(
                f"{form!s} {built.registers:5} {built.shared_byte:7} {built.spills:6}  "
                f"{built.count(kind)} {kind} {'; '.join(wrong)}",
                flush=True,
            )
    print(f"{len(cases)} compiled, {bad} faults")
    return bad


if __name__ == "__main__":
    sys.exit(1 if main("--all" in sys.argv[1:], "--drawn" in sys.argv[1:]) else 0)
