"""Launches of next to nothing."""

from __future__ import annotations

import torch

from bench.spec import Launch, Operator, Tensors, Uniform
from kernels.launch.problem import LaunchFloor


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


def triton(problem: LaunchFloor, x: torch.Tensor) -> Launch:
    """An empty kernel; x is not touched."""
    from kernels.launch.empty import empty_launch

    return empty_launch()


def tolerance(problem: LaunchFloor, implementation: str) -> float:
    """0: a sign is exact."""
    return 0.0


OPERATOR = Operator(
    problem=LaunchFloor,
    inputs=inputs,
    reference=reference,
    implementations={"aten": aten, "triton": triton},
    tolerance=tolerance,
    examples=[LaunchFloor(dtype="float32")],
)
