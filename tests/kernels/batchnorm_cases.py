"""Small batch normalizations, as the tests of several files need them."""

from typing import Any

import torch

from kernels.batchnorm.operator import OPERATOR
from kernels.batchnorm.problem import BatchNorm
from tests.kernels.tensors import uniform

Tensors = tuple[torch.Tensor, ...]

DIRECTIONS = ("forward", "inference", "backward")
LAYOUTS = ("NCHW", "NHWC")


def make(**parameters: Any) -> BatchNorm:
    """float32, 4 x 6 x 5 x 7, forward, NCHW, but for the parameters given."""
    return BatchNorm.model_validate({"n": 4, "c": 6, "h": 5, "w": 7, "dtype": "float32"} | parameters)


def given(problem: BatchNorm, seed: int) -> Tensors:
    """Its inputs, the same for the same seed."""
    return OPERATOR.inputs(problem, uniform(problem, seed))


def as_tuple(written: torch.Tensor | Tensors) -> Tensors:
    """What a launch or a reference returned."""
    return (written,) if isinstance(written, torch.Tensor) else tuple(written)
