"""The verdicts of all devices by rule: the lines of the start page, and what a rule's own page shows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from bench.cli.guide_tables import device, summary
from bench.judge.claims import JudgedClaim, Verdict
from bench.sweep.experiments import HALF, LACKING, RULES

DECIDED: tuple[Verdict, ...] = ("SUPPORTED", "CONTRADICTED", "UNDECIDED")


class Rule(NamedTuple):
    """One rule over all devices."""

    number: int
    says: str
    words: Sequence[tuple[str, int]]
    """(verdict, claims on devices that have it), of DECIDED."""
    on: dict[str, str]
    """Device -> its verdicts in words."""
    missing: str
    claims: Sequence[Said]


class Said(NamedTuple):
    """One claim that speaks to a rule, on every device."""

    first: JudgedClaim
    lines: Sequence[Bar]
    silent: Sequence[tuple[str, str]]
    """(verdict or reason, devices) without an effect."""
    bars: Sequence[float]
    """Places of the numbers that the claim expects the effect above, below or between, percent."""
    ends: tuple[float, float]
    """Effects at both edges of the bars."""


class Bar(NamedTuple):
    """An effect with its interval; places are percent of the width."""

    judged: JudgedClaim
    name: str
    at: float
    begin: float
    width: float


def rules(judged: Sequence[JudgedClaim]) -> list[Rule]:
    """Every rule of the guides."""
    return [_rule(number, [each for each in judged if number in each.claim.rules]) for number in RULES]


def _rule(number: int, judged: Sequence[JudgedClaim]) -> Rule:
    counts = Counter(each.verdict for each in judged)
    by_device: dict[str, list[JudgedClaim]] = {}
    by_claim: dict[tuple[str, str], list[JudgedClaim]] = {}
    for each in judged:
        by_device.setdefault(device(each), []).append(each)
        by_claim.setdefault((each.declared.name, each.claim.id), []).append(each)
    missing = "" if judged else f"needs {LACKING[number]}" if number in LACKING else "not in these results"
    if number in HALF:
        missing = "; ".join(filter(None, (missing, f"the rest needs {HALF[number]}")))
    return Rule(
        number,
        RULES[number],
        [(word, counts[word]) for word in DECIDED if counts[word]],
        {name: summary(of) for name, of in by_device.items()},
        missing,
        sorted(map(_said, by_claim.values()), key=lambda line: (not line.lines, line.first.claim.id)),
    )


def _said(judged: Sequence[JudgedClaim]) -> Said:
    expected = judged[0].claim.expected
    wanted = [value for value in (expected.low, expected.high) if abs(value) < float("inf")]
    known = [each for each in judged if each.effect is not None and each.verdict in DECIDED]
    # An interval that is wider than all effects together is cut at the edge.
    values = [*wanted, *(each.effect.value for each in known if each.effect)]
    low, high = min(values, default=0.0), max(values, default=1.0)
    margin = 0.25 * (high - low) or 0.5
    low, high = low - margin, high + margin

    def place(value: float) -> float:
        return 100 * min(1.0, max(0.0, (value - low) / (high - low)))

    lines = []
    for each in sorted(known, key=lambda each: each.effect.value if each.effect else 0.0):
        assert each.effect is not None
        begin = place(each.effect.low)
        lines.append(
            Bar(each, device(each), place(each.effect.value), begin, place(each.effect.high) - begin)
        )
    silent: dict[str, list[str]] = {}
    for each in judged:
        if each not in known:
            silent.setdefault(each.verdict, []).append(device(each))
    lists = [(word, ", ".join(dict.fromkeys(names))) for word, names in silent.items()]
    return Said(judged[0], lines, lists, [place(value) for value in wanted], (low, high))
