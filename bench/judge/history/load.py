"""Result files into histories: which file is which night, and the few columns of each that nights need.

A year of thousands of cases is a million rows of a hundred columns, most of them samples. So one file is read
after the other, without samples, and of each only what nights need is kept.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bench.judge.comparability import Difference, value
from bench.judge.comparison_side import bound_of, case_of
from bench.judge.flags import disturbances
from bench.judge.history.series import COMMIT, CONDITIONS, KEY, SEGMENT, Floats, History, Night
from bench.judge.read_runs import runs
from bench.store import parquet
from bench.store.schema import WITHOUT_SAMPLES, Measurement, RunKey

_Key = tuple[Any, ...]
_conditions = attrgetter(*CONDITIONS)


@dataclass
class _Nights:
    """What has been gathered of one device."""

    name: str
    nights: list[tuple[Night, dict[_Key, tuple[float, float, bool]]]] = field(default_factory=list)
    """Each with ln of the median seconds, half of the interval, and whether it is doubted, of its series."""
    series: dict[_Key, tuple[str, str, bool]] = field(default_factory=dict)
    """dtype, bound and whether it is a ceiling, of each series by the first night that has it."""


def histories(paths: Iterable[Path], left_out: Callable[[str], object] = lambda _: None) -> list[History]:
    """The history of each device in these result files, or folders of them, by device and unit.

    Imported rows have no nights and are left out, as are files that cannot be read or hold a run that is
    there already: each is reported to `left_out` as a sentence. UserError if no file can be read.
    """
    devices: dict[tuple[str, str], _Nights] = {}
    seen: dict[RunKey, Path] = {}
    for path, table in parquet.tables(paths, left_out, WITHOUT_SAMPLES, own=True):
        if table["source"].null_count < len(table) or not len(table):
            left_out(f"{path}: imported timings have no nights")
        by_run: dict[RunKey, list[Measurement]] = defaultdict(list)
        for row in parquet.rows(table):
            if row.source is None and row.measured_in is None:  # the others are in the run that measured them
                by_run[RunKey.of(row)].append(row)
        for whose, rows in by_run.items():
            known = seen.setdefault(whose, path)
            if known is not path:
                if path.read_bytes() != known.read_bytes():
                    left_out(f"{path}: holds the run {whose.run_id}, which {known} holds too")
            elif not _began(whose.run_id):
                left_out(f"{path}: nothing in it tells when the run {whose.run_id} began")
            else:
                unit = whose.device_id if rows[0].device_kind == "cuda" else ""
                into = devices.setdefault((whose.device, unit), _Nights(rows[0].device_name))
                _gather(into, path, whose, rows)
    return [_history(device, unit, gathered) for (device, unit), gathered in sorted(devices.items())]


def _gather(into: _Nights, path: Path, whose: RunKey, rows: Sequence[Measurement]) -> None:
    """Add one run's rows; of a ceiling's two visits in an older file the first counts."""
    timed: dict[_Key, Measurement] = {}
    for row in rows:
        if row.is_timed:
            timed.setdefault((*case_of(row), *_conditions(row)), row)
    if fresh := [key for key in timed if key not in into.series]:
        # Roofs are made of samples, so that night is read whole.
        (run,) = runs(parquet.read_rows(path, whose), without_mixed=True)
        for key in fresh:
            row = timed[key]
            into.series[key] = row.dtype, bound_of(row, run.roof_of(row)), row.role != "measurement"
    told = {
        key: (math.log(row.median_s or 1.0), _own_half(row), bool(disturbances(row)))
        for key, row in timed.items()
    }
    into.nights.append((_night(whose, rows, list(timed.values())), told))


def _own_half(row: Measurement) -> float:
    """Half of the row's interval, ln, without the noise that it publishes: nights tell how they differ.

    What is left is a night's own: 0 where its samples scattered no more than visits do; NaN if unknown.
    """
    if not row.low_s or not row.high_s or not math.isfinite(row.high_s):
        return math.nan
    own = math.sqrt(max(0.0, (math.log(row.high_s / row.low_s) / 2) ** 2 - (row.noise_runs or 0.0) ** 2))
    return own if own > (row.noise_visits or 0.0) * (1 + 1e-6) else 0.0


def _night(whose: RunKey, rows: Sequence[Measurement], timed: Sequence[Measurement]) -> Night:
    facts = {}
    for fact in (*SEGMENT, COMMIT):
        told = {text for row in (rows if fact is COMMIT else timed or rows) if (text := value(row, fact))}
        facts[fact.name] = ", ".join(sorted(told))
    commit, began = facts.pop(COMMIT.name), _began(whose.run_id)
    return Night(whose, began, commit, {name: text for name, text in facts.items() if text}, len(timed))


def _began(run_id: str) -> str:
    """ISO 8601 of the second that a run's name begins with; empty if it does not."""
    try:
        return datetime.strptime(run_id.partition("-")[0], "%Y%m%dT%H%M%S%z").isoformat()
    except ValueError:
        return ""


def _history(device: str, unit: str, gathered: _Nights) -> History:
    order = sorted(gathered.nights, key=lambda each: (each[0].utc, each[0].run_id, each[0].run))
    nights = _in_order([night for night, _ in order])
    values: Floats = np.full((3, len(gathered.series), len(nights)), np.nan)
    places = {key: place for place, key in enumerate(gathered.series)}
    for night, (_, told) in enumerate(order):
        for key, numbers in told.items():
            values[:, places[key], night] = numbers
    table = [(*key, *of) for key, of in gathered.series.items()]
    series = pd.DataFrame(table, columns=[*KEY, "dtype", "bound", "ceiling"])
    return History(device, gathered.name, unit, nights, series, values[0], values[1], values[2] == 1)


def without_trials(history: History) -> History:
    """The history without runs that timed less than half as much as its last night: trials, not nights."""
    timed = np.isfinite(history.log_s).sum(axis=0)
    kept = np.flatnonzero(2 * timed >= timed[-1])
    arrays = {name: getattr(history, name)[:, kept] for name in ("log_s", "half", "doubted")}
    return replace(history, nights=_in_order([history.nights[at] for at in kept]), **arrays)


def _in_order(nights: Sequence[Night]) -> tuple[Night, ...]:
    """The nights with what only their sequence shows: segments, and what changed."""
    made: list[Night] = []
    known: dict[str, str] = {}
    for night in nights:
        facts = {**night.facts, COMMIT.name: night.commit}
        # A fact that a night does not know is compared with the last night that does.
        changed = tuple(
            Difference(name, known[name], text)
            for name, text in facts.items()
            if text and known.get(name, text) != text
        )
        known |= {name: text for name, text in facts.items() if text}
        segment = made[-1].segment + any(change.fact != COMMIT.name for change in changed) if made else 0
        made.append(replace(night, segment=segment, changed=changed))
    return tuple(made)
