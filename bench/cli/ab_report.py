"""What `python -m bench ab` says: a line for each case, their counts, and what decides more."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from bench.format import change_cells, count_text

if TYPE_CHECKING:
    from bench.runner.ab import Contest

CASE_S, LEAST_S = 5.5, 55.0
"""Seconds that each case adds to the budget, and the least budget, unless one is given: with all that comes
before and after, ten cases take less than a minute."""


def line(contest: Contest) -> str:
    """`SLOWER   +5.1 % (+4.2 % to +6.0 %)  gemm/square-...`; the name on a line of its own if need be."""
    effect = contest.effect
    if contest.failure:
        numbers = contest.failure
    elif effect is None:
        numbers = f"after {count_text(len(contest.logs), 'round')}"
    else:
        by, ends = change_cells(effect.ratio, effect.low, effect.high)
        numbers = f"{by:>7} ({ends})"
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


def default_budget_s(cases: int) -> float:
    """Seconds of measuring so many cases."""
    return max(LEAST_S, CASE_S * cases)


def undecided_lines(every: Sequence[Contest]) -> Iterator[str]:
    """How many cases are undecided, and what decides more of them."""
    undecided = [contest for contest in every if contest.verdict == "UNDECIDED"]
    if unknown := sum(contest.variance is None for contest in undecided):
        yield f"{count_text(unknown, 'case')} had too few rounds for an interval"
    if undecided:
        yield "a longer --bench-budget, a quieter machine or a larger --same decides more"
