"""Launches of next to nothing."""

from __future__ import annotations

import torch

from bench.spec import Implementations, Launch, Operator, Tensors, Uniform
from kernels.launch.problem import LaunchFloor
from kernels.optional import launched_by
from kernels.rounding import exact


def inputs(problem: LaunchFloor, uniform: Uniform) -> Tensors:
    """x `[1]`."""
    return (uniform(1),)


def reference(problem: LaunchFloor, x: torch.Tensor) -> Tensors:
    """-x `[1]` in float64."""
    return (-x.double(),)


def aten(problem: LaunchFloor, x: torch.Tensor) -> Launch:
    """torch.neg of one element."""
    y = torch.empty_like(x)
    return Launch(lambda: torch.neg(x, out=y), (y,))


IMPLEMENTATIONS: Implementations = {"aten": aten, "triton": launched_by("launch.empty")}
OPERATOR = Operator(LaunchFloor, inputs, reference, IMPLEMENTATIONS, exact, [LaunchFloor(dtype="float32")])
