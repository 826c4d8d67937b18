"""What is expected of a unit in one kind of work, by three kinds of evidence: the strongest decides.

1. earlier runs of ours on this kind of device, of the very case under the same protocol: from the lowest to
   the highest end of their intervals, on GPUs UNITS more, since two cards of one model differ;
2. what others have measured on this kind of device (bench/accept/usual.py): from BELOW under what is usual in
   the lowest source to the highest rate of all;
3. the datasheet's figure times the shares that are usual on other kinds of GPU with such memory: rough, since
   it may not be true of this kind, so that what is below it is LOW and no FAIL.

Of launches, caches and the link to the host only earlier runs say anything.

BELOW is by how much two sources on one kind of device mostly differ (studies/README.md has the figures).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd

from bench.accept.readings import dtype_of, unit_of
from bench.accept.usual import UsualRates
from bench.device.datasheet import Datasheet, find_datasheet
from bench.fleet.observed import CASE
from bench.format import count_text, share_text

Basis = Literal["earlier runs", "others", "datasheet"]
UNITS = 0.03
"""Share by which two GPUs of one kind may differ in earlier runs: what `fleet` calls slow."""
BELOW = {"FLOP/s": 0.15, "byte/s": 0.1}
"""Unit -> by how much a healthy unit may be below what is usual in another source."""
LEAST_DEVICES = 3
"""Fewest other kinds of device whose shares of their datasheets say something."""
MOST_DEVICES = 0.9
"""Share of the other kinds of GPU that reach the low end of what the datasheet lets expect."""
STAND_INS = {
    "matrix multiplications in float16": "matrix multiplications in bfloat16",
    "matrix multiplications in bfloat16": "matrix multiplications in float16",
    "memory, copy": "narrow matrix multiplication",
    "memory, read": "narrow matrix multiplication",
}
"""Kind of work -> another that the same part limits to the same rate, where nobody measured the first."""


@dataclass(frozen=True)
class ExpectedRates:
    """The rates between which a healthy unit is expected, by one kind of evidence."""

    by: Basis
    low: float
    high: float
    source: str
    """Whose, how many: a clause."""


def expected(
    row: Any,
    sheet: Datasheet | None,
    earlier: pd.DataFrame,
    others: Sequence[UsualRates],
) -> list[ExpectedRates]:
    """All evidence about a unit's fastest row of its kind (of `readings.read`); the strongest first.

    `earlier` holds rows of our runs as `readings.read` gives them, `others` what others measured anywhere.
    """
    candidates = (
        _earlier(row, earlier),
        by_others(row, others),
        by_datasheet(row, sheet, others),
    )
    return [each for each in candidates if each is not None]


def promised(kind: str, sheet: Datasheet | None) -> float | None:
    """What the datasheet promises in this kind of work; None if nothing."""
    if sheet is None:
        return None
    if dtype := dtype_of(kind):
        return sheet.peak_flop_per_s("matrix", dtype)
    return sheet.bandwidth_byte_per_s if kind.startswith(("memory", "narrow")) else None


def _earlier(row: Any, earlier: pd.DataFrame) -> ExpectedRates | None:
    alike = earlier[(earlier["device"] == row.device) & (earlier["run_id"] != row.run_id)]
    for name in CASE:
        value = getattr(row, name)
        column = alike[name]
        alike = alike[column.isna() if value is None or value != value else column == value]
    if alike.empty:
        return None
    between = UNITS if row.device_kind == "cuda" else 0.0
    low, high = alike["rate_low"].min() * (1 - between), alike["rate_high"].max() * (1 + between)
    runs, units = alike["run_id"].nunique(), alike["device_id"].nunique()
    whose = f"{count_text(runs, 'earlier run')} on {count_text(units, 'unit')} of this kind"
    return ExpectedRates("earlier runs", float(low), float(high), whose)


def by_others(row: Any, others: Sequence[UsualRates]) -> ExpectedRates | None:
    """The range by what others measured on this kind of device; None if nobody did."""
    rates = _usual(row.kind, [each for each in others if each.device_name == row.device_name])
    if not rates:
        return None
    low = (1 - BELOW[unit_of(row.kind)]) * min(each.usual for each in rates)
    sources = sorted({each.source for each in rates})
    what = f", of {rates[0].kind}" if rates[0].kind != row.kind else ""
    timings = count_text(sum(each.rows for each in rates), "timing")
    return ExpectedRates(
        "others", low, max(each.best for each in rates), f"{timings} by {', '.join(sources)}{what}"
    )


def _usual(kind: str, entries: Iterable[UsualRates]) -> list[UsualRates]:
    """The entries on this kind of work, else on the kind that stands in for it."""
    entries = list(entries)
    same = [each for each in entries if each.kind == kind]
    return same or [each for each in entries if each.kind == STAND_INS.get(kind)]


def by_datasheet(row: Any, sheet: Datasheet | None, others: Sequence[UsualRates]) -> ExpectedRates | None:
    """The range by the datasheet and the shares of it that others reach; None if either is unknown."""
    peak = promised(row.kind, sheet)
    if not peak:
        return None
    shares = _shares(row, sheet, others)
    if len(shares) < LEAST_DEVICES:
        return None
    low, high = np.quantile(list(shares.values()), [1 - MOST_DEVICES, 1.0])
    reach = f"{share_text(low)} to {share_text(high)} of it, as {len(shares)} other kinds of GPU reach"
    return ExpectedRates("datasheet", float(low) * peak, float(high) * peak, reach)


def _shares(row: Any, sheet: Datasheet | None, others: Sequence[UsualRates]) -> dict[str, float]:
    """Device -> usual share of its datasheet, of other kinds of GPU; of memory those with such memory."""
    shares: dict[str, float] = {}
    for name in sorted({each.device_name for each in others} - {row.device_name}):
        other = find_datasheet(name)
        rates = _usual(row.kind, [each for each in others if each.device_name == name])
        if not (other and sheet and rates and (peak := promised(rates[0].kind, other))):
            continue
        alike = bool(dtype_of(row.kind)) or other.memory_type == sheet.memory_type
        if alike and (other.capability is None) == (sheet.capability is None):
            shares[name] = min(each.usual for each in rates) / peak
    return shares


def own(rows: pd.DataFrame) -> Iterable[Any]:
    """A unit's fastest row of each kind of work, in the order in which people ask for them."""
    best = rows.sort_values("rate", kind="stable").drop_duplicates(["device", "kind"], keep="last")
    best = best.astype(object).where(best.notna(), None)  # as in a Measurement, of which flags are read
    order: Mapping[str, int] = {"matrix": 0, "memory": 1, "narrow": 2, "cache": 3, "launch": 4, "link": 5}
    place = best["kind"].map(lambda kind: order.get(kind.replace(",", " ").split()[0], 9))
    return best.assign(place=place).sort_values(["place", "kind"], kind="stable").itertuples(index=False)
