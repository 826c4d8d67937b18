"""Tensors as descriptors: what a bulk copy (TMA) must know of a matrix.

A descriptor holds a tensor's address, shape and row length, and the shape of the block that one copy moves.
A copy is then one instruction of one thread, with all addresses computed by hardware: what lies beyond the
tensor reads as zero and is never written, so no size needs a mask. Rows must begin at multiples of 16 bytes,
and that is all: they may be of any length.

Descriptors are made on the host, at each launch, and are parameters of the kernel: on Triton 3.6 a program
that makes them itself has 260 to 400 instructions more to go through before its first copy, and needs memory
for them.

Not so in Triton's main branch of February 2026: its launcher laid a descriptor on its stack at a multiple
of 64 bytes and refused all but those of 128 (triton-lang/triton #9439, #9499). The 3.6 that was released
has another launcher, whose descriptors are objects of their own at multiples of 128.
"""

from __future__ import annotations

import torch
from triton.tools.tensor_descriptor import TensorDescriptor

from kernels.gemm.operands import Operands
from kernels.gemm.tiles import Tile


def operands(of: Operands, tile: Tile) -> tuple[TensorDescriptor, TensorDescriptor]:
    """A and B, for copies of what a tile takes in one step. Raises what `described` does."""
    of_a, of_b = of.blocks(tile)
    return described("a", of.a, of_a), described("b", of.b, of_b)


def described(name: str, tensor: torch.Tensor, block: list[int]) -> TensorDescriptor:
    """A tensor's descriptor for copies of this block. Raises ValueError as `check_rows` does."""
    check_rows(name, tensor)
    return TensorDescriptor(tensor, list(tensor.shape), list(tensor.stride()), block)


def check_rows(name: str, tensor: torch.Tensor) -> None:
    """Raise ValueError if a row of this operand does not begin at a multiple of 16 bytes."""
    row_byte = tensor.stride(0) * tensor.element_size() if tensor.dim() == 2 else 0
    if tensor.data_ptr() % 16 or row_byte % 16 or tensor.stride(-1) != 1:
        raise ValueError(f"{name} {tuple(tensor.shape)} has rows that do not begin at multiples of 16 bytes")
