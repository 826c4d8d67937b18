"""The tiles that our attention kernels may try, and what they promise of their compiled form.

Nothing spilled in a loop and at most 16 registers outside of one, shared memory within the limit, the
architecture's matrix instruction and no other, no left operand of it overwritten while it may be read, and
16-byte loads and stores.
"""

import itertools
from collections.abc import Iterator
from functools import partial

from kernels.attention import backward, forward
from kernels.attention.backward import Tiles
from kernels.attention.forward import Tile
from kernels.attention.problem import Attention
from tests.kernels.compiled import (
    PARKED_BYTE,
    Built,
    Call,
    Family,
    Form,
    arithmetic,
    arithmetic_faults,
    launched,
    resource_faults,
    without_memory,
)

CAPABILITIES = (80, 90, 100)
WIDTHS = (128, 64, 256, 32, 16, 24, 96)
"""Of a head: all powers of two, and two that are padded to one."""
KERNELS = ("forward", "dq", "dk dv")


def form(kernel: str, problem: Attention, tile: Tile, capability: int) -> Form:
    """One compilation."""
    rows = tile.n if kernel == "dk dv" else tile.m  # of the result of one program
    instruction = arithmetic(problem.dtype, capability, rows)
    # A small result leaves less than 16 bytes for each thread to write.
    wide = rows * forward.padded(problem) // (32 * tile.warps) >= 8
    promises = (
        partial(resource_faults, parked_byte=PARKED_BYTE),
        partial(arithmetic_faults, expected=instruction),
        partial(operand_faults, instruction),
        partial(copy_faults, wide),
    )
    shape = f"{problem.q_length}x{problem.kv_length}{' causal' if problem.causal else ''}"
    name = f"{kernel:8} {problem.head_width:<4} {shape:14} {tile}"
    return Form(name, call_of(kernel, problem, tile), promises, (capability,))


def call_of(kernel: str, problem: Attention, tile: Tile) -> Call:
    """The launch of a kernel with this tile; the forward one writes lse too."""
    q, k, v, o, lse, do = without_memory(problem)
    if kernel == "forward":
        (call,) = launched(forward.launch(problem, q, k, v, lse, tile=tile))
        return call
    first, second = launched(backward.launch(problem, q, k, v, o, lse, do, tiles=Tiles(tile, tile)))
    return first if kernel == "dq" else second


def operand_faults(instruction: str, built: Built) -> list[str]:
    """Whether a left operand is overwritten while it may be read, or there is none to check it of."""
    faults = []
    if built.overwritten:
        faults.append(f"{built.overwritten} registers overwritten that a matrix instruction may read")
    if instruction == "HGMMA" and not built.register_operands:
        faults.append("no left operand from registers, whose fate was to be checked")
    return faults


def copy_faults(wide: bool, built: Built) -> list[str]:
    """Whether data does not move 16 bytes at a time into shared memory or, if `wide`, to the result."""
    copied = built.count("LDGSTS.E.BYPASS.128", "LDGSTS.E.BYPASS.LTC128B.128")
    faults = [] if copied else ["no 16-byte copy to shared memory"]
    if built.count("LDG.E.U16", "STG.E.U16") or (wide and not built.count("STG.E.128")):
        faults.append("narrow loads or stores")
    return faults


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
                    yield form(kernel, problem, tile, capability)


FAMILIES = {"attention": Family(partial(forms, everything=False), partial(forms, everything=True))}
