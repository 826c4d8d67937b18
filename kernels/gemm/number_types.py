"""Operand types below 16 bits as tensors: how numbers are stored, scaled and decoded.

float8_e4m3, float8_e5m2   8-bit floats, one float32 scale for the whole tensor
int8                       integers, without a scale
mxfp8                      float8_e4m3, and for each 32 elements along K a power of two, stored as its
                           exponent plus 127 (uint8)
nvfp4                      4-bit floats (one bit of mantissa), two in a byte (int8), the first in the lower
                           half; for each 16 elements along K a scale in float8_e4m3
"""

from __future__ import annotations

import torch

from bench.spec import Dtype
from kernels.gemm.problem import BLOCK_SCALED

_FOUR_BITS = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
"""The numbers of nvfp4 that are not negative, by their code; 8 more is the same with a minus."""
_LARGEST_8_BITS = 448.0
"""The largest number of float8_e4m3."""


def scale_of(dtype: Dtype, random: torch.Tensor) -> torch.Tensor:
    """Random scales of a type, made of float32 in [-1, 1]: 0.5 to 1.5, or for mxfp8 1/2, 1 or 2."""
    if dtype == "mxfp8":
        return (random * 1.5).round_().add_(127).to(torch.uint8)
    positive = random.abs_().add_(0.5)
    return positive.to(torch.float8_e4m3fn) if dtype == "nvfp4" else positive


def decoded(dtype: Dtype, stored: torch.Tensor, scale: torch.Tensor | None) -> torch.Tensor:
    """The numbers in float64, times their scales; of a block-scaled type [rows, k] with [rows, blocks]."""
    if scale is None or dtype not in BLOCK_SCALED:
        return stored.double() if scale is None else stored.double() * scale.double()
    if dtype == "mxfp8":
        numbers, scale = stored.double(), 2.0 ** (scale.double() - 127)
    else:
        table = torch.tensor((*_FOUR_BITS, *(-value for value in _FOUR_BITS)), device=stored.device)
        byte = stored.view(torch.uint8).int()
        numbers = table.double()[torch.stack([byte & 15, byte >> 4], dim=-1)].flatten(-2)
        scale = scale.double()
    return numbers * scale.repeat_interleave(BLOCK_SCALED[dtype], dim=-1)


def in_8_bits(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """x [rows, k] in float8_e4m3 and its scale [1], by which the largest |x| is the type's largest."""
    scale = x.float().abs().amax() / _LARGEST_8_BITS
    return (x / scale).to(torch.float8_e4m3fn), scale.view(1)


def swizzled(scale: torch.Tensor) -> torch.Tensor:
    """Scales [rows, blocks] in the order in which cuBLAS reads them, flat and padded with zeros.

    Tiles of 128 rows by 4 blocks, one after the other, in each of which rows r, r + 32, r + 64 and r + 96 are
    neighbours (cuBLAS documentation, "1D Block Scaling Factors Layout").
    """
    rows, blocks = scale.shape
    padded = torch.zeros(-(-rows // 128) * 128, -(-blocks // 4) * 4, dtype=torch.uint8, device=scale.device)
    padded[:rows, :blocks] = scale.view(torch.uint8)
    tiles = padded.view(padded.shape[0] // 128, 4, 32, padded.shape[1] // 4, 4).permute(0, 3, 2, 1, 4)
    return tiles.flatten()
