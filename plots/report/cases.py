"""The cases of a report: what its charts, its table and its filters know of every timed row.

They are kept by columns, with the values of words listed once, which is a tenth of the size of objects.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from bench.case_name import row_name
from bench.cli.explain import command_again
from bench.format import alike_texts
from bench.judge.frame import DeviceRun
from plots.base import prediction_lines

DIGITS = 4
"""Significant digits of the numbers of a page: as many as intervals ever justify."""

WORDS = (
    *("device", "sweep", "operator", "implementation", "dtype", "cache"),
    *("bound_by", "flags", "rate_unit", "again"),
)
"""Columns of words."""
NUMBERS = (
    *("median_s", "low_s", "high_s", "rate", "flop_per_s", "intensity"),
    *("predicted_s", "ratio", "of_roof", "calibrating"),
)
"""Columns of numbers, in SI units; `ratio` is the measured over the predicted time; `calibrating` is 1
for rows that predictions are fitted to, which say nothing of how good these are."""
_KEPT = (
    *("sweep", "operator", "implementation", "dtype", "flags", "median_s", "low_s", "high_s"),
    *("flop_per_s", "intensity", "of_roof", "condition", "rate_per_s"),
)
"""Columns of a run's frame."""
NAME = "{}"
"""Stands for the case's name in the command that measures it again."""


def cases(runs: Sequence[DeviceRun], known: Callable[[str], bool]) -> pd.DataFrame:
    """A row for each timed measurement: its name, WORDS and NUMBERS; the index is (run, place in its frame).

    `known` says whether this checkout has a sweep. Rows that were measured as ceilings, probes or for
    calibration are left out: the head of the page shows what was read from them.
    """
    parts = [_cases(run, known) for run in runs]
    return pd.concat(parts, keys=range(len(runs)), names=["run", "row"])


def _cases(run: DeviceRun, known: Callable[[str], bool]) -> pd.DataFrame:
    frame = run.frame
    here = (frame["role"] == "measurement") & (frame["visit"] == 0) & frame["median_s"].notna()
    rows = frame[here]
    places = np.flatnonzero(here.to_numpy()).tolist()
    names = [row_name(run.rows[place]) for place in places]
    predicted_s = prediction_lines.best_s(rows).astype(float)
    structured = rows["structured_limiter"].where(rows["structured_s"].notna(), "").fillna("")
    commands = [command_again(run.rows[place], known(run.rows[place].sweep)) for place in places]
    again = [text.replace(shlex.quote(name), NAME) for text, name in zip(commands, names, strict=True)]
    kept = rows[[*_KEPT]].rename(columns={"condition": "cache", "rate_per_s": "rate"})
    return kept.assign(
        name=names,
        device=run.device,
        bound_by=structured.where(structured != "", rows["limiter"].fillna("")),
        rate_unit=np.where(rows["rate"] == "flop", "FLOP/s", "B/s"),
        again=again,
        predicted_s=predicted_s,
        ratio=rows["median_s"] / predicted_s,
        calibrating=rows["calibrating"].astype(float),
        suspect=rows["suspect"].astype(bool),
    )


def packed(rows: pd.DataFrame) -> dict[str, Any]:
    """The cases for the page: `name`, each of NUMBERS as a list, each of WORDS as its values and places."""
    columns: dict[str, Any] = {"name": rows["name"].tolist()}
    for name in WORDS:
        at, values = pd.factorize(rows[name])
        columns[name] = {"values": values.tolist(), "at": at.tolist()}
    for name in NUMBERS:
        columns[name] = rounded(rows[name])
    return columns | {"suspect": rows["suspect"].astype(int).tolist()}


def rounded(values: Iterable[float]) -> list[float | None]:
    """The numbers with DIGITS significant digits; None where there is none."""
    return [float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None for value in map(float, values)]


def untimed(runs: Sequence[DeviceRun]) -> list[tuple[str, str, str, int, list[str]]]:
    """(device, status, reason, cases, their sweeps) of cases without a time, the commonest reason first."""
    rows = [(run.device, row) for run in runs for row in run.rows if not row.is_timed]
    texts = alike_texts(row.reason for _, row in rows)
    sweeps: dict[tuple[str, str, str], list[str]] = {}
    for device, row in rows:
        reason = re.sub(r"\s+", " ", texts[row.reason])
        sweeps.setdefault((device, row.status, reason), []).append(row.sweep)
    commonest = sorted(sweeps.items(), key=lambda pair: -len(pair[1]))
    return [(*key, len(names), list(dict.fromkeys(names))) for key, names in commonest]
