"""The layers as models write them for torch: what autograd, autocast and torch.compile work on.

Each takes x and the weights in the order of `Layer.weights`, and returns y, a bottleneck in a step also the
results of its first two ReLUs, which its backward pass keeps (see `kernels.layer.operator.excerpt`).
"""

from __future__ import annotations

import torch
from torch.nn import functional

from bench.spec import Tensors
from kernels.layer.problem import Layer

EPSILON = 1e-5
"""What norms add to the variance."""


def forward(problem: Layer, fused: bool, x: torch.Tensor, *weights: torch.Tensor) -> Tensors:
    """y, and of a bottleneck the two results of ReLU before it."""
    if problem.kind == "transformer":
        return (_transformer(problem, fused, x, *weights),)
    return _bottleneck(x, *weights)


def _transformer(problem: Layer, fused: bool, x: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
    qkv, qkv_bias, out, out_bias, norm, shift, up, up_bias, down, down_bias, norm_2, shift_2 = weights
    o = _attention(problem, fused, functional.linear(x, qkv, qkv_bias))
    x = functional.layer_norm(x + functional.linear(o, out, out_bias), (problem.width,), norm, shift, EPSILON)
    z = functional.gelu(functional.linear(x, up, up_bias))
    y = x + functional.linear(z, down, down_bias)
    return functional.layer_norm(y, (problem.width,), norm_2, shift_2, EPSILON)


def _attention(problem: Layer, fused: bool, qkv: torch.Tensor) -> torch.Tensor:
    """o [batch, length, width] of q, k and v side by side [batch, length, 3 width]."""
    heads, d = problem.heads, problem.head_width
    parts = qkv.view(problem.batch, problem.length, 3 * heads, d).transpose(1, 2)
    q, k, v = parts.chunk(3, 1)
    if fused:
        o = functional.scaled_dot_product_attention(q, k, v)
    else:
        q, k, v = (each.reshape(problem.batch * heads, -1, d) for each in (q * d**-0.5, k, v))
        p = torch.softmax(torch.bmm(q, k.mT), -1, dtype=torch.float32)
        o = torch.bmm(p.to(v.dtype), v).view(problem.batch, heads, problem.length, d)
    return o.transpose(1, 2).reshape(problem.batch, problem.length, problem.width)


def _bottleneck(x: torch.Tensor, *weights: torch.Tensor) -> Tensors:
    z, kept = x, []
    for place in range(3):
        weight, norm, shift = weights[3 * place : 3 * place + 3]
        z = functional.conv2d(z, weight, padding=weight.shape[-1] // 2)
        z = functional.batch_norm(z, None, None, norm, shift, training=True, eps=EPSILON)
        if place < 2:
            z = torch.relu(z)
            kept.append(z)
    return torch.relu(z + x), *kept
