"""Export to Apache Otava (change points by E-divisive means): CSV files and their configuration.

One file is one test, with a line for each night and a column for each series. Otava's CSV importer demands a
number in every cell, so the series of an implementation that have a time in the same nights share a file;
nothing is filled in where a night is missing. Times that the machine's state makes suspect are left out, as
in our own history. The columns are `time`, facts of the night, and series; `branch` is avoided, as it has a
meaning to Otava.
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import yaml

from bench.errors import UserError
from bench.interop.export_points import Point
from bench.judge.history.load import DOUBTING
from bench.store.schema import RunKey

CONFIGURATION = "otava.yaml"
ATTRIBUTES = ("run_id", "commit", "driver", "torch", "triton")
"""Facts of a night that go into columns of their own: they help to explain a change point."""
NIGHTS = 2
"""Fewest nights of a series: one night cannot show a change."""


SUSPECT = "suspect for the state of the machine"
ALONE = "alone in their series"
"""Why times are left out."""


@dataclass
class _Series:
    """The times of a series that are not suspect for the state of the machine."""

    group: str
    column: str
    microseconds: dict[RunKey, float] = field(default_factory=dict)
    """Run -> time."""


@dataclass
class _Night:
    """One run, for the columns that its times share."""

    run: RunKey
    began: datetime
    """When its first row with a time ended."""
    facts: tuple[str, ...]
    """Its ATTRIBUTES."""


_Tests = dict[str, list[_Series]]
"""Name of a test -> its series, which all have a time in the same nights."""


def files(points: Iterable[Point], folder: str) -> tuple[dict[str, str], list[str]]:
    """(name of each file -> its content, sentences on what was left out); the files will lie in `folder`.

    UserError if no series has times of NIGHTS nights that are not suspect.
    """
    doubting = {flag.name for flag in DOUBTING}
    series: dict[str, _Series] = {}
    nights: dict[RunKey, _Night] = {}
    counts = Counter[str]()
    for point in points:
        row, ended = point.row, datetime.fromisoformat(point.row.utc)
        facts = tuple(str(getattr(row, attribute)) for attribute in ATTRIBUTES)
        run = RunKey.of(row)
        night = nights.setdefault(run, _Night(run, ended, facts))
        night.began = min(night.began, ended)
        counts["all"] += 1
        if doubting & set(point.flags):
            counts[SUSPECT] += 1
            continue
        member = series.setdefault(point.name, _Series(point.group, f"{point.label} us"))
        member.microseconds[night.run] = point.microseconds
    lasting = [member for member in series.values() if len(member.microseconds) >= NIGHTS]
    counts[ALONE] = len(series) - len(lasting)
    if not lasting:
        raise UserError(f"no series has times of {NIGHTS} nights that are not suspect; give more runs")
    omissions = [
        f"left out: {counts[why]} of {counts['all']} times: {why}" for why in (SUSPECT, ALONE) if counts[why]
    ]
    order = sorted(nights, key=lambda run: (nights[run].began, run))
    tests = _tests(lasting, order)
    contents = {f"{test}.csv": _table(members, nights, order) for test, members in tests.items()}
    return {CONFIGURATION: _configuration(tests, folder)} | contents, omissions


def _tests(lasting: Sequence[_Series], order: Sequence[RunKey]) -> _Tests:
    """The tests: each holds the series of one implementation that have a time in the same nights."""
    alike: dict[tuple[str, tuple[RunKey, ...]], list[_Series]] = defaultdict(list)
    for member in lasting:
        when = tuple(run for run in order if run in member.microseconds)
        alike[re.sub(r"[^A-Za-z0-9_@-]+", ".", member.group), when].append(member)
    # The most nights first: that file keeps the plain name when stray nights make more files.
    seen: Counter[str] = Counter()
    tests: _Tests = {}
    for group, when in sorted(alike, key=lambda key: (key[0], -len(key[1]), key[1])):
        seen[group] += 1
        tests[group if seen[group] == 1 else f"{group}.{seen[group]}"] = alike[group, when]
    return tests


def _table(members: Sequence[_Series], nights: Mapping[RunKey, _Night], order: Sequence[RunKey]) -> str:
    sink = io.StringIO()
    lines = csv.writer(sink, lineterminator="\n")
    lines.writerow(["time", *ATTRIBUTES, *(member.column for member in members)])
    for run in order:
        if run in members[0].microseconds:
            night = nights[run]
            began = night.began.isoformat(timespec="seconds")
            lines.writerow([began, *night.facts, *(member.microseconds[run] for member in members)])
    return sink.getvalue()


def _configuration(tests: _Tests, folder: str) -> str:
    """The configuration: tests, and a group of all tests for each device; -1 means that less is better."""
    groups: dict[str, list[str]] = defaultdict(list)
    for test, members in tests.items():
        groups[members[0].group.split()[0]].append(test)
    written: dict[str, Any] = {
        "tests": {
            test: {
                "type": "csv",
                "file": f"{folder}/{test}.csv",
                "time_column": "time",
                "attributes": list(ATTRIBUTES),
                "metrics": {member.column: {"direction": -1, "scale": 1.0} for member in members},
            }
            for test, members in tests.items()
        },
        "test_groups": dict(groups),
    }
    return yaml.safe_dump(written, sort_keys=False, width=1000, allow_unicode=True)
