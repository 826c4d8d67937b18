"""What a fleet reaches of what its kinds of devices promise: percentiles of its units, case by case."""

from __future__ import annotations

from collections.abc import Iterator
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
        sheet = _sheet(fleet, kind)
        times = newest(fleet.of_kind(kind))
        times = times[times["class"].isin(["compute", "memory"]) & ~times["together"]]
        for _, of_case in times.groupby("case", observed=True, sort=True):
            rows.append(_reached(kind, of_case, sheet))
    return sorted(rows, key=lambda row: (row.kind, row.klass, -row.rate_per_s))


def _sheet(fleet: Fleet, kind: str) -> Datasheet | None:
    names = {unit.device_name for unit in fleet.units.values() if unit.kind == kind}
    return next((sheet for name in sorted(names) if (sheet := find_datasheet(name))), None)


def _reached(kind: str, times: pd.DataFrame, sheet: Datasheet | None) -> Reached:
    first = times.iloc[0]
    is_compute = first["class"] == "compute"
    amount = first["flop"] if is_compute else first["byte"]
    rates = amount / np.exp(times["log_s"].to_numpy(dtype=np.float64))
    peak = published = None
    if sheet and is_compute:
        peak = sheet.peak_flop_per_s(first["arithmetic"], first["dtype"])
        published = sheet.reached_flop_per_s.get(first["dtype"])
    elif sheet:
        peak = sheet.bandwidth_byte_per_s

    def shares(of: float | None) -> tuple[float, float, float] | None:
        low, middle, high = np.percentile(rates, PERCENTILES)
        return (float(low / of), float(middle / of), float(high / of)) if of else None

    return Reached(
        kind,
        str(first["name"]),
        str(first["class"]),
        len(times),
        float(np.median(rates)),
        shares(peak),
        shares(published),
    )


def short_of_published(rows: list[Reached]) -> Iterator[str]:
    """A sentence for each kind whose best matrix product stays below the highest published rate."""
    for kind in dict.fromkeys(row.kind for row in rows):
        known = [row for row in rows if row.kind == kind and row.of_published]
        if not known:
            continue
        best = max(known, key=lambda row: row.of_published[1] if row.of_published else 0.0)
        share = best.of_published[1] if best.of_published else 1.0
        if share < 1 - BELOW:
            yield (
                f"{kind}: its median unit reaches {amount_text(best.rate_per_s, 'FLOP/s')} in its best "
                f"product, {share_text(1 - share)} below the highest published rate "
                f"({amount_text(best.rate_per_s / share, 'FLOP/s')})"
            )
