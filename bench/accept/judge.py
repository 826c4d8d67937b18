"""PASS, LOW or FAIL for each kind of work of one unit, and the flags of a slow row, which may say why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd

from bench.accept.expected import ExpectedRates, expected, own, promised
from bench.accept.usual import UsualRates
from bench.device.datasheet import Datasheet, find_datasheet
from bench.judge.flags import FLAGS
from bench.model.ceilings import Ceilings

Verdict = Literal["PASS", "LOW", "FAIL", "UNKNOWN"]
FAIL = 0.1
"""A rate that is lower than expected by more than this fails; by less, it is low."""
CAUSES = [flag for flag in FLAGS if flag.disturbed or flag.name == "power_capped"]
"""Flags that say what may have slowed a unit."""
ABOVE = 0.15
"""A rate that is certainly higher than the datasheet's by more than this fails, too. Of what others measured
(usual.yaml) the highest is 5 % above; cards run above the boost clock of their datasheet."""


@dataclass(frozen=True)
class JudgedKind:
    """One kind of work on the unit."""

    kind: str
    verdict: Verdict
    row: Any
    """The row that decides, as `readings.read` has it."""
    promised: float | None
    """The datasheet's rate, in the same unit."""
    evidence: Sequence[ExpectedRates]
    """The strongest first, which decides."""
    causes: Sequence[str]
    """The flags of a slow row, with their meaning; or why it is too fast. Empty where it passes."""

    @property
    def expects(self) -> ExpectedRates | None:
        """What decides."""
        return self.evidence[0] if self.evidence else None


def judged(rows: pd.DataFrame, earlier: pd.DataFrame, others: Sequence[UsualRates]) -> list[JudgedKind]:
    """Each kind of work among the rows of one unit's run (`readings.read`)."""
    sheet = find_datasheet(str(rows["device_name"].iloc[0]))
    return [_judged(row, sheet, expected(row, sheet, earlier, others)) for row in own(rows)]


def _judged(row: Any, sheet: Datasheet | None, evidence: Sequence[ExpectedRates]) -> JudgedKind:
    verdict = verdict_of(row.rate_high, evidence[0]) if evidence else "UNKNOWN"
    most = promised(row.kind, sheet)
    if most and row.rate_low > (1 + ABOVE) * most:
        times = f"{row.rate / most:.2f} times what its kind promises"
        cause = f"{times}: another device than it says, another datasheet's, or work that was left out"
        return JudgedKind(row.kind, "FAIL", row, most, evidence, [cause])
    causes = [f"{flag.name} ({flag.means})" for flag in CAUSES if flag.rule(row, Ceilings())]
    return JudgedKind(row.kind, verdict, row, most, evidence, causes if verdict in ("LOW", "FAIL") else [])


def verdict_of(rate: float, expects: ExpectedRates) -> Verdict:
    """The verdict on a rate at the high end of its interval: what the measurement leaves open is no fault.

    Rough evidence says LOW at most: of other kinds of GPU one in six is below what they let expect.
    """
    if rate >= expects.low:
        return "PASS"
    return "LOW" if expects.by == "datasheet" or rate >= (1 - FAIL) * expects.low else "FAIL"
