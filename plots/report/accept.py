"""The section on acceptance: is this device as fast as others of its model, and by what evidence."""

from __future__ import annotations

from bench.accept.command import judge_files
from bench.accept.judge import FAIL
from bench.accept.report import figure, overall, range_text, sentence
from bench.errors import UserError
from bench.format import share_text
from plots.report.section import Results, Section, filled

COMPARING = "fleet/"
"""Sweeps by which units of a kind are compared, which the suites `accept` and `fleet` have."""


def section(results: Results) -> Section | None:
    """The verdict on each kind of work of a single unit; None for runs that compare no units."""
    run = results.alone
    if run is None or not run.columns["sweep"].str.startswith(COMPARING).any():
        return None
    try:
        judged = judge_files(list(results.files))
    except UserError:  # several nights or units, or no row that says what the device can do
        return None
    lines = [
        {
            "kind": each.kind,
            "verdict": each.verdict,
            "causes": each.causes,
            "measured": figure(each.kind, each.row.rate),
            "expected": range_text(each.kind, each.expects),
            "promised": figure(each.kind, each.promised),
            "evidence": [(of.by, range_text(each.kind, of), of.source) for of in each.evidence],
        }
        for each in judged
    ]
    html = filled(
        "accept.html.j2",
        verdict=overall(judged),
        sentence=sentence(judged),
        lines=lines,
        fail=share_text(FAIL),
    )
    return Section("As fast as other devices of its model?", "accept", html)
