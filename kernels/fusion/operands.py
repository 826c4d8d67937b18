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
    return Operands(**dict(zip(problem.tensors[0], tensors, strict=True)))
