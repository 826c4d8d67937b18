"""A verdict on each kind of work of one unit, and why a row is slow, too fast or not fit to be judged."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd

from bench.accept.expected import WIDEST, ExpectedRates, expected, own, promised
from bench.accept.usual import UsualRates
from bench.case_name import row_name
from bench.device.datasheet import Datasheet, find_datasheet
from bench.judge.change import Change, Z, chance
from bench.judge.flags import FLAGS
from bench.model.ceilings import Ceilings

Verdict = Literal["PASS", "LOW", "FAIL", "IMPLAUSIBLE", "UNKNOWN"]
FAIL = 0.1
"""A rate that is lower than expected by more than this fails; by less, it is low."""
CAUSES = [flag for flag in FLAGS if flag.disturbed or flag.name == "power_capped"]
"""Flags that say what may have slowed a unit."""
ABOVE = 0.15
"""A rate that is certainly higher than is possible by more than this is implausible. Of what others measured
(usual.yaml) the highest is 5 % above its datasheet; cards run above the boost clock that this promises."""


@dataclass(frozen=True)
class JudgedKind:
    """One kind of work on the unit."""

    kind: str
    verdict: Verdict
    row: Any
    """The row that decides, as `own` has it."""
    promised: float | None
    """The datasheet's rate, in the same unit."""
    evidence: Sequence[ExpectedRates]
    """The strongest first, which decides."""
    causes: Sequence[str]
    """Why it is not as expected, or not known to be: flags with their meaning, what its rate exceeds, how
    wide the intervals are. Empty where it passes."""

    @property
    def expects(self) -> ExpectedRates | None:
        """What decides."""
        return self.evidence[0] if self.evidence else None


def judged(rows: pd.DataFrame, earlier: pd.DataFrame, others: Sequence[UsualRates]) -> list[JudgedKind]:
    """Each kind of work among the rows of one unit's run (`readings.read`)."""
    sheet = find_datasheet(str(rows["device_name"].iloc[0]))
    return [_judged(row, sheet, expected(row, earlier, others)) for row in own(rows)]


def _judged(row: Any, sheet: Datasheet | None, evidence: Sequence[ExpectedRates]) -> JudgedKind:
    most = promised(row.kind, sheet) if sheet else None
    causes = [f"{flag.name} ({flag.means})" for flag in CAUSES if flag.rule(row, Ceilings())]
    verdict: Verdict = "UNKNOWN"
    if beyond := list(_beyond(row, most, evidence)):
        verdict, causes = "IMPLAUSIBLE", beyond
    elif row.unfit:
        causes = [f"not fit to be judged: {'; '.join(causes) or row.unfit}"]
    elif evidence:
        verdict = verdict_of((row.rate_low, row.rate, row.rate_high), evidence[0])
        causes = causes or [f"no flag tells a cause: {row_name(row)}"]
    if verdict == "UNKNOWN" and evidence and not row.unfit:
        wide = f"{row.rate_high / row.rate_low:.2f}, expected within {evidence[0].high / evidence[0].low:.2f}"
        causes = [f"cannot tell: measured within a factor of {wide}"]
    return JudgedKind(row.kind, verdict, row, most, evidence, causes if verdict != "PASS" else [])


def _beyond(row: Any, most: float | None, evidence: Sequence[ExpectedRates]) -> Iterator[str]:
    """A clause for each bound that the rate certainly exceeds, as no device does.

    A row that is not fit may have any interval, or none: it must be twice (assumed) what no run can be.
    """
    low = row.rate / 2 if row.unfit else row.rate_low
    seen = next((each.high for each in evidence if each.by == "earlier runs"), None)
    bounds = {"its datasheet promises": most}
    if not row.unfit:
        bounds |= {"its run's ceilings reach": row.roof, "earlier runs reached": seen}
    for whose, rate in bounds.items():
        if rate and low > (1 + ABOVE) * rate:
            times = f"{row.rate / rate:.2f} times what {whose}"
            yield f"{times}: another device than it says, another datasheet's, or work that was left out"


def verdict_of(rates: tuple[float, float, float], expects: ExpectedRates) -> Verdict:
    """The verdict on (low end, rate, high end) by how much longer than in the middle of the range it takes.

    What passes certainly takes less than WIDEST times as long.
    """
    low, rate, high = rates
    half = math.log(expects.high / expects.low) / 2
    if 2 * half > math.log(WIDEST):
        return "UNKNOWN"
    log, down, up = half - math.log(rate / expects.low), math.log(high / rate), math.log(rate / low)
    apart = float(chance(log, (half + (down if log > 0 else up)) / Z))  # 0.05 where the intervals part
    change = Change(log, math.hypot(half, down), math.hypot(half, up), apart)
    told = change.verdict(0.0, math.log(WIDEST))
    if told == "SLOWER":
        return "LOW" if high >= (1 - FAIL) * expects.low else "FAIL"
    return "UNKNOWN" if told == "UNDECIDED" else "PASS"
