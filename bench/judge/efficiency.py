"""Efficiency of memory-bound operators as a share of a copy's bandwidth, and ours beside the best library.

For operators that are quoted in bytes/s. of_copy = (bytes that any implementation must move / time) /
bandwidth of a copy in the same run: below 1 also where an implementation moves more than it must, and
possibly above 1 where it mostly reads, which is faster than writing.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, get_args

from bench.errors import UserError
from bench.judge.flags import SUSPECT
from bench.judge.frame import Run
from bench.judge.noise import OURS
from bench.model.roofline import WITHOUT_ROOF
from bench.store.schema import Measurement

Region = Literal["<= 1/2 cache", "<= 4 x cache", "> 4 x cache"]
"""The bytes of a launch relative to the last-level cache."""


@dataclass(frozen=True)
class Efficiency:
    """One implementation, in one region, over the cases of one kind."""

    operator: str
    kind: str
    """The parameters of the cases that are no numbers: `forward NHWC float16`."""
    region: Region
    implementation: str
    of_copy: tuple[float, ...]
    """One value for each case, ascending."""
    versus_best: tuple[float, ...]
    """Time of the fastest library / time of this implementation, ascending; empty unless it is ours."""


def region(byte: int, cache_byte: int) -> Region:
    """The region of a launch's bytes."""
    if byte <= cache_byte / 2:
        return "<= 1/2 cache"
    return "<= 4 x cache" if byte <= 4 * cache_byte else "> 4 x cache"


def efficiencies(run: Run) -> Iterator[Efficiency]:
    """For every operator, kind, region and implementation that has a time with a cold cache; by their names.

    Suspect rows are left out. UserError if the run measured no copy.
    """
    copy_byte_per_s = run.roof("cold").copy_byte_per_s
    if copy_byte_per_s is None:
        raise UserError("this run measured no bandwidth of a copy, so nothing can be compared with it")
    problems: dict[tuple[str, str], dict[str, Measurement]] = defaultdict(dict)
    for row, flags in zip(run.rows, run.flags, strict=True):
        if row.rate != "byte" or row.role != "measurement" or row.cache != "cold" or not row.byte:
            continue
        if row.arithmetic in WITHOUT_ROOF:
            continue
        if row.is_timed and SUSPECT.isdisjoint(flags):
            # The same problem in two sweeps is one problem; its latest row counts.
            problems[row.operator, row.parameters][row.implementation] = row
    of_copy: dict[tuple[str, str, Region, str], list[float]] = defaultdict(list)
    versus: dict[tuple[str, str, Region, str], list[float]] = defaultdict(list)
    for (operator, parameters), by_implementation in problems.items():
        others = [r.median_s for n, r in by_implementation.items() if not n.startswith(OURS) and r.median_s]
        for name, row in by_implementation.items():
            assert row.median_s is not None
            key = (operator, _kind(parameters), region(row.byte, row.cache_byte), name)
            of_copy[key].append(row.byte / row.median_s / copy_byte_per_s)
            if name.startswith(OURS) and others:
                versus[key].append(min(others) / row.median_s)
    regions = get_args(Region)
    for key in sorted(of_copy, key=lambda k: (k[0], k[1], regions.index(k[2]), k[3])):
        yield Efficiency(*key, tuple(sorted(of_copy[key])), tuple(sorted(versus[key])))


def _kind(parameters: str) -> str:
    return " ".join(str(v) for v in json.loads(parameters).values() if isinstance(v, str))
