"""What a person reads of a comparison: what was compared, what changed, and what nobody can tell."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from textwrap import shorten

from rich.markup import escape
from rich.table import Table

from bench.case_name import case_name
from bench.cli.table import lines_of, table
from bench.format import change_text, count_text, seconds_text, share_text
from bench.judge.comparability import FACTS, OURS
from bench.judge.compare import Compared, Comparison, Verdict

EXAMPLE = 80
"""Letters of an example's own reason."""
MOST_LISTED = 40
"""Cases of one class listed one by one, unless all are asked for."""
ALWAYS = ("device", "driver", "protocol", "commit", "torch")
"""Facts that are told whether or not they differ."""
EACH: tuple[Verdict, ...] = ("SLOWER", "FASTER", "INVALID")
SUMMED: tuple[Verdict, ...] = ("UNSURE", "NOT COMPARABLE", "NEW", "GONE")


def comparison_lines(found: Comparison, all_cases: bool = False) -> Iterator[str]:
    """The whole report. `all_cases` lists every case; else those that changed, the others by reason."""
    yield from lines_of(_header(found))
    yield from _remarks(found)
    yield from _listed(found, all_cases)
    if not all_cases:
        yield from _summed(found)
    yield from _means(found)
    counts = Counter(one.verdict for one in found.cases)
    yield f"{len(found.cases)} cases: " + ", ".join(f"{n} {verdict}" for verdict, n in counts.items())
    if found.same_commit and found.comparable:
        dirty = (
            ", both with changes that are not committed" if found.before.facts["commit"][0][-1] == "+" else ""
        )
        alarms, judged = len(found.of("SLOWER", "FASTER")), len(found.of("SLOWER", "FASTER", "SAME"))
        yield (
            f"A/A{dirty}: FASTER + SLOWER {alarms} of {found.comparable} comparable = "
            f"{share_text(alarms / found.comparable, 1)} false alarms "
            f"({found.comparable - judged} are UNSURE)"
        )


def _header(found: Comparison) -> Table:
    """The facts of either side, side by side; of those that agree only the usual ones."""
    shown = table("", "A (before)", "B (after)", "")
    before, after = found.before.facts, found.after.facts
    shown.add_row("run", _some(before["run"]), _some(after["run"]))
    shown.add_row("measured", _span(before["utc"]), _span(after["utc"]))
    for fact in FACTS:
        one, other = before[fact.name], after[fact.name]
        if one != other or (fact.name in ALWAYS and one):
            differs = one and other and one != other
            shown.add_row(fact.name, _some(one), _some(other), "differs" if differs else "")
    return shown


def _remarks(found: Comparison) -> Iterator[str]:
    if found.same_run:
        yield "A and B hold rows of one and the same run: these are compared with themselves"
    if found.waved:
        yield "waved through: " + ", ".join(f"{d.fact} {d.before} -> {d.after}" for d in found.waved)
    for name, side in (("A", found.before), ("B", found.after)):
        if imported := [who for who in side.facts["source"] if who != OURS]:
            yield f"{name} holds imported rows, not measured by roofbench: {', '.join(imported)}"
        for noise in (run.noise for run in side.runs.values() if run.noise.steps):
            factor = f"{noise.factor:.1f} times the noise that is usual for its kind"
            yield f"the machine during {name}: {factor}, by {count_text(noise.steps, 'step')} between visits"
        if side.older:
            yield f"{side.older} older rows of {name} are left aside: a later run measured the same case"
    for shift in found.shifts.values():
        yield (
            f"the machine as a whole from A to B: {change_text(math.exp(shift.by))} "
            f"(±{share_text(shift.error, 1)}), by {shift.ceilings} ceilings of the same libraries"
        )
    if found.unknown:
        told = ", ".join(f"{name} ({count} cases)" for name, count in sorted(found.unknown.items()))
        yield f"not known on either side or both, so not held against a case: {told}"


def _listed(found: Comparison, all_cases: bool) -> Iterator[str]:
    """A line a case."""
    shown = table("", "case", ">before", ">after", ">effect", "95 %", "")
    left = []
    for verdict in dict.fromkeys(one.verdict for one in found.cases):
        cases = found.of(verdict)
        if not all_cases and verdict not in EACH:
            continue
        some = cases if all_cases else cases[:MOST_LISTED]
        for one in some:
            shown.add_row(verdict, case_name(*one.case), *_cells(one))
        if len(some) < len(cases):
            left.append(f"... and {len(cases) - len(some)} more {verdict}: --all lists them")
    yield from lines_of(shown)
    yield from left


def _cells(one: Compared) -> list[str]:
    why = ": ".join(part for part in (one.reason, one.detail) if part)
    ends = f"{change_text(one.effect.low)} to {change_text(one.effect.high)}" if one.effect else ""
    return [
        seconds_text(one.before_s),
        seconds_text(one.after_s),
        change_text(one.effect.ratio) if one.effect else "",
        ends,
        escape(why),
    ]


def _summed(found: Comparison) -> Iterator[str]:
    """How many cases of each class that is not listed, by reason."""
    shown = table("", ">cases", "why", "for example")
    for verdict in SUMMED:
        by_reason: dict[str, list[Compared]] = {}
        for one in found.of(verdict):
            why = f"{one.case.sweep}: {one.reason}" if verdict in ("NEW", "GONE") else one.reason
            by_reason.setdefault(why, []).append(one)
        for reason, cases in sorted(by_reason.items(), key=lambda item: (-len(item[1]), item[0])):
            first = cases[0]
            told = f" ({change_text(first.effect.ratio)})" if first.effect else ""
            told += f": {escape(shorten(first.detail, EXAMPLE, placeholder=' ...'))}" if first.detail else ""
            shown.add_row(verdict, str(len(cases)), escape(reason), case_name(*first.case) + told)
    yield from lines_of(shown)


def _means(found: Comparison) -> Iterator[str]:
    shown = table("operator", ">cases", ">geometric mean effect", "95 %", "")
    for mean in found.means:
        ends = f"{change_text(mean.effect.low)} to {change_text(mean.effect.high)}"
        shown.add_row(mean.operator, str(mean.cases), change_text(mean.effect.ratio), ends, mean.verdict)
    if shown.row_count:
        yield "seconds of B against seconds of A, over the comparable cases of each operator:"
        yield from lines_of(shown)


def _some(values: Sequence[str]) -> str:
    rest = f" and {len(values) - 3} more" if len(values) > 3 else ""
    return escape(", ".join(values[:3]) + rest) if values else "not known"


def _span(ends: Sequence[str]) -> str:
    return " to ".join(dict.fromkeys(end[:16].replace("T", " ") for end in ends))
