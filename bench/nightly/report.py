"""What a night has to say: a page of Markdown.

The first line is the verdict. What moved comes with how far that stands out of its noise, since when, and
what changed on that night; then what could not run and how the machine was.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from bench.case_name import row_name
from bench.cli.findings import account
from bench.cli.table import markdown_lines
from bench.format import change_cells, change_text, count_text, share_text
from bench.judge.comparability import Difference
from bench.judge.history.series import COMMIT, History
from bench.judge.history.steps import BOUNDS, LEAST, Step
from bench.nightly.night import BROKEN, CLEAN, NOT_COMPARABLE, REGRESSION, Tonight

VERDICTS = {CLEAN: "CLEAN", REGRESSION: "REGRESSION", NOT_COMPARABLE: "NOT COMPARABLE", BROKEN: "BROKEN"}
MOST_SHOWN = 20
"""Rows of a table of the page."""


def nightly_lines(device_night: Tonight) -> Iterator[str]:
    """The page of one device."""
    yield f"# {_verdict(device_night)}: {device_night.device}"
    yield ""
    yield f"{_in_short(device_night)}."
    yield ""
    for remark in device_night.unfit:
        yield f"* {'refused' if remark.refuses else 'beware'}: {remark}"
    if (tonight := device_night.night) is not None:
        facts = ", ".join(f"{name} {text}" for name, text in tonight.facts.items() if name != "libraries")
        yield f"* run {tonight.run_id}, commit {tonight.commit or 'unknown'}; {facts}"
        if tonight.changed:
            yield f"* changed since the night before: {_changes(tonight.changed)}"
    for (former, name), count in device_night.renamed.items():
        cases = count_text(count, "case")
        yield f"* {cases} of {name} had earlier nights as {former}: their history begins anew"
    for sentence in device_night.left_out:
        yield f"* left out: {sentence}"
    yield from _times(device_night)
    yield ""
    yield from _moved(device_night)
    yield from _failing(device_night)
    if device_night.rows:
        yield from ("## What ran", "")
        for line in account(device_night.rows, device_night.wall_s):
            yield f"  {line}" if line.startswith(" ") else f"* {line}"
        if device_night.path is not None:
            yield f"* rows: `{device_night.path}`"
            yield f"* page: `python -m plots report {device_night.path.parent}`"
        yield ""


def _verdict(device_night: Tonight) -> str:
    """The word for its exit code. The first nights are no verdict, and must not be shown as CLEAN."""
    if device_night.exit_code == CLEAN and not device_night.compared:
        return "LEARNING"
    return VERDICTS[device_night.exit_code]


def _in_short(device_night: Tonight) -> str:
    """One sentence."""
    if device_night.broken:
        return device_night.broken
    if device_night.refused:
        return "not measured: the device is not fit"
    if device_night.refusal:
        return f"not measured: {device_night.refusal}"
    slower, faster = device_night.steps(slower=True), device_night.steps(slower=False)
    tonight = device_night.tonight
    clauses = []
    if slower or faster:
        new = sum(step.raised == tonight for step in slower)
        clauses.append(f"{len(slower)} slower ({new} of them new tonight), {len(faster)} faster")
    if device_night.failing:
        clauses.append(f"{len(device_night.failing)} cases that had a time have none")
    if any(step.kind == "machine" for step in device_night.steps(slower=True, kinds=("machine",))):
        clauses.append("the machine itself is slower than it was: see below")
    if not device_night.compared:
        clauses.append(f"nothing was compared: {_why_not(device_night)}")
    elif not clauses:
        clauses.append(f"nothing changed: {device_night.compared} cases compared with earlier nights")
    else:
        clauses.append(f"{device_night.compared} cases compared")
    return "; ".join(clauses)


def _why_not(device_night: Tonight) -> str:
    tonight = device_night.night
    if tonight is None or device_night.judged is None:
        return "there is no result"
    if not tonight.timed:
        return "no case has a time"
    nights = device_night.judged.history.nights
    first = next(night for night in nights if night.segment == tonight.segment)
    changed = [change for change in first.changed if change.fact != COMMIT.name]
    since = f" since {_changes(changed)}" if changed else ""
    number = sum(night.segment == tonight.segment for night in nights)
    if number > LEAST:
        return f"no case has a sound time tonight and on {LEAST} nights before it"
    away = count_text(LEAST + 1 - number, "night")
    return f"this is night {number}{since}, the first comparison needs {LEAST} before it and is {away} away"


def _changes(changed: Sequence[Difference]) -> str:
    return ", ".join(f"{change.fact} {change.before} -> {change.after}" for change in changed)


# ---- what moved


def _moved(device_night: Tonight) -> Iterator[str]:
    if device_night.judged is None:
        return
    steps, history = device_night.steps(kinds=("machine", "class", "series")), device_night.judged.history
    over = [step for step in device_night.judged.steps if step.ended == device_night.tonight]
    if steps:
        steps.sort(key=lambda step: (step.change.log < 0, -abs(step.change.log) / step.noise))
        yield from ("## What moved", "")
        names = ("", "what", ">by", ">95 % interval", ">usual within", "since", "what changed then")
        rows = [_row(history, step, step.raised == device_night.tonight) for step in steps]
        yield from _table(names, rows, "`plots report`")
    for step in over:
        yield f"* over tonight, or the new normal: {step.name}, {change_text(step.change.ratio)}"
    if over:
        yield ""


def _row(history: History, step: Step, new: bool) -> tuple[str, ...]:
    """Cells of the line of a step."""
    what = f"{'the machine: ' if step.kind == 'machine' else ''}{step.name}"
    if step.kind == "class":
        what += f": {len(step.members)} cases together"
    began = history.nights[step.began]
    verdict = ("SLOWER" if step.change.log > 0 else "FASTER") + (" (new)" if new else "")
    noise, since = f"±{share_text(math.expm1(step.noise), 1)}", f"{began.utc[:10]} ({began.run_id})"
    by = change_cells(step.change.ratio, step.change.low, step.change.high)
    return verdict, what, *by, noise, since, _changes(began.changed) or "nothing that is known"


def _table(names: Sequence[str], rows: Sequence[Sequence[str]], where: str) -> Iterator[str]:
    """A table of the first MOST_SHOWN of the rows; `where` the others are."""
    yield from markdown_lines(names, rows[:MOST_SHOWN])
    if len(rows) > MOST_SHOWN:
        yield f"\n... and {len(rows) - MOST_SHOWN} more, in {where}"
    yield ""


def _failing(device_night: Tonight) -> Iterator[str]:
    if not device_night.failing:
        return
    yield from ("## What had a time and has none", "")
    rows = [
        (row_name(each.row), each.row.status, each.since, each.row.reason[:160])
        for each in device_night.failing
    ]
    yield from _table(("case", "tonight", "since", "why"), rows, "the result file")


def _times(device_night: Tonight) -> Iterator[str]:
    """How many times there are tonight, what was compared, and how the machine was."""
    if (judged := device_night.judged) is None:
        return
    history = judged.history
    here = np.isfinite(history.log_s[:, -1]) & ~history.series["ceiling"].to_numpy(dtype=bool)
    doubted = int((history.doubted[:, -1] & here).sum())
    segment = sum(night.segment == history.nights[-1].segment for night in history.nights)
    yield (
        f"* {count_text(int(here.sum()), 'case')} (ceilings apart) got a time: {device_night.compared} were "
        f"compared, {doubted} are suspect (a neighbour, heat, a limit) and count for nothing; "
        f"{count_text(len(history.nights), 'night')}, {segment} of them comparable with tonight"
    )
    for name, moved in zip(BOUNDS, judged.machine[:, -1], strict=True):
        if math.isfinite(moved):
            yield f"* the machine's ceilings ({name}): {change_text(math.exp(moved))} tonight"
