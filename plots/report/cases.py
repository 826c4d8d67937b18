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
from plots.report.section import Results, Section, ShownRun, filled, packed

DIGITS = 4
"""Significant digits of the numbers of a page: as many as intervals ever justify."""

MOST_ROWS = 20_000
"""Timed cases of one page, which then has about three megabytes; of more so many are drawn by chance."""
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
    """Every case, or those that were drawn of them."""
    named = zip(results.runs, results.labels, strict=True)
    rows = pd.concat([run.cases.assign(device=label) for run, label in named], ignore_index=True)
    content = {"cases": _by_columns(rows), "flags": {flag.name: flag.means for flag in FLAGS}}
    text = json.dumps(content, separators=(",", ":"), allow_nan=False)
    html = filled(
        "cases.html.j2",
        timed=sum(run.listed for run in results.runs),
        shown=len(rows),
        untimed=_untimed(results.runs),
        several=len(results.runs) > 1,
        filters=_filters(rows, results),
        content=packed(text.encode()),
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


def listed(frame: pd.DataFrame) -> pd.Series:
    """Which rows of a run's frame are cases of the table.

    Those that were measured as ceilings, probes or for calibration are not: the head of the page shows what
    was read from them.
    """
    return (frame["role"] == "measurement") & (frame["visit"] == 0) & frame["median_s"].notna()


def drawn(run: DeviceRun, share: float) -> pd.DataFrame:
    """This share of the cases, drawn by chance: a row each with its name, WORDS but `device`, and NUMBERS."""
    here = np.flatnonzero(listed(run.columns))
    if share < 1:
        here = np.sort(np.random.default_rng(0).choice(here, math.ceil(share * len(here)), replace=False))
    if run.is_plain:  # then no row says anything of another
        run, here = run.only(here), np.arange(len(here))
    rows, every = run.frame.iloc[here], run.rows
    measured = list(every) if len(here) == len(every) else [every[place] for place in here.tolist()]
    names = [row_name(row) for row in measured]
    predicted_s = prediction_lines.best_s(rows).astype(float)
    structured = rows["structured_limiter"].where(rows["structured_s"].notna(), "").fillna("")
    ours = {sweep: (SWEEPS / f"{sweep}.yaml").is_file() for sweep in rows["sweep"].unique()}
    commands = [command_again(row, ours[row.sweep]) for row in measured]
    again = [text.replace(shlex.quote(name), NAME) for text, name in zip(commands, names, strict=True)]
    return rows[_KEPT].assign(
        name=names,
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


def untimed(run: DeviceRun) -> pd.DataFrame:
    """status, reason and sweep of the rows of a run that have no time."""
    return run.columns.loc[run.columns["median_s"].isna(), ["status", "reason", "sweep"]]


def _untimed(runs: Sequence[ShownRun]) -> list[tuple[str, str, str, int, list[str]]]:
    """(device, status, reason, cases, their sweeps) of cases without a time, the commonest reason first.

    Reasons that differ in numbers alone are one.
    """
    groups: dict[tuple[str, str, str], list[tuple[str, str]]] = {}
    for run in runs:
        for status, reason, sweep in run.untimed.itertuples(index=False):
            key = run.device, status, without_numbers(reason)
            groups.setdefault(key, []).append((reason, sweep))
    found = []
    for (device, status, _), of in sorted(groups.items(), key=lambda pair: -len(pair[1])):
        reasons, sweeps = zip(*of, strict=True)
        text = re.sub(r"\s+", " ", in_common(reasons))
        found.append((device, status, text, len(of), list(dict.fromkeys(sweeps))))
    return found
