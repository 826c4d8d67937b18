"""A Triton kernel that writes where there is no memory; only fault_operator.py imports it."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

FAR = 1 << 42
"""float32 elements beyond an output, 16 TiB: no device has memory there."""


@triton.jit
def _store(  # type: ignore[no-untyped-def]
    pointer,  # of float32
    offset,  # elements
):
    """pointer[offset] = 1."""
    tl.store(pointer + offset, 1.0)


def store_far(y: torch.Tensor) -> None:
    """Queue a store 16 TiB after y [any, float32]: the next synchronize raises for an illegal address."""
    _store[(1,)](y, FAR)
