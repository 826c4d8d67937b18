"""Checks of a kernel with inputs beyond [-1, 1], of which the operators' tolerances say nothing.

What rounding explains there is found from the formula itself. The reference in float64 of the same inputs,
each off by one unit roundoff of the arithmetic, shows what a rounding is worth. There may be as many of them
as the operator's tolerance has in [-1, 1]. Numbers below the smallest normal one may be taken as zero.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

from bench.worker.buffer_ring import BufferRing
from bench.worker.cache_ring import DATA
from bench.worker.check import largest, of_tolerance, outputs_of, relative_errors
from bench.worker.custom_kernel import able
from kernels.rounding import FLOAT32, UNIT_ROUNDOFF

BEYOND = tuple(data for data in DATA if data not in ("uniform", "normal"))
LEAST_ROUNDINGS = 8
"""Roundings that add up, all the same way, in any kernel (assumed): those of a function and of a sum."""
OF_LIBRARY = 2
"""Times a library's error that are right too, whatever the formula says (assumed)."""
SAYS_NOTHING = 0.5
"""A tolerance from which on a comparison says nothing: nearly any result would be right."""


def wider(slots: BufferRing) -> Iterator[tuple[str, tuple[float, float]]]:
    """(data, (relative error, tolerance)) of a launch with each range for which the operator is defined.

    `slots` hold inputs in [-1, 1]. Left out are ranges at which the reference or a library's result is not
    finite, and those at which rounding alone explains any result.
    """
    library = next(iter(able(slots.operator, slots.problem, slots.bench.device)), "")
    usual = _worth(slots)
    given = slots.operator.tolerance(slots.problem, slots.implementation)
    each = [given] * len(usual) if isinstance(given, float | int) else list(given)
    unit = UNIT_ROUNDOFF.get(slots.problem.dtype, FLOAT32)
    of_type = unit / min(unit, FLOAT32)  # 16-bit types are computed in float32, whose units `_worth` counts
    worths = [of_type * worth / scale if worth and scale else math.inf for worth, scale in usual]
    roundings = [max(LEAST_ROUNDINGS, s / worth) if s else 0 for s, worth in zip(each, worths, strict=True)]
    for data in BEYOND:
        wide = BufferRing(slots.bench, slots.operator, slots.implementation, slots.problem, 1, data)
        outputs = wide.written_over_poison()
        try:
            errors = relative_errors(wide.operator, wide.problem, wide.inputs[0], outputs)
            beside = _errors_of(library, wide) if library else [0.0] * len(errors)
        except ValueError:  # the reference is not finite
            continue
        pairs = []
        rows = zip(each, roundings, _worth(wide), errors, beside, outputs, strict=True)
        for share, count, (worth, scale), error, other, output in rows:
            least = torch.finfo(output.dtype).tiny if output.is_floating_point() else 0.0
            explained = share + (count * worth + least) / (scale or 1.0)
            pairs.append((error, max(explained, OF_LIBRARY * other)))
        if all(tolerance < SAYS_NOTHING or error == math.inf for error, tolerance in pairs):
            yield data, max(pairs, key=of_tolerance)


def _worth(slots: BufferRing) -> list[tuple[float, float]]:
    """(what rounding each input once is worth, largest value) of each output of the reference."""
    inputs, problem = slots.inputs[0], slots.problem
    unit = min(UNIT_ROUNDOFF.get(problem.dtype, FLOAT32), FLOAT32)
    generator = torch.Generator(inputs[0].device).manual_seed(slots.bench.seed)

    def rounded(tensor: torch.Tensor) -> torch.Tensor:
        if not tensor.is_floating_point():
            return tensor
        wide = tensor.double()
        signs = torch.empty_like(wide).uniform_(-1, 1, generator=generator).sign_()
        flushed = wide.abs() < torch.finfo(tensor.dtype).tiny
        return (wide * (1 + unit * signs)).masked_fill_(flushed, 0.0)

    right = outputs_of(slots.operator.reference(problem, *inputs))
    other = outputs_of(slots.operator.reference(problem, *map(rounded, inputs)))
    return [(largest(a.double() - b.double()), largest(b)) for a, b in zip(other, right, strict=True)]


def _errors_of(library: str, wide: BufferRing) -> list[float]:
    """The library's relative errors with the same inputs. ValueError if a result is not finite."""
    other = BufferRing(wide.bench, wide.operator, library, wide.problem, 1, wide.data)
    errors = relative_errors(wide.operator, wide.problem, other.inputs[0], other.written_over_poison())
    if not all(map(math.isfinite, errors)):
        raise ValueError("the library's result is not finite")
    return errors
