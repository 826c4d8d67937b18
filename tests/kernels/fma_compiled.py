"""What the chain of multiply-adds promises of its compiled form.

Nothing spilled, no shared memory, a multiply-add for each that is counted, no addition or multiplication by
itself, and so many registers that an SM holds one block of 1024 threads.
"""

from collections.abc import Iterator

from kernels.fma.multiply_add import multiply_add
from kernels.fma.problem import SHIFT, THREADS, TILE_OF_THREAD
from tests.kernels.compiled import Built
from tests.kernels.streaming import Variant, family

UNROLLED = 4
"""Pairs of one turn of the loop."""
HALF_OF_REGISTERS = 32
"""Of a thread of 1024: with more, an SM's 65,536 hold one block."""


def variants() -> Iterator[Variant]:
    """Every size of block, lengths of 32 and of 64 bits."""
    for threads in THREADS:
        for count in ("i32", "i64"):
            yield Variant(
                name=f"{threads} threads {count}",
                kernel=multiply_add,
                arguments={"x_pointer": "*fp32", "y_pointer": "*fp32", "count": count, "pairs": "i32"},
                constants={"SHIFT": SHIFT, "TILE": TILE_OF_THREAD * threads},
                warps=threads // 32,
                wide=False,  # the rest is narrow
                promises=(broken,),
            )


def broken(built: Built) -> list[str]:
    """What breaks a promise that the streaming kernels do not give; empty if nothing does."""
    found = []
    if built.shared_byte:
        found.append(f"{built.shared_byte} bytes of shared memory")
    if built.registers <= HALF_OF_REGISTERS:
        found.append(f"{built.registers} registers")
    if built.instructions:
        wanted = 2 * 2 * TILE_OF_THREAD * UNROLLED  # of whole tiles and of the rest; turns left over beside
        # Blackwell's FFMA2 is two.
        each = {name: 2 if name.startswith("FFMA2") else 1 for name in built.instructions}
        count = sum(each[name] * n for name, n in built.instructions.items() if name.startswith("FFMA"))
        if count < wanted:
            found.append(f"{count} multiply-adds, expected {wanted} and more")
        others = sum(n for name, n in built.instructions.items() if name.split(".")[0] in ("FADD", "FMUL"))
        if others:
            found.append(f"{others} additions or multiplications by themselves")
    return found


FAMILY = family(variants)
