"""The tiles that our convolution kernel may try, compiled for every architecture and held to its promises.

    python -m tests.kernels.convolution_compiled            every tile in some forms
    python -m tests.kernels.convolution_compiled --drawn    a few of them, by the seed of the tests' run
    python -m tests.kernels.convolution_compiled --all      every combination

Exit code 1 on a fault. Promises: nothing spilled within the walk along the sum and at most two registers
outside it, shared memory within the limit, the architecture's matrix instruction used, and 16-byte loads and
stores where channels allow them. Needs no GPU; must run without TRITON_INTERPRET. It says what the compiler
made, not that it runs, nor how fast.
"""

import itertools
import sys
from collections.abc import Iterator
from operator import attrgetter
from typing import NamedTuple

from bench.spec import Dtype
from kernels.convolution import forward
from kernels.convolution.forward import Tile
from kernels.convolution.problem import Convolution
from tests.drawing import covering
from tests.kernels.compiled import SHARED_LIMIT_BYTE, Built, build, pointer
from tests.kernels.gemm_pointer_compiled import PARKED_ANYWHERE_BYTE

CAPABILITIES = (80, 90, 100)
DTYPES: tuple[Dtype, ...] = ("float16", "bfloat16", "tf32", "float32")
INSTRUCTIONS = {80: "HMMA", 90: "HGMMA", 100: "UTCHMMA"}
"""Matrix instruction by compute capability, as the beginning of a SASS name; float32 has none."""


class Form(NamedTuple):
    """One compilation."""

    problem: Convolution
    tile: Tile
    capability: int

    def __str__(self) -> str:
        problem = self.problem
        window = f"{problem.window_h}x{problem.window_w}+{problem.padding}"
        bias = "bias" if problem.bias else ""
        return f"{problem.dtype:8} c={problem.c:<3} {window:5} {bias:4} {self.tile!s:16} sm_{self.capability}"


def convolution(dtype: Dtype, c: int, window: int, padding: int, bias: bool) -> Convolution:
    return Convolution(
        direction="forward", n=8, c=c, h=28, w=28, k=128 if c % 8 == 0 else 127, window_h=window,
        window_w=window, stride=2, padding=padding, bias=bias, layout="NHWC", dtype=dtype,
    )  # fmt: skip


def forms(everything: bool) -> Iterator[Form]:
    """Every tile of every type: steps that end with the sum or not, padded or not, wide or narrow loads."""
    shapes = [(64, 3, 1, True), (24, 3, 1, False), (64, 1, 0, False), (3, 7, 3, True)]
    turn = itertools.cycle(CAPABILITIES)
    for dtype, (c, window, padding, bias) in itertools.product(DTYPES, shapes):
        if dtype == "bfloat16" and not everything:  # compiles to what float16 does, but for one letter
            continue
        problem = convolution(dtype, c, window, padding, bias)
        for tile in forward.candidates(problem):
            hardest = padding > 0 and bias
            for capability in CAPABILITIES if everything or hardest else (next(turn),):
                yield Form(problem, tile, capability)


def compile_one(form: Form) -> Built:
    """Compile and disassemble; Triton's own errors pass through."""
    kind = pointer(form.problem.dtype)
    arguments = {"x_pointer": kind, "w_pointer": kind, "y_pointer": kind}
    constants = forward.constants(form.problem, form.tile)
    if form.problem.bias:
        arguments["bias_pointer"] = kind
    else:
        constants["bias_pointer"] = None
    return build(
        forward.convolve,
        arguments | dict.fromkeys(forward.sizes(form.problem), "i32"),
        constants,
        form.capability,
        warps=form.tile.warps,
        stages=form.tile.stages,
    )


def faults(form: Form, built: Built) -> list[str]:
    """What it promises and does not keep."""
    found = []
    if built.spills_in_loops or built.stack_byte > PARKED_ANYWHERE_BYTE:
        found.append(f"{built.spills} spills, {built.stack_byte} bytes of stack")
    if built.shared_byte > SHARED_LIMIT_BYTE[form.capability]:
        found.append(f"{built.shared_byte} bytes of shared memory")
    expected = "FFMA" if form.problem.dtype == "float32" else INSTRUCTIONS[form.capability]
    if not built.count(expected):
        found.append(f"no {expected}")
    if form.problem.c % 8 == 0:
        if not built.count("LDGSTS.E.BYPASS.128", "LDGSTS.E.BYPASS.LTC128B.128", "LDG.E.128"):
            found.append("no 16-byte loads")
        if not built.count("STG.E.128"):
            found.append("no 16-byte stores")
    return found


def main(everything: bool, few: bool) -> int:
    """Print the table; the number of faults."""
    bad = 0
    cases = list(forms(everything))
    if few:
        cases = covering(cases, "compiled convolution", attrgetter("capability"), attrgetter("problem.dtype"))
    print("type     shape          tile             device  regs  shared spills  instructions")
    for form in cases:
        built = compile_one(form)
        wrong = faults(form, built)
        bad += len(wrong)
        kind = "FFMA" if form.problem.dtype == "float32" else INSTRUCTIONS[form.capability]
        print(
            f"{form!s} {built.registers:4} {built.shared_byte:7} {built.spills:6}  "
            f"{built.count(kind)} {kind} {'; '.join(wrong)}",
            flush=True,
        )
    print(f"{len(cases)} compiled, {bad} faults")
    return bad


if __name__ == "__main__":
    sys.exit(1 if main("--all" in sys.argv[1:], "--drawn" in sys.argv[1:]) else 0)
