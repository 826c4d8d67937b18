"""Operand types below 16 bits as tensors: how numbers are stored and scaled, decoded, and made of float64.

float8_e4m3, float8_e5m2   8-bit floats, one float32 scale for the whole tensor
int8                       integers; the scale by which they were made of float64 is not kept
mxfp8                      float8_e4m3, and for each 32 elements along K a power of two, stored as its
                           exponent plus 127 (uint8)
nvfp4                      4-bit floats (one bit of mantissa), two in a byte (int8), the first in the lower
                           half; for each 16 elements along K a scale in float8_e4m3
"""

from __future__ import annotations

import itertools

import torch

from bench.spec import Dtype
from kernels.gemm.problem import BLOCK_SCALED

_FOUR_BITS = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
"""The numbers of nvfp4 that are not negative, by their code; 8 more is the same with a minus."""
_LARGEST = {"float8_e4m3": 448.0, "float8_e5m2": 57344.0, "int8": 127.0}
_EIGHT = {"float8_e4m3": torch.float8_e4m3fn, "float8_e5m2": torch.float8_e5m2, "int8": torch.int8}


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


def rounded(dtype: Dtype, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
    """(x as it is stored, its scale if the type has one) for float64 x [rows, k], as quantisation makes them.

    The largest |x| of what shares a scale becomes the type's largest number, or (mxfp8) lies in its binade.
    """
    if dtype in _EIGHT:
        scale = x.abs().amax() / _LARGEST[dtype]
        numbers = x / scale
        stored = (numbers.round() if dtype == "int8" else numbers.float()).to(_EIGHT[dtype])
        return stored, scale.float().view(1)
    if dtype not in BLOCK_SCALED:
        return x.to(torch.float32 if dtype == "tf32" else getattr(torch, dtype)), None
    blocks = x.view(x.shape[0], -1, BLOCK_SCALED[dtype])
    largest = blocks.abs().amax(-1, keepdim=True)
    if dtype == "mxfp8":
        exponent = torch.frexp(largest).exponent - 9  # 448 is the largest number, of 2^8 to 2^9
        numbers = (blocks / 2.0 ** exponent.double()).clamp(-448, 448).flatten(-2)
        return numbers.float().to(torch.float8_e4m3fn), (exponent + 127).to(torch.uint8).squeeze(-1)
    scale = (largest / _FOUR_BITS[-1]).float().to(torch.float8_e4m3fn)
    numbers = (blocks / scale.double()).flatten(-2)
    middles = torch.tensor([(a + b) / 2 for a, b in itertools.pairwise(_FOUR_BITS)])
    code = torch.bucketize(numbers.abs(), middles.double().to(x.device)) + 8 * (numbers < 0)
    return (code[..., ::2] + 16 * code[..., 1::2]).to(torch.uint8).view(torch.int8), scale.squeeze(-1)


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
