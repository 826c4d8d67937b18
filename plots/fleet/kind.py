"""What the page says of the units of one kind, in words, and its charts with their data."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from bench.fleet.fit import Fit, Slow
from bench.fleet.observed import CLASSES, SETTINGS, Fleet, newest, tags_of_all
from bench.fleet.report import JOBS
from bench.fleet.since import histories
from bench.format import change_text, count_text, share_text
from plots.fleet import charts, nights, rows
from plots.fleet.charts import ALL, UNNAMED

SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
"""Units of the jobs whose slowest is drawn; those of JOBS are in the table."""


def kind(
    fleet: Fleet, fit: Fit, slug: str, reasons: Mapping[Slow, str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the template says of a kind, and its charts and their data for the page."""
    times = fleet.of_kind(slug)
    slow = [each for each in fit.slow if each.kind == slug]
    named = _named(fleet, slow)
    past = histories(times)
    units = rows.of_units(fleet, fit, slug)
    classes = [of for of in CLASSES if any(row["class"] == of for row in units)]
    manners = [manner for manner in charts.MANNERS if any(row["manner"] == manner for row in units)]
    drawn = {(row["class"], row["manner"]) for row in units}
    strips = [(f"strip-{i}", *group) for i, group in enumerate(rows.groups(units).items())]
    losses = rows.of_jobs(units, {fleet.units[unit].name for unit in named}, SIZES)
    tracks = [nights.of_slow(fleet, past, each) for each in slow]
    moved = list(nights.moved(fleet, past, named))
    shown = nights.drawn(past, [*tracks, *(track for _, track in moved)])
    states = {row["state"] for row in units}
    specs = {
        f"units-{of}": charts.sorted_units(of, manners, {row["state"] for row in units if row["class"] == of})
        for of in classes
    }
    specs |= {chart: charts.strips(field, _title(field), values, states) for chart, field, values in strips}
    specs |= {"clocks": charts.clocks(states), "slowest": charts.slowest(classes, bool(named))}
    specs["nights"] = charts.nights([track.title for track in shown])
    data = {charts.EFFECTS: units, charts.SLOWEST: losses, charts.NIGHTS: nights.rows(past, shown)}
    words = dict(
        slug=slug,
        facts=_facts(fleet, times, slug),
        differing=list(_differing(times)),  # settings in which its units differ
        judged=any(spread.kind == slug for spread in fit.spreads),
        slow=[
            _line(fleet, each, reasons, nights.since_text(past, track))
            for each, track in zip(slow, tracks, strict=True)
        ],
        moved=[unit for unit, _ in moved],
        history=nights.sentence(past),
        classes=[(of, _apart(fit, slug, of)) for of in classes],
        choices=_choices(slow, [f"{of}, {how}" for of in classes for how in manners if (of, how) in drawn]),
        strips=[(chart, _title(field)) for chart, field, _ in strips],  # with what each groups by
        clocks=any(row.get("clock_mhz") is not None and row["power_w"] is not None for row in units),
        jobs=_jobs(losses),
        loss=_most_lost(losses),
        jobs_manner=manners[-1] if manners else "",
        panels=len(shown),  # histories that are drawn
    )
    return words, {"charts": specs, "data": data}


def _named(fleet: Fleet, slow: Sequence[Slow]) -> set[str]:
    """The units that are named, those of slow nodes too."""
    whole = {each.node for each in slow if each.unit is None}
    of_nodes = {unit.id for unit in fleet.units.values() if unit.node in whole}
    return of_nodes | {each.unit for each in slow if each.unit is not None}


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
    span = dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}"
    return ", ".join([*parts, span, *tags_of_all(units)])


def _differing(times: pd.DataFrame) -> Iterator[str]:
    """`power limit (W) 700 (190 units), 600 (8 units)` for each setting in which units differ."""
    last = newest(times).drop_duplicates("unit", keep="last")
    for name in SETTINGS:
        counts = last[name].astype(object).where(last[name].notna(), "unknown").value_counts()
        if len(counts) > 1:
            values = (
                f"{f'{value:g}' if isinstance(value, float) else value} ({count_text(int(count), 'unit')})"
                for value, count in counts.items()
            )
            yield f"{name.replace('_w', ' (W)').replace('_', ' ')} {', '.join(values)}"


def _apart(fit: Fit, slug: str, of: str) -> str:
    """How far healthy units are apart in a class."""
    spreads = [each for each in fit.spreads if (each.kind, each.klass) == (slug, of)]
    phrases = [
        f"{share_text(math.expm1(each.sd), 1)} {rows.manner(bool(each.together))}, of which "
        f"{share_text(math.expm1(each.own_sd), 1)} is noise of measuring"
        for each in spreads
    ]
    return f"Standard deviation of healthy units: {'; '.join(phrases)}." if phrases else ""


def _choices(slow: Sequence[Slow], every: Sequence[str]) -> list[str]:
    """The kinds of work to choose from, `compute, alone`, that of the slowest unit first."""
    worst = max(slow, key=lambda each: each.effect, default=None)
    first = f"{worst.klass}, {rows.manner(bool(worst.together))}" if worst else ""
    return sorted(every, key=lambda choice: choice != first)


# ---- slow units


def _line(fleet: Fleet, slow: Slow, reasons: Mapping[Slow, str], change: str) -> dict[str, Any]:
    """A slow unit, or node, in the table; `about`: serial number and tags, or the node's number of units."""
    unit = fleet.units[slow.unit] if slow.unit else None
    if unit:
        about = [f"serial {unit.serial}"] if unit.serial else []
        about += [f"{key} {value}" for key, value in unit.tags.items()]
    else:
        count = sum(each.node == slow.node for each in fleet.units.values())
        about = [f"the whole node, {count_text(count, 'unit')}"]
    return dict(
        name=slow.name,
        about=about,
        slow_in=_slow_in(slow),
        by=change_text(math.exp(slow.effect)),
        interval=f"{change_text(math.exp(slow.low))} to {change_text(math.exp(slow.high))}",
        why=reasons.get(slow, ""),
        since=change,
    )


def _slow_in(slow: Slow) -> str:
    """`compute, alone and together; memory, alone`."""
    classes: dict[str, list[str]] = {}
    for of, together in slow.slow_in:
        if together is not None:
            classes.setdefault(of, []).append(rows.manner(together))
    return "; ".join(f"{of}, {' and '.join(how)}" for of, how in classes.items()) or "all kinds a little"


# ---- jobs


def _jobs(losses: Sequence[rows.Row]) -> list[tuple[str, list[tuple[str, str]]]]:
    """(class, (loss drawn from all units, from those that are not named) for each of JOBS).

    The second is empty where none of the class's units is named.
    """
    of = {(row["class"], row["among"], row["units"]): row["text"] for row in losses}
    return [
        (each, [(of.get((each, ALL, size), ""), of.get((each, UNNAMED, size), "")) for size in JOBS])
        for each in dict.fromkeys(row["class"] for row in losses)
    ]


def _most_lost(losses: Sequence[rows.Row]) -> tuple[str, str] | None:
    """The class in which a job of JOBS[1] of all units loses most, and how much; None if there are fewer."""
    mine = [row for row in losses if (row["among"], row["units"]) == (ALL, JOBS[1])]
    if not mine:
        return None
    most = max(mine, key=lambda row: row["percent"])
    return most["class"], most["text"].removeprefix("+")
