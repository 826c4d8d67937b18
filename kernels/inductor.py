"""torch.compile for one problem at a time: what `inductor` means in every operator."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from bench.spec import Problem

if TYPE_CHECKING:
    from bench.spec import Tensors


@functools.lru_cache(maxsize=1)
def compiled(
    function: Callable[..., torch.Tensor | Tensors],
    problem: Problem,
    options: tuple[tuple[str, bool], ...] = (),
) -> Callable[..., torch.Tensor | Tensors]:
    """`function(problem, *tensors)` compiled by Inductor for this problem's shapes: takes the tensors.

    `options` are Inductor's, where its defaults are not meant.

    Compiles when first called (seconds). Shapes are constants, as a library's own heuristics see them. What
    was compiled for the problem before is forgotten: Dynamo keeps eight variants of a function and would
    refuse the ninth, and a sweep has hundreds.
    """
    torch._dynamo.reset()
    bound: Callable[..., Any] = functools.partial(function, problem)
    return torch.compile(bound, fullgraph=True, dynamic=False, options=dict(options) or None)
