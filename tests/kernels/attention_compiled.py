"""The tiles that our attention kernels may try, and what they promise of their compiled form.

Nothing spilled in a loop and at most 16 registers outside of one, shared memory within the limit, the
architecture's matrix instruction and no other, no left operand of it overwritten while it may be read, and
16-byte loads and stores.
"""

import itertools
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

from kernels.attention import backward, forward
from kernels.attention.forward import Tile
from kernels.attention.problem import Attention
from tests.kernels.compiled import (
    PARKED_BYTE,
    Built,
    Family,
    arithmetic,
    arithmetic_faults,
    build,
    pointer,
    resource_faults,
)

CAPABILITIES = (80, 90, 100)
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
        return f"{self.kernel:8} {problem.head_width:<4} {shape:14} {self.tile!s}"

    @property
    def rows(self) -> int:
        """Rows of the result of one program."""
        return self.tile.n if self.kernel == "dk dv" else self.tile.m

    @property
    def instruction(self) -> str:
        """What multiplies."""
        return arithmetic(self.problem.dtype, self.capability, self.rows)

    def compiled(self) -> Built:
        """As `compiled.Form` has it, and so are the others."""
        kernel: Any = KERNELS[self.kernel]
        kinds = {name: "i32" for name in forward.sizes(self.problem)} | {"to_log2": "fp32"}
        for name in kernel.arg_names:
            if name.endswith("_pointer"):
                of_float32 = name in ("lse_pointer", "delta_pointer")
                kinds[name] = pointer("float32" if of_float32 else self.problem.dtype)
        constants = backward.key_constants if self.kernel == "dk dv" else forward.constants
        return build(
            kernel,
            kinds,
            constants(self.problem, self.tile),
            self.capability,
            warps=self.tile.warps,
            stages=self.tile.stages,
        )

    def faults(self, built: Built) -> list[str]:
        found = resource_faults(built, self.capability, parked_byte=PARKED_BYTE)
        found += arithmetic_faults(built, self.instruction)
        if self.instruction == "HGMMA" and not built.register_operands:
            found.append("no left operand from registers, whose fate was to be checked")
        if built.overwritten:
            found.append(f"{built.overwritten} registers overwritten that a matrix instruction may read")
        if not built.count("LDGSTS.E.BYPASS.128", "LDGSTS.E.BYPASS.LTC128B.128"):
            found.append("no 16-byte copy to shared memory")
        # A small result leaves less than 16 bytes for each thread to write.
        elements = self.rows * forward.padded(self.problem) // (32 * self.tile.warps)
        if built.count("LDG.E.U16", "STG.E.U16") or (elements >= 8 and not built.count("STG.E.128")):
            found.append("narrow loads or stores")
        return found

    def counts(self, built: Built) -> str:
        return f"{built.count(self.instruction)} {self.instruction}"


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


FAMILY = Family(partial(forms, everything=False), partial(forms, everything=True))
