"""The verdicts of all devices by rule: the lines of the start page, and what a rule's own page shows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from bench.cli.guide_tables import device, summary
from bench.judge.claims import JudgedClaim, Verdict
from bench.sweep.experiments import HALF, LACKING, RULES

DECIDED: tuple[Verdict, ...] = ("SUPPORTED", "CONTRADICTED", "UNDECIDED")


def rules(judged: Sequence[JudgedClaim]) -> list[dict[str, Any]]:
    """Every rule of the guides."""
    return [_rule(number, [each for each in judged if number in each.claim.rules]) for number in RULES]


def _rule(number: int, judged: Sequence[JudgedClaim]) -> dict[str, Any]:
    """One rule over all devices: the claims that speak to it, and `on` each device its verdicts in words."""
    counts = Counter(each.verdict for each in judged)
    by_device: dict[str, list[JudgedClaim]] = {}
    by_claim: dict[tuple[str, str], list[JudgedClaim]] = {}
    for each in judged:
        by_device.setdefault(device(each), []).append(each)
        by_claim.setdefault((each.declared.name, each.claim.id), []).append(each)
    missing = "" if judged else f"needs {LACKING[number]}" if number in LACKING else "not in these results"
    if number in HALF:
        missing = "; ".join(filter(None, (missing, f"the rest needs {HALF[number]}")))
    return dict(
        number=number,
        says=RULES[number],
        words=[(word, counts[word]) for word in DECIDED if counts[word]],
        on={name: summary(of) for name, of in by_device.items()},
        missing=missing,
        claims=sorted(map(_said, by_claim.values()), key=lambda of: (not of["lines"], of["first"].claim.id)),
    )


def _said(judged: Sequence[JudgedClaim]) -> dict[str, Any]:
    """A claim on every device, its effects and their intervals as places on a bar, percent of its width."""
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
        begin, width = place(each.effect.low), place(each.effect.high) - place(each.effect.low)
        at = place(each.effect.value)
        lines.append({"judged": each, "name": device(each), "at": at, "begin": begin, "width": width})
    silent: dict[str, list[str]] = {}
    for each in judged:
        if each not in known:
            silent.setdefault(each.verdict, []).append(device(each))
    return {
        "first": judged[0],
        "lines": lines,
        "silent": [(word, ", ".join(dict.fromkeys(names))) for word, names in silent.items()],
        "bars": [place(value) for value in wanted],  # where the claim expects the effect to begin or end
        "ends": (low, high),
    }
