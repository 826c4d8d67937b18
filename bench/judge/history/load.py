"""Result files into histories: which file is which night, and the few columns of each that nights need.

A year of thousands of cases is a million rows of a hundred columns, most of them samples. So one file is read
after the other, and of each only what is kept. Whose speed a series follows is decided by the first night
that has it, which is read whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from bench.judge.comparability import Difference, Fact
from bench.judge.comparison_side import bound_of, case_of
from bench.judge.flags import FLAGS
from bench.judge.frame import DeviceRun, runs
from bench.judge.history.series import COMMIT, DEFAULT_FACTS, KEY, SEGMENT, Flags, Floats, History, Night
from bench.model.ceilings import Ceilings
from bench.store import parquet
from bench.store.schema import FIELDS, WITHOUT_SAMPLES, Measurement, RunKey

DOUBTING = tuple(flag for flag in FLAGS if flag.disturbed)
"""Flags on which a time is no night's time: what the machine's neighbours, heat or limits did.

What makes one look unsteady (noisy, drifting, unsettled) is in how a series moves from night to night.
"""
_NOTHING = Ceilings()
_RUN = list(RunKey._fields)
_Key = tuple[Any, ...]


class _Gathered(NamedTuple):
    """One night, which series have a time in it, and that."""

    night: Night
    series: npt.NDArray[np.intp]
    log_s: Floats
    half: Floats
    doubted: Flags


@dataclass
class _Nights:
    """What has been gathered of one device."""

    name: str
    nights: list[_Gathered] = field(default_factory=list)
    series: dict[_Key, int] = field(default_factory=dict)
    described: list[dict[str, Any]] = field(default_factory=list)
    """dtype, bound and ceiling of each series."""


def histories(paths: Iterable[Path], left_out: Callable[[str], object] = lambda _: None) -> list[History]:
    """The history of each device in these result files, or folders of them, by device and unit.

    Imported rows have no nights and are left out, as are files that cannot be read or hold a run that is
    there already: each is reported to `left_out` as a sentence. UserError if no file can be read.
    """
    devices: dict[tuple[str, str], _Nights] = {}
    seen: dict[tuple[RunKey, str], Path] = {}
    whole = lru_cache(maxsize=1)(_with_samples)  # in a pack there are many runs to be described
    # Every flag that looks at no single sample can be evaluated on every night.
    for path, table in parquet.tables(paths, left_out, WITHOUT_SAMPLES):
        if table["source"].null_count < len(table):
            left_out(f"{path}: imported timings have no nights")
            table = table.filter(pc.is_null(table["source"]))
        table = table.filter(pc.is_null(table["measured_in"]))  # the others are in the run that measured them
        for run in _runs_of(table):
            whose = RunKey(*(run[name][0].as_py() for name in _RUN))
            rest = "".join(path.stem.partition(".rest")[1:])  # what a killed run's file lacked
            known = seen.setdefault((whose, rest), path)
            if known is not path:
                if path.read_bytes() != known.read_bytes():
                    left_out(f"{path}: holds the run {whose.run_id}, which {known} holds too")
            elif not (_began(whose.run_id) or _is_time(run["utc"][0].as_py())):
                left_out(f"{path}: nothing in it tells when the run {whose.run_id} began")
            else:
                _add(devices, path, whose, run, whole)
    return [_history(device, unit, gathered) for (device, unit), gathered in sorted(devices.items())]


def _runs_of(table: pa.Table) -> Iterator[pa.Table]:
    """The rows of each run, of which a pack holds many."""
    for places in table.select(_RUN).to_pandas(use_threads=False).groupby(_RUN, sort=False).indices.values():
        yield table.take(places)


def _with_samples(path: Path) -> pa.Table:
    """All that a file holds."""
    ((_, table),) = parquet.tables([path], columns=list(FIELDS))
    return table


def _beyond_noise(half: Floats, timed: pa.Table) -> Floats:
    """Half of each interval without the noise that rows publish: how nights differ, they tell themselves.

    What is left is a night's own: 0 where its samples scattered no more than visits do.
    """
    visits, runs = (
        np.nan_to_num(timed[name].to_numpy().astype(float)) for name in ("noise_visits", "noise_runs")
    )
    own = np.sqrt(np.maximum(half**2 - runs**2, 0.0))
    return np.where(own > visits * (1 + 1e-6), own, 0.0)


def _add(
    devices: dict[tuple[str, str], _Nights],
    path: Path,
    whose: RunKey,
    run: pa.Table,
    whole: Callable[[Path], pa.Table],
) -> None:
    """One run's rows."""
    first = run.slice(0, 1).to_pylist()[0]
    unit = whose.device_id if first["device_kind"] == "cuda" else ""
    into = devices.setdefault((whose.device, unit), _Nights(first["device_name"]))
    median_s = run["median_s"].to_numpy()
    timed = run.filter(np.asarray(pc.equal(run["status"], "ok")) & (median_s > 0) & np.isfinite(median_s))
    keys = list(zip(*(_key_column(timed, name) for name in KEY), strict=True))
    if len(set(keys)) < len(keys):  # an older file's second visit to a ceiling is a row of its own
        once: dict[_Key, int] = {}
        for at, key in enumerate(keys):
            once.setdefault(key, at)
        timed, keys = timed.take(list(once.values())), list(once)
    if fresh := [key for key in keys if key not in into.series]:
        (described,) = runs(parquet.rows(parquet.of_run(whole(path), whose)), without_mixed=True)
        _describe(into, described, fresh)
    low_s, high_s = timed["low_s"].to_numpy(), timed["high_s"].to_numpy()
    with np.errstate(invalid="ignore", divide="ignore"):
        half = _beyond_noise(np.log(high_s / low_s) / 2, timed)
    suspect = [any(flag.rule(row, _NOTHING) for flag in DOUBTING) for row in parquet.rows(timed)]
    into.nights.append(
        _Gathered(
            _night(whose, run, timed),
            np.array([into.series[key] for key in keys], dtype=np.intp),
            np.log(timed["median_s"].to_numpy()),
            np.where(np.isfinite(half), half, np.nan),
            np.array(suspect, dtype=bool),
        )
    )


def _key_column(rows: pa.Table, name: str) -> list[Any]:
    """A column of KEY, with what older files mean where they say nothing."""
    column = rows[name]
    values: list[Any] = (
        pc.fill_null(column, DEFAULT_FACTS[name]) if name in DEFAULT_FACTS else column
    ).to_pylist()
    return values


def _describe(into: _Nights, run: DeviceRun, fresh: Sequence[_Key]) -> None:
    """Describe series that no earlier night had from the whole rows of this one."""
    by_case: dict[_Key, Measurement] = {case_of(row): row for row in run.rows}
    for key in fresh:
        row = by_case[key[:6]]
        bound, ceiling = bound_of(row, run.roof_of(row)), row.role != "measurement"
        into.series[key] = len(into.described)
        into.described.append({"dtype": row.dtype, "bound": bound, "ceiling": ceiling})


def _night(whose: RunKey, run: pa.Table, timed: pa.Table) -> Night:
    facts = {fact.name: text for fact in SEGMENT if (text := _told(timed if len(timed) else run, fact))}
    roofs = timed.filter(pc.equal(timed["role"], "roof")).select(["visits", "set_aside"]).to_pylist()
    looks = [(roof["visits"] or 1) + len(roof["set_aside"] or ()) for roof in roofs]
    cut_short = max(looks, default=0) == 1
    return Night(
        run=whose,
        utc=_began(whose.run_id) or run["utc"][0].as_py(),
        commit=_told(run, COMMIT),
        facts=facts,
        segment=0,
        changed=(),
        timed=len(timed),
        remarks=("it was cut short: no ceiling was measured again at its end",) if cut_short else (),
    )


def _told(rows: pa.Table, fact: Fact) -> str:
    """The fact as text, each of its values if the rows differ in it; empty where none knows it."""
    if rows["device_kind"][0].as_py() not in fact.kinds:
        return ""
    values = pc.unique(rows[fact.column]).to_pylist()
    return ", ".join(sorted({fact.shown(v) for v in values if v is not None and v != "" and v == v}))


def _is_time(text: str) -> bool:
    try:
        return datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


def _began(run_id: str) -> str:
    """ISO 8601 of the second that a run's name begins with; empty if it does not."""
    try:
        return datetime.strptime(run_id.partition("-")[0], "%Y%m%dT%H%M%S%z").isoformat()
    except ValueError:
        return ""


def _history(device: str, unit: str, gathered: _Nights) -> History:
    order = sorted(gathered.nights, key=lambda each: (each.night.utc, each.night.run_id, each.night.run))
    nights = _in_order([run.night for run in order])
    shape = (len(gathered.series), len(nights))
    log_s: Floats = np.full(shape, np.nan)
    half: Floats = np.full(shape, np.nan)
    doubted: Flags = np.zeros(shape, dtype=bool)
    for place, run in enumerate(order):
        log_s[run.series, place] = run.log_s
        half[run.series, place] = run.half
        doubted[run.series, place] = run.doubted
    described = pd.DataFrame(gathered.described, columns=["dtype", "bound", "ceiling"])
    series = pd.concat([pd.DataFrame(list(gathered.series), columns=[*KEY]), described], axis=1)
    return History(device, gathered.name, unit, nights, series, log_s, half, doubted)


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
        remarks = (*night.remarks, *(() if night.timed else ("no case has a time",)))
        made.append(replace(night, segment=segment, changed=changed, remarks=remarks))
    return tuple(made)
