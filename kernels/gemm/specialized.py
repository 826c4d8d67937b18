"""GEMM as persistent.py does it, by warps of two kinds: one copies, the others multiply. To be asked for.

**Why this algorithm.** Here no warp that multiplies ever waits to start a copy, nor a copy for a warp that is
busy writing its tile: they meet at barriers in shared memory only. The warps that copy give most of their
registers to the others (`setmaxnreg`), so a thread can hold twice the sums. It is how cuBLAS and CUTLASS
work on Hopper. Triton's compiler divides the kernel by itself.

**Not proposed by `triton`.** That part of the compiler is young. Wrong results were reported where operands
are loaded by pointers (triton-lang/triton #8311); buffers were handed back to be overwritten while matrix
instructions still read them (facebookexperimental/triton #1278); a public benchmark keeps it off
(meta-pytorch/tritonbench #1094). Here operands come by descriptors, and on Hopper tests/kernels holds each
configuration to having no matrix instruction under way when a buffer is handed back. But a race may pass
every check. So: 16-bit types, where it is of most use, and only by its own name.

**What compiles.** On Hopper, with Triton 3.7: 4 warps, to which it adds 8; descriptors made by the kernel;
loops that are not flattened; tiles of 128 or 256 rows (N), half for each of two groups of warps. With
anything else it fails to compile, or silently leaves all warps alike. Triton 3.6 compiles none of these for
Hopper: its pass `NVGPUWarpSpecialization`, which divides the tile between the groups, meets an operation it
does not know ("unsupported op type") and runs into code marked unreachable (WSDataPartition.cpp), so it is
not even tried. On Blackwell the flattened loop compiles with both. On 12.x nothing.
"""

from typing import Any, NamedTuple

import triton

from bench.spec import Launch, Unsupported
from kernels.gemm import descriptors, duration, persistent
from kernels.gemm.operands import Operands
from kernels.gemm.problem import Gemm
from kernels.gemm.tiles import Tile


class Specialized(NamedTuple):
    """A tile, its warps those before the compiler adds more; and whether the loops are made one."""

    tile: Tile
    flatten: bool

    def __str__(self) -> str:
        """`256x128x64 w4 s3`, and ` flat` if the loops are made one."""
        return f"{self.tile} flat" if self.flatten else str(self.tile)


_HOPPER = (
    Specialized(Tile(128, 256, 64, 4, 3), flatten=False),
    Specialized(Tile(256, 128, 64, 4, 3), flatten=False),
    Specialized(Tile(128, 256, 64, 4, 4), flatten=False),
    Specialized(Tile(256, 128, 64, 4, 4), flatten=False),
    Specialized(Tile(128, 128, 64, 4, 4), flatten=False),
    Specialized(Tile(64, 128, 64, 4, 6), flatten=False),
)
_BLACKWELL = (
    Specialized(Tile(128, 256, 64, 8, 3), flatten=True),
    Specialized(Tile(256, 128, 64, 8, 3), flatten=True),
    Specialized(Tile(128, 128, 64, 8, 4), flatten=True),
)


def candidates(problem: Gemm, capability: tuple[int, int], sm_count: int) -> tuple[Specialized, ...]:
    """What to try on a device of this compute capability; none where the compiler does not specialize.

    Raises Unsupported on Hopper with a Triton before 3.7 (module docstring).
    """
    if capability[0] == 9 and not specializes_hopper(triton.__version__):
        raise Unsupported(
            f"triton-specialized needs Triton 3.7 or later on compute capability 9.0; "
            f"this is Triton {triton.__version__}"
        )
    return {9: _HOPPER, 10: _BLACKWELL}.get(capability[0], ())


def specializes_hopper(version: str) -> bool:
    """Whether this version of Triton compiles the configurations for Hopper."""
    major, minor = version.split(".")[:2]
    return (int(major), int(minor)) >= (3, 7)


def cost(problem: Gemm, chosen: Specialized, capability: tuple[int, int], sm_count: int) -> float:
    """How long a launch takes by count (duration.py)."""
    return duration.walking(problem, chosen.tile, sm_count)


def launch(of: Operands, chosen: Specialized, sm_count: int) -> Launch:
    """D in `of.d`, in tiles of this size. The tensors' device must be the current one."""
    programs = persistent.programs(of.problem, chosen.tile, sm_count)
    return descriptors.launch(persistent.multiply, of, programs, arguments(of, chosen))


def compile(of: Operands, chosen: Specialized, sm_count: int) -> None:  # noqa: A001
    """What `launch` will run, compiled and not run."""
    programs = persistent.programs(of.problem, chosen.tile, sm_count)
    persistent.multiply.warmup(**arguments(of, chosen), grid=(programs,))


def arguments(of: Operands, chosen: Specialized) -> dict[str, Any]:
    """What `persistent.multiply` is called with."""
    named = descriptors.arguments(of, chosen.tile, on_host=False)
    return named | {"GROUP": chosen.tile.group, "FLATTEN": chosen.flatten, "SPECIALIZE": True}
