"""The layers by their formulas in float64, for autograd: written apart from what is measured."""

from __future__ import annotations

import math

import torch

from bench.spec import Tensors
from kernels.layer.formula import EPSILON
from kernels.layer.problem import Layer


def layer(problem: Layer, masks: Tensors, x: torch.Tensor, *weights: torch.Tensor) -> Tensors:
    """y, and of a bottleneck the two results of ReLU before it, all float64.

    `masks`: of each of its three ReLUs which results are kept, if that is given; see
    `kernels.layer.operator.excerpt`.
    """
    if problem.kind == "transformer":
        qkv, qkv_bias, out, out_bias, norm, shift, up, up_bias, down, down_bias, norm_2, shift_2 = weights
        o = _attend(problem, x @ qkv.T + qkv_bias) @ out.T + out_bias
        middle = _standardized(x + o) * norm + shift
        y = middle + _gelu(middle @ up.T + up_bias) @ down.T + down_bias
        return (_standardized(y) * norm_2 + shift_2,)
    z, results = x, list[torch.Tensor]()
    for place in range(3):
        weight, norm, shift = weights[3 * place : 3 * place + 3]
        z = torch.nn.functional.conv2d(z, weight, padding=weight.shape[-1] // 2)
        mean = z.mean((0, 2, 3), keepdim=True)
        deviation = ((z - mean) ** 2).mean((0, 2, 3), keepdim=True).add(EPSILON).sqrt()
        z = (z - mean) / deviation * norm[:, None, None] + shift[:, None, None]
        z = z + x if place == 2 else z
        results.append(z.clamp_min(0))
        z = z * masks[place] if masks else results[place]
    # What autograd follows is z, what is compared are the results of ReLU itself.
    y = z + (results[2] - z).detach()
    return y, results[0], results[1]


def _standardized(x: torch.Tensor) -> torch.Tensor:
    centered = x - x.mean(-1, keepdim=True)
    return centered / ((centered**2).mean(-1, keepdim=True) + EPSILON).sqrt()


def _gelu(z: torch.Tensor) -> torch.Tensor:
    return z * (1 + torch.erf(z / math.sqrt(2))) / 2


def _attend(problem: Layer, qkv: torch.Tensor) -> torch.Tensor:
    """Head by head."""
    results = []
    heads = qkv.view(*qkv.shape[:-1], 3, problem.heads, problem.head_width).unbind(-3)
    for q, k, v in zip(*(part.unbind(-2) for part in heads), strict=True):
        scores = q @ k.mT / math.sqrt(problem.head_width)
        weight = torch.exp(scores - scores.amax(-1, keepdim=True).detach())
        results.append(weight / weight.sum(-1, keepdim=True) @ v)
    return torch.cat(results, -1)
