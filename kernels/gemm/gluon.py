"""GEMM in Gluon, Triton's lower level: warps of two kinds, and every buffer handed over at a barrier of ours.

**Why.** What Triton's compiler overlaps with what leaves the end of a tile uncovered (persistent.py). Gluon
is the same compiler told what to do: which warps copy, which multiply, which buffer is free when. Each
architecture has matrix instructions, and so a kernel, of its own; this module knows which.

`triton` may choose it where no other kernel of those that it times disagrees with what it computes
(choosing.py).
"""

from __future__ import annotations

import importlib
from typing import Any, NamedTuple

import torch
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from bench.spec import Unsupported
from kernels.gemm import duration
from kernels.gemm.descriptors import check_rows
from kernels.gemm.operands import Operands
from kernels.gemm.parts import tiles_of
from kernels.gemm.problem import BLOCK_SCALED, Gemm
from kernels.gemm.tiles import Tile
from kernels.prepared import Prepared

_KERNELS = {9: "gluon_hopper", 10: "gluon_blackwell"}
"""Major compute capability -> module of this folder."""
_OF_BLOCKS = {10: "gluon_scaled"}
"""The same for types with scales for blocks."""


def candidates(problem: Gemm, capability: tuple[int, int], sm_count: int) -> tuple[Any, ...]:
    """The configurations to try on a device of this compute capability, the likeliest first.

    Raises Unsupported where there is no kernel for the device, or this Triton is too old for it.
    """
    return tuple(_kernel(problem, capability).candidates(problem, capability, sm_count))


def cost(problem: Gemm, chosen: Any, capability: tuple[int, int], sm_count: int) -> float:
    """How long a launch takes by count (duration.py). Two blocks that share products halve their tile."""
    blocks: int = getattr(chosen, "blocks", 1)
    together = duration.walking(problem, chosen.tile, sm_count // blocks, leaves_beside=True)
    return together / blocks


def prepare(of: Operands, chosen: Any, sm_count: int) -> Prepared:
    """D in `of.d` by one of the device's candidates. The tensors' device must be the current one."""
    kernel = _kernel(of.problem, torch.cuda.get_device_capability(of.d.device))
    made: Prepared = kernel.prepare(of, chosen, sm_count)
    return made


def _kernel(problem: Gemm, capability: tuple[int, int]) -> Any:
    there, what = (_OF_BLOCKS, f"{problem.dtype} ") if problem.dtype in BLOCK_SCALED else (_KERNELS, "")
    if capability[0] not in there:
        major, minor = capability
        raise Unsupported(
            f"triton-gluon has {what}kernels for compute capability "
            f"{' and '.join(f'{which}.x' for which in sorted(there))}, not for {major}.{minor}"
        )
    return importlib.import_module(f"kernels.gemm.{there[capability[0]]}")


def described(
    name: str, tensor: torch.Tensor, block: list[int], half: list[int] | None = None
) -> TensorDescriptor:
    """A tensor's descriptor for copies of this block; each of a pair of blocks copies its half along `half`.

    Raises ValueError if a row does not begin at a multiple of 16 bytes.
    """
    check_rows(name, tensor)
    kind = getattr(gl, {torch.float8_e4m3fn: "float8e4nv"}.get(tensor.dtype, str(tensor.dtype)[6:]))
    of_pair = {"cga_layout": [half]} if half else {}
    layout = gl.NVMMASharedLayout.get_default_for(block, kind, **of_pair)
    return TensorDescriptor(tensor, list(tensor.shape), list(tensor.stride()), block, layout)


# What the kernels for Blackwell have in common.

ROWS = 128
"""Rows of D that one block computes: all lanes of tensor memory."""
SLACK_BYTE = 1024
"""Shared memory for barriers, and for what warps of several kinds hand to each other when they start."""
GROUPS = (8, 4, 16)


class Schedule(NamedTuple):
    """A tile of D, and the blocks that compute it together."""

    tile: Tile
    """Its rows are ROWS for each block; the warps are those that take it away."""
    blocks: int
    """1, or 2 that share products."""

    def __str__(self) -> str:
        """`256x256x64 w4 s6 c2 g8`."""
        return f"{self.tile.alone} c{self.blocks} g{self.tile.group}"


def check_version(version: str, least: tuple[int, int]) -> None:
    """Raise Unsupported where this version of Triton cannot compile or launch a kernel for Blackwell."""
    major, minor = version.split(".")[:2]
    if (int(major), int(minor)) < least:
        raise Unsupported(
            f"triton-gluon needs Triton {least[0]}.{least[1]} or later on compute capability 10.x, whose "
            f"barriers may be a cluster's; this is Triton {version}"
        )


def computed(problem: Gemm, chosen: Schedule, sm_count: int) -> int:
    """Elements of D that the busiest SM computes, those beyond D's edges included."""
    tiles = tiles_of(problem, chosen.tile)
    return -(-tiles // (sm_count // chosen.blocks)) * chosen.tile.m * ROWS


def programs(problem: Gemm, chosen: Schedule, sm_count: int) -> int:
    """How many walk over the tiles: one an SM or pair of SMs, or one a tile where those are fewer."""
    return min(sm_count // chosen.blocks, tiles_of(problem, chosen.tile))
