"""What rounding explains of the errors of pooling, derived and not guessed."""

import math

from kernels.pooling.problem import Axis, Pooling
from kernels.rounding import FLOAT32, UNIT_ROUNDOFF, UNLIKELY, low

_SMALLEST = {"float16": 2.0**-25, "bfloat16": 0.0, "float32": 0.0}
"""Half the distance between the smallest numbers; float32's exponents go far below any average here."""


def tolerance(problem: Pooling, implementation: str) -> float:
    """The largest |error| that rounding explains, as a fraction of the largest |value|. 0: exact.

    A maximum, its index, and dx where every point is in at most one window are exact: nothing is added. Else
    with u the unit roundoff of the type and u' that of the sum, which is float32 but for torch's backward on
    a CPU, which adds up in the type itself:

    * Rounding the result: u of it. Dividing, or multiplying by a reciprocal rounded before: 3 u32 at most.
      float16 has numbers 2^-24 apart near 0 and errs by half of that.
    * A sum of k values of standard deviation s: its additions err by u' of the partial sums, evenly spread,
      in all u' sqrt(k)/3 of its own value times a normal variable. Of N sums none passes ln(N / 10^-4) normal
      deviations for the product of both; the largest is at least `low` deviations, of which only sums without
      common terms count. 10^-4 is how rarely either fails. Torch on a CPU also rounds each share to the type
      before adding it: by u/sqrt(3) of the sum's deviation more, another normal variable.
    * dx of max adds up the few dy whose window chose the point, 1 / (stride stride_w) on average. For m of
      them m - 1 additions err by u' of partial sums that the largest |dx| bounds; m is the count that occurs
      once in 10,000 runs.
    """
    u, u32 = UNIT_ROUNDOFF[problem.dtype], FLOAT32
    forward = problem.direction == "forward"
    along = [_fullest(axis, forward) for axis in (problem.down, problem.across)]
    terms, places = math.prod(k for k, _ in along), math.prod(count for _, count in along)
    if problem.kind == "max":
        if forward or terms == 1:
            return 0.0
        additions = _most_hits(problem, terms) - 1
        return (additions * u) if implementation == "aten" else u + additions * u32
    if problem.window_taps == 1:
        return 0.0

    elements = problem.output_elements if forward else problem.input_elements
    largest = low(problem.n * problem.c * places)
    deviations = math.log(elements / UNLIKELY) / largest if terms > 1 else 0.0
    # A sum of k values of variance 1/3 over the divisor: the window's taps or, cut off, fewer.
    value = largest * math.sqrt(terms / 3) / problem.window_taps
    error = u + 3 * u32 + _SMALLEST[problem.dtype] / value
    if not forward and implementation == "aten":
        return error + u * math.sqrt(terms / 9 + 1 / 3) * deviations
    return error + u32 * math.sqrt(terms) / 3 * deviations


def _fullest(axis: Axis, forward: bool) -> tuple[int, int]:
    """Along one axis: the most terms of any sum, and how many sums have that many and share none."""
    counts = axis.taps
    if not forward:
        counts = [0] * axis.size
        for i, taps in enumerate(axis.taps):
            start = max(0, i * axis.stride - axis.padding)
            for place in range(start, start + taps):
                counts[place] += 1
    most = max(counts)
    return most, math.ceil(counts.count(most) / (axis.overlap if forward else axis.window))


def _most_hits(problem: Pooling, windows: int) -> int:
    """How many of the `windows` that hold a point may choose it, but once in 10,000 runs, choosing at random.

    A window in a corner of the image has at least a quarter of its taps in it, so each chooses the point with
    a chance of at most 4 / taps.
    """
    chance = min(1.0, 4 / problem.window_taps)
    beyond = 1.0
    for hits in range(windows):
        beyond -= math.comb(windows, hits) * chance**hits * (1 - chance) ** (windows - hits)
        if beyond * problem.input_elements < UNLIKELY:
            return max(hits, 2)
    return windows
