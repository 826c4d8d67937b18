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


def relative_error(operator: Operator, problem: Problem, inputs: Tensors, outputs: Tensors) -> float:
    """Largest |output - reference| / largest |reference|, over all outputs; inf where a value is not finite.

    The reference is in float64. Where the operator offers an excerpt, the excerpt is compared, and all
    of the output is searched for values that are not finite. A problem that writes nothing is right.
    """
    if not outputs and problem.byte_written == 0:
        return 0.0
    for output in outputs:
        # the extremes propagate NaN and need no copy of the output
        if output.is_floating_point() and output.numel():
            if not bool(torch.isfinite(torch.stack(torch.aminmax(output))).all()):
                return float("inf")
    if operator.excerpt is not None:
        problem, inputs, outputs = operator.excerpt(problem, inputs, outputs)
    expected = outputs_of(operator.reference(problem, *inputs))
    if len(expected) != len(outputs):
        raise ValueError(f"{len(outputs)} outputs for a reference of {len(expected)}")
    worst = 0.0
    for got, want in zip(outputs, expected, strict=True):
        if got.shape != want.shape:
            raise ValueError(f"output {tuple(got.shape)} for a reference of {tuple(want.shape)}")
        if want.numel() == 0:
            continue
        error = float((got.double() - want).abs().max())
        scale = float(want.abs().max())
        worst = max(worst, error / scale if scale > 0 else error)
    return worst
