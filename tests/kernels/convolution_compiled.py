"""The tiles that our convolution kernels may try, and what they promise of their compiled form.

Nothing spilled within the walk along the sum and at most two registers outside it, shared memory within the
limit, the architecture's matrix instruction used, and, where channels allow it, stores of 16 bytes and both
factors copied 16 bytes at a time while earlier steps compute; but Hopper and Blackwell multiply tf32 only
with the sum contiguous, and a gradient's other factors are transposed on their way, 4 bytes at a time.
"""

import itertools
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

from bench.spec import Dtype
from kernels.convolution import activation_gradient, forward, tiles, weight_gradient
from kernels.convolution.problem import Convolution, Direction
from kernels.gemm.tiles import Tile
from tests.kernels.compiled import (
    PARKED_ANYWHERE_BYTE,
    Built,
    Family,
    arithmetic,
    build,
    pointer,
    resource_faults,
)

CAPABILITIES = (80, 90, 100)
DTYPES: tuple[Dtype, ...] = ("float16", "bfloat16", "tf32", "float32")
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
        size = f"c={problem.c // problem.groups:<3} {window:7} {more:5}"
        return f"{problem.direction:19} {problem.dtype:8} {size} {self.tile!s}"

    @property
    def instruction(self) -> str:
        """What multiplies."""
        rows = self.tile.n if self.problem.direction == "weight_gradient" else self.tile.m
        return arithmetic(self.problem.dtype, self.capability, rows)

    def compiled(self) -> Built:
        """As `compiled.Form` has it, and so are the others."""
        module, kernel, tensors = KERNELS[self.problem.direction]
        arguments = dict.fromkeys(tensors, pointer(self.problem.dtype))
        constants = module.constants(self.problem, self.tile)
        if self.problem.direction == "weight_gradient":
            arguments |= {"slots": "*fp32", "counters": "*i32"}
        elif self.problem.adds_bias:
            arguments["bias_pointer"] = pointer(self.problem.dtype)
        elif self.problem.direction == "forward":
            constants["bias_pointer"] = None
        return build(
            kernel,
            arguments | dict.fromkeys(module.sizes(self.problem), "i32"),
            constants,
            self.capability,
            warps=self.tile.warps,
            stages=self.tile.stages,
            registers=tiles.options(self.tile)["maxnreg"],
        )

    def faults(self, built: Built) -> list[str]:
        found = resource_faults(built, self.capability, parked_byte=PARKED_ANYWHERE_BYTE)
        if not built.count(self.instruction):
            found.append(f"no {self.instruction}")
        if tiles.has_wide_loads(self.problem):
            tile, item_byte = self.tile, self.problem.item_byte
            pieces = (tile.m + tile.n) * tile.k * item_byte // (16 * 32 * tile.warps)  # of a thread and step
            wide = built.count("LDGSTS.E.BYPASS.128", "LDGSTS.E.BYPASS.LTC128B.128")
            gradient_of_tf32 = self.problem.dtype == "tf32" and self.problem.direction != "forward"
            wanted = max(pieces * tile.stages, built.count("LDGSTS"))
            if wide < wanted and not (gradient_of_tf32 and self.capability > 80):
                found.append(f"{wide} copies of 16 bytes, wanted {wanted}")
            if tile.m * tile.n * item_byte >= 16 * 32 * tile.warps and not built.count("STG.E.128"):
                found.append("no 16-byte stores")
        return found

    def counts(self, built: Built) -> str:
        return f"{built.count(self.instruction)} {self.instruction}"


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


FAMILY = Family(partial(forms, everything=False), partial(forms, everything=True))
