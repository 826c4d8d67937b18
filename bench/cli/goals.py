"""`python -m bench goals`: what our kernels should reach, and what runs say of it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain

from rich.table import Table

from bench.case_name import problem_name
from bench.cli.table import lines_of, table
from bench.errors import UserError, unknown
from bench.format import count_text
from bench.judge.frame import Run
from bench.judge.goals import Goal, Outcome, Verdict, goals, outcomes
from bench.judge.noise import OURS


def of_operator(name: str | None) -> list[Goal]:
    """UserError if no goal is about an operator of this name."""
    about = [goal for goal in goals() if name in (None, goal.operator)]
    if not about:
        known = dict.fromkeys(goal.operator for goal in goals())
        raise UserError(unknown("operator with goals", str(name), "goals", known))
    return about


MOST_REASONS = 3
"""Most goals that failed whose reasons are shown unless all are asked for."""
FIRST: tuple[Verdict, ...] = ("REFUTED", "MISSED", "UNDECIDED", "REACHED")
"""Verdicts in the order in which they are shown; NO CASE says nothing."""


def summary_lines(about: Sequence[Goal]) -> Iterator[str]:
    """A line for each operator with goals."""
    shown = table("operator", ">goals", "devices", "ours", ">goal medians", "of what")
    for operator in dict.fromkeys(goal.operator for goal in about):
        of = [goal for goal in about if goal.operator == operator]
        medians = [goal.median for goal in of]
        lists = ([*goal.devices] for goal in of), ([goal.ours] for goal in of), ([goal.unit] for goal in of)
        devices, ours, units = (", ".join(dict.fromkeys(chain.from_iterable(each))) for each in lists)
        ends = f"{min(medians):.2f} to {max(medians):.2f}"
        shown.add_row(operator, str(len(of)), devices, ours, ends, units)
    yield from lines_of(shown)
    yield f"{count_text(len(about), 'goal')}: --all lists each; RESULT... says what runs make of them"


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


def outcome_lines(runs: Sequence[Run], about: Sequence[Goal], every: bool) -> Iterator[str]:
    """For each run on a device with goals: the verdicts, then why those that failed were expected.

    `every`: also goals of which the run has no case, and all reasons. UserError if no run can be judged.
    """
    own = [run for run in runs if not run.imported]
    judged = [(run, [each for each in outcomes(run) if each.goal in about]) for run in own]
    if not any(each for _, each in judged):
        if not own:
            raise UserError(
                f"these {count_text(len(runs), 'run')} are imported, and goals are about our own kernels "
                f"({OURS}), which only runs of roofbench time"
            )
        devices = ", ".join(dict.fromkeys(device for goal in about for device in goal.devices))
        here = ", ".join(dict.fromkeys(run.device_name for run in own))
        raise UserError(f"no run here is on a device with goals, which are {devices}; these are on {here}")
    for run, of_run in judged:
        shown = [each for verdict in FIRST for each in of_run if each.verdict == verdict]
        if of_run:
            yield f"{run.device} {run.name}, cold cache"
            yield from lines_of(_verdicts(of_run if every else shown))
            yield from _reasons(shown, len(shown) if every else MOST_REASONS)
    counts = Counter(each.verdict for _, of_run in judged for each in of_run)
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


def _reasons(shown: Sequence[Outcome], most: int) -> Iterator[str]:
    failed = [each for each in shown if each.verdict in ("REFUTED", "MISSED")]
    for each in failed[:most]:
        goal = each.goal
        lowest = problem_name(json.loads(each.least_case))
        yield f"{goal.operator}, {goal.region}: {each.verdict}, lowest {lowest}"
        yield f"  rested on: {goal.rests_on}"
        yield f"  refuted by: {goal.refuted_by}"
    if len(failed) > most:
        yield f"... and {len(failed) - most} more that failed: --all gives their reasons"
