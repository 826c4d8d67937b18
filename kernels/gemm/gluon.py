"""GEMM in Gluon, Triton's lower level: warps of two kinds, and every buffer handed over at a barrier of ours.

**Why.** Triton's compiler decides by itself what overlaps with what, and what it decides leaves the end of a
tile uncovered (persistent.py) or is young (specialized.py). Gluon is the same compiler told what to do: which
warps copy, which multiply, which buffer is free when. Each architecture has matrix instructions, and so a
kernel, of its own; this module knows which. They have the same three functions.

`triton` may choose it where no other kernel of those that it times disagrees with what it computes
(choosing.py).
"""

from __future__ import annotations

import importlib
from typing import Any

import torch

from bench.spec import Launch, Unsupported
from kernels.gemm import duration
from kernels.gemm.operands import Operands
from kernels.gemm.problem import BLOCK_SCALED, Gemm

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


def launch(of: Operands, chosen: Any, sm_count: int) -> Launch:
    """D in `of.d` by one of the device's candidates. The tensors' device must be the current one."""
    made: Launch = _of(of).launch(of, chosen, sm_count)
    return made


def compile(of: Operands, chosen: Any, sm_count: int) -> None:  # noqa: A001
    """What `launch` will run, compiled and not run."""
    _of(of).compile(of, chosen, sm_count)


def _of(of: Operands) -> Any:
    return _kernel(of.problem, torch.cuda.get_device_capability(of.d.device))


def _kernel(problem: Gemm, capability: tuple[int, int]) -> Any:
    there, what = (_OF_BLOCKS, f"{problem.dtype} ") if problem.dtype in BLOCK_SCALED else (_KERNELS, "")
    if capability[0] not in there:
        major, minor = capability
        raise Unsupported(
            f"triton-gluon has {what}kernels for compute capability "
            f"{' and '.join(f'{one}.x' for one in sorted(there))}, not for {major}.{minor}"
        )
    return importlib.import_module(f"kernels.gemm.{there[capability[0]]}")
