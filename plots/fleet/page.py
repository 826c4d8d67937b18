"""A fleet's page, one HTML file that needs nothing else: which units are slow, in what, and since when."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from bench.fleet.fit import Fit, Slow
from bench.fleet.observed import CLASSES, SETTINGS, Fleet, newest, nodes_of, tags_of_all
from bench.fleet.report import JOBS, JudgedFleet
from bench.fleet.since import NIGHTS, histories
from bench.fleet.why import Why
from bench.format import change_text, count_text, share_text
from plots.base.shell import page
from plots.base.vega import inlined, library
from plots.fleet import charts, rows
from plots.fleet.charts import ALL, UNNAMED

SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
"""Units of the jobs whose slowest is drawn; those of JOBS are in the table."""


def html(judged_fleet: JudgedFleet) -> str:
    """The page about a fleet that was judged."""
    fleet, fit = judged_fleet.fleet, judged_fleet.fit
    made = [_kind(judged_fleet, slug) for slug in fleet.kinds if (fit.effects["kind"] == slug).any()]
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


# ---- the units of one kind


def _kind(judged_fleet: JudgedFleet, slug: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the template says of a kind, and its charts and their data for the page."""
    fleet, fit = judged_fleet.fleet, judged_fleet.fit
    times = fleet.of_kind(slug)
    whys = [why for why in judged_fleet.why if why.slow.kind == slug]
    slow = [why.slow for why in whys]
    slow_at = {each.unit or each.node for each in slow}
    named = {unit.id for unit in fleet.units.values() if slow_at & {unit.id, unit.node}}
    past = histories(times)
    units = rows.of_units(fleet, fit, slug)
    classes = [of for of in CLASSES if any(row["class"] == of for row in units)]
    manners = [manner for manner in charts.MANNERS if any(row["manner"] == manner for row in units)]
    strips = [
        (f"strip-{i}", field, field.removeprefix("tag "), values)
        for i, (field, values) in enumerate(rows.groups(units).items())
    ]
    losses = rows.of_jobs(units, {fleet.units[unit].name for unit in named}, SIZES)
    tracks = [rows.of_slow(fleet, past, each) for each in slow]
    moved = list(rows.of_moved(fleet, past, named))
    known = [track for track in (*tracks, *(track for _, track in moved)) if track is not None]
    shown = known[: rows.MOST_DRAWN] if past.can_tell else []
    states = {row["state"] for row in units}
    specs = {
        f"units-{of}": charts.sorted_units(of, manners, {row["state"] for row in units if row["class"] == of})
        for of in classes
    }
    specs |= {chart: charts.strips(field, title, values, states) for chart, field, title, values in strips}
    specs |= {"clocks": charts.clocks(states), "slowest": charts.slowest(classes, bool(named))}
    specs["nights"] = charts.nights([track.title for track in shown])
    data = {charts.EFFECTS: units, charts.SLOWEST: losses, charts.NIGHTS: rows.of_nights(past, shown)}
    words = dict(
        slug=slug,
        facts=_facts(fleet, times, slug),
        differing=list(_differing(times)),  # settings in which its units differ
        judged=any(spread.kind == slug for spread in fit.spreads),
        slow=[
            _line(fleet, why, rows.since_text(past, track)) for why, track in zip(whys, tracks, strict=True)
        ],
        moved=[unit for unit, _ in moved],
        history=rows.nights_text(past),
        classes=[(of, _apart(fit, slug, of)) for of in classes],
        choices=_choices(slow, units),
        strips=[(chart, title) for chart, _, title, _ in strips],  # with what each groups by
        clocks=any(row.get("clock_mhz") is not None and row["power_w"] is not None for row in units),
        jobs=_jobs(losses),
        loss=_most_lost(losses),
        jobs_manner=manners[-1] if manners else "",
        panels=len(shown),  # histories that are drawn
    )
    return words, {"charts": specs, "data": data}


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


def _choices(slow: Sequence[Slow], units: Sequence[rows.Row]) -> list[str]:
    """The kinds of work to choose from, `compute, alone`, that of the slowest unit first."""
    worst = max(slow, key=lambda each: each.effect, default=None)
    first = (worst.klass, rows.manner(bool(worst.together))) if worst else None
    every = {(row["class"], row["manner"]) for row in units}
    order = sorted(every, key=lambda choice: (choice != first, CLASSES.index(choice[0]), choice[1]))
    return [", ".join(choice) for choice in order]


# ---- slow units


def _line(fleet: Fleet, why: Why, change: str) -> dict[str, Any]:
    """A slow unit, or node, in the table; `about`: serial number and tags, or the node's number of units."""
    slow = why.slow
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
        why=why.sentence,
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
