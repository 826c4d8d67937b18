"""Attention by what torch has: fused by libraries, by its fallback, step by step, and by Inductor.

Each launch calls the operator of one library, not torch's choice among them: either that library runs or the
launch fails. Outputs are allocated by each call. Backward, o and lse are those of the library's own forward
pass, which runs once while the launch is built: each has a format of its own for lse.

`unfused` has products and a softmax one after the other, with the scores in memory, allocated beforehand.
Inductor has flex_attention, which is fused; its backward pass is behind autograd.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from math import inf
from typing import Any

import torch

from bench.autotune import inductor as torch_compile
from bench.spec import Launch, Tensors
from kernels.attention.problem import Attention
from kernels.precision import sum_in_float32
from kernels.tensors import shared

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


def _shared(name: str, shape: tuple[int, ...], like: torch.Tensor) -> torch.Tensor:
    """Scores, which all launches of a ring share while one of them lives: they may be far larger than q."""
    return shared(f"{name} of attention", torch.empty, shape, like.dtype, like.device)


def _folded(problem: Attention, *tensors: torch.Tensor) -> list[torch.Tensor]:
    """[batch x kv_heads, rows, head_width], all rows of a group of heads one after the other: views."""
    return [t.view(problem.batch * problem.kv_heads, -1, problem.head_width) for t in tensors]


def unfused(problem: Attention, *tensors: torch.Tensor) -> Launch:
    """bmm, a mask, softmax, bmm, each with a result allocated beforehand; or `_unfused_backward`."""
    sum_in_float32()
    if problem.direction == "backward":
        return _unfused_backward(problem, *tensors)
    softmax_of_rows = _unfused_softmax(problem, *tensors[:2])
    o = torch.empty_like(tensors[0])
    v, o_folded = _folded(problem, tensors[2], o)

    def call() -> torch.Tensor:
        torch.bmm(softmax_of_rows(), v, out=o_folded)
        return o

    return Launch(call, outputs=(o,))


def _unfused_softmax(problem: Attention, q: torch.Tensor, k: torch.Tensor) -> Callable[[], torch.Tensor]:
    """A function that computes p [batch x kv_heads, group x q_length, kv_length] into a shared tensor."""
    queries, keys = _folded(problem, q, k)
    shape = (len(queries), problem.group * problem.q_length, problem.kv_length)
    s, p = _shared("s", shape, q), _shared("p", shape, q)
    scale = problem.head_width**-0.5
    softmax = _ATEN._softmax.out
    by_head = s.view(problem.batch * problem.heads, problem.q_length, problem.kv_length)
    unseen = torch.ones(by_head.shape[1:], dtype=torch.bool, device=q.device).triu(1)

    def call() -> torch.Tensor:
        torch.baddbmm(s, queries, keys.mT, beta=0, alpha=scale, out=s)
        if problem.causal:
            by_head.masked_fill_(unseen, -inf)
        softmax(s, 2, False, out=p)
        return p

    return call


def _unfused_backward(problem: Attention, *tensors: torch.Tensor) -> Launch:
    """p as forward, softmax's own gradient, and products by bmm; o and lse are not read."""
    softmax_of_rows = _unfused_softmax(problem, *tensors[:2])
    written = tuple(torch.empty_like(tensor) for tensor in tensors[:3])
    q, k, v, do, dq, dk, dv = _folded(problem, *tensors[:3], tensors[5], *written)
    shape = (len(q), q.shape[1], problem.kv_length)
    # s is not needed any more once there is p.
    dp, ds = _shared("dp", shape, q), _shared("s", shape, q)
    scale = problem.head_width**-0.5
    gradient = _ATEN._softmax_backward_data.out

    def call() -> Tensors:
        p = softmax_of_rows()
        torch.bmm(p.mT, do, out=dv)
        torch.bmm(do, v.mT, out=dp)
        gradient(dp, p, 2, p.dtype, grad_input=ds)
        torch.baddbmm(dq, ds, k, beta=0, alpha=scale, out=dq)
        torch.baddbmm(dk, ds.mT, q, beta=0, alpha=scale, out=dk)
        return written

    return Launch(call, outputs=written)


def inductor(problem: Attention, *tensors: torch.Tensor) -> Launch:
    """flex_attention compiled."""
    from torch.nn.attention import flex_attention

    mask = None
    if problem.causal:
        lengths = (problem.q_length, problem.kv_length)
        mask = flex_attention.create_block_mask(_sees, None, None, *lengths, device=tensors[0].device.type)
    return torch_compile.launch(functools.partial(_flex, mask), problem, *tensors)


def _sees(batch: torch.Tensor, head: torch.Tensor, row: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    return key <= row


def _flex(mask: Any, problem: Attention, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    from torch.nn.attention.flex_attention import flex_attention

    if q.is_meta:  # asked for the shape of the result, which flex_attention declines
        return torch.empty_like(q)
    o: torch.Tensor = flex_attention(q, k, v, block_mask=mask, enable_gqa=problem.group > 1)
    return o
