"""What the page says of the units of one kind, in words, and its charts with their data."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.fleet.fit import Fit, Slow
from bench.fleet.observed import CLASSES, SETTINGS, Fleet, newest
from bench.fleet.since import LEAST_NIGHTS, NIGHTS, Histories, Series, Worse, histories, since
from bench.format import change_text, count_text, share_text
from plots.fleet import charts, rows

if TYPE_CHECKING:
    import pandas as pd

JOBS = (8, 64, 512)
"""Units of the jobs in the table of what they lose."""
MOST_PANELS = 24
"""Histories that are drawn."""


@dataclass(frozen=True)
class Line:
    """A slow unit, or node, in the table."""

    name: str
    about: str
    """Serial number and tags of a unit, number of units of a node."""
    slow_in: str
    by: str
    interval: str
    why: str
    since: str


@dataclass(frozen=True)
class Moved:
    """A unit that is worse than it was, but is not named as slow."""

    name: str
    of: str
    since: str
    by: str
    nights: int


@dataclass(frozen=True)
class Kind:
    """What the template says of one kind; numbers as texts."""

    slug: str
    facts: str
    differing: Sequence[str]
    """Settings in which its units differ."""
    judged: bool
    slow: Sequence[Line]
    moved: Sequence[Moved]
    history: str
    """A sentence on the nights."""
    classes: Sequence[tuple[str, str]]
    """Those that are drawn, each with a sentence on how far its units are apart."""
    choices: Sequence[str]
    """`compute, alone`: what strips and clocks can show; first what is best to look at first."""
    strips: Sequence[tuple[str, str]]
    """(chart, what it groups by)."""
    clocks: bool
    """Whether clocks and power are known."""
    jobs: Sequence[tuple[str, Sequence[tuple[str, str]]]]
    """(class, (loss drawn from all units, from those that are not named) for each of JOBS)."""
    jobs_manner: str
    panels: int
    """Histories that are drawn."""


def kind(fleet: Fleet, fit: Fit, slug: str, why: Callable[[Slow], str]) -> tuple[Kind, dict[str, Any]]:
    """The kind's words, and its charts and their data for the page."""
    times = fleet.of_kind(slug)
    slow = [each for each in fit.slow if each.kind == slug]
    named = {
        unit.id
        for unit in fleet.units.values()
        for each in slow
        if each.unit in (unit.id, None) and each.node == unit.node
    }
    past = histories(times)
    units = rows.of_units(fleet, fit, slug)
    classes = [of for of in CLASSES if any(row["class"] == of for row in units)]
    manners = [manner for manner in charts.MANNERS if any(row["manner"] == manner for row in units)]
    drawn = {(row["class"], row["manner"]) for row in units}
    strips = [(f"strip-{i}", *group) for i, group in enumerate(rows.groups(units).items())]
    losses = rows.of_jobs(units, {fleet.units[unit].name for unit in named})
    changes = [_change(fleet, past, each) for each in slow]
    shown, marks = _panels(fleet, past, slow, named)
    states = {row["state"] for row in units}
    specs = {
        f"units-{of}": charts.sorted_units(of, manners, {row["state"] for row in units if row["class"] == of})
        for of in classes
    }
    specs |= {chart: charts.strips(field, _title(field), values, states) for chart, field, values in strips}
    specs |= {"clocks": charts.clocks(states), "slowest": charts.slowest(classes, bool(named))}
    specs["nights"] = charts.nights(list(shown))
    nights = rows.of_nights(shown, past, marks)
    data = {charts.EFFECTS: units, charts.SLOWEST: losses, charts.NIGHTS: nights}
    words = Kind(
        slug=slug,
        facts=_facts(fleet, times, slug),
        differing=list(_differing(times)),
        judged=any(spread.kind == slug for spread in fit.spreads),
        slow=[_line(fleet, each, why(each), change) for each, change in zip(slow, changes, strict=True)],
        moved=list(_moved(fleet, past, named)),
        history=_history(past),
        classes=[(of, _apart(fit, slug, of)) for of in classes],
        choices=_choices(slow, [f"{of}, {how}" for of in classes for how in manners if (of, how) in drawn]),
        strips=[(chart, _title(field)) for chart, field, _ in strips],
        clocks=any(row.get("clock_mhz") is not None and row["power_w"] is not None for row in units),
        jobs=_jobs(losses),
        jobs_manner=manners[-1] if manners else "",
        panels=len(shown),
    )
    return words, {"charts": specs, "data": data}


def _title(field: str) -> str:
    return field.removeprefix("tag ")


def _facts(fleet: Fleet, times: pd.DataFrame, slug: str) -> str:
    """`198 units on 25 nodes, 396 runs, 12 cases, 2026-03-01`."""
    units = [unit for unit in fleet.units.values() if unit.kind == slug]
    nodes = len({unit.node for unit in units})
    dates = sorted({str(utc)[:10] for utc in times["utc"].unique()})
    parts = [
        f"{count_text(len(units), 'unit')} on {count_text(nodes, 'node')}",
        count_text(int(times.groupby(["unit", "run_id"], observed=True).ngroups), "run"),
        count_text(times["case"].nunique(), "case"),
    ]
    return ", ".join([*parts, dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}"])


def _differing(times: pd.DataFrame) -> Iterator[str]:
    """`power_limit_w: 700 (190 units), 600 (8 units)` for each setting in which units differ."""
    last = newest(times).drop_duplicates("unit", keep="last")
    for name in SETTINGS:
        counts = last[name].astype(object).where(last[name].notna(), "unknown").value_counts()
        if len(counts) > 1:
            values = (f"{value} ({count_text(int(count), 'unit')})" for value, count in counts.items())
            yield f"{name}: {', '.join(values)}"


def _apart(fit: Fit, slug: str, of: str) -> str:
    """How far healthy units are apart in a class."""
    spreads = [each for each in fit.spreads if (each.kind, each.klass) == (slug, of)]
    said = [
        f"{share_text(math.expm1(each.sd), 1)} {rows.manner(bool(each.together))}, of which "
        f"{share_text(math.expm1(each.own_sd), 1)} is noise of measuring"
        for each in spreads
    ]
    return f"Standard deviation of healthy units: {'; '.join(said)}." if said else ""


def _choices(slow: Sequence[Slow], every: Sequence[str]) -> list[str]:
    """Every choice, that of the slowest unit first."""
    worst = max(slow, key=lambda each: each.effect, default=None)
    first = f"{worst.klass}, {rows.manner(bool(worst.together))}" if worst else ""
    return sorted(every, key=lambda choice: choice != first)


# ---- slow units


def _line(fleet: Fleet, slow: Slow, why: str, change: str) -> Line:
    unit = fleet.units[slow.unit] if slow.unit else None
    if unit:
        about = [f"serial {unit.serial}"] if unit.serial else []
        about += [f"{key} {value}" for key, value in unit.tags.items()]
    else:
        count = sum(each.node == slow.node for each in fleet.units.values())
        about = [f"the whole node, {count_text(count, 'unit')}"]
    return Line(
        name=slow.name,
        about=", ".join(about),
        slow_in=_slow_in(slow),
        by=change_text(math.exp(slow.effect)),
        interval=f"{change_text(math.exp(slow.low))} to {change_text(math.exp(slow.high))}",
        why=why,
        since=change,
    )


def _slow_in(slow: Slow) -> str:
    """`compute, alone and together; memory, alone`."""
    classes: dict[str, list[str]] = {}
    for of, together in slow.slow_in:
        if together is not None:
            classes.setdefault(of, []).append(rows.manner(together))
    return "; ".join(f"{of}, {' and '.join(how)}" for of, how in classes.items()) or "all classes a little"


def _series(past: Histories, slow: Slow) -> list[Series]:
    """The histories of what is slow: its own, or those of a node's units."""
    manners = [(of, together) for of, together in slow.slow_in if together is not None]
    worst = [(slow.klass, slow.together)] if slow.together is not None else manners
    return [each for each in past.effect if (each.of, each.together) in worst]


def _change(fleet: Fleet, past: Histories, slow: Slow) -> str:
    """`2026-03-14`: since when it is slow; empty where nights are too few."""
    mine = [
        each
        for each in _series(past, slow)
        if fleet.units[each.unit].node == slow.node and slow.unit in (each.unit, None)
    ]
    values = np.array([past.effect[each] for each in mine])
    if not len(values) or not past.can_tell:
        return ""
    seen = np.isfinite(values).any(axis=0)
    together = np.full(len(past.dates), np.nan)
    together[seen] = np.nanmedian(values[:, seen], axis=0)
    if worse := since(together):
        return past.dates[worse.night]
    if seen.sum() < NIGHTS + LEAST_NIGHTS:
        return f"only {count_text(int(seen.sum()), 'night')}"
    return f"its first night, {past.dates[int(np.flatnonzero(seen)[0])]}, or before"


# ---- nights


def _history(past: Histories) -> str:
    nights = count_text(len(past.dates), "night")
    if past.can_tell:
        return f"{nights}, from {past.dates[0]} to {past.dates[-1]}."
    there = "There is" if len(past.dates) == 1 else "There are"
    return f"{there} {nights}; to say since when a unit is worse takes {NIGHTS + LEAST_NIGHTS}."


def _moved(fleet: Fleet, past: Histories, named: set[str]) -> Iterator[Moved]:
    """Units that nobody named, where they are worse than they were, the largest change first."""
    for series, worse in sorted(past.worse.items(), key=lambda pair: -pair[1].by):
        if series.unit not in named:
            yield Moved(
                name=fleet.units[series.unit].name,
                of=f"{series.of}, {rows.manner(series.together)}",
                since=past.dates[worse.night],
                by=change_text(math.exp(worse.by)),
                nights=worse.nights,
            )


def _panels(
    fleet: Fleet, past: Histories, slow: Sequence[Slow], named: set[str]
) -> tuple[dict[str, Series], dict[str, Worse]]:
    """The histories to draw by title, and where each got worse: those of slow units, then what moved."""
    if not past.can_tell:
        return {}, {}
    wanted = [
        series
        for each in slow
        for series in _series(past, each)
        if fleet.units[series.unit].node == each.node and each.unit in (series.unit, None)
    ]
    wanted += sorted(
        (each for each in past.worse if each.unit not in named), key=lambda each: -past.worse[each].by
    )
    shown = {
        f"{fleet.units[each.unit].name}: {each.of}, {rows.manner(each.together)}": each
        for each in dict.fromkeys(wanted)
    }
    shown = dict(list(shown.items())[:MOST_PANELS])
    return shown, {title: past.worse[each] for title, each in shown.items() if each in past.worse}


# ---- jobs


def _jobs(losses: Sequence[rows.Row]) -> list[tuple[str, list[tuple[str, str]]]]:
    """(class, (loss drawn from all units, from those that are not named) for each of JOBS)."""
    of = {(row["class"], row["among"], row["units"]): row["text"] for row in losses}
    return [
        (each, [tuple(of.get((each, among, size), "") for among in charts.AMONG) for size in JOBS])
        for each in dict.fromkeys(row["class"] for row in losses)
    ]
