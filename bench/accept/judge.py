"""PASS, LOW or FAIL for each kind of work of one unit, and what the unit's own rows say about why."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd

from bench.accept.expected import LANES, ExpectedRates, expected, own, promised
from bench.accept.readings import CACHE, LINK, Kind, dtype_of
from bench.accept.usual import UsualRates
from bench.device.datasheet import Datasheet, find_datasheet
from bench.format import amount_text, share_text
from bench.model.ceilings import two_speeds

Verdict = Literal["PASS", "LOW", "FAIL", "UNKNOWN"]
FAIL = 0.1
"""A rate that is lower than expected by more than this fails; by less, it is low."""
HELD, SHARED, LOWER_LIMIT = 0.05, 0.05, 0.01
"""Shares of the time for which a limit held the clock or others the processors, and by which a power limit is
lower, from which they are worth a clause."""
ABOVE = 0.15
"""A rate that is certainly higher than the datasheet's by more than this fails, too. Of what others measured
(usual.yaml) the highest is 5 % above; cards run above the boost clock of their datasheet."""
BELOW_BOOST = 0.1
"""A clock so much below the datasheet's boost clock is worth a clause."""


@dataclass(frozen=True)
class JudgedKind:
    """One kind of work on the unit."""

    kind: Kind
    verdict: Verdict
    row: Any
    """The row that decides, as `readings.read` has it."""
    promised: float | None
    """The datasheet's rate, in the same unit."""
    evidence: Sequence[ExpectedRates]
    """The strongest first, which decides."""
    causes: Sequence[str]
    """What the row itself says of why it is slow; empty where it passes, or says nothing."""

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
    most = promised(row.kind, sheet, row)
    if most and row.rate_low > (1 + ABOVE) * most:
        times = f"{row.rate / most:.2f} times what its kind promises"
        cause = f"{times}: another device than it says, another datasheet's, or work that was left out"
        return JudgedKind(row.kind, "FAIL", row, most, evidence, [cause])
    causes = list(_causes(row, sheet)) if verdict in ("LOW", "FAIL") else []
    return JudgedKind(row.kind, verdict, row, most, evidence, causes)


def verdict_of(rate: float, expects: ExpectedRates) -> Verdict:
    """The verdict on a rate at the high end of its interval: what the measurement leaves open is no fault.

    Rough evidence says LOW at most: of other kinds of GPU one in six is below what they let expect.
    """
    if rate >= expects.low:
        return "PASS"
    return "LOW" if expects.is_rough or rate >= (1 - FAIL) * expects.low else "FAIL"


def _causes(row: Any, sheet: Datasheet | None) -> Iterator[str]:
    """Clauses, in the order of `bench.fleet.why`: shared, power, heat, clocks, memory, link."""
    if _number(row.foreign_processes) > 0:
        yield f"{row.foreign_processes:.0f} other programs were on the GPU"
    for name, what in (("steal", "the hypervisor took"), ("pressure", "other programs took")):
        if _number(getattr(row, name)) > SHARED:
            yield f"{what} {share_text(getattr(row, name))} of the processors' time"
    if row.kind.startswith(LINK):
        yield from _link(row)
        return
    limit_w, usual_w = _number(row.power_limit_w), sheet.power_w if sheet else None
    if limit_w and usual_w and limit_w < (1 - LOWER_LIMIT) * usual_w:
        yield f"its power limit is {limit_w:.0f} W, the datasheet's {usual_w:.0f} W"
    for name, what in (
        ("held_power", "the power limit"),
        ("held_thermal", "heat"),
        ("held_hardware", "the power brake"),
    ):
        if _number(getattr(row, name)) > HELD:
            heat_c = _number(row.temperature_c) if name == "held_thermal" else 0.0
            hot = f" at {heat_c:.0f} °C" if heat_c else ""
            yield f"{what} held its clock {share_text(getattr(row, name))} of the time{hot}"
    clock_hz, boost_hz = _number(row.sm_clock_hz), sheet.boost_clock_hz if sheet else None
    if clock_hz and boost_hz and clock_hz < (1 - BELOW_BOOST) * boost_hz and dtype_of(row.kind):
        boost = amount_text(boost_hz, "Hz")
        yield f"its SMs ran at {amount_text(clock_hz, 'Hz')}, the datasheet's boost clock is {boost}"
    if not dtype_of(row.kind) and not row.kind.startswith(CACHE):
        yield from _memory(row, sheet)


def _memory(row: Any, sheet: Datasheet | None) -> Iterator[str]:
    if row.ecc == "on" and sheet and sheet.memory_type == "GDDR":
        yield "ECC is on, whose check bits take bandwidth of GDDR memory"
    aside = [] if row.set_aside_s is None else [each for each in row.set_aside_s if each > 0]
    speeds = two_speeds([row.rate, *(row.rate * row.median_s / each for each in aside)])
    if speeds:
        slow, fast = (amount_text(sum(group) / len(group), "byte/s") for group in speeds)
        yield f"its memory has two speeds: visits found {slow} or {fast}"


def _link(row: Any) -> Iterator[str]:
    generation, width = _number(row.pcie_generation), _number(row.pcie_width)
    most = _number(row.pcie_generation_most)
    if (width and width < LANES) or (generation and most and generation < most):
        yield f"its link is PCIe {generation:.0f}.0 x{width:.0f}; expected is {most:.0f}.0 x{LANES}"


def _number(value: Any) -> float:
    """0 where nothing is known."""
    return 0.0 if value is None or not math.isfinite(value) else float(value)
