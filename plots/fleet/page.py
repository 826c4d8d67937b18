"""A fleet's page, one HTML file that needs nothing else: which units are slow, in what, and since when."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bench.fleet.fit import Fit
from bench.fleet.observed import Fleet, nodes_of
from bench.fleet.report import JOBS, JudgedFleet
from bench.fleet.since import NIGHTS
from bench.format import count_text
from plots.base.shell import page
from plots.base.vega import inlined, library
from plots.fleet.kind import kind


def html(judged_fleet: JudgedFleet) -> str:
    """The page about a fleet that was judged."""
    fleet, fit = judged_fleet.fleet, judged_fleet.fit
    reasons = {why.slow: why.sentence for why in judged_fleet.why}
    made = [kind(fleet, fit, slug, reasons) for slug in fleet.kinds if (fit.effects["kind"] == slug).any()]
    kinds = [words for words, _ in made]
    return page(
        Path(__file__).with_name("fleet.html.j2"),
        title=f"Fleet: {count_text(len(fleet.units), 'unit')} of {', '.join(fleet.kinds)}",
        lead=_lead(fleet, fit),
        numbers=list(_numbers(judged_fleet, kinds)),
        missing=judged_fleet.missing,
        left_out=fleet.left_out,
        failed=_failed(judged_fleet),
        remarks=fit.remarks,
        gathered=judged_fleet.gathered,
        kinds=kinds,
        several=len(kinds) > 1,
        least_nights=NIGHTS,
        jobs=JOBS,
        content=inlined({"kinds": [content for _, content in made]}),
        library=library(),
    )


def _lead(fleet: Fleet, fit: Fit) -> str:
    every = count_text(len(fleet.units), "unit")
    units = sum(each.unit is not None for each in fit.slow)
    nodes = len(fit.slow) - units
    if not fit.judged:
        return "There are too few units of a kind to say which of them is slow."
    phrases = [f"{units} of {every} {'is' if units == 1 else 'are'} slow"] if units else []
    if nodes:
        phrases.append(f"{count_text(nodes, 'node')} {'is' if nodes == 1 else 'are'} slow as a whole")
    return f"{' and '.join(phrases)}." if phrases else f"None of {every} is slow."


def _numbers(judged_fleet: JudgedFleet, kinds: Sequence[dict[str, Any]]) -> Iterator[tuple[str, str, str]]:
    """(what, value, beside it) of the numbers on the first screen."""
    fleet, fit = judged_fleet.fleet, judged_fleet.fit
    nodes = count_text(len(nodes_of(fleet.units.values())), "node")
    yield "units", f"{len(fleet.units):,}", f"on {nodes}"
    slow = [each.unit is not None for each in fit.slow]
    yield "slow units", str(sum(slow)) if fit.judged else "-", "one in twenty of them may be healthy"
    yield "slow nodes", str(len(slow) - sum(slow)) if fit.judged else "-", "all of whose units are slow"
    yield "nodes with MISSING units", str(len(judged_fleet.missing)), "expected, but without a result"
    for words in kinds[:1]:
        if words["loss"]:
            of, loss = words["loss"]
            yield f"a job of {JOBS[1]} units loses", loss, f"in {of}, by waiting for its slowest unit"


def _failed(judged_fleet: JudgedFleet) -> list[tuple[str, str, int]]:
    """(unit, status, cases) of what fails on a unit and not on most others."""
    counts = Counter(zip(judged_fleet.failed["unit"], judged_fleet.failed["status"], strict=True))
    return [
        (judged_fleet.fleet.units[unit].name, status, count) for (unit, status), count in counts.most_common()
    ]
