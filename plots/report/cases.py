"""The section on every case: a table of all timed rows that can be sorted and filtered, and the others.

The page has the cases by columns, with the values of words listed once, a tenth of the size of objects.
"""

from __future__ import annotations

import json
import math
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import compress
from typing import Any

import numpy as np
import pandas as pd

from bench.case_name import row_name
from bench.cli.explain import command_again
from bench.format import in_common, without_numbers
from bench.judge.flags import FLAGS
from bench.judge.frame import DeviceRun
from bench.sweep.load import SWEEPS
from plots.base import prediction_lines
from plots.report.section import Results, Section, filled, packed

DIGITS = 4
"""Significant digits of the numbers of a page: as many as intervals ever justify."""

MOST_ROWS = 20_000
"""Timed cases of one page, which then has about three megabytes."""
FILTERS = {
    "device": "device",
    "operator": "operator",
    "implementation": "implementation",
    "dtype": "data type",
    "bound_by": "bound by",
    "flags": "flag",
}
"""Column that the table can be filtered by -> the word for it."""
WORDS = (*FILTERS, "rate_unit", "again")
"""Columns of words."""
NUMBERS = ("median_s", "low_s", "high_s", "rate", "predicted_s", "ratio", "of_roof", "calibrating")
"""Columns of numbers, in SI units; `ratio` is the measured over the predicted time; `calibrating` is 1
for rows that predictions are fitted to, which say nothing of how good these are."""
_KEPT = ["operator", "implementation", "dtype", "flags", "median_s", "low_s", "high_s", "of_roof"]
"""Columns of a run's frame."""
NAME = "{}"
"""Stands for the case's name in the command that measures it again."""


def section(results: Results) -> Section:
    """Every case; of more than MOST_ROWS timed ones how many they are, and which pages have them."""
    timed = sum(int(_listed(run.columns).sum()) for run in results.runs)
    shown: dict[str, Any] = {}
    if timed <= MOST_ROWS:
        rows = _cases(results)
        content = {"cases": _by_columns(rows), "flags": {flag.name: flag.means for flag in FLAGS}}
        text = json.dumps(content, separators=(",", ":"), allow_nan=False)
        shown = {"filters": _filters(rows, results), "content": packed(text.encode())}
    html = filled(
        "cases.html.j2",
        timed=timed,
        most=MOST_ROWS,
        untimed=_untimed(results.runs),
        several=len(results.runs) > 1,
        **shown,
    )
    return Section("Every case", "cases", html)


def _filters(rows: pd.DataFrame, results: Results) -> list[tuple[str, str, list[tuple[str, int]]]]:
    """(column, word for it, its values with their counts) of each filter that has a choice."""
    filters = []
    for column, word in FILTERS.items():
        values = rows[column].str.split().explode() if column == "flags" else rows[column]
        counts = Counter(filter(None, values.dropna()))
        if column == "flags":
            counts["(none)"] = int((rows["flags"] == "").sum())
        if column == "device" and len(results.runs) > 1:
            filters.append((column, results.whose, sorted(counts.items())))
        elif column != "device" and counts:
            filters.append((column, word, sorted(counts.items())))
    return filters


def _cases(results: Results) -> pd.DataFrame:
    """A row for each timed measurement: its name, WORDS and NUMBERS.

    Rows that were measured as ceilings, probes or for calibration are left out: the head of the page shows
    what was read from them.
    """
    named = zip(results.runs, results.labels, strict=True)
    return pd.concat([_of_run(run, label) for run, label in named], ignore_index=True)


def _listed(frame: pd.DataFrame) -> pd.Series:
    """Which rows of a run's frame are cases of the table."""
    return (frame["role"] == "measurement") & (frame["visit"] == 0) & frame["median_s"].notna()


def _of_run(run: DeviceRun, label: str) -> pd.DataFrame:
    frame = run.frame
    here = _listed(frame)
    rows = frame[here]
    measured = list(compress(run.rows, here))
    names = [row_name(row) for row in measured]
    predicted_s = prediction_lines.best_s(rows).astype(float)
    structured = rows["structured_limiter"].where(rows["structured_s"].notna(), "").fillna("")
    commands = [command_again(row, (SWEEPS / f"{row.sweep}.yaml").is_file()) for row in measured]
    again = [text.replace(shlex.quote(name), NAME) for text, name in zip(commands, names, strict=True)]
    return rows[_KEPT].assign(
        name=names,
        device=label,
        bound_by=structured.where(structured != "", rows["limiter"].fillna("")),
        rate=rows["rate_per_s"],
        rate_unit=np.where(rows["rate"] == "flop", "FLOP/s", "B/s"),
        again=again,
        predicted_s=predicted_s,
        ratio=rows["median_s"] / predicted_s,
        calibrating=rows["calibrating"].astype(float),
        suspect=rows["suspect"].astype(bool),
    )


def _by_columns(rows: pd.DataFrame) -> dict[str, Any]:
    """The cases for the page: `name`, each of NUMBERS as a list, each of WORDS as its values and places."""
    columns: dict[str, Any] = {"name": rows["name"].tolist()}
    for name in WORDS:
        at, values = pd.factorize(rows[name])
        columns[name] = {"values": values.tolist(), "at": at.tolist()}
    for name in NUMBERS:
        columns[name] = _rounded(rows[name])
    return columns | {"suspect": rows["suspect"].astype(int).tolist()}


def _rounded(values: Iterable[float]) -> list[float | None]:
    """The numbers with DIGITS significant digits; None where there is none."""
    return [float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None for value in map(float, values)]


def _untimed(runs: Sequence[DeviceRun]) -> list[tuple[str, str, str, int, list[str]]]:
    """(device, status, reason, cases, their sweeps) of cases without a time, the commonest reason first.

    Reasons that differ in numbers alone are one.
    """
    groups: dict[tuple[str, str, str], list[tuple[str, str]]] = {}
    for run in runs:
        lost = run.columns[run.columns["median_s"].isna()]
        for status, reason, sweep in lost[["status", "reason", "sweep"]].itertuples(index=False):
            key = run.device, status, without_numbers(reason)
            groups.setdefault(key, []).append((reason, sweep))
    found = []
    for (device, status, _), of in sorted(groups.items(), key=lambda pair: -len(pair[1])):
        reasons, sweeps = zip(*of, strict=True)
        text = re.sub(r"\s+", " ", in_common(reasons))
        found.append((device, status, text, len(of), list(dict.fromkeys(sweeps))))
    return found
