"""torch.compile for one problem at a time: what `inductor` means in every operator."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from bench.spec import Launch, Problem, Tensors

Function = Callable[..., "torch.Tensor | Tensors"]


def launch(function: Function, problem: Problem, *tensors: torch.Tensor) -> Launch:
    """`function(problem, *tensors)` as Inductor compiles it when first called.

    On a GPU each call allocates what it returns, which costs nothing in a graph. On a CPU it writes into
    tensors allocated here: the page faults of new ones take several times as long as the kernel itself.
    """
    if tensors[0].device.type != "cpu":
        run = compiled(function, problem)
        return Launch(lambda: run(*tensors))
    outputs = tuple(
        torch.empty_strided(like.shape, like.stride(), dtype=like.dtype)
        for like in _several(function(problem, *(tensor.to("meta") for tensor in tensors)))
    )
    fill = compiled(function, problem, outputs=len(outputs), threads=torch.get_num_threads())

    def call() -> torch.Tensor | Tensors:
        fill(*outputs, *tensors)
        return outputs[0] if len(outputs) == 1 else outputs

    return Launch(call, outputs)


@functools.lru_cache(maxsize=1)
def compiled(
    function: Function,
    problem: Problem,
    options: tuple[tuple[str, bool], ...] = (),
    outputs: int = 0,
    threads: int = 0,
) -> Function:
    """`function(problem, *tensors)` compiled by Inductor for this problem's shapes: takes the tensors.

    `options` are Inductor's, where its defaults are not meant. With `outputs` it takes so many tensors more,
    before the others, and writes into them. `threads`: how many a program for a CPU is compiled for, which
    are those that torch is set to.

    Compiles when first called (seconds). Shapes are constants, as a library's own heuristics see them. What
    was compiled for the problem before is forgotten: Dynamo keeps eight variants of a function and would
    refuse the ninth, and a sweep has hundreds.
    """
    torch._dynamo.reset()
    if threads:
        from torch._inductor import config

        config.compile_threads = 1  # a pool of processes would run on while something is timed
    bound: Callable[..., Any] = functools.partial(function, problem)
    if outputs:
        bound = functools.partial(_filling, bound, outputs)
    return torch.compile(bound, fullgraph=True, dynamic=False, options=dict(options) or None)


def _filling(function: Function, count: int, *tensors: torch.Tensor) -> None:
    for output, value in zip(tensors[:count], _several(function(*tensors[count:])), strict=True):
        output.copy_(value)


def _several(results: torch.Tensor | Tensors) -> Tensors:
    return (results,) if isinstance(results, torch.Tensor) else tuple(results)
