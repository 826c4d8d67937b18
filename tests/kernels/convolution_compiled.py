"""The tiles that our convolution kernels may try, compiled for every architecture and held to its promises.

    python -m tests.kernels.convolution_compiled            every tile in some forms
    python -m tests.kernels.convolution_compiled --drawn    a few of them, by the seed of the tests' run
    python -m tests.kernels.convolution_compiled --all      every combination

Exit code 1 on a fault. Promises: nothing spilled within the walk along the sum and at most two registers
outside it, shared memory within the limit, the architecture's matrix instruction used, and, where channels
allow it, stores of 16 bytes and both factors copied 16 bytes at a time while earlier steps compute; but
Hopper and Blackwell multiply tf32 only with the sum contiguous, and a gradient's other factors are turned on
their way, 4 bytes at a time. Needs no GPU; must run without TRITON_INTERPRET. It says what the compiler made,
not that it runs, nor how fast.
"""

import itertools
import sys
from collections.abc import Iterator
from operator import attrgetter
from typing import NamedTuple

from bench.spec import Dtype
from kernels.convolution import activation_gradient, forward, tiles, weight_gradient
from kernels.convolution.problem import Convolution, Direction
from kernels.gemm.tiles import Tile
from tests.drawing import covering
from tests.kernels.compiled import SHARED_LIMIT_BYTE, Built, build, pointer
from tests.kernels.gemm_pointer_compiled import PARKED_ANYWHERE_BYTE

CAPABILITIES = (80, 90, 100)
DTYPES: tuple[Dtype, ...] = ("float16", "bfloat16", "tf32", "float32")
INSTRUCTIONS = {80: "HMMA", 90: "HGMMA", 100: "UTCHMMA"}
"""Matrix instruction by compute capability, as the beginning of a SASS name; float32 has none."""


KERNELS = {
    "forward": (forward, forward.convolve, ("x_pointer", "w_pointer", "y_pointer")),
    "activation_gradient": (
        activation_gradient,
        activation_gradient.gather_gradient,
        ("dy_pointer", "w_pointer", "dx_pointer"),
    ),
    "weight_gradient": (
        weight_gradient,
        weight_gradient.correlate,
        ("dy_pointer", "x_pointer", "dw_pointer"),
    ),
}


class Form(NamedTuple):
    """One compilation."""

    problem: Convolution
    tile: Tile
    capability: int

    def __str__(self) -> str:
        problem = self.problem
        window = f"{problem.window_h}x{problem.window_w}/{problem.stride}+{problem.padding}"
        more = "bias" if problem.bias else "parts" if problem.direction == "weight_gradient" else ""
        name = (
            f"{problem.direction:19} {problem.dtype:8} c={problem.c // problem.groups:<3} {window:7} {more:5}"
        )
        return f"{name} {self.tile!s:16} sm_{self.capability}"

    @property
    def instruction(self) -> str:
        """Of Hopper and Blackwell's matrix units the rows of a product are 64, so fewer go to Ampere's."""
        if self.problem.dtype == "float32":
            return "FFMA"
        rows = self.tile.n if self.problem.direction == "weight_gradient" else self.tile.m
        return INSTRUCTIONS[self.capability if rows >= 64 else 80]


def convolution(direction: Direction, dtype: Dtype, summed: int, **given: int) -> Convolution:
    """`summed` channels of x forward and for dw, of dy for dx; enough of the others for every tile."""
    others = 128 if summed % 8 == 0 else 127
    c, k = (others, summed) if direction == "activation_gradient" else (summed, others)
    usual = {"n": 8, "c": c, "h": 28, "w": 28, "k": k, "stride": 2, "layout": "NHWC"}
    return Convolution.model_validate({"direction": direction, "dtype": dtype, **usual, **given})


def forms(everything: bool) -> Iterator[Form]:
    """Every tile of every type: steps that end with the sum or not, padded or not, wide or narrow loads."""
    shapes: list[tuple[int, dict[str, int]]] = [
        (64, {"window_h": 3, "window_w": 3, "padding": 1}),
        (3, {"window_h": 7, "window_w": 7, "padding": 3}),
        (24, {"window_h": 3, "window_w": 3, "padding": 1, "stride": 1}),
        (64, {"window_h": 1, "window_w": 1}),
    ]
    turn = itertools.cycle(CAPABILITIES)
    for direction, dtype, (place, (summed, shape)) in itertools.product(KERNELS, DTYPES, enumerate(shapes)):
        if dtype == "bfloat16" and not everything:  # compiles to what float16 does, but for one letter
            continue
        hardest = place < 2
        problem = convolution(direction, dtype, summed, **shape, bias=hardest and direction == "forward")
        for tile in tiles.candidates(problem):
            for capability in CAPABILITIES if everything or hardest else (next(turn),):
                yield Form(problem, tile, capability)
    for dtype, channels in itertools.product(DTYPES, (16, 128)):
        few = convolution(
            "weight_gradient", dtype, 0, c=channels, k=channels, groups=16, window_h=1, window_w=1
        )
        yield from (Form(few, tile, next(turn)) for tile in tiles.candidates(few))


def compile_one(form: Form) -> Built:
    """Compile and disassemble; Triton's own errors pass through."""
    module, kernel, tensors = KERNELS[form.problem.direction]
    arguments = dict.fromkeys(tensors, pointer(form.problem.dtype))
    constants = module.constants(form.problem, form.tile)
    if form.problem.direction == "weight_gradient":
        arguments |= {"slots": "*fp32", "counters": "*i32"}
    elif form.problem.adds_bias:
        arguments["bias_pointer"] = pointer(form.problem.dtype)
    elif form.problem.direction == "forward":
        constants["bias_pointer"] = None
    return build(
        kernel,
        arguments | dict.fromkeys(module.sizes(form.problem), "i32"),
        constants,
        form.capability,
        warps=form.tile.warps,
        stages=form.tile.stages,
        registers=tiles.options(form.tile)["maxnreg"],
    )


def faults(form: Form, built: Built) -> list[str]:
    """What it promises and does not keep."""
    found = []
    if built.spills_in_loops or built.stack_byte > PARKED_ANYWHERE_BYTE:
        found.append(f"{built.spills} spills, {built.stack_byte} bytes of stack")
    if built.shared_byte > SHARED_LIMIT_BYTE[form.capability]:
        found.append(f"{built.shared_byte} bytes of shared memory")
    if not built.count(form.instruction):
        found.append(f"no {form.instruction}")
    if tiles.has_wide_loads(form.problem):
        tile, item_byte = form.tile, form.problem.item_byte
        pieces = (tile.m + tile.n) * tile.k * item_byte // (16 * 32 * tile.warps)  # of a thread in each step
        wide = built.count("LDGSTS.E.BYPASS.128", "LDGSTS.E.BYPASS.LTC128B.128")
        turned = form.problem.dtype == "tf32" and form.capability > 80 and form.problem.direction != "forward"
        wanted = max(pieces * tile.stages, built.count("LDGSTS"))
        if wide < wanted and not turned:
            found.append(f"{wide} copies of 16 bytes, wanted {wanted}")
        if tile.m * tile.n * item_byte >= 16 * 32 * tile.warps and not built.count("STG.E.128"):
            found.append("no 16-byte stores")
    return found


def main(everything: bool, few: bool) -> int:
    """Print the table; the number of faults."""
    bad = 0
    cases = list(forms(everything))
    if few:
        kinds = (attrgetter("capability"), attrgetter("problem.dtype"), attrgetter("problem.direction"))
        cases = covering(cases, "compiled convolution", *kinds)
    print(
        f"{'direction':19} type     shape                tile             device  regs  shared spills  kind"
    )
    for form in cases:
        built = compile_one(form)
        wrong = faults(form, built)
        bad += len(wrong)
        print(
            f"{form!s} {built.registers:4} {built.shared_byte:7} {built.spills:6}  "
            f"{built.count(form.instruction)} {form.instruction} {'; '.join(wrong)}",
            flush=True,
        )
    print(f"{len(cases)} compiled, {bad} faults")
    return bad


if __name__ == "__main__":
    sys.exit(1 if main("--all" in sys.argv[1:], "--drawn" in sys.argv[1:]) else 0)
