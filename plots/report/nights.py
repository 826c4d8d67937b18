"""The section on several nights: what moved, since when, what changed with it, and each series that did.

It says what `python -m bench nightly` said on those nights (bench/judge/history/steps.py). Of many units of a
kind those are shown on which something stands open.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench.format import change_cells, change_text, count_text, share_text
from bench.judge.history.change_points import change_points
from bench.judge.history.load import histories
from bench.judge.history.series import History
from bench.judge.history.steps import BOUNDS, JudgedHistory, Step, judged
from plots.base import scale, style
from plots.report.section import Results, Section, filled, svg

MOST_NIGHTS = 120
"""Nights that are judged again, the last ones of a history."""
MOST_DEVICES, MOST_STEPS, MOST_DRAWN = 8, 60, 12
"""Devices with nights, lines of the table of a device and series that are drawn, at most."""
WIDTH_IN, HEIGHT_IN = 9.0, 2.4


def section(results: Results) -> Section | None:
    """The section on the nights of the devices among `results.files`; None if there is nothing to show."""
    several = [each for each in histories(results.files, lambda sentence: None) if len(each.nights) > 1]
    units = Counter(each.device for each in several)
    found = [judged(each, MOST_NIGHTS) for each in several]
    shown = [each for each in found if _open(each) or units[each.history.device] == 1]
    if not shown:
        return None
    devices = [_device(each) for each in sorted(shown, key=lambda each: not _open(each))[:MOST_DEVICES]]
    more = len(found) - len(devices)
    return Section("Night by night", "nights", filled("nights.html.j2", devices=devices, more=more))


def _open(found: JudgedHistory) -> list[Step]:
    return [step for step in found.steps if step.ended is None]


def _device(found: JudgedHistory) -> dict[str, Any]:
    """What is shown of the nights of one device."""
    history = found.history
    steps = sorted(found.steps, key=lambda step: (step.ended is not None, -abs(step.change.log) / step.noise))
    unit = f", unit {history.unit[:8]}" if history.unit else ""
    shown = [step for step in steps if step.kind == "series"][:MOST_DRAWN]
    drawings = []
    if np.isfinite(found.machine).any():
        drawings.append(("The machine: how far the ceilings moved", _machine(found)))
    drawings += [(step.name, _series(found, step)) for step in shown]
    return {
        "name": f"{history.device_name}{unit}",
        "sentence": _sentence(found),
        "lines": [_line(history, step) for step in steps[:MOST_STEPS]],
        "left_out": max(0, len(steps) - MOST_STEPS),
        "drawings": drawings,
        "nights": list(_told(history)),
    }


def _sentence(found: JudgedHistory) -> str:
    nights = found.history.nights
    standing = [step for step in _open(found) if step.kind != "machine"]
    slower = sum(step.change.log > 0 for step in standing)
    segments = nights[-1].segment + 1
    dates = len({night.utc[:10] for night in nights})
    count = count_text(len(nights), "night")
    if dates < len(nights):  # trials of an evening, say
        count = f"{count_text(len(nights), 'run')} on {count_text(dates, 'day')}"
    return (
        f"{count} from {nights[0].utc[:10]} to {nights[-1].utc[:10]}, in "
        f"{count_text(segments, 'segment')} of one driver and software each; on the last night {slower} "
        f"slower and {len(standing) - slower} faster than before, {count_text(len(found.steps), 'change')} "
        "in all"
    )


def _line(history: History, step: Step) -> dict[str, str]:
    """A change, as the table shows it."""
    began = history.nights[step.began]
    by, interval = change_cells(step.change.ratio, step.change.low, step.change.high)
    ended = "open" if step.ended is None else f"until {history.nights[step.ended].utc[:10]}"
    what = {
        "machine": f"the machine: {step.name}",
        "class": f"{step.name}: {count_text(len(step.members), 'case')} together",
    }.get(step.kind, step.name)
    return {
        "word": "SLOWER" if step.change.log > 0 else "FASTER",
        "what": what,
        "by": by,
        "interval": interval,
        "usual": f"±{share_text(math.expm1(step.noise), 1)}",
        "since": f"{began.utc[:10]}, {began.run_id}",
        "state": ended,
        "with_it": ", ".join(map(_change_text, began.changed)) or "nothing that is known",
    }


def _change_text(change: tuple[str, str, str]) -> str:
    fact, before, after = change
    return f"{fact} {before} -> {after}"


def _told(history: History) -> Iterator[tuple[str, str, str]]:
    """The nights on which more than the commit changed."""
    for night in history.nights:
        if changed := [_change_text(change) for change in night.changed if change.fact != "commit"]:
            yield night.utc[:10], night.run_id, "; ".join(changed)


def _axes(history: History) -> tuple[Figure, Axes]:
    """Axes over the nights, one place each, so that nights of one evening stand apart, with their dates."""
    with style.look():
        figure = Figure(figsize=(WIDTH_IN, HEIGHT_IN), layout="constrained")
        axes = figure.subplots()
    count = len(history.nights)
    ticks = np.unique(np.linspace(0, count - 1, min(count, 7)).round().astype(int))
    moments = [datetime.fromisoformat(night.utc) for night in history.nights]
    form = "%d %b" if (moments[-1] - moments[0]).days > 1 else "%d %b %H:%M"
    axes.set_xticks(ticks, [moments[at].strftime(form) for at in ticks])
    axes.set_xlim(-0.7, count - 0.3)
    for at, night in enumerate(history.nights):
        if at and night.segment != history.nights[at - 1].segment:
            axes.axvline(at - 0.5, color=style.GREY, linewidth=1, linestyle=":")
    return figure, axes


def _series(found: JudgedHistory, step: Step) -> Markup:
    """The times of a series, hollow where doubted, its levels, and the band of usual nights before a step."""
    history = found.history
    with style.look():
        figure, axes = _axes(history)
        log, doubted = history.log_s[step.row], history.doubted[step.row]
        factor, unit = scale.scaled(pd.Series(np.exp(log)), "s")
        nights = np.arange(len(log))
        color = style.of_implementation(str(history.series.iloc[step.row]["implementation"])).color
        axes.plot(nights[~doubted], np.exp(log[~doubted]) * factor, "o", color=color, markersize=4)
        axes.plot(nights[doubted], np.exp(log[doubted]) * factor, "o", color=color, markersize=4, mfc="none")
        segments = [night.segment for night in history.nights]
        sound = np.where(doubted, np.nan, log)
        starts = {at for at in nights[1:] if segments[at] != segments[at - 1]}
        points = sorted({0, step.began, *starts, *change_points(sound, segments), len(log)})
        for begin, end in pairwise(points):
            if np.isfinite(sound[begin:end]).any():
                level = np.exp(np.nanmedian(sound[begin:end])) * factor
                axes.plot([begin - 0.4, end - 0.6], [level, level], color=color, linewidth=2)
                if end == step.began:
                    ends = level * np.exp([-step.noise, step.noise])
                    axes.fill_between([begin - 0.4, len(log) - 0.6], *ends, color=style.FAINT, zorder=0)
        axes.axvline(step.raised, color=style.GREY, linewidth=1)
        axes.set_ylabel(f"duration ({unit})")
        axes.margins(y=0.25)
    return svg(
        figure,
        f"Duration of {step.name} by night; it changed by {change_text(step.change.ratio)}, and the vertical "
        "line is the night that raised it",
    )


def _machine(found: JudgedHistory) -> Markup:
    with style.look():
        figure, axes = _axes(found.history)
        for name, moved, color in zip(BOUNDS, found.machine, style.COLORS, strict=False):
            axes.plot(100 * np.expm1(moved), "o-", color=color, markersize=3, label=name)
        axes.axhline(0, color=style.GREY, linewidth=1)
        axes.set_ylabel("change of time (%)")
        axes.legend(loc="upper left")
    return svg(figure, "How far the ceilings of memory and of the cores departed from their median, by night")
