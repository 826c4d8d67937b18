"""How far sources agree: the ratio of their times of the same work on the same device.

The same work is the same product, or the same counts of one operator: a layer of 64 x 128 elements and one of
128 x 64 move the same bytes. Kernels and ways of timing may differ, and are part of what the ratio says.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from bench.judge.achieved import MIDDLE, WIDTHS
from bench.judge.flags import SUSPECT
from bench.judge.frame import DeviceRun
from bench.store.schema import Measurement


@dataclass(frozen=True)
class Agreement:
    """Two sources on one device, over the work of one operator and data type that both timed."""

    device: str
    operator: str
    width: str
    """Data types: 16 bits are float16 or bfloat16, which the same units multiply."""
    first: str
    second: str
    """Author and clock: `NeuSight (...), events`."""
    cases: int
    low: float
    median: float
    high: float
    """Quantiles of the second's seconds / the first's."""


def agreements(measured_runs: Sequence[DeviceRun]) -> Iterator[Agreement]:
    """Agreement of each two sources by operator, data types and device; suspect times are left out.

    Of the implementations of a source that timed the same work the fastest counts.
    """
    times: dict[tuple[str, str, str], dict[str, dict[tuple[object, ...], float]]] = {}
    for run in measured_runs:
        for row, flags in zip(run.rows, run.flags, strict=True):
            if row.is_timed and row.median_s and row.byte and SUSPECT.isdisjoint(flags):
                operator = "gemm" if row.operator == "linear" else row.operator  # forward it is a product
                of_work = times.setdefault((operator, WIDTHS.get(row.dtype, row.dtype), row.device), {})
                of_source = of_work.setdefault(_who(row), {})
                work = _work(row)
                of_source[work] = min(row.median_s, of_source.get(work, row.median_s))
    for (operator, width, device), of_work in sorted(times.items()):
        for first, second in combinations(sorted(of_work), 2):
            common = of_work[first].keys() & of_work[second].keys()
            if common:
                ratios = [of_work[second][work] / of_work[first][work] for work in common]
                low, median, high = map(float, np.quantile(ratios, MIDDLE))
                yield Agreement(device, operator, width, first, second, len(common), low, median, high)


def _work(row: Measurement) -> tuple[object, ...]:
    if row.product_m and row.product_n and row.product_k:
        return (*sorted((row.product_m, row.product_n)), row.product_k, row.flop)
    return row.flop, row.byte


def _who(row: Measurement) -> str:
    source = (row.source or "measured here").partition(";")[0]
    return f"{source}, {row.timed_by}" if row.timed_by else source
