"""Seeded inputs, as the harness hands them to an operator, and its judgement of what came of them."""

from typing import Any, NamedTuple, get_args

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from bench.spec import Dtype, Operator, Problem, Uniform
from bench.worker.check import judged, relative_errors
from kernels.tensors import stored_dtype

TORCH_TYPE = {dtype: stored_dtype(dtype) for dtype in get_args(Dtype)}

FLOATS = ("float16", "bfloat16", "float32", "float64")
"""What every operator on floats computes, on any device."""

ONEDNN_DTYPES: tuple[Dtype, ...] = (
    ("float32", "bfloat16") if torch.ops.mkldnn._is_mkldnn_bf16_supported() else ("float32",)
)
"""What torch hands to oneDNN's convolutions on this CPU: bfloat16 needs AVX-512."""


def uniform(problem: Problem, seed: int) -> Uniform:
    """CPU tensors uniform in [-1, 1] in the problem's type, the same for the same seed."""
    generator = torch.Generator().manual_seed(seed)

    def make(*shape: int, dtype: torch.dtype | None = None) -> torch.Tensor:
        kind = dtype or TORCH_TYPE[problem.dtype]
        if kind == torch.int8:
            return torch.randint(-127, 128, shape, generator=generator, dtype=kind)
        random = torch.rand(shape, generator=generator, dtype=torch.float64) * 2 - 1
        return random.to(kind)

    return make


def relative_error(
    operator: Operator, problem: Problem, inputs: tuple[torch.Tensor, ...], outputs: tuple[torch.Tensor, ...]
) -> float:
    """The largest error of any output, relative to the largest value that output should have."""
    return max(relative_errors(operator, problem, inputs, outputs))


def used(
    operator: Operator,
    implementation: str,
    problem: Problem,
    inputs: tuple[torch.Tensor, ...],
    outputs: tuple[torch.Tensor, ...],
) -> float:
    """The share of its tolerance that an output uses, of the one that uses most; right up to 1."""
    error, allowed = judged(operator, implementation, problem, inputs, outputs)
    return error / allowed if allowed else float("inf") if error else 0.0


class Dispatched(NamedTuple):
    """A call of one of torch's operators."""

    operator: Any
    arguments: tuple[Any, ...]
    named: dict[str, Any]
    results: tuple[torch.Tensor, ...]

    @property
    def read(self) -> list[torch.Tensor]:
        """The tensors among its arguments."""
        return [argument for argument in self.arguments if isinstance(argument, torch.Tensor)]


class Dispatches(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records the operators that torch calls while it is entered."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: list[Dispatched] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        results = (result,) if isinstance(result, torch.Tensor) else tuple(result)
        self.calls.append(Dispatched(func.overloadpacket, args, kwargs or {}, results))
        return result
