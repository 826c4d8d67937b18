"""What STREAM's copy kernel promises of its compiled form.

Nothing spilled, no shared memory, 1024 threads that fit the registers of an SM, and whole blocks that move
16 bytes at a time, eight loads of each thread issued before the first value is needed. Only the rest moves
element by element.
"""

import re
from collections.abc import Iterator

from bench.spec import ITEM_BYTE, Dtype
from kernels.stream import copying
from tests.kernels.compiled import Built, pointer
from tests.kernels.streaming import Variant, family

DTYPES: tuple[Dtype, ...] = ("float16", "float32", "float64")
LOADS = copying.BLOCK_BYTE // (16 * 32 * copying.WARPS)
"""Loads of 16 bytes for each thread and block."""
MOST_REGISTERS = 65_536 // (32 * copying.WARPS)
"""Of a thread, if an SM's registers are to hold one program."""


def variant(dtype: Dtype, count: str) -> Variant:
    """The kernel as its launching function calls it, for lengths below 2^31 or beyond."""
    return Variant(
        name=f"copy {dtype} {count}",
        kernel=copying.copy,
        arguments={"x_pointer": pointer(dtype), "y_pointer": pointer(dtype), "count": count},
        constants={"BLOCK": copying.block(ITEM_BYTE[dtype]), "PIECE": copying.PIECE},
        warps=copying.WARPS,
        wide=False,  # the rest is narrow
        promises=(broken,),
    )


def variants() -> Iterator[Variant]:
    """Every size of element, lengths of 32 and of 64 bits."""
    for dtype in DTYPES:
        for count in ("i32", "i64"):
            yield variant(dtype, count)


def broken(built: Built) -> list[str]:
    """What breaks a promise that the other memory-limited kernels do not give; empty if nothing does."""
    found = []
    if built.registers > MOST_REGISTERS:
        found.append(f"{built.registers} registers")
    if built.shared_byte:
        found.append(f"{built.shared_byte} bytes of shared memory")
    wide = [
        match[1] for match in re.finditer(r"\b(ld|st)\.global\S*\.(?:v4\.b32|v2\.b64)", built.ptx)
    ]  # in the order of the program
    if wide != ["ld"] * LOADS + ["st"] * LOADS:
        found.append(f"16-byte accesses are {' '.join(wide)}")
    if built.instructions:
        sizes = {what: _wide(built, what) for what in ("LDG", "STG")}
        if set(sizes.values()) != {LOADS}:
            found.append(f"16-byte instructions are {sizes}")
    return found


def _wide(built: Built, what: str) -> int:
    return sum(n for name, n in built.instructions.items() if name.startswith(what) and ".128" in name)


FAMILY = family(variants)
