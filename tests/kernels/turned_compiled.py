"""What the kernel that transposes operands before a product promises of its compiled form.

The promises of streaming.py, by 16 bytes on both sides; and no threads of a warp meet in a bank of shared
memory.
"""

from collections.abc import Iterator

from bench.spec import ITEM_BYTE, Dtype
from kernels.gemm import turned
from tests.kernels.compiled import Built, pointer
from tests.kernels.shared_banks import accesses
from tests.kernels.streaming import Variant, family

MOST: dict[Dtype, float] = {"int8": 7, "tf32": 14}
"""SASS instructions an element. An H100 has time for some 19 of them for each element of one byte."""


def variants() -> Iterator[Variant]:
    """Elements of one byte and of four."""
    for dtype, most in MOST.items():
        item = ITEM_BYTE[dtype]
        arguments = {"x_pointer": pointer(dtype), "y_pointer": pointer(dtype)}
        arguments |= dict.fromkeys(("rows", "length", "row_x", "row_y"), "i32")
        yield Variant(
            name=f"turn {dtype} {turned.SIDE[item]}x{turned.SIDE[item]}",
            kernel=turned.turn,
            arguments=arguments,
            constants={"WIDE": 16 // item, "SIDE": turned.SIDE[item]},
            warps=turned.WARPS,
            element=turned.SIDE[item] ** 2 // (32 * turned.WARPS),
            most=most,
            promises=(meeting,),
            capabilities=(80, 90, 100) if dtype == "int8" else (90, 100),
        )


def meeting(built: Built) -> list[str]:
    """Whether accesses to shared memory take several turns, as phrases."""
    every = accesses(built.ptx, turned.WARPS)
    several = [one for one in every if one.ways > 1]
    if not every:
        return ["nothing passes through shared memory"]
    return [f"{len(several)} of {len(every)} accesses meet in banks"] if several else []


FAMILY = family(variants)
