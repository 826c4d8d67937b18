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

from bench.case_name import row_name
from bench.cli.run_summary import account, sentinel_lines
from bench.format import change_text, count_text, share_text
from bench.judge.comparability import Difference
from bench.judge.history.detector import Step
from bench.judge.history.rolling import LEAST
from bench.judge.history.series import COMMIT
from bench.judge.history.series import Night as Before
from bench.nightly.night import BROKEN, CLEAN, NOT_COMPARABLE, REGRESSION, Night
from bench.runner.session import measured_s

VERDICTS = {CLEAN: "CLEAN", REGRESSION: "REGRESSION", NOT_COMPARABLE: "NOT COMPARABLE", BROKEN: "BROKEN"}
MOST_SHOWN = 20
"""Rows of a table of the page; the JSON has all."""
ALONE = 3
"""More single series of one class and direction are one line of the page."""
LAST = 5
"""Nights before a change that tonight is set beside, where the two cannot be judged."""


def nightly_lines(nights: Sequence[Night]) -> Iterator[str]:
    """The page, a section for each device."""
    for one in nights:
        yield from _device(one)


def _device(one: Night) -> Iterator[str]:
    yield f"# {VERDICTS[one.exit_code]}: {one.device}"
    yield ""
    yield f"{_in_short(one)}."
    yield ""
    for remark in one.unfit:
        yield f"* {'refused' if remark.refuses else 'beware'}: {remark}"
    tonight = _tonight(one)
    if tonight is not None:
        facts = ", ".join(f"{name} {text}" for name, text in tonight.facts.items() if name != "libraries")
        yield f"* run {tonight.run_id}, commit {tonight.commit or 'unknown'}; {facts}"
        if tonight.changed:
            yield f"* changed since the night before: {_changes(tonight.changed)}"
        for remark_text in tonight.remarks:
            yield f"* tonight: {remark_text}"
    for said in one.left_out:
        yield f"* left out: {said}"
    yield ""
    yield from _moved(one)
    yield from _across(one)
    yield from _failing(one)
    yield from _nights(one)
    if one.rows:
        yield from ("## What ran, and where the time went", "")
        for line in account(one.rows, one.wall_s, measured_s(one.rows)):
            yield f"  {line}" if line.startswith(" ") else f"* {line}"
        for line in sentinel_lines(one.rows):
            yield f"* {line}"
        for path in one.paths:
            yield f"* rows: `{path}`"
        if one.paths:
            yield f"* page: `python -m plots history {one.paths[-1].parent}`"
        yield ""


def _in_short(one: Night) -> str:
    """One sentence."""
    if one.broken:
        return one.broken
    if one.refused:
        return "not measured: the device is not fit"
    if one.refusal:
        return f"not measured: {one.refusal}"
    slower, faster = one.steps(slower=True), one.steps(slower=False)
    tonight = one.tonight
    said = []
    if slower or faster:
        new = sum(step.raised == tonight for step in slower)
        said.append(f"{len(slower)} slower ({new} of them new tonight), {len(faster)} faster")
    if one.failing:
        said.append(f"{len(one.failing)} cases that had a time have none")
    if any(step.kind == "machine" for step in one.steps(slower=True, kinds=("machine",))):
        said.append("the machine itself is slower than it was: see below")
    if not one.compared:
        said.append(f"nothing could be compared: {_why_not(one)}")
    elif not said:
        said.append(f"nothing moved: {one.compared} cases held against their nights")
    else:
        said.append(f"{one.compared} cases compared")
    return "; ".join(said)


def _why_not(one: Night) -> str:
    tonight = _tonight(one)
    if tonight is None or one.judged is None:
        return "there is no result"
    if not tonight.timed:
        return "no case has a time"
    nights = one.judged.history.nights
    first = next(night for night in nights if night.segment == tonight.segment)
    changed = [change for change in first.changed if change.fact != COMMIT.name]
    since = f" since {_changes(changed)}" if changed else ""
    number = sum(night.segment == tonight.segment for night in nights)
    return f"this is night {number}{since}, and a judgement needs {LEAST} before it"


def _tonight(one: Night) -> Before | None:
    at = one.tonight
    return None if one.judged is None or at is None else one.judged.history.nights[at]


def _changes(changed: Sequence[Difference]) -> str:
    return ", ".join(f"{one.fact} {one.before} -> {one.after}" for one in changed)


# ---- what moved


def _moved(one: Night) -> Iterator[str]:
    if one.judged is None:
        return
    steps = one.steps(kinds=("machine", "class", "series"))
    steps.sort(key=lambda step: (step.effect < 0, -abs(step.effect) / max(step.noise, 1e-9)))
    over = [step for step in one.judged.steps if step.ended is not None and step.ended == one.tonight]
    if steps:
        yield from ("## What moved", "")
        yield "| | what | by | usual within | since | what changed then |"
        yield "|---|---|---:|---:|---|---|"
        rows = [_row(one, alike) for alike in _together(one, steps)]
        yield from _cells(rows, "in the JSON and on the history page")
    if over:
        yield from ("## What is over tonight", "")
        said = {
            "recovered": "is back",
            "accepted": "has held for a week: the new normal",
            "gone": "has not been measured for a month",
        }
        for step in over:
            how = said.get(step.ending or "", "belongs to nights before a change")
            yield f"* {step.name}: {change_text(math.exp(step.effect))} {how}"
        yield ""


def _together(one: Night, steps: Sequence[Step]) -> list[list[Step]]:
    """The steps, those of many single series of one class and direction as one line of the page."""
    assert one.judged is not None
    series = one.judged.history.series
    found: dict[object, list[Step]] = {}
    for at, step in enumerate(steps):
        of = (*series.iloc[step.row][["operator", "implementation"]], step.effect > 0)
        found.setdefault(of if step.kind == "series" else at, []).append(step)
    return [
        some for many in found.values() for some in ([many] if len(many) > ALONE else [[s] for s in many])
    ]


def _row(one: Night, steps: Sequence[Step]) -> tuple[str, ...]:
    """Cells of one line: a step, or many of one class."""
    assert one.judged is not None
    nights = one.judged.history.nights
    most = steps[0]
    word = "SLOWER" if most.effect > 0 else "FASTER"
    new = sum(step.raised == one.tonight for step in steps)
    if len(steps) > 1:
        of = " ".join(one.judged.history.series.iloc[most.row][["operator", "implementation"]])
        what = f"{of}: {len(steps)} cases singly, most of all {most.name}"
    else:
        what = {
            "machine": f"the machine: {most.name}",
            "class": f"{most.name}: {len(most.members)} cases together",
        }.get(most.kind, most.name)
    effect, noise = (float(np.median([getattr(s, name) for s in steps])) for name in ("effect", "noise"))
    times = f", {abs(effect) / noise:.1f} x" if noise > 0 else ""
    began = nights[min(step.began for step in steps)]
    return (
        word + (f" ({'' if new == len(steps) else f'{new} '}new)" if new else ""),
        what,
        change_text(math.exp(effect)),
        f"±{share_text(math.expm1(noise), 1)}{times}",
        f"{began.utc[:10]} ({began.run_id})",
        _changes(began.changed) or "nothing that is known",
    )


def _cells(rows: Sequence[Sequence[str]], where: str) -> Iterator[str]:
    """The rows of a table, the first MOST_SHOWN of them; `where` the others are."""
    for row in rows[:MOST_SHOWN]:
        yield "| " + " | ".join(text.replace("|", "\\|").replace("\n", " ") for text in row) + " |"
    if len(rows) > MOST_SHOWN:
        yield f"\n... and {len(rows) - MOST_SHOWN} more, {where}"
    yield ""


def _across(one: Night) -> Iterator[str]:
    """Where a new segment begins: what tonight is beside the nights before the change, by class."""
    at = one.tonight
    if one.judged is None or not at:
        return
    history = one.judged.history
    segment = history.nights[at].segment
    if history.nights[at - 1].segment == segment:
        return
    changed = [change for change in history.nights[at].changed if change.fact != COMMIT.name]
    yield from (f"## Across the change of {_changes(changed)}", "")
    yield "Told, not judged: what changed is on the machine's side. Median over the series of a class,"
    yield f"tonight beside the median of up to {LAST} nights before."
    yield ""
    before = history.log_s[:, max(0, at - LAST) : at]
    there = ~np.isnan(history.log_s[:, at]) & ~np.isnan(before).all(axis=1)
    if not there.any():
        yield from ("* no case was timed on both sides", "")
        return
    moved = history.log_s[there, at] - np.nanmedian(before[there], axis=1)
    classes = history.series[there]
    names = (classes["operator"] + " " + classes["implementation"]).to_numpy(dtype=str)
    for name in np.unique(names):
        members = moved[names == name]
        yield f"* {name}: {change_text(math.exp(np.median(members)))} ({count_text(len(members), 'case')})"
    yield ""


def _failing(one: Night) -> Iterator[str]:
    if not one.failing:
        return
    yield from ("## What had a time and has none", "")
    yield "| case | tonight | since | why |"
    yield "|---|---|---|---|"
    failed = ((failing.row, failing.since) for failing in one.failing)
    yield from _cells([(row_name(r), r.status, since, r.reason[:160]) for r, since in failed], "in the JSON")


def _nights(one: Night) -> Iterator[str]:
    """Of the nights before: how many, and what was odd about them."""
    if one.judged is None:
        return
    history, at = one.judged.history, one.tonight
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
        short = int((one.judged.short & here).sum())
        yield (
            f"* tonight {count_text(int(here.sum()), 'case')} (ceilings apart) got a time: {one.compared} "
            f"were compared; {short} have too few nights so far; {doubted} are suspect (a neighbour, heat, "
            "a limit) and count for nothing"
        )
        track = one.judged.machine
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


def nightly_json(nights: Sequence[Night], exit_code: int) -> str:
    """Everything as JSON: seconds, percent, numbers that are not known are null."""
    told = {"schema": 1, "exit_code": exit_code, "verdict": VERDICTS[exit_code]}
    return json.dumps(told | {"devices": [_plain(one) for one in nights]}, indent=1, allow_nan=False) + "\n"


def _plain(one: Night) -> dict[str, Any]:
    tonight = _tonight(one)
    history = None if one.judged is None else one.judged.history
    return {
        "device": one.device.slug,
        "device_name": one.device.name,
        "device_id": one.device.id,
        "exit_code": one.exit_code,
        "verdict": VERDICTS[one.exit_code],
        "in_short": _in_short(one),
        "unfit": [{"says": str(remark), "refuses": remark.refuses} for remark in one.unfit],
        "results": [str(path) for path in one.paths],
        "run_id": None if tonight is None else tonight.run_id,
        "commit": None if tonight is None else tonight.commit,
        "facts": {} if tonight is None else dict(tonight.facts),
        "changed": [] if tonight is None else [change._asdict() for change in tonight.changed],
        "remarks": [] if tonight is None else list(tonight.remarks),
        "nights": 0 if history is None else len(history.nights),
        "compared": one.compared,
        "steps": [_step(one, step) for step in one.steps(kinds=("machine", "class", "series"))],
        "failing": [
            {
                "case": row_name(failing.row),
                "sweep": failing.row.sweep,
                "operator": failing.row.operator,
                "implementation": failing.row.implementation,
                "parameters": json.loads(failing.row.parameters),
                "status": failing.row.status,
                "reason": failing.row.reason,
                "since": failing.since,
            }
            for failing in one.failing
        ],
        "rows": dict(Counter(row.status for row in one.rows)),
        "wall_s": round(one.wall_s, 3),
        "left_out": one.left_out,
    }


def _step(one: Night, step: Step) -> dict[str, Any]:
    assert one.judged is not None
    history = one.judged.history
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
        "new": step.raised == one.tonight,
        "series": json.loads(history.series.iloc[series][names].to_json(orient="records")),
    }
