"""What a fleet reaches of what its kinds of devices promise: percentiles of its units, case by case."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from bench.device.datasheet import Datasheet, find_datasheet
from bench.fleet.observed import Fleet, newest
from bench.format import amount_text, share_text

PERCENTILES = (5, 50, 95)
BELOW = 0.03
"""A median so much below the highest published rate is worth a sentence."""


@dataclass(frozen=True)
class Reached:
    """One case on the units of a kind, each alone, as shares of what can be reached."""

    kind: str
    case: str
    """Its name."""
    klass: str
    units: int
    rate_per_s: float
    """Rate of the median unit: FLOP/s of matrix products, bytes/s of the rest."""
    of_datasheet: tuple[float, float, float] | None
    """The 5th, 50th and 95th percentile of the units' share of the datasheet's peak or bandwidth."""
    of_published: tuple[float, float, float] | None
    """The same of the highest rate of a matrix product that somebody has published for this kind."""


def reached(fleet: Fleet) -> list[Reached]:
    """A row for each case limited by arithmetic or memory, of each kind, the fastest of a class first."""
    rows = []
    for kind in fleet.kinds:
        names = sorted({unit.device_name for unit in fleet.units.values() if unit.kind == kind})
        sheet = next(filter(None, map(find_datasheet, names)), None)
        times = newest(fleet.of_kind(kind))
        times = times[times["class"].isin(["compute", "memory"]) & ~times["together"]]
        rows += [_reached(kind, of_case, sheet) for _, of_case in times.groupby("case", observed=True)]
    return sorted(rows, key=lambda row: (row.kind, row.klass, -row.rate_per_s))


def _reached(kind: str, times: pd.DataFrame, sheet: Datasheet | None) -> Reached:
    first = times.iloc[0]
    is_compute = first["class"] == "compute"
    rates = first["flop" if is_compute else "byte"] / np.exp(times["log_s"].to_numpy(dtype=np.float64))
    low, middle, high = np.percentile(rates, PERCENTILES).tolist()
    stated = published = None
    if sheet and is_compute:
        stated = sheet.peak_flop_per_s(first["arithmetic"], first["dtype"])
        published = sheet.reached_flop_per_s.get(first["dtype"])
    elif sheet:
        stated = sheet.bandwidth_byte_per_s
    of_datasheet, of_published = (
        (low / whole, middle / whole, high / whole) if whole else None for whole in (stated, published)
    )
    name, klass = str(first["name"]), str(first["class"])
    return Reached(kind, name, klass, len(times), middle, of_datasheet, of_published)


def short_of_published(rows: Sequence[Reached]) -> Iterator[str]:
    """A sentence for each kind whose best matrix product stays below the highest published rate."""
    known = [(row.of_published[1], row) for row in rows if row.of_published]
    for kind in dict.fromkeys(row.kind for _, row in known):
        share, best = max((pair for pair in known if pair[1].kind == kind), key=lambda pair: pair[0])
        if share < 1 - BELOW:
            yield (
                f"{kind}: its median unit reaches {amount_text(best.rate_per_s, 'FLOP/s')} in its best "
                f"product, {share_text(1 - share)} below the highest published rate "
                f"({amount_text(best.rate_per_s / share, 'FLOP/s')})"
            )
