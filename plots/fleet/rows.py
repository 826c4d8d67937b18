"""The data of a fleet's charts: a row for each unit, class and manner, each size of a job, each night."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pandas as pd

from bench.fleet.fit import Fit, Slow
from bench.fleet.observed import CLASSES, Fleet, natural, newest
from bench.fleet.report import slowest_of
from bench.fleet.since import ENOUGH, Histories, Worse, since
from bench.format import change_text, count_text
from bench.judge.history.series import Floats
from plots.fleet import charts

Row = dict[str, Any]

MOST_LABELS = 10
"""Points of a panel that have their name beside them; all show it under the pointer."""
APART = 0.07
"""Share of a panel's height by which two labels must be apart."""
DIGITS = 4
MOST_DRAWN = 24
"""Histories that are drawn."""


def manner(together: bool) -> str:
    """How a unit was timed, as charts call it."""
    return charts.MANNERS[bool(together)]


def of_units(fleet: Fleet, fit: Fit, kind: str) -> list[Row]:
    """A row for each unit, class and manner of a kind, the fastest first within each of them."""
    effects = fit.effects[(fit.effects["kind"] == kind) & fit.effects["class"].isin(CLASSES)]
    effects = effects.astype({"together": bool}).sort_values("effect", kind="stable")
    nodes = fit.nodes[fit.nodes["slow"].astype(bool) & (fit.nodes["kind"] == kind)]
    slow_nodes = set(nodes[["node", "class", "together"]].itertuples(index=False, name=None))
    state = _state_of_machine(fleet, kind)
    rows = []
    for key, group in effects.groupby(["class", "together"], sort=False, observed=True):
        of, together = cast(tuple[str, bool], key)
        mine: list[Row] = []
        records: list[dict[str, Any]] = group.to_dict("records")  # type: ignore[assignment]
        for rank, row in enumerate(records, 1):
            shift = row["effect"] - row["relative"]
            ends = (row["effect"], row["low"] + shift, row["high"] + shift)
            effect, low, high = (change_text(math.exp(end)) for end in ends)
            about = {"class": of, "manner": manner(together), "rank": rank, "label": ""}
            about |= zip(("percent", "low", "high"), map(percent, ends), strict=True)
            about |= {"text": f"{effect} ({low} to {high})"}
            in_slow_node = (row["node"], of, together) in slow_nodes
            verdicts = {"slow": row["slow"], "in a slow node": in_slow_node, "fast": row["fast"]}
            about["state"] = next((word for word, is_so in verdicts.items() if is_so), "usual")
            mine.append(_described(fleet, row["unit"]) | about | state.get((row["unit"], of, together), {}))
        _label(mine)
        rows += mine
    return rows


def _described(fleet: Fleet, unit: str) -> Row:
    """What charts say of a unit, and by what they group it."""
    about = fleet.units[unit]
    chance = zlib.crc32(unit.encode()) / 2**31 - 1  # the same in every chart of every run
    return {
        "unit": about.name,
        "serial": about.serial or "unknown",
        "tags": ", ".join(f"{key}={value}" for key, value in about.tags.items()) or "none",
        "jitter": round(chance, 3),
        "node": about.node,
        "slot": about.slot,
        **{f"tag {key}": value for key, value in about.tags.items()},
    }


def _state_of_machine(fleet: Fleet, kind: str) -> dict[tuple[str, str, bool], Row]:
    """(unit, class, together) -> clock, power and temperature in the median of its newest cases."""
    columns = ["sm_clock_hz", "power_w", "temperature_c"]
    times = newest(fleet.of_kind(kind))
    medians = times.groupby(["unit", "class", "together"], observed=True)[columns].median()
    rows: dict[tuple[str, str, bool], Row] = {}
    for (unit, of, together), clock_hz, power_w, heat_c in medians.itertuples(name=None):
        rows[unit, of, bool(together)] = {
            "clock_mhz": None if math.isnan(clock_hz) else round(clock_hz / 1e6),
            "power_w": None if math.isnan(power_w) else round(power_w),
            "clock": "unknown" if math.isnan(clock_hz) else f"{clock_hz / 1e6:.0f} MHz",
            "power": "unknown" if math.isnan(power_w) else f"{power_w:.0f} W",
            "heat": "unknown" if math.isnan(heat_c) else f"{heat_c:.0f} °C",
        }
    return rows


def _label(rows: Sequence[Row]) -> None:
    """Name the slow units of a panel, the slowest first, and a slow node once, as far as there is room."""
    values = [row["percent"] for row in rows]
    apart = APART * (max(values) - min(values))
    taken: list[float] = []
    nodes: set[str] = set()
    for row in sorted(rows, key=lambda row: -row["percent"]):
        name = {"slow": row["unit"], "in a slow node": row["node"]}.get(row["state"], "")
        free = all(abs(row["percent"] - other) >= apart for other in taken)
        if name and name not in nodes and free and len(taken) < MOST_LABELS:
            row["label"] = name
            nodes.add(name)
            taken.append(row["percent"])


def groups(rows: Iterable[Row]) -> dict[str, list[str]]:
    """What units can be grouped by -> its values in order: node, slot, tags; only what has several values."""
    rows = list(rows)
    fields = ["node", "slot", *sorted({name for row in rows for name in row if name.startswith("tag ")})]
    order = {"slot": str}  # hexadecimal
    values = {
        field: sorted({row.get(field, "") for row in rows}, key=order.get(field, natural)) for field in fields
    }
    units = len({(row["unit"], row["serial"]) for row in rows})
    # As many values as units would be a strip for each unit.
    return {field: each for field, each in values.items() if 1 < len(each) < units}


def of_jobs(rows: Sequence[Row], named: set[str], sizes: Sequence[int]) -> list[Row]:
    """A row for each class, size of a job, and whether the named units (by `unit`) may be in it.

    Of units timed together where they were: so a synchronous job sees them.
    """
    of_manner = [row for row in rows if row["manner"] == charts.MANNERS[1]] or rows
    table = []
    for of in CLASSES:
        mine = [row for row in of_manner if row["class"] == of]
        for among, left in ((charts.ALL, set[str]()), (charts.UNNAMED, named)):
            effects = np.array([math.log1p(row["percent"] / 100) for row in mine if row["unit"] not in left])
            if not len(effects) or (left and not any(row["unit"] in left for row in mine)):
                continue
            for size in sizes:
                ratio = slowest_of(effects, size)
                fact = {"percent": percent(math.log(ratio)), "text": change_text(ratio)}
                table.append({"class": of, "among": among, "units": size, **fact})
    return table


def percent(log: float) -> float:
    """The percentage by which a time is longer, from the ln of the ratio."""
    return float(f"{100 * math.expm1(log):.{DIGITS}g}")


# ---- nights


@dataclass(frozen=True)
class NightTrack:
    """The nights of a unit or a node, in the class in which it is slow or got worse."""

    title: str
    effect: Floats
    """[nights] ln of its time over the fleet's; of a node the median of its units."""
    worse: Worse | None


def of_slow(fleet: Fleet, past: Histories, slow: Slow) -> NightTrack | None:
    """The history of what is slow, where it is slowest; None without one."""
    ways = [(of, together) for of, together in slow.slow_in if together is not None]
    worst = (slow.klass, slow.together) if slow.together is not None else next(iter(ways), None)
    mine = [
        effect
        for series, effect in past.effect.items()
        if (series.of, series.together) == worst
        and fleet.units[series.unit].node == slow.node
        and slow.unit in (series.unit, None)
    ]
    if not mine or worst is None:
        return None
    effect = pd.DataFrame(mine).median().to_numpy()
    return NightTrack(f"{slow.name}: {worst[0]}, {manner(bool(worst[1]))}", effect, since(effect))


def since_text(past: Histories, track: NightTrack | None) -> str:
    """Since when: `2026-03-14`, or that it was so on its first night; empty if nights are too few."""
    if track is None or not past.can_tell:
        return ""
    if track.worse:
        return past.dates[track.worse.night]
    seen = np.flatnonzero(np.isfinite(track.effect))
    if len(seen) < ENOUGH:
        return f"unknown: {count_text(len(seen), 'night')}"
    return f"{past.dates[seen[0]]} or before"


def nights_text(past: Histories) -> str:
    """How many nights there are, and whether they are enough."""
    nights = count_text(len(past.dates), "night")
    if past.can_tell:
        return f"{nights}, from {past.dates[0]} to {past.dates[-1]}."
    there = "There is" if len(past.dates) == 1 else "There are"
    return f"{there} {nights}; to say since when a unit is worse takes {ENOUGH}."


def of_moved(fleet: Fleet, past: Histories, named: set[str]) -> Iterator[tuple[dict[str, Any], NightTrack]]:
    """Units that nobody named, where they are worse than they were, the largest change first."""
    for series, worse in sorted(past.worse.items(), key=lambda pair: -pair[1].by):
        if series.unit not in named:
            name = fleet.units[series.unit].name
            of = f"{series.of}, {manner(series.together)}"
            by, began = change_text(math.exp(worse.by)), past.dates[worse.night]
            line = {"name": name, "of": of, "since": began, "by": by, "nights": worse.nights}
            yield line, NightTrack(f"{name}: {of}", past.effect[series], worse)


def of_nights(past: Histories, tracks: Sequence[NightTrack]) -> list[Row]:
    """A row for each track and night with a time; `since` is said in that of its first worse night."""
    rows: list[Row] = []
    for track in tracks:
        for night, (date, effect) in enumerate(zip(past.dates, track.effect, strict=True)):
            if math.isfinite(effect):
                began = track.worse is not None and track.worse.night == night
                row: Row = {"panel": track.title, "date": date, "night": date}
                row |= {"percent": percent(effect), "text": change_text(math.exp(effect))}
                rows.append(row | {"since": f"since {date}" if began else ""})
    return rows
