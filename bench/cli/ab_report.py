"""What `python -m bench ab` says: a line for each case, what decides the others, and all as Markdown."""

from __future__ import annotations

import math
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from bench.cli.table import markdown_lines as markdown_table
from bench.format import change_text, count_text, duration_text

if TYPE_CHECKING:
    from bench.runner.ab import Contest

CASE_S, LEAST_S = 5.5, 55.0
"""Seconds that each case adds to the budget, and the least budget, unless one is given: with all that comes
before and after, ten cases take less than a minute."""
LONGEST_S = 3600.0
"""More time than this is no advice."""
LISTED = ("SLOWER", "FAILED", "FASTER", "NEW")
"""Verdicts of a table of Markdown, from the top; UNDECIDED and SAME are counted above it."""
MOST_NAMES = 3
"""Most cases that a command to be copied names."""
MOST_ROWS = 100
"""Most rows of that table: GitHub refuses a comment of more than 65,536 characters."""


def line(contest: Contest) -> str:
    """`SLOWER   +5.1 % (+4.2 % to +6.0 %)  gemm/square-...`; the name on a line of its own if need be."""
    effect = contest.effect
    if contest.failure:
        numbers = contest.failure
    elif effect is None:
        numbers = f"after {count_text(len(contest.logs), 'round')}"
    else:
        ends = f"{change_text(effect.low)} to {change_text(effect.high)}"
        numbers = f"{change_text(effect.ratio):>7} ({ends})"
    head = f"{contest.verdict:<9} {numbers:<28}"
    name = contest.case.name
    width = shutil.get_terminal_size().columns
    return f"{head}  {name}" if len(head) + 2 + len(name) <= width else f"{head.rstrip()}\n    {name}"


def counts_text(every: Sequence[Contest], same: float) -> str:
    """`12 cases: 1 SLOWER, 11 SAME within 2 %`; `same` is in percent."""
    within = {"SAME": f" within {same:g} %"}
    words = Counter(contest.verdict for contest in every)
    counts = (f"{count} {word}{within.get(word, '')}" for word, count in words.most_common())
    return f"{count_text(len(every), 'case')}: {', '.join(counts)}"


def markdown_lines(what: str, every: Sequence[Contest], same: float, after: Sequence[str]) -> Iterator[str]:
    """A comment: the counts, a table of what is not the same, and the lines that `ab` prints `after`."""
    if not every:
        yield f"**{what}**"
        return
    yield from (f"**{counts_text(every, same)}**", "", f"{what[0].upper()}{what[1:]}.")
    shown = [each for verdict in LISTED for each in every if each.verdict == verdict]
    rows: list[tuple[str, str, str, str]] = []
    for each in shown[:MOST_ROWS]:
        time, interval = "", each.failure or "too few rounds"
        if effect := each.effect:
            time = change_text(effect.ratio)
            interval = f"{change_text(effect.low)} to {change_text(effect.high)}"
        rows.append((each.verdict, time, interval, f"`{each.case.name}`"))
    if (more := len(shown) - MOST_ROWS) > 0:
        rows.append(("", "", "", f"and {more} more"))
    if rows:
        yield from ("", *markdown_table(("verdict", "time", "interval", "case"), rows))
    if after:
        yield from ("", "```", *after, "```")


def default_budget_s(cases: int) -> float:
    """Seconds of measuring so many cases."""
    return max(LEAST_S, CASE_S * cases)


def undecided_lines(every: Sequence[Contest], same: float, command: str) -> Iterator[str]:
    """Why cases are undecided, and the command that decides the first of them, in how many seconds.

    `same` is in percent; `command` repeats the comparison, of the cases that are named behind it.
    """
    undecided = [contest for contest in every if contest.verdict == "UNDECIDED"]
    if not undecided:
        return
    unknown = [contest for contest in undecided if contest.variance is None]
    if unknown:
        yield f"{count_text(len(unknown), 'case')} had too few rounds for an interval"
    needed_s = {contest.case.name: contest.decided_s(same / 100) or math.inf for contest in undecided}
    decidable = [name for name, seconds in needed_s.items() if seconds <= LONGEST_S]
    if late := len(undecided) - len(decidable) - len(unknown):
        yield (
            f"{count_text(late, 'case')} would take more than an hour: a quieter machine, or a larger --same "
            f"than {same:g}, decides sooner"
        )
    if again := (decidable or [contest.case.name for contest in unknown])[:MOST_NAMES]:
        more_s = sum(needed_s[name] for name in again if name in decidable)
        budget_s = 10 * math.ceil(max(more_s, default_budget_s(len(again))) / 10)
        yield (
            f"next: {command} {' '.join(again)} --bench-budget {budget_s:g}   "
            f"(about {duration_text(budget_s)}, for {count_text(len(again), 'case')})"
        )
