"""Check of results: outputs are poisoned, then compared with float64, before and after timing."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

from bench.spec import Operator, Problem

if TYPE_CHECKING:
    from bench.spec import Tensors


def outputs_of(written: torch.Tensor | Tensors) -> Tensors:
    """The outputs that a launch returned, as a tuple."""
    return (written,) if isinstance(written, torch.Tensor) else tuple(written)


def poison(outputs: Sequence[torch.Tensor]) -> None:
    """Fill outputs with what no right result holds: NaN, the least signed or the largest unsigned integer.

    The largest signed integer will not do: it is what the largest value of a symmetric quantization becomes.
    """
    for output in outputs:
        output.fill_(_poison(output.dtype))


def _poison(dtype: torch.dtype) -> float | int:
    if dtype.is_floating_point:
        return float("nan")
    return torch.iinfo(dtype).min or torch.iinfo(dtype).max


def escaped(outputs: Sequence[Tensors]) -> int:
    """Number of these sets of outputs of which at least one tensor was not written since `poison`.

    After a timed run, that is a launch that the clock did not really run: a kernel that escaped the capture,
    or a slot never visited.
    """
    slots, unwritten = [], []
    for slot, tensors in enumerate(outputs):
        for output in tensors:
            if output.numel():
                slots.append(slot)
                unwritten.append(_is_unwritten(output))
    # Copied to the host in one piece: each copy waits for the device.
    left = torch.stack([flag.to(unwritten[0].device) for flag in unwritten]).tolist() if unwritten else []
    return len({slot for slot, is_left in zip(slots, left, strict=True) if is_left})


def _is_unwritten(output: torch.Tensor) -> torch.Tensor:
    """Whether the last element holds poison; of unsigned integers, whose every value may be right, all."""
    if not output.is_floating_point() and torch.iinfo(output.dtype).min == 0:
        return (output == _poison(output.dtype)).all()
    last = output[(-1,) * output.dim()]
    return last.float().isnan() if output.is_floating_point() else last == _poison(output.dtype)


SAME_WIDTH = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def same(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Whether they hold the same bits."""
    bits = SAME_WIDTH[left.itemsize]
    return bool(torch.equal(left.view(bits), right.view(bits)))


@contextmanager
def put_back(inputs: Tensors) -> Iterator[Tensors]:
    """Gives copies of the inputs, and writes them back at the end: later cases take theirs from there."""
    before = tuple(tensor.clone() for tensor in inputs)
    try:
        yield before
    finally:
        for tensor, values in zip(inputs, before, strict=True):
            tensor.data.copy_(values)


def within(error: float, tolerance: float) -> bool:
    """Whether a result with this relative error is right. Not if either is NaN, with which `>` is false."""
    return error <= tolerance


def judged(
    operator: Operator, implementation: str, problem: Problem, inputs: Tensors, outputs: Tensors
) -> tuple[float, float]:
    """(relative error, tolerance) of the output with the largest ratio of the two; it is right up to 1.

    ValueError as `relative_errors`, if there are not as many tolerances, and if one is no finite number:
    every result would be within it.
    """
    errors = relative_errors(operator, problem, inputs, outputs)
    allowed = operator.tolerance(problem, implementation)
    each = [allowed] * len(errors) if isinstance(allowed, float | int) else list(allowed)
    if not all(map(math.isfinite, each)):
        raise ValueError(f"a tolerance of {', '.join(map(str, each))} says nothing about the result")
    return max(zip(errors, each, strict=True), key=of_tolerance)


def of_tolerance(pair: tuple[float, float]) -> float:
    """Relative error / tolerance of a pair of the two."""
    error, tolerance = pair
    if tolerance == 0:
        return 0.0 if error == 0 else float("inf")
    return error / tolerance


def relative_errors(operator: Operator, problem: Problem, inputs: Tensors, outputs: Tensors) -> list[float]:
    """Largest |output - reference| / largest |reference| of each output; inf if a value is not finite.

    The reference is in float64. Where the operator offers an excerpt, the excerpt is compared, and the whole
    output is searched for values that are not finite. A problem that writes nothing is right. ValueError if
    outputs and reference differ in number or shape, or if the reference is not finite: no result can be
    compared with it.
    """
    if not outputs and problem.byte_written == 0:
        return [0.0]
    finite = [_is_finite(output) for output in outputs]
    if not all(finite):
        return [0.0 if is_finite else float("inf") for is_finite in finite]
    if operator.excerpt is not None:
        problem, inputs, outputs = operator.excerpt(problem, inputs, outputs)
    expected = outputs_of(operator.reference(problem, *inputs))
    if len(expected) != len(outputs):
        raise ValueError(f"{len(outputs)} outputs for a reference of {len(expected)}")
    errors = []
    for number, (got, want) in enumerate(zip(outputs, expected, strict=True)):
        if got.shape != want.shape:
            raise ValueError(f"output {tuple(got.shape)} for a reference of {tuple(want.shape)}")
        scale = largest(want)
        if not math.isfinite(scale):
            raise ValueError(f"the reference of output {number} is not finite, so no result can be compared")
        error = largest(got.double() - want)
        errors.append(error / scale if scale > 0 else error)
    return errors


def _is_finite(output: torch.Tensor) -> bool:
    return not output.is_floating_point() or math.isfinite(largest(output))


def largest(values: torch.Tensor) -> float:
    """The largest absolute value, 0 of none; NaN or infinite if one of them is."""
    if not values.numel():
        return 0.0
    if values.is_floating_point() and values.element_size() == 1:
        values = values.half()  # which holds every number of 8 bits; torch has no extremes of those
    if values.dim() == 4 and values.is_contiguous(memory_format=torch.channels_last):
        values = values.permute(0, 2, 3, 1)  # in the order of memory: aminmax would make a copy otherwise
    # The extremes propagate NaN and need no copy of the values.
    return float(torch.stack(torch.aminmax(values)).double().abs().max())
