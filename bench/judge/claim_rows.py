"""The rows that claims are judged on: each with its noise, its units and its roofs, and how one selects them.

Columns in addition to those of a Measurement and the parameters:

    key       the case, equal in every run
    run_half  half of the row's 95 % interval within its run, |ln|: what moves all of the run cancels
    assumed   whether that is only what such work usually does
    shared    how far its run may have moved all rows of a kind together
    suspect   whether a flag casts doubt on the time, apart from above_roof and from a wide
              interval, which `run_half` has already
    above_roof  whether a flag casts doubt on the time or the roof; of imported rows also whether they are
              quicker than the datasheet's
    ridge     FLOP for each byte at which the limit of the device changes for such a row
    launch_s  launch floor, seconds
    memory_s  compute_s   terms of the roofline
    formula_s  flop / (FMA per clock per SM x 2 x SMs x the clock while it ran), by the datasheet's FMA rate
    memory_down  memory_up  compute_down  compute_up
              how far below and above its value the ratio of the seconds to that term may be by the roof's own
              interval, |ln|
    bound_by          launch, memory or compute: the largest of these three, the prediction of the roofline
    measured_bound_by the one that the time is nearest to; none: more than a factor of 2 from each
    as_predicted      whether these two agree. All three are None without a roof, and of what a cache serves
    tensor_cores      used, unused or unknown, by the names of the kernels
    intensity
    rest_share        share of the time that is no product or convolution; NaN if it is not divided
    below_ridge_share that of the classes with fewer FLOP for each byte than `ridge`: the rest, and products
                      and convolutions too if theirs are fewer

An imported run has no roof of its own but the best of the very rows that are judged; its terms are those of
the datasheet, without one for the launch floor unless that was measured, for memory where a cache serves the
row, and for arithmetic where the card does not reach the peak (`_out_of_reach`). Its ridge is read from its
rows, as that of every run: it selects rows and judges none.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from bench.judge.comparison_side import case_of, of_run
from bench.judge.flags import ABOVE_ROOF, SUSPECT
from bench.judge.tensor_cores import tensor_cores
from bench.model.predict import cached_share
from bench.model.roofline import (
    datasheet_s,
    largest_term,
    nearest_term,
    row_terms,
    rows_traffic,
    terms_columns,
)
from bench.spec import ITEM_BYTE, parameters_text
from bench.store.schema import FIELDS, RunKey
from bench.sweep.claims import FACTS, MEASURED, SHARES
from bench.sweep.conditions import (
    UNITS,
    Compare,
    Condition,
    Divisible,
    In,
    Matching,
    MultipleOf,
    conditions,
)

if TYPE_CHECKING:
    import pandas as pd

    from bench.device.datasheet import Datasheet
    from bench.judge.frame import DeviceRun
    from bench.spec import Problem
    from bench.store.schema import Measurement
    from bench.sweep.load import Case

ROOF_ERRORS = ("memory_down", "memory_up", "compute_down", "compute_up")
ERRORS = ("run_half", "shared", *ROOF_ERRORS)
"""Columns that say how far off a time or a roof may be."""
ASKED = {
    *(*FACTS, *RunKey._fields, "byte_moved", "cache_byte", "dtype", "operator", "parameters", "peak_byte"),
    *("sm_count", "sweep", "visit", "run_half", "run_by"),
}
"""Columns of a Measurement that claims and their tests may ask for. Selecting rows copies every column."""
FLAT = 1 / 4
"""Times the ridge up to which memory is taken to be the only limit."""
PRODUCTS = ("gemm", "linear")
"""Operators whose rows tell whether a peak can be reached."""
NEAR_PEAK = 1.5
"""Times the datasheet's time within which the best product of a run is where a peak can be reached: the bar
of the claims on arithmetic. It was chosen with the public rows in view whose verdicts it takes."""
SLOT_W = 75
"""Watts that a PCIe slot gives. Most products of cards of no more (L4, T4, P4) reach 30 to 60 % of the peaks,
though a short one may reach 90. Chosen, too, with the rows of these three in view."""
DOUBTED = SUSPECT - {"noisy", "above_roof"}
"""Flags of rows that no claim rests on."""
UNKNOWN = (*MEASURED, "intensity", *UNITS)
"""What is not known of a case before it is measured."""
_UNITS = {"ridge": "ridge", "cache": "cache_byte", "launches": "launch_s"}
"""Unit of a condition -> the column that holds it."""


def claim_rows(runs: Sequence[DeviceRun]) -> pd.DataFrame:
    """The timed rows of the runs of one device, those of older files' second visits left out."""
    import pandas as pd

    parts = []
    for run in runs:
        frame = run.columns[(run.columns["visit"] == 0) & (run.columns["median_s"] > 0)]
        rows = [run.rows[place] for place in frame.index]
        looks = of_run(run).looks  # each run's own: all of them count, not the newest alone
        derived = [_derived(*each, run) for each in zip(rows, _terms(frame, run).T.tolist(), strict=True)]
        frame = frame.drop(columns=[name for name in FIELDS if name not in ASKED])
        frame = pd.concat([frame, pd.DataFrame(derived, index=frame.index)], axis=1)
        frame["key"] = [row.case for row in rows]
        frame["item_byte"] = frame["dtype"].map(ITEM_BYTE)
        frame["assumed"] = frame["run_by"] == "assumed"
        names = [{*run.flags[place]} for place in frame.index]
        frame["suspect"] = [not DOUBTED.isdisjoint(of_row) for of_row in names]
        frame["above_roof"] = ["above_roof" in of_row for of_row in names]
        if run.imported:
            least_s = frame[["memory_s", "compute_s"]].max(axis=1)
            frame["above_roof"] |= least_s > ABOVE_ROOF * frame["median_s"]
            unknown = _out_of_reach(frame, run)
            for name in ("measured_bound_by", "as_predicted"):
                frame[name] = frame[name].astype(object).mask(unknown, None)
            frame["compute_s"] = frame["compute_s"].mask(unknown)
        known = [looks.get(case_of(row)) for row in rows]
        frame["shared"] = [look.shared if look else 0.0 for look in known]
        parts.append(frame)
    return compact(pd.concat(parts, ignore_index=True))


def _out_of_reach(rows: pd.DataFrame, run: DeviceRun) -> pd.Series:
    """Whether arithmetic may bound each of the rows, by a peak of the datasheet that the card does not reach.

    That is one of a card without power of its own, or one that no product of the run comes near. Convolutions
    do not tell: some algorithms do less arithmetic than is counted.
    """
    bounded = ~(rows["intensity"] <= FLAT * rows["ridge"])
    if run.datasheet is not None and (run.datasheet.power_w or math.inf) <= SLOT_W:
        return bounded
    share = (rows["compute_s"] / rows["median_s"]).where(bounded & rows["operator"].isin(PRODUCTS))
    units = [run.columns.loc[rows.index, name] for name in ("arithmetic", "dtype")]
    return bounded & (share.groupby(units).transform("max") < 1 / NEAR_PEAK)


def compact(rows: pd.DataFrame) -> pd.DataFrame:
    """The same with one array for all columns of a kind: selecting rows copies array by array."""
    return rows.astype(dict.fromkeys(rows.select_dtypes("str"), object)).copy()


def _terms(frame: pd.DataFrame, run: DeviceRun) -> npt.NDArray[np.float64]:
    """`row_terms` [3, n] of the rows of a run, each under its condition."""
    import pandas as pd

    terms = np.full((3, len(frame)), math.nan)
    columns = pd.DataFrame(
        {"flop": frame["flop"], "arithmetic": frame["arithmetic"], "dtype": frame["dtype"]}
    )
    columns["byte"], columns["share"] = rows_traffic(frame)
    for condition in frame["condition"].unique():
        here = (frame["condition"] == condition).to_numpy()
        part = columns[here]
        terms[:, here] = terms_columns(
            part["flop"], part["byte"], part["share"], part["arithmetic"], part["dtype"], run.roof(condition)
        )
    return terms


def _derived(row: Measurement, terms_s: Sequence[float], run: DeviceRun) -> dict[str, Any]:
    launch_s, memory_s, compute_s = terms_s
    stated = (_stated_s(row, 0, row.byte, run.datasheet), _stated_s(row, row.flop, 0, run.datasheet))
    read = (memory_s, compute_s) if math.isfinite(memory_s + compute_s) else stated
    intensity = row.flop / row.byte if row.byte else math.nan
    ridge = intensity * read[0] / read[1] if row.flop and read[1] else math.nan
    if row.byte and not read[1]:  # no arithmetic that could limit it
        ridge = math.inf
    if run.imported:  # nobody measured its launch floor, and a time that says much of a launch is flagged
        launch_s, (memory_s, compute_s) = 0.0 if math.isnan(launch_s) else launch_s, stated
        memory_s = math.nan if cached_share(row) else memory_s  # of what a cache serves nothing is known
    terms = (launch_s, memory_s, compute_s)
    measured = predicted = None
    if row.median_s and not cached_share(row):  # a cache that serves a row is none of these terms
        measured, predicted = nearest_term(row.median_s, terms), largest_term(terms)
    return {
        "launch_s": launch_s, "memory_s": memory_s, "compute_s": compute_s,
        "formula_s": _formula_s(row, run.datasheet),
        "ridge": ridge, "intensity": intensity, "bound_by": predicted, "measured_bound_by": measured,
        "as_predicted": measured == predicted if measured else None,
        "tensor_cores": tensor_cores(row), **_roof_errors(row, run), **_shares(row, ridge),
    }  # fmt: skip


def _shares(row: Measurement, ridge: float) -> dict[str, float]:
    """Shares of the classes into which a row's time is divided; NaN if it is not."""
    parts = (row.contraction_s, row.normalization_s, row.elementwise_s)
    if None in parts or not (total := sum(part or 0.0 for part in parts)):
        return dict.fromkeys(SHARES, math.nan)
    rest = 1 - (row.contraction_s or 0.0) / total
    beside = row.byte_beside or 0
    slack = row.flop / (row.byte_moved - beside) < ridge
    return {"rest_share": rest, "below_ridge_share": 1.0 if slack else rest}


def _roof_errors(row: Measurement, run: DeviceRun) -> dict[str, float]:
    """Errors of the terms of memory and compute; 0 where the roof is a datasheet's or a term is missing."""
    if run.imported:
        return dict.fromkeys(ROOF_ERRORS, 0.0)
    roof = run.roof_of(row)
    errors: list[float] = []
    _, *terms = zip(*(row_terms(row, each) for each in (roof.slowest, roof, roof.quickest)), strict=True)
    for slowest, seen, quickest in terms:
        ratios = (slowest / seen, seen / quickest) if quickest > 0 else (1.0, 1.0)
        errors += map(math.log, ratios)
    return dict(zip(ROOF_ERRORS, errors, strict=True))


def _stated_s(row: Measurement, flop: float, byte: float, sheet: Datasheet | None) -> float:
    seconds = datasheet_s(flop, byte, row.arithmetic, row.dtype, sheet)
    return math.nan if seconds is None else seconds


def _formula_s(row: Measurement, sheet: Datasheet | None) -> float:
    per_clock = sheet.flop_per_clock_per_sm(row.arithmetic, row.dtype) if sheet else None
    if not per_clock or not row.sm_clock_hz:
        return math.nan
    return row.flop / (per_clock * row.sm_count * row.sm_clock_hz)


def case_rows(cases: Iterable[Case], sm_count: int) -> pd.DataFrame:
    """Cases that were perhaps never measured, as far as selections can be evaluated on them."""
    return compacted(case_columns(cases, sm_count))


def case_columns(cases: Iterable[Case], sm_count: int) -> dict[str, npt.NDArray[Any]]:
    """The columns of `case_rows`, by name."""
    cases = list(cases)
    facts = [_problem_columns(case.problem) for case in cases]
    names = dict.fromkeys(name for each in facts for name in each)
    return {name: _array([each.get(name, math.nan) for each in facts]) for name in names} | {
        "key": _array([case.key for case in cases]),
        "implementation": _array([case.implementation for case in cases]),
        "cache": _array([case.cache for case in cases]),
        "threads_asked": _array([case.threads for case in cases]),
        "byte_moved": _array([case.problem.byte_moved(case.implementation) for case in cases]),
        "sm_count": np.full(len(cases), sm_count),
    }


def _array(values: list[Any]) -> npt.NDArray[Any]:
    text = any(isinstance(value, str) for value in values)
    return np.array(values, dtype=object if text else None)


def compacted(columns: Mapping[str, npt.NDArray[Any]]) -> pd.DataFrame:
    """`compact` of a frame of these columns, in a fraction of the time: no text is looked into or copied."""
    import pandas as pd

    kinds: dict[np.dtype[Any], list[str]] = {}
    for name, values in columns.items():
        kinds.setdefault(values.dtype, []).append(name)
    parts = [
        pd.DataFrame(np.stack([columns[name] for name in alike], axis=1), columns=alike, dtype=kind)
        for kind, alike in kinds.items()
    ]
    return pd.concat(parts, axis=1) if parts else pd.DataFrame()


@cache  # several cases, and the sweeps of several devices, solve the same problem
def _problem_columns(problem: Problem) -> Mapping[str, Any]:
    parameters = problem.parameters()
    return {
        **problem.added, **parameters, "parameters": parameters_text(parameters),
        "flop": problem.flop, "byte": problem.byte, "item_byte": problem.item_byte,
    }  # fmt: skip


def selected(rows: pd.DataFrame, select: Mapping[str, Any]) -> pd.DataFrame:
    """The rows that a selection names. What is not known of a case (`UNKNOWN`) rules none out."""
    if not len(rows) or not select:
        return rows
    keep = holds(rows, select)
    return rows if keep.all() else rows[keep]


def holds(rows: pd.DataFrame, select: Mapping[str, Any]) -> npt.NDArray[np.bool_]:
    """Whether a selection names each of the rows."""
    keep = np.ones(len(rows), dtype=bool)
    for column, value in select.items():
        for condition in conditions(value):
            keep &= _holds(rows, column, condition)
    return keep


def _holds(rows: pd.DataFrame, column: str, condition: Condition) -> npt.NDArray[np.bool_]:
    unit = condition.unit if isinstance(condition, Compare) else ""
    if column not in rows or (unit and _UNITS[unit] not in rows):
        return np.full(len(rows), column in UNKNOWN or unit in UNKNOWN)
    values = rows[column]
    held: Any
    if isinstance(condition, In):
        held = values.isin(condition.values)
    elif isinstance(condition, Matching):
        held = values.fillna("").astype(str).str.contains(condition.pattern, regex=True)
    elif isinstance(condition, Compare):
        held = condition.compare(values, condition.bar * (rows[_UNITS[unit]] if unit else 1.0))
    elif isinstance(condition, MultipleOf):
        held = values == condition.factor * rows[condition.column]
    elif isinstance(condition, Divisible):
        divisor: Any = condition.divisor
        if condition.in_bytes:
            divisor = np.maximum(1, condition.divisor // rows["item_byte"])
        held = values.notna() & ((values % divisor == 0) == condition.wanted)
    else:
        held = values == condition.per_sm * rows["sm_count"] + condition.plus
    return np.asarray(held, dtype=bool)
