"""The tensors that a problem declares: their torch types, its inputs at random, its outputs not filled."""

from __future__ import annotations

from collections.abc import Callable
from weakref import WeakValueDictionary

import torch

from bench.spec import Problem, Tensors, TensorSpec, Uniform

STORED_AS = {
    "tf32": torch.float32,
    "float8_e4m3": torch.float8_e4m3fn,
    "mxfp8": torch.float8_e4m3fn,
    "nvfp4": torch.int8,
}
"""Data types whose torch type has another name."""


def stored_dtype(dtype: str) -> torch.dtype:
    """The torch type that holds numbers of this data type."""
    stored = STORED_AS.get(dtype) or getattr(torch, dtype)
    assert isinstance(stored, torch.dtype)
    return stored


def made(spec: TensorSpec, make: Callable[..., torch.Tensor]) -> torch.Tensor:
    """The tensor, by a function of its sizes and, where that is not the problem's, its `dtype`."""
    options = {} if spec.dtype is None else {"dtype": stored_dtype(spec.dtype)}
    if not spec.channels_last:
        return make(*spec.shape, **options)
    n, c, h, w = spec.shape
    return make(n, h, w, c, **options).permute(0, 3, 1, 2)


def inputs(problem: Problem, uniform: Uniform) -> Tensors:
    """All tensors that the problem reads, uniform in [-1, 1]; integers in -127 to 127."""
    return tuple(made(spec, uniform) for spec in problem.tensors[0].values())


def vectors(uniform: Uniform, count: int, length: int, dtype: torch.dtype | None = None) -> Tensors:
    """So many vectors of one allocation, in rows of whole 256 bytes: else all would hold the same numbers."""
    return uniform(count, -(-length // 64) * 64, dtype=dtype)[:, :length].unbind()


def empty(problem: Problem, like: torch.Tensor) -> Tensors:
    """All tensors that the problem writes, on the device of `like`, which has the problem's type."""
    return tuple(made(spec, like.new_empty) for spec in problem.tensors[1].values())


_living: WeakValueDictionary[tuple[object, ...], torch.Tensor] = WeakValueDictionary()
"""What `shared` gave: launches hold it, this only finds it."""


def shared(
    use: str, new: Callable[..., torch.Tensor], size: object, dtype: torch.dtype, device: torch.device
) -> torch.Tensor:
    """A tensor of this size made by `new`, the same one while anyone has it; of this use alone."""
    key = use, size, dtype, device
    found = _living.get(key)
    if found is None:
        found = _living[key] = new(size, dtype=dtype, device=device)
    return found
