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
    if problem.kind == "transformer-modern":
        norm, qkv, out, norm_2, gate, up, down = weights
        middle = x + _attend(problem, _scaled(x) * norm @ qkv.T) @ out.T
        normed = _scaled(middle) * norm_2
        z = normed @ gate.T
        return (middle + (z / (1 + torch.exp(-z)) * (normed @ up.T)) @ down.T,)
    if problem.kind == "mlp":
        for weight, bias in zip(weights[::2], weights[1::2], strict=True):
            x = _gelu(x @ weight.T + bias)
        return (x,)
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


def _scaled(x: torch.Tensor) -> torch.Tensor:
    return x / ((x**2).mean(-1, keepdim=True) + EPSILON).sqrt()


def _gelu(z: torch.Tensor) -> torch.Tensor:
    return z * (1 + torch.erf(z / math.sqrt(2))) / 2


def _attend(problem: Layer, qkv: torch.Tensor) -> torch.Tensor:
    """Each head of queries paired with its own head of keys, one after the other."""
    d, of_queries = problem.head_width, problem.width
    of_keys = problem.kv_heads * d
    q, k, v = torch.split(qkv, [of_queries, of_keys, of_keys], -1)
    results = []
    for head in range(problem.heads):
        mine = slice(head * d, (head + 1) * d)
        shared = head * problem.kv_heads // problem.heads
        theirs = slice(shared * d, (shared + 1) * d)
        scores = q[..., mine] @ k[..., theirs].mT / math.sqrt(d)
        weight = torch.exp(scores - scores.amax(-1, keepdim=True).detach())
        results.append(weight / weight.sum(-1, keepdim=True) @ v[..., theirs])
    return torch.cat(results, -1)
