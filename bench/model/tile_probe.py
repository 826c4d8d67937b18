"""What one tile of a product costs: a line through the times of one program at growing K.

    seconds(K) = launch floor + tile + (K / STEP_K) step

*step* is one pass of the loop along K, *tile* what stands before the first and after the last: the way of
the first operands, and of the sums out to memory. A device computes no tile of this size faster, however
few of them there are: what a product that leaves most SMs idle is bound by.

The line is the one with the least sum of relative errors, the worst point left out: a single odd one does not
move it, not even at an end, and small K, where `tile` shows, count as much as large ones, where `step` does.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

STEP_K = 64
"""Elements of K in a step, whatever the depth that a kernel walks in."""
REFITS = 400
"""Lines that give the interval: each without one of the points, the others moved within their own."""
LEAST_POINTS = 4
"""A line through fewer says nothing of its error."""

Floats = npt.NDArray[np.float64]


class TilePoint(NamedTuple):
    """Seconds of one tile at this K, with the 95 % interval."""

    k: int
    median_s: float
    low_s: float
    high_s: float


class FittedLine(NamedTuple):
    """Three numbers each, in seconds: as fitted, and the ends of the 95 % interval."""

    tile_s: tuple[float, float, float]
    """Prologue and epilogue, the launch floor taken off; may come out negative within its error."""
    step_s: tuple[float, float, float]
    """One step of STEP_K."""


def line(points: Sequence[TilePoint], launch_s: float) -> FittedLine | None:
    """The line through these points; None if they are too few, or if time does not grow with K."""
    if len({point.k for point in points}) < LEAST_POINTS:
        return None
    table = np.array(sorted(points), dtype=np.float64)
    steps, median_s = table[:, 0] / STEP_K, table[:, 1]
    fitted = _fit(steps, median_s, len(table) - 1)
    if fitted[1] <= 0:
        return None
    # Drawn with a fixed seed: the same rows must always tell the same interval.
    moved_s = np.random.default_rng(0).normal(
        median_s, (table[:, 3] - table[:, 2]) / 3.92, (REFITS, len(table))
    )
    refits = [
        _fit(np.delete(steps, left_out), np.delete(some_s, left_out, axis=1), len(table) - 1)
        for left_out, some_s in enumerate(np.array_split(moved_s, len(table)))
    ]
    low, high = np.quantile(np.concatenate(refits, axis=1), (0.025, 0.975), axis=1)
    ends = np.stack([fitted, np.minimum(low, fitted), np.maximum(high, fitted)])
    tile, step = (tuple(map(float, part)) for part in (ends[:, 0] - launch_s, ends[:, 1]))
    return FittedLine((tile[0], tile[1], tile[2]), (step[0], step[1], step[2]))


def _fit(x: Floats, seconds: Floats, count: int) -> Floats:
    """[intercept, slope] of the line with the least sum of |line / seconds - 1| over its `count` best points.

    Such a line passes through two of the points, so those through all pairs are all there is to try. `x` is
    [n]; `seconds` [n], or [draws, n] for as many lines at once, then the result is [2, draws].
    """
    a, b = np.array([p for p in itertools.combinations(range(len(x)), 2) if x[p[0]] != x[p[1]]]).T
    slope = (seconds[..., b] - seconds[..., a]) / (x[b] - x[a])
    intercept = seconds[..., a] - slope * x[a]
    of_line = intercept[..., None] + slope[..., None] * x
    errors = np.sort(np.abs(of_line / seconds[..., None, :] - 1), axis=-1)[..., :count].sum(axis=-1)
    best = errors.argmin(axis=-1, keepdims=True)
    return np.stack([np.take_along_axis(part, best, axis=-1)[..., 0] for part in (intercept, slope)])
