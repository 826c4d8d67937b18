"""What is expected of a unit in one kind of work, by two kinds of evidence: the first decides
whose range is no wider than WIDEST.

1. earlier runs of ours on this kind of device, of the very case under the same protocol, caches and driver,
   undisturbed: from the lowest to the highest end of their intervals, on GPUs UNITS more, since two cards of
   one model differ;
2. what others have measured on this kind of device (bench/accept/usual.py): from BELOW under what is usual in
   the lowest source to the highest rate of all.

Of launches, caches and the link to the host only earlier runs say anything.

BELOW is by how much two sources on one kind of device mostly differ (studies/README.md has the figures).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd

from bench.accept.readings import dtype_of, unit_of
from bench.accept.usual import UsualRates
from bench.device.datasheet import Datasheet
from bench.format import count_text
from bench.judge.work_class import WorkClass

UNITS = 0.03
"""Share by which two GPUs of one kind may differ in earlier runs: what `fleet` calls slow."""
BELOW = {"FLOP/s": 0.15, "byte/s": 0.1}
"""Unit -> by how much a healthy unit may be below what is usual in another source."""
WIDEST = 1.5
"""The most over the least rate that may be expected: what may be anything in a wider range is not known."""


@dataclass(frozen=True)
class ExpectedRates:
    """The rates between which a healthy unit is expected, by one kind of evidence."""

    by: Literal["earlier runs", "others"]
    low: float
    high: float
    source: str
    """Whose, how many: a clause."""


def expected(row: Any, earlier: pd.DataFrame, others: Sequence[UsualRates]) -> list[ExpectedRates]:
    """All evidence about a unit's fastest row of its kind (of `readings.read`); that which decides first.

    `earlier` holds rows of our runs as `readings.read` gives them, `others` what others measured anywhere.
    """
    there = [each for each in (_earlier(row, earlier), by_others(row, others)) if each is not None]
    return sorted(there, key=lambda each: each.high > WIDEST * each.low)


def promised(kind: str, sheet: Datasheet) -> float | None:
    """What the datasheet promises in this kind of work; None if nothing."""
    if dtype := dtype_of(kind):
        return sheet.peak_flop_per_s("matrix", dtype)
    return sheet.bandwidth_byte_per_s if kind.startswith(("memory", "narrow")) else None


def _earlier(row: Any, earlier: pd.DataFrame) -> ExpectedRates | None:
    others = (earlier["run_id"] != row.run_id) & (earlier["unfit"] == "")
    alike = earlier[others & (earlier["case"] == row.case)]
    if alike.empty:
        return None
    between = UNITS if row.device_kind == "cuda" else 0.0
    low, high = alike["rate_low"].min() * (1 - between), alike["rate_high"].max() * (1 + between)
    runs, units = alike["run_id"].nunique(), alike["device_id"].nunique()
    whose = f"{count_text(runs, 'earlier run')} on {count_text(units, 'unit')} of this kind"
    return ExpectedRates("earlier runs", float(low), float(high), whose)


def by_others(row: Any, others: Sequence[UsualRates]) -> ExpectedRates | None:
    """The range by what others measured on this kind of device; None if nobody did."""
    rates = [each for each in others if (each.device_name, each.kind) == (row.device_name, row.kind)]
    if not rates:
        return None
    low = (1 - BELOW[unit_of(row.kind)]) * min(each.usual for each in rates)
    timings = count_text(sum(each.rows for each in rates), "timing")
    whose = f"{timings} by {', '.join(sorted({each.source for each in rates}))}"
    return ExpectedRates("others", low, max(each.best for each in rates), whose)


def own(rows: pd.DataFrame) -> Iterable[Any]:
    """A unit's fastest row of each kind of work that is fit to be judged, else the fastest of all.

    In the order in which people ask for them, with `roof`: the highest rate that a ceiling of the kind may
    have, NaN without one.
    """
    fit = rows["unfit"] == ""
    best = rows.assign(fit=fit).sort_values(["fit", "rate"], kind="stable")
    best = best.drop_duplicates(["device", "kind"], keep="last")
    ceilings = rows[fit & (rows["role"] != "measurement")].groupby("kind")["rate_high"].max()
    best["roof"] = best["kind"].map(ceilings).astype(float)
    best["class"] = pd.Categorical(best["class"], [work.value for work in WorkClass])
    best = best.sort_values(["class", "kind"]).astype(object)
    return best.where(best.notna(), None).itertuples(index=False)  # as in a Measurement, of which flags are
