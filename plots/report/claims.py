"""The section on the guides' rules: what these rows say of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.judge.claims import VERDICTS, WITH_EFFECT, JudgedClaim
from bench.sweep.experiments import RULES
from plots.report.section import Results, Section, filled


def section(results: Results) -> Section:
    """The verdicts on every claim, those that some run decides first."""
    runs = results.runs
    label_of = {run.key: label for run, label in zip(runs, results.labels, strict=True)}
    groups = sorted(results.judged, key=lambda group: min(runs.index(run) for run in group[0]))
    html = filled(
        "claims.html.j2",
        parts=_claims([of_group for _, of_group in groups]),
        groups=[label_of[group[0].key] if len(group) == 1 else group[0].device for group, _ in groups],
        rules=RULES,
        decided=WITH_EFFECT,
        imported=any(run.imported for run in runs),
    )
    return Section("What the guides say, and what these rows say of it", "rules", html)


def _claims(judged: Sequence[Sequence[JudgedClaim]]) -> list[list[dict[str, Any]]]:
    """Claims that some run decides, claims that too few lines decide, and those without an effect.

    Each has its sweep and its `verdicts` in the order of the groups, None where a group lacks the sweep.
    """
    verdicts: dict[tuple[str, str], dict[int, JudgedClaim]] = {}
    for number, of_group in enumerate(judged):
        for each in of_group:
            verdicts.setdefault((each.claim.id, each.declared.name), {})[number] = each
    rows = []
    for (name, sweep), by_group in verdicts.items():
        claim = next(iter(by_group.values())).claim
        first = min(VERDICTS.index(each.verdict) for each in by_group.values())
        of_groups = [by_group.get(number) for number in range(len(judged))]
        row = {"claim": claim, "sweep": sweep, "verdicts": of_groups}
        rows.append((first, name, row))
    rows.sort(key=lambda row: row[:2])
    open_at, unjudged_at = VERDICTS.index("UNDECIDED"), len(WITH_EFFECT)
    parts = (range(open_at), range(open_at, unjudged_at), range(unjudged_at, len(VERDICTS)))
    return [[row for first, _, row in rows if first in part] for part in parts]
