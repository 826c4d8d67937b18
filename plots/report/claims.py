"""The section on the guides' rules: what these rows say of each."""

from __future__ import annotations

from bench.cli.guide_tables import rules_by_device
from bench.judge.claims import VERDICTS, WITH_EFFECT
from bench.sweep.experiments import RULES
from plots.report import matrix
from plots.report.section import Results, Section, filled

TITLE = "NVIDIA's advice, and whether these results support it"


def section(results: Results) -> Section:
    """The verdicts on every claim, those that are decided first; of several devices a table by rule."""
    judged = results.judged
    verdicts = rules_by_device(judged)["rules"]
    if len({each.device for each in judged}) > 1 and verdicts:
        return Section(TITLE, "rules", matrix.table(verdicts))
    runs = {tuple(each.runs) for each in judged}
    lines = sorted(judged, key=lambda each: (VERDICTS.index(each.verdict), each.claim.id))
    undecided, unjudged = VERDICTS.index("UNDECIDED"), len(WITH_EFFECT)
    parts = (range(undecided), range(undecided, unjudged), range(unjudged, len(VERDICTS)))
    html = filled(
        "claims.html.j2",
        parts=[[each for each in lines if VERDICTS.index(each.verdict) in part] for part in parts],
        several=len(runs) > 1,
        rules=RULES,
        decided=WITH_EFFECT,
        imported=any(run.imported for run in results.runs),
    )
    return Section(TITLE, "rules", html)
