"""Attention by what torch has: FlashAttention, cuDNN, xFormers, its fallback, and its own kernel on a CPU.

Each launch calls the operator of one library, not torch's choice among them: either that library runs or the
launch fails. Outputs are allocated by each call. Backward, o and lse are those of the library's own forward
pass, which runs once while the launch is built: each has a format of its own for lse.
"""

from __future__ import annotations

from typing import Any

import torch

from bench.spec import Launch
from kernels.attention.problem import Attention
from kernels.optional import lacking

_ATEN: Any = torch.ops.aten


def flash(problem: Attention, *tensors: torch.Tensor) -> Launch:
    """FlashAttention 2."""
    forward = _ATEN._scaled_dot_product_flash_attention
    q, k, v, *rest = tensors
    if problem.direction == "forward":
        return Launch(lambda: forward(q, k, v, 0.0, problem.causal)[0])
    o, lse, *of_lengths, seed, offset, _ = forward(q, k, v, 0.0, problem.causal)
    backward = _ATEN._scaled_dot_product_flash_attention_backward
    saved = (q, k, v, o, lse, *of_lengths, 0.0, problem.causal, seed, offset)
    return Launch(lambda: backward(rest[-1], *saved))


def flash_4(problem: Attention, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Launch:
    """FlashAttention 4, which compiles when first called; it is given views [batch, length, heads, width]."""
    try:
        from flash_attn.cute import flash_attn_func
    except ImportError as error:
        raise lacking("flash-4", "flash-attn-4", error) from error
    views = [tensor.transpose(1, 2) for tensor in (q, k, v)]
    return Launch(lambda: flash_attn_func(*views, causal=problem.causal)[0].transpose(1, 2))


def cudnn(problem: Attention, *tensors: torch.Tensor) -> Launch:
    """cuDNN's attention."""
    forward = _ATEN._scaled_dot_product_cudnn_attention
    q, k, v, *rest = tensors
    if problem.direction == "forward":
        return Launch(lambda: forward(q, k, v, None, False, 0.0, problem.causal)[0])
    o, lse, *of_lengths, seed, offset, _ = forward(q, k, v, None, True, 0.0, problem.causal)
    backward = _ATEN._scaled_dot_product_cudnn_attention_backward
    saved = (q, k, v, o, lse, seed, offset, None, *of_lengths, 0.0, problem.causal)
    return Launch(lambda: backward(rest[-1], *saved))


def efficient(problem: Attention, *tensors: torch.Tensor) -> Launch:
    """xFormers' CUTLASS kernels."""
    forward = _ATEN._scaled_dot_product_efficient_attention
    q, k, v, *rest = tensors
    if problem.direction == "forward":
        return Launch(lambda: forward(q, k, v, None, False, 0.0, problem.causal)[0])
    o, lse, seed, offset = forward(q, k, v, None, True, 0.0, problem.causal)
    backward = _ATEN._scaled_dot_product_efficient_attention_backward
    saved = (q, k, v, None, o, lse, seed, offset, 0.0, [True, True, True, False], problem.causal)
    return Launch(lambda: backward(rest[-1], *saved)[:3])


def flash_cpu(problem: Attention, *tensors: torch.Tensor) -> Launch:
    """torch's fused attention on a CPU."""
    forward = _ATEN._scaled_dot_product_flash_attention_for_cpu
    q, k, v, *rest = tensors
    if problem.direction == "forward":
        return Launch(lambda: forward(q, k, v, 0.0, problem.causal)[0])
    o, lse = forward(q, k, v, 0.0, problem.causal)
    backward = _ATEN._scaled_dot_product_flash_attention_for_cpu_backward
    return Launch(lambda: backward(rest[-1], q, k, v, o, lse, 0.0, problem.causal))


def math(problem: Attention, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Launch:
    """torch's operator by operator, which computes 16-bit types in float32; everything is allocated anew."""
    forward, grouped = _ATEN._scaled_dot_product_attention_math, problem.group > 1
    return Launch(lambda: forward(q, k, v, None, 0.0, problem.causal, enable_gqa=grouped)[0])
