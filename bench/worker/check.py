"""Is it right? Outputs poisoned, then held against float64, before and after timing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from bench.spec import Operator, Problem

if TYPE_CHECKING:
    from bench.spec import Tensors


def outputs_of(written: torch.Tensor | Tensors) -> Tensors:
    """What a launch returned, as a tuple."""
    return (written,) if isinstance(written, torch.Tensor) else tuple(written)


def poison(outputs: Sequence[torch.Tensor]) -> None:
    """Fill outputs with what no kernel writes by accident: NaN, or the largest integer."""
    for output in outputs:
        output.fill_(_poison(output.dtype))


def _poison(dtype: torch.dtype) -> float | int:
    return float("nan") if dtype.is_floating_point else torch.iinfo(dtype).max


def escaped(outputs: Sequence[Tensors]) -> int:
    """How many of these sets of outputs still hold poison in the last element of a tensor.

    After a timed run: a launch that the clock did not really run (a kernel that escaped the capture, a
    slot never visited) left its poison.
    """
    left = 0
    for tensors in outputs:
        for output in tensors:
            if output.numel():
                last = output.reshape(-1)[-1]
                left += bool(last.isnan() if output.is_floating_point() else last == _poison(output.dtype))
                break
    return left


def judged(
    operator: Operator, implementation: str, problem: Problem, inputs: Tensors, outputs: Tensors
) -> tuple[float, float]:
    """(relative error, tolerance) of the output that uses most of its tolerance: right up to all of it."""
    errors = relative_errors(operator, problem, inputs, outputs)
    allowed = operator.tolerance(problem, implementation)
    each = [allowed] * len(errors) if isinstance(allowed, float | int) else list(allowed)
    if len(each) != len(errors):
        raise ValueError(f"{len(each)} tolerances for {len(errors)} outputs")
    return max(zip(errors, each, strict=True), key=_share)


def _share(one: tuple[float, float]) -> float:
    error, tolerance = one
    if tolerance == 0:
        return 0.0 if error == 0 else float("inf")
    return error / tolerance


def relative_errors(operator: Operator, problem: Problem, inputs: Tensors, outputs: Tensors) -> list[float]:
    """Of each output largest |output - reference| / largest |reference|; inf where a value is not finite.

    The reference is in float64. Where the operator offers an excerpt, the excerpt is compared, and all
    of the output is searched for values that are not finite. A problem that writes nothing is right.
    """
    if not outputs and problem.byte_written == 0:
        return [0.0]
    finite = [_is_finite(output) for output in outputs]
    if not all(finite):
        return [0.0 if one else float("inf") for one in finite]
    if operator.excerpt is not None:
        problem, inputs, outputs = operator.excerpt(problem, inputs, outputs)
    expected = outputs_of(operator.reference(problem, *inputs))
    if len(expected) != len(outputs):
        raise ValueError(f"{len(outputs)} outputs for a reference of {len(expected)}")
    errors = []
    for got, want in zip(outputs, expected, strict=True):
        if got.shape != want.shape:
            raise ValueError(f"output {tuple(got.shape)} for a reference of {tuple(want.shape)}")
        error = float((got.double() - want).abs().max()) if want.numel() else 0.0
        scale = float(want.abs().max()) if want.numel() else 0.0
        errors.append(error / scale if scale > 0 else error)
    return errors


def _is_finite(output: torch.Tensor) -> bool:
    if not output.is_floating_point() or not output.numel():
        return True
    if output.dim() == 4 and output.is_contiguous(memory_format=torch.channels_last):
        output = output.permute(0, 2, 3, 1)  # as it lies in memory, or the extremes would be those of a copy
    # The extremes propagate NaN and need no copy of the output.
    return bool(torch.isfinite(torch.stack(torch.aminmax(output))).all())
