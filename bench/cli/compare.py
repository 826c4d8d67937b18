"""`python -m bench compare A B`: what was compared, what changed, and what stays undecided."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from bench.case_name import case_name
from bench.cli.ab import default_budget_s
from bench.cli.table import table_lines
from bench.format import change_cells, change_text, count_text, duration_text, seconds_text, share_text
from bench.judge.comparability import BLOCKING, FACTS, OURS, SWEEP
from bench.judge.compare import SAME_WITHIN
from bench.judge.comparison import Compared, Comparison, Verdict
from bench.judge.comparison_side import Shift
from bench.judge.noise import PUBLISHED

MOST_LISTED: Mapping[Verdict, int] = {"SLOWER": 10, "FASTER": 5, "INVALID": 3}
"""Verdicts whose cases are listed singly, the biggest effect first: so many unless all are asked for."""
MOST_REASONS = 3
"""Most reasons of each other verdict that are shown unless all are asked for."""
ALWAYS = ("device", "commit")
"""Facts that are shown whether or not they differ."""
SUMMED: tuple[Verdict, ...] = ("UNDECIDED", "NOT COMPARABLE", "NEW", "GONE")
MOST_NAMES = 3
"""Most cases that a command to be copied names."""


def comparison_lines(comparison: Comparison, all_cases: bool = False) -> Iterator[str]:
    """The whole report. `all_cases` lists every case; else those that changed, the others by reason."""
    for change in comparison.environments:
        yield f"the environment differs, which may be the cause of what changed: {change}"
    yield from _answer(comparison)
    yield from _counts(comparison)
    yield from _listed(comparison, all_cases)
    if not all_cases:
        yield from _summed(comparison)
    yield from _means(comparison)
    yield from (*_facts(comparison, all_cases), *_remarks(comparison))


def _answer(comparison: Comparison) -> Iterator[str]:
    """Whether B is slower than A, and what; then what the machine did."""
    moved = comparison.machine.items()
    slower = [count_text(count, "case")] if (count := len(comparison.of("SLOWER"))) else []
    slower += [each.operator for each in comparison.means if each.verdict == "SLOWER" and each.cases > 1]
    slower += [what for what, shift in moved if shift.by > 0]
    yield {
        0: "Nothing is SLOWER in B.",
        1: f"B is SLOWER than A: {', '.join(slower)}.",
        2: f"{count_text(len(comparison.of('INVALID')), 'case')} INVALID, nothing is SLOWER.",
        3: "Nothing is decided." if comparison.in_common else "A and B have no case in common.",
    }[comparison.exit_code]
    for what, shift in moved:
        yield f"{'SLOWER' if shift.by > 0 else 'FASTER'}: {what}, {_shift_text(shift)}"


def _counts(comparison: Comparison) -> Iterator[str]:
    counts = Counter(compared.verdict for compared in comparison.cases)
    yield f"{len(comparison.cases)} cases: " + ", ".join(f"{n} {verdict}" for verdict, n in counts.items())
    if disturbed := comparison.disturbed:
        yield f"of what is SLOWER or FASTER some was disturbed: {', '.join(disturbed)}"


def _facts(comparison: Comparison, every: bool) -> Iterator[str]:
    """Facts of the sides: those that differ, and of the others only ALWAYS unless `every`."""
    before, after = comparison.before.facts, comparison.after.facts
    for name, facts in (("A", before), ("B", after)):
        yield f"{name}: run {_values_text(facts['run'])}, measured {_span(facts['utc'])}"
    for fact in FACTS:
        values = before[fact.name], after[fact.name]
        if values[0] != values[1]:
            yield f"{fact.name}: {_values_text(values[0])} in A, {_values_text(values[1])} in B"
        elif (every or fact.name in ALWAYS) and values[0]:
            yield f"{fact.name}: {_values_text(values[0])}"
    known = {name for facts in (before, after) for name, values in facts.items() if values}
    of_kind = [fact.name for fact in BLOCKING if comparison.kind in fact.kinds and fact is not SWEEP]
    if unknown := [name for name in of_kind if name not in known]:
        yield f"known of neither side, so held against no case: {', '.join(unknown)}"


def _remarks(comparison: Comparison) -> Iterator[str]:
    if comparison.renamed:
        renamed = f"the same work in sweeps of other names: {count_text(comparison.renamed, 'case')}"
        yield f"{renamed}, which --across sweep compares"
    for name, side in (("A", comparison.before), ("B", comparison.after)):
        if imported := [who for who in side.facts["source"] if who != OURS]:
            yield f"{name} holds imported rows, not measured by roofbench: {', '.join(imported)}"
    if comparison.of("SAME") and (within := SAME_WITHIN.get(comparison.kind)):
        most = max(within.values())
        less = ", ".join(f"{share_text(share)} of {of.text}" for of, share in within.items() if share < most)
        yield f"SAME: no change beyond {share_text(most)} ({less}), the limit of runs on a shared CPU"
    if comparison.published:
        yield f"noise between runs of {count_text(comparison.published, 'case')}: {PUBLISHED}"
    for shift in () if comparison.machine else comparison.shifts.values():
        yield f"the machine as a whole from A to B: {_shift_text(shift)} of the same libraries"


def _shift_text(shift: Shift) -> str:
    """`+8.1 % (±1.0 %), by 7 ceilings`."""
    return f"{change_text(math.exp(shift.by))} (±{share_text(shift.error, 1)}), by {shift.ceilings} ceilings"


def _listed(comparison: Comparison, all_cases: bool) -> Iterator[str]:
    """A table with a line for each listed case."""
    lines, left = [], []
    for verdict in dict.fromkeys(compared.verdict for compared in comparison.cases):
        cases = comparison.of(verdict)
        listed = cases if all_cases else cases[: MOST_LISTED.get(verdict, 0)]
        for compared in listed:
            lines.append([case_name(*compared.case), verdict, *_cells(compared)])
        if 0 < len(listed) < len(cases):
            left.append(f"... and {len(cases) - len(listed)} more {verdict}: --all lists them")
    yield from table_lines(("case", "", ">before", ">after", ">effect", "95 %", ""), lines)
    yield from left


def _cells(compared: Compared) -> list[str]:
    why = ": ".join(part for part in (compared.reason, compared.detail) if part)
    effect = compared.effect
    by, ends = change_cells(effect.ratio, effect.low, effect.high) if effect else ("", "")
    return [seconds_text(compared.before_s), seconds_text(compared.after_s), by, ends, why]


def _summed(comparison: Comparison) -> Iterator[str]:
    """How many cases of each class that is not listed, by reason."""
    for verdict in SUMMED:
        by_reason: dict[str, list[Compared]] = {}
        for compared in comparison.of(verdict):
            of_sweep = f"{compared.case.sweep}: " if verdict in ("NEW", "GONE") else ""
            by_reason.setdefault(f"{of_sweep}{compared.reason}", []).append(compared)
        ordered = sorted(by_reason.items(), key=lambda item: (-len(item[1]), item[0]))
        for reason, cases in ordered[:MOST_REASONS]:
            first = cases[0]
            more = f" ({first.detail})" if first.detail else ""
            yield f"{len(cases)} {verdict}: {reason}, such as {case_name(*first.case)}{more}"
        if rest := ordered[MOST_REASONS:]:
            others = count_text(len(rest), "other reason")
            yield f"{sum(len(cases) for _, cases in rest)} {verdict}: {others}: --all lists them"


def _means(comparison: Comparison) -> Iterator[str]:
    lines = []
    for mean in comparison.means:
        cells = change_cells(mean.effect.ratio, mean.effect.low, mean.effect.high)
        lines.append((mean.operator, str(mean.cases), *cells, mean.verdict))
    if lines:
        yield "seconds of B against seconds of A, over the comparable cases of each operator:"
        yield from table_lines(("operator", ">cases", ">geometric mean", "95 %", ""), lines)


def _values_text(values: Sequence[str]) -> str:
    rest = f" and {len(values) - 3} more" if len(values) > 3 else ""
    return ", ".join(values[:3]) + rest if values else "not known"


def _span(ends: Sequence[str]) -> str:
    return " to ".join(dict.fromkeys(end[:16].replace("T", " ") for end in ends))


def next_lines(comparison: Comparison) -> Iterator[str]:
    """The command that measures UNDECIDED cases in turns, and the seconds it takes."""
    before, after = comparison.before, comparison.after
    unsure = [each.case for each in comparison.of("UNDECIDED") if each.role == "measurement"]
    ours = before.facts["source"] == after.facts["source"] == (OURS,) and not comparison.environments
    refs, commits = before.facts["commit"], after.facts["commit"]
    same_device = before.facts["device"] == after.facts["device"]
    if not (unsure and ours and same_device and len(refs) == len(commits) == 1):
        return
    names = " ".join(case_name(*case) for case in unsure[:MOST_NAMES])
    takes = duration_text(default_budget_s(MOST_NAMES))
    command = f"python -m bench ab --ref {refs[0].removesuffix('+')} {names}"
    yield f"next: {command}   (on that device, about {takes}, with commit {commits[0]} checked out)"
