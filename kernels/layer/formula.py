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
        return (_post_norm(problem, fused, x, *weights),)
    if problem.kind == "transformer-modern":
        return (_pre_norm(problem, fused, x, *weights),)
    if problem.kind == "mlp":
        for weight, bias in zip(weights[::2], weights[1::2], strict=True):
            x = functional.gelu(functional.linear(x, weight, bias))
        return (x,)
    return _bottleneck(x, *weights)


def _post_norm(problem: Layer, fused: bool, x: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
    qkv, qkv_bias, out, out_bias, norm, shift, up, up_bias, down, down_bias, norm_2, shift_2 = weights
    o = _attention(problem, fused, functional.linear(x, qkv, qkv_bias))
    x = functional.layer_norm(x + functional.linear(o, out, out_bias), (problem.width,), norm, shift, EPSILON)
    z = functional.gelu(functional.linear(x, up, up_bias))
    y = x + functional.linear(z, down, down_bias)
    return functional.layer_norm(y, (problem.width,), norm_2, shift_2, EPSILON)


def _pre_norm(problem: Layer, fused: bool, x: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
    norm, qkv, out, norm_2, gate, up, down = weights
    normed = functional.rms_norm(x, (problem.width,), norm, EPSILON)
    x = x + functional.linear(_attention(problem, fused, functional.linear(normed, qkv)), out)
    normed = functional.rms_norm(x, (problem.width,), norm_2, EPSILON)
    z = functional.silu(functional.linear(normed, gate)) * functional.linear(normed, up)
    return x + functional.linear(z, down)


def _attention(problem: Layer, fused: bool, qkv: torch.Tensor) -> torch.Tensor:
    """o [batch, length, width] of q, k and v side by side [batch, length, width + keys and values]."""
    heads, keys, d = problem.heads, problem.kv_heads, problem.head_width
    parts = qkv.view(problem.batch, problem.length, heads + 2 * keys, d).transpose(1, 2)
    q, k, v = torch.split(parts, [heads, keys, keys], 1)
    if fused:
        o = functional.scaled_dot_product_attention(q, k, v, enable_gqa=keys < heads)
    else:  # heads of queries that share keys lie below each other, as rows of one product
        q = (q * d**-0.5).reshape(problem.batch * keys, -1, d)
        k, v = (each.reshape(problem.batch * keys, -1, d) for each in (k, v))
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
