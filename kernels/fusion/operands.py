"""The inputs of a chain by name."""

from typing import NamedTuple

import torch

from kernels.fusion.problem import Fusion


class Operands(NamedTuple):
    """The inputs of a chain by name; None for what it has no use for."""

    x: torch.Tensor
    """[rows, length]"""
    bias: torch.Tensor | None = None
    """[length]"""
    residual: torch.Tensor | None = None
    """[rows, length]"""
    weight: torch.Tensor | None = None
    """[length], of layernorm"""
    shift: torch.Tensor | None = None
    """[length], of layernorm"""


def operands(problem: Fusion, *tensors: torch.Tensor) -> Operands:
    """The inputs, which hold only what the chain uses, by their names."""
    x, *rest = tensors
    steps = problem.steps
    bias = rest.pop(0) if "bias" in steps else None
    residual = rest.pop(0) if "residual" in steps else None
    weight, shift = rest if problem.normalized else (None, None)
    return Operands(x, bias, residual, weight, shift)
