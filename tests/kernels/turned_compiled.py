"""What the kernel that transposes operands before a product promises of its compiled form.

Nothing spilled, accesses of 16 bytes on both sides; and no threads of a warp meet in a bank of shared
memory.
"""

from collections.abc import Iterator
from functools import partial

from bench.spec import ITEM_BYTE, Dtype
from kernels.gemm import turned
from kernels.gemm.problem import Gemm
from tests.kernels.compiled import (
    Built,
    Family,
    Form,
    launched,
    length_faults,
    narrow_faults,
    resource_faults,
)
from tests.kernels.gemm_cases import meta_operands
from tests.kernels.shared_banks import accesses

MOST: dict[Dtype, float] = {"int8": 7, "tf32": 14}
"""SASS instructions an element. An H100 has time for some 19 of them for each element of one byte."""


def chosen() -> Iterator[Form]:
    """Elements of one byte and of four."""
    for dtype, most in MOST.items():
        (turn,), _ = turned.turned(meta_operands(Gemm(m=512, n=512, k=512, layout="NN", dtype=dtype)))
        (call,) = launched(turn.launch())
        element = turned.SIDE[ITEM_BYTE[dtype]] ** 2 // (32 * turned.WARPS)
        few = partial(length_faults, element=element, most=most)
        capabilities = (80, 90, 100) if dtype == "int8" else (90, 100)
        promises = (resource_faults, narrow_faults, few, meeting)
        yield Form(f"{call.name} {dtype}", call, promises, capabilities, element=element)


def meeting(built: Built) -> list[str]:
    """Whether accesses to shared memory take several turns."""
    every = accesses(built.ptx, turned.WARPS)
    several = [one for one in every if one.ways > 1]
    if not every:
        return ["nothing passes through shared memory"]
    return [f"{len(several)} of {len(every)} accesses meet in banks"] if several else []


FAMILIES = {"turned": Family.of(chosen)}
