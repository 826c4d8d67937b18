"""For Apache Otava (change points by E-divisive means): CSV files, and the configuration that names them.

One file is one test: a line a night, a column a series. Its CSV importer demands a number in every cell, so
the series of an implementation that have a time in the same nights share a file; nothing is filled in where a
night is missing. Times that the machine's state casts doubt on are missing too, as in our own history. A
column called `branch` would mean something to it; ours are `time`, facts of the night, and series.
"""

from __future__ import annotations

import csv
import io
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import yaml

from bench.errors import UserError
from bench.interop.export_points import Point
from bench.judge.history.load import DOUBTING

CONFIGURATION = "otava.yaml"
ATTRIBUTES = ("run_id", "commit", "driver", "torch", "triton")
"""Facts of a night that go into columns of their own: what a change point is read against."""
NIGHTS = 2
"""Fewest nights of a series: of one there is nothing to say."""


@dataclass
class _Series:
    """The times of a series that no state of the machine casts doubt on."""

    group: str
    column: str
    microseconds: dict[str, float] = field(default_factory=dict)
    """Run -> time."""


@dataclass
class _Night:
    """What is told of a run."""

    began: datetime
    """When its first row with a time was done."""
    facts: tuple[str, ...]
    """Its ATTRIBUTES."""


_Tests = dict[str, list[_Series]]
"""Name of a test -> its series, which all have a time in the same nights."""


def files(points: Iterable[Point], folder: str) -> tuple[dict[str, str], list[str]]:
    """(name of each file -> its content, what was left out). `folder` is where the files will lie.

    UserError if no series has a time that can be trusted in two nights.
    """
    doubting = {flag.name for flag in DOUBTING}
    series: dict[str, _Series] = {}
    nights: dict[str, _Night] = {}
    counts = Counter[str]()
    for point in points:
        row, ended = point.row, datetime.fromisoformat(point.row.utc)
        facts = tuple(str(getattr(row, attribute)) for attribute in ATTRIBUTES)
        night = nights.setdefault(row.run_id, _Night(ended, facts))
        night.began = min(night.began, ended)
        counts["all"] += 1
        if doubting & set(point.flags):
            counts["in doubt by the state of the machine"] += 1
            continue
        one = series.setdefault(point.name, _Series(point.group, f"{point.label} us"))
        one.microseconds[sys.intern(row.run_id)] = point.microseconds
    lasting = [one for one in series.values() if len(one.microseconds) >= NIGHTS]
    counts["alone in their series"] = len(series) - len(lasting)
    if not lasting:
        raise UserError(f"no series has a time without doubt in {NIGHTS} nights; give more runs")
    said = [
        f"left out: {counts[why]} of {counts['all']} times: {why}"
        for why in ("in doubt by the state of the machine", "alone in their series")
        if counts[why]
    ]
    order = sorted(nights, key=lambda run: (nights[run].began, run))
    tests = _tests(lasting, order)
    contents = {f"{test}.csv": _table(members, nights, order) for test, members in tests.items()}
    return {CONFIGURATION: _configuration(tests, folder)} | contents, said


def _tests(lasting: Sequence[_Series], order: Sequence[str]) -> _Tests:
    """Series that have a time in the same nights, together; of an implementation each."""
    alike: dict[tuple[str, tuple[str, ...]], list[_Series]] = defaultdict(list)
    for one in lasting:
        when = tuple(run for run in order if run in one.microseconds)
        alike[re.sub(r"[^A-Za-z0-9_@-]+", ".", one.group), when].append(one)
    # The most nights first: that file keeps the plain name when stray nights make more files.
    seen: Counter[str] = Counter()
    tests: _Tests = {}
    for group, when in sorted(alike, key=lambda key: (key[0], -len(key[1]), key[1])):
        seen[group] += 1
        tests[group if seen[group] == 1 else f"{group}.{seen[group]}"] = alike[group, when]
    return tests


def _table(members: Sequence[_Series], nights: Mapping[str, _Night], order: Sequence[str]) -> str:
    sink = io.StringIO()
    lines = csv.writer(sink, lineterminator="\n")
    lines.writerow(["time", *ATTRIBUTES, *(one.column for one in members)])
    for run in order:
        if run in members[0].microseconds:
            night = nights[run]
            began = night.began.isoformat(timespec="seconds")
            lines.writerow([began, *night.facts, *(one.microseconds[run] for one in members)])
    return sink.getvalue()


def _configuration(tests: _Tests, folder: str) -> str:
    """Tests, and a group of all tests for each device; -1 says that less is better."""
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
                "metrics": {one.column: {"direction": -1, "scale": 1.0} for one in members},
            }
            for test, members in tests.items()
        },
        "test_groups": dict(groups),
    }
    return yaml.safe_dump(written, sort_keys=False, width=1000, allow_unicode=True)
