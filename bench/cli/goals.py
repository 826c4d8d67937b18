"""`python -m bench goals`: what our kernels should reach, and what runs say of it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence

from rich.table import Table

from bench.case_name import problem_name
from bench.cli.table import lines_of, table
from bench.errors import UserError, unknown
from bench.judge.frame import Run
from bench.judge.goals import Goal, Outcome, goals, outcomes


def of_operator(name: str | None) -> list[Goal]:
    """UserError if no goal is about an operator of this name."""
    about = [goal for goal in goals() if name in (None, goal.operator)]
    if not about:
        known = dict.fromkeys(goal.operator for goal in goals())
        raise UserError(unknown("operator with goals", str(name), "goals", known))
    return about


def goal_lines(about: Sequence[Goal]) -> Iterator[str]:
    """A line for each goal, without the reasons."""
    shown = table("operator", "region", "devices", "ours", ">goal median (min)", "of what")
    for goal in about:
        devices = ", ".join(goal.devices)
        shown.add_row(goal.operator, goal.region, devices, goal.ours, goal.bars, goal.unit)
    yield from lines_of(shown)


def markdown_lines(about: Sequence[Goal]) -> Iterator[str]:
    """A Markdown table of the goals with their reasons."""
    yield "| region | devices | ours | median (min) | of what | rests on | refuted by |"
    yield "|---|---|---|---|---|---|---|"
    for goal in about:
        names = goal.region, ", ".join(goal.devices), goal.ours
        cells = (*names, goal.bars, goal.unit, goal.rests_on, goal.refuted_by)
        yield f"| {' | '.join(cells)} |"


def outcome_lines(runs: Sequence[Run], about: Sequence[Goal]) -> Iterator[str]:
    """For each run on a device with goals: the verdict on each, then why those that failed were expected."""
    judged = [
        (run, [each for each in outcomes(run) if each.goal in about]) for run in runs if not run.imported
    ]
    if not any(each for _, each in judged):
        devices = ", ".join(dict.fromkeys(device for goal in about for device in goal.devices))
        raise UserError(f"no run here is on a device with goals, which are {devices}")
    for run, found in judged:
        if found:
            yield f"{run.device} {run.name}, cold cache"
            yield from lines_of(_verdicts(found))
            yield from _reasons(found)
    counts = Counter(each.verdict for _, found in judged for each in found)
    yield f"goals: {', '.join(f'{number} {verdict}' for verdict, number in counts.most_common())}"


def _verdicts(found: Sequence[Outcome]) -> Table:
    shown = table(
        "operator",
        "region",
        "ours",
        ">goal median (min)",
        "of what",
        "verdict",
        ">cases",
        ">median",
        "95 %",
        ">min",
    )
    for each in found:
        goal = each.goal
        ends = f"{each.low:.2f} to {each.high:.2f}" if each.cases else ""
        numbers = (f"{each.median:.2f}", ends, f"{each.least:.2f}") if each.cases else ("", "", "")
        words = (goal.operator, goal.region, goal.ours, goal.bars, goal.unit, each.verdict)
        shown.add_row(*words, str(each.cases), *numbers)
    return shown


def _reasons(found: Sequence[Outcome]) -> Iterator[str]:
    for each in found:
        if each.verdict in ("MISSED", "REFUTED"):
            goal = each.goal
            lowest = problem_name(json.loads(each.least_case))
            yield f"{goal.operator}, {goal.region}: {each.verdict}, lowest {lowest}"
            yield f"  rested on: {goal.rests_on}"
            yield f"  refuted by: {goal.refuted_by}"
