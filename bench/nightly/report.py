"""What a night has to say: a page of Markdown for people, the same as JSON for whatever comes after.

The first line is the verdict. What moved comes with how far that stands out of its noise, since when, and
what changed on that night; then what could not run, how the machine was, and where the time went.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from bench.case_name import row_name
from bench.cli.run_summary import account, sentinel_lines
from bench.cli.table import markdown_lines
from bench.format import change_text, count_text, share_text
from bench.judge.comparability import Difference
from bench.judge.history.detector import ConfirmedChange, JudgedHistory
from bench.judge.history.rolling import LEAST
from bench.judge.history.series import COMMIT, History
from bench.nightly.night import BROKEN, CLEAN, NOT_COMPARABLE, REGRESSION, Tonight
from bench.nightly.verdict_changes import flip_lines, quiet_lines

VERDICTS = {CLEAN: "CLEAN", REGRESSION: "REGRESSION", NOT_COMPARABLE: "NOT COMPARABLE", BROKEN: "BROKEN"}
MOST_SHOWN = 20
"""Rows of a table of the page; the JSON has all."""
ALONE = 3
"""More single series of one class and direction are one line of the page."""
LAST = 5
"""Nights before a change with which tonight is compared, where the change cannot be judged."""


def nightly_lines(nights: Sequence[Tonight]) -> Iterator[str]:
    """The page, a section for each device."""
    for device_night in nights:
        yield from _device(device_night)


def _device(device_night: Tonight) -> Iterator[str]:
    yield f"# {_verdict([device_night], device_night.exit_code)}: {device_night.device}"
    yield ""
    yield f"{_in_short(device_night)}."
    yield ""
    yield from flip_lines(device_night.verdict_changes, MOST_SHOWN)
    for remark in device_night.unfit:
        yield f"* {'refused' if remark.refuses else 'beware'}: {remark}"
    tonight, judged = device_night.night, device_night.judged
    if tonight is not None:
        facts = ", ".join(f"{name} {text}" for name, text in tonight.facts.items() if name != "libraries")
        yield f"* run {tonight.run_id}, commit {tonight.commit or 'unknown'}; {facts}"
        if tonight.changed:
            yield f"* changed since the night before: {_changes(tonight.changed)}"
        for remark_text in tonight.remarks:
            yield f"* tonight: {remark_text}"
    for sentence in device_night.left_out:
        yield f"* left out: {sentence}"
    yield ""
    if judged is not None:
        yield from _moved(device_night, judged)
        yield from _across(judged.history, device_night.tonight or 0)
    yield from _failing(device_night)
    yield from quiet_lines(device_night.verdict_changes, MOST_SHOWN)
    if judged is not None:
        yield from _nights(device_night, judged)
    if device_night.rows:
        yield from ("## What ran, and where the time went", "")
        for line in account(device_night.rows, device_night.wall_s, device_night.parts_s):
            yield f"  {line}" if line.startswith(" ") else f"* {line}"
        for line in sentinel_lines(device_night.rows):
            yield f"* {line}"
        for path in device_night.paths:
            yield f"* rows: `{path}`"
        if device_night.paths:
            yield f"* page: `python -m plots history {device_night.paths[-1].parent}`"
        yield ""


def _verdict(nights: Sequence[Tonight], exit_code: int) -> str:
    """The word for an exit code. That of the first nights is no verdict: nobody is to take it for CLEAN."""
    if exit_code == CLEAN and not any(device_night.compared for device_night in nights):
        return "LEARNING"
    return VERDICTS[exit_code]


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
    if device_night.is_learning and not device_night.compared:
        clauses.append(f"nothing was compared yet: {_why_not(device_night)}")
    elif not device_night.compared:
        clauses.append(f"nothing could be compared: {_why_not(device_night)}")
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


def _moved(device_night: Tonight, judged: JudgedHistory) -> Iterator[str]:
    steps = device_night.steps(kinds=("machine", "class", "series"))
    steps.sort(key=lambda step: (step.effect < 0, -abs(step.effect) / max(step.noise, 1e-9)))
    over = [step for step in judged.steps if step.ended is not None and step.ended == device_night.tonight]
    if steps:
        yield from ("## What moved", "")
        names = ("", "what", ">by", ">usual within", "since", "what changed then")
        rows = [_row(device_night, judged.history, alike) for alike in _together(judged.history, steps)]
        yield from _table(names, rows, "in the JSON and on the history page")
    if over:
        yield from ("## What is over tonight", "")
        endings = {
            "recovered": "is back",
            "accepted": "has held for a week: the new normal",
            "gone": "has not been measured for a month",
        }
        for step in over:
            how = endings.get(step.ending or "", "belongs to nights before a change")
            yield f"* {step.name}: {change_text(math.exp(step.effect))} {how}"
        yield ""


def _together(history: History, steps: Sequence[ConfirmedChange]) -> list[list[ConfirmedChange]]:
    """The steps, those of many single series of one class and direction as one line of the page."""
    groups: dict[object, list[ConfirmedChange]] = {}
    for at, step in enumerate(steps):
        of = (*history.series.iloc[step.row][["operator", "implementation"]], step.effect > 0)
        groups.setdefault(of if step.kind == "series" else at, []).append(step)
    return [
        line
        for group in groups.values()
        for line in ([group] if len(group) > ALONE else [[step] for step in group])
    ]


def _row(device_night: Tonight, history: History, steps: Sequence[ConfirmedChange]) -> tuple[str, ...]:
    """Cells of one line: a step, or many of one class."""
    most = steps[0]
    word = "SLOWER" if most.effect > 0 else "FASTER"
    new = sum(step.raised == device_night.tonight for step in steps)
    if len(steps) > 1:
        of = " ".join(history.series.iloc[most.row][["operator", "implementation"]])
        what = f"{of}: {len(steps)} cases singly, most of all {most.name}"
    else:
        what = {
            "machine": f"the machine: {most.name}",
            "class": f"{most.name}: {len(most.members)} cases together",
        }.get(most.kind, most.name)
    effect, noise = (float(np.median([getattr(s, name) for s in steps])) for name in ("effect", "noise"))
    times = f", {abs(effect) / noise:.1f} x" if noise > 0 else ""
    began = history.nights[min(step.began for step in steps)]
    return (
        word + (f" ({'' if new == len(steps) else f'{new} '}new)" if new else ""),
        what,
        change_text(math.exp(effect)),
        f"±{share_text(math.expm1(noise), 1)}{times}",
        f"{began.utc[:10]} ({began.run_id})",
        _changes(began.changed) or "nothing that is known",
    )


def _table(names: Sequence[str], rows: Sequence[Sequence[str]], where: str) -> Iterator[str]:
    """A table of the first MOST_SHOWN of the rows; `where` the others are."""
    yield from markdown_lines(names, rows[:MOST_SHOWN])
    if len(rows) > MOST_SHOWN:
        yield f"\n... and {len(rows) - MOST_SHOWN} more, {where}"
    yield ""


def _across(history: History, at: int) -> Iterator[str]:
    """The night at this place relative to those before, by class, where it begins a new segment."""
    if not at or history.nights[at - 1].segment == history.nights[at].segment:
        return
    changed = [change for change in history.nights[at].changed if change.fact != COMMIT.name]
    yield from (f"## Across the change of {_changes(changed)}", "")
    yield "For information, no verdict: the machine itself changed. Median over the series of a class,"
    yield f"tonight, compared with the median of up to {LAST} nights before."
    yield ""
    before = history.log_s[:, max(0, at - LAST) : at]
    there = ~np.isnan(history.log_s[:, at]) & ~np.isnan(before).all(axis=1)
    if not there.any():
        yield from ("* no case was timed on both sides", "")
        return
    moved = pd.Series(history.log_s[there, at] - np.nanmedian(before[there], axis=1))
    classes = history.series[there]
    names = (classes["operator"] + " " + classes["implementation"]).to_numpy(dtype=str)
    for name, members in moved.groupby(names):
        yield f"* {name}: {change_text(math.exp(members.median()))} ({count_text(len(members), 'case')})"
    yield ""


def _failing(device_night: Tonight) -> Iterator[str]:
    if not device_night.failing:
        return
    yield from ("## What had a time and has none", "")
    rows = [
        (row_name(each.row), each.row.status, each.since, each.row.reason[:160])
        for each in device_night.failing
    ]
    yield from _table(("case", "tonight", "since", "why"), rows, "in the JSON")


def _nights(device_night: Tonight, judged: JudgedHistory) -> Iterator[str]:
    """The number of nights before, and what was odd about them."""
    history, at = judged.history, device_night.tonight
    yield from ("## The history", "")
    segments = Counter(night.segment for night in history.nights)
    first, last = history.nights[0], history.nights[-1]
    yield (
        f"* {count_text(len(history.nights), 'night')}, tonight among them, from {first.utc[:10]} to "
        f"{last.utc[:10]}, in {count_text(len(segments), 'segment')}; {segments[last.segment]} in the last"
    )
    if at is not None and at != len(history.nights) - 1:
        yield f"* {last.run_id} is dated after tonight: a clock is or was wrong, and tonight is not the last"
    if at is not None:
        ceiling = history.series["ceiling"].to_numpy(dtype=bool)
        here = ~np.isnan(history.log_s[:, at]) & ~ceiling
        doubted = int((history.doubted[:, at] & here).sum())
        short = int((judged.short & here).sum())
        yield (
            f"* tonight {count_text(int(here.sum()), 'case')} (ceilings apart) got a time: "
            f"{device_night.compared} were compared; {short} have too few nights so far; "
            f"{doubted} are suspect (a neighbour, heat, a limit) and count for nothing"
        )
        track = judged.machine
        for place, name in enumerate(("memory", "core")):
            if not math.isnan(track.log[place, at]):
                band = (track.high[place, at] - track.low[place, at]) / 2
                room = f", usual within ±{share_text(math.expm1(band), 1)}" if band == band else ""
                moved = change_text(math.exp(track.log[place, at] - np.nan_to_num(track.centre[place, at])))
                yield f"* the machine's ceilings ({name}): {moved} tonight{room}"
    odd = [night for night in history.nights[:at] if night.remarks][-5:]
    for night in odd:
        yield f"* {night.run_id}: {'; '.join(night.remarks)}"
    yield ""


# ---- the same for machines


def nightly_json(nights: Sequence[Tonight], exit_code: int) -> str:
    """Everything as JSON: seconds, percent, numbers that are not known are null."""
    head = {"schema": 1, "exit_code": exit_code, "verdict": _verdict(nights, exit_code)}
    return (
        json.dumps(
            head | {"devices": [_plain(device_night) for device_night in nights]}, indent=1, allow_nan=False
        )
        + "\n"
    )


def _plain(device_night: Tonight) -> dict[str, Any]:
    tonight = device_night.night
    history = None if device_night.judged is None else device_night.judged.history
    return {
        "device": device_night.device.slug,
        "device_name": device_night.device.name,
        "device_id": device_night.device.id,
        "exit_code": device_night.exit_code,
        "verdict": _verdict([device_night], device_night.exit_code),
        "in_short": _in_short(device_night),
        "unfit": [{"says": str(remark), "refuses": remark.refuses} for remark in device_night.unfit],
        "results": [str(path) for path in device_night.paths],
        "run_id": None if tonight is None else tonight.run_id,
        "commit": None if tonight is None else tonight.commit,
        "facts": {} if tonight is None else dict(tonight.facts),
        "changed": [] if tonight is None else [change._asdict() for change in tonight.changed],
        "remarks": [] if tonight is None else list(tonight.remarks),
        "nights": 0 if history is None else len(history.nights),
        "compared": device_night.compared,
        "steps": [
            _step(history, step, step.raised == device_night.tonight)
            for step in device_night.steps(kinds=("machine", "class", "series"))
            if history is not None
        ],
        "failing": [
            {"case": row_name(each.row)}
            | {name: getattr(each.row, name) for name in ("sweep", "operator", "implementation")}
            | {"parameters": json.loads(each.row.parameters)}
            | {"status": each.row.status, "reason": each.row.reason, "since": each.since}
            for each in device_night.failing
        ],
        "verdict_changes": [change.as_json() for change in device_night.verdict_changes],
        "rows": dict(Counter(row.status for row in device_night.rows)),
        "wall_s": round(device_night.wall_s, 3),
        "left_out": device_night.left_out,
    }


def _step(history: History, step: ConfirmedChange, new: bool) -> dict[str, Any]:
    began = history.nights[step.began]
    series = [step.row] if step.kind == "series" else list(step.members)
    names = ["sweep", "operator", "implementation", "parameters", "cache", "threads_asked"]
    return {
        "kind": step.kind,
        "name": step.name,
        "direction": "slower" if step.effect > 0 else "faster",
        "effect_percent": round(100 * math.expm1(step.effect), 3),
        "noise_percent": round(100 * math.expm1(step.noise), 3),
        "since": began.run_id,
        "since_commit": began.commit,
        "changed_then": [change._asdict() for change in began.changed],
        "confirmed": history.nights[step.raised].run_id,
        "new": new,
        "series": json.loads(history.series.iloc[series][names].to_json(orient="records")),
    }
