"""The rows that claims are judged on: each with its noise, its units and its roofs, and how one selects them.

Columns in addition to those of a Measurement and the parameters:

    key       number of the case, equal in every run
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
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from bench.judge.comparison_side import case_of, of_run
from bench.judge.flags import ABOVE_ROOF, SUSPECT
from bench.judge.tensor_cores import tensor_cores
from bench.model.roofline import WITHOUT_ROOF, largest_terms, nearest_terms, rows_traffic, terms_columns
from bench.model.tile_wave import resident
from bench.spec import ITEM_BYTE
from bench.store.schema import FIELDS, RunKey
from bench.sweep.claims import FACTS, MEASURED
from bench.sweep.conditions import UNITS, Compare, Condition, Divisible, In, Matching, MultipleOf, conditions

if TYPE_CHECKING:
    import pandas as pd

    from bench.device.datasheet import Datasheet
    from bench.judge.frame import DeviceRun
    from bench.model.ceilings import Ceilings
    from bench.spec import Problem
    from bench.sweep.load import Case

ROOF_ERRORS = ("memory_down", "memory_up", "compute_down", "compute_up")
CLASSES_S = ("contraction_s", "normalization_s", "elementwise_s")
"""Columns of the seconds into which a row's time is divided."""
READ = (
    *("arithmetic", "byte_again", "byte_beside", "byte_written", "flushed", "moved_written", "ring_byte"),
    *(*CLASSES_S, "sm_clock_hz"),
)
"""Columns of a Measurement that others are derived of."""
CASE = ("sweep", "operator", "implementation", "parameters", "cache", "threads_asked")
"""Columns of what was measured."""
ERRORS = ("run_half", "shared", *ROOF_ERRORS)
"""Columns that say how far off a time or a roof may be."""
ASKED = {
    *(*FACTS, *RunKey._fields, "byte_moved", "cache_byte", "dtype", "operator", "parameters", "peak_byte"),
    *("sm_count", "sweep", "visit", "run_half", "run_by"),
}
"""Columns of a Measurement that claims and their tests may ask for."""
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

    rows = pd.concat([_of_run(run) for run in runs], ignore_index=True)
    rows["key"] = numbered(rows, np.arange(len(rows)), CASE)
    return _with_categories(rows)  # those of several runs differ


def _with_categories(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.astype(dict.fromkeys(rows.select_dtypes(["object", "str"]), "category"))


def _of_run(run: DeviceRun) -> pd.DataFrame:
    import pandas as pd

    timed = (run.columns["visit"] == 0) & (run.columns["median_s"] > 0)
    columns = [name for name in run.columns if name not in FIELDS or name in {*ASKED, *READ}]
    frame = _with_categories(run.columns.loc[timed, columns])
    frame = frame.assign(**{name: each[timed] for name, each in _evidence(run).items()})
    launch_s, memory_s, compute_s = _terms(frame, run.roof)
    stated = _stated_terms(frame, run.datasheet)
    flop, byte = (frame[name].to_numpy(dtype=np.float64) for name in ("flop", "byte"))
    with np.errstate(divide="ignore", invalid="ignore"):
        intensity = flop / np.where(byte > 0, byte, math.nan)
        read = np.where(np.isfinite(memory_s + compute_s), (memory_s, compute_s), stated)
        ridge = np.where((flop > 0) & (read[1] != 0), intensity * read[0] / read[1], math.nan)
        ridge[(byte > 0) & (read[1] == 0)] = math.inf  # no arithmetic that could limit it
    cached = _cached(frame)
    if run.imported:  # nobody measured its launch floor, and a time that says much of a launch is flagged
        launch_s = np.nan_to_num(launch_s)
        memory_s, compute_s = stated
        memory_s = np.where(cached, math.nan, memory_s)  # of what a cache serves nothing is known
    # A cache that serves a row is none of these terms.
    terms = np.where(cached, math.nan, (launch_s, memory_s, compute_s))
    predicted, measured = largest_terms(terms), nearest_terms(frame["median_s"].to_numpy(), terms)
    agree = pd.Series(measured == predicted, frame.index, dtype=object).where(pd.notna(measured), None)
    frame = frame.assign(
        launch_s=launch_s, memory_s=memory_s, compute_s=compute_s, formula_s=_formula_s(frame, run.datasheet),
        ridge=ridge, intensity=intensity, bound_by=predicted, measured_bound_by=measured,
        as_predicted=agree, item_byte=frame["dtype"].map(ITEM_BYTE).astype(float),
        assumed=frame["run_by"] == "assumed", **_roof_errors(frame, run), **_shares(frame, ridge),
    )  # fmt: skip
    if run.imported:
        frame["above_roof"] |= np.fmax(memory_s, compute_s) > ABOVE_ROOF * frame["median_s"]
        unknown = _out_of_reach(frame, run)
        for name in ("measured_bound_by", "as_predicted"):
            frame[name] = frame[name].astype(object).mask(unknown, None)
        frame["compute_s"] = frame["compute_s"].mask(unknown)
    return frame.drop(columns=[name for name in READ if name not in ASKED])


def _evidence(run: DeviceRun) -> dict[str, npt.NDArray[Any]]:
    """What the flags say of each row, and how far its run may have moved it with others of its kind."""
    shared = np.zeros(len(run.rows))
    if not run.is_plain:
        looks = of_run(run)  # each run's own: all of them count, not the newest alone
        known = [looks.get(case_of(row)) for row in run.rows]
        shared = np.array([look.shared if look else 0.0 for look in known])
    return {
        "shared": shared,
        "suspect": np.array([not DOUBTED.isdisjoint(names) for names in run.flags], dtype=bool),
        "above_roof": np.array(["above_roof" in names for names in run.flags], dtype=bool),
    }


def _stated_terms(rows: pd.DataFrame, sheet: Datasheet | None) -> npt.NDArray[np.float64]:
    """Seconds [2, n] of memory and arithmetic by the datasheet; NaN where it does not say."""
    terms = np.full((2, len(rows)), math.nan)
    if sheet is None:
        return terms
    counts = rows[["byte", "flop"]].to_numpy(dtype=np.float64).T
    for (arithmetic, dtype), places in _units(rows):
        if arithmetic not in WITHOUT_ROOF:
            rates = (sheet.bandwidth_byte_per_s, sheet.peak_flop_per_s(arithmetic, dtype))
            seconds = [count[places] / (rate or math.nan) for count, rate in zip(counts, rates, strict=True)]
            terms[:, places] = np.where(counts[:, places] > 0, seconds, 0.0)
    return terms


def _units(rows: pd.DataFrame) -> Iterable[tuple[tuple[str, str], npt.NDArray[np.intp]]]:
    """(arithmetic, data type) -> the places of the rows that have them."""
    found: dict[Any, Any] = rows.groupby(["arithmetic", "dtype"], observed=True).indices
    return found.items()


def _cached(rows: pd.DataFrame) -> npt.NDArray[np.bool_]:
    """Whether launches find some of their data in the last-level cache."""
    warm = (rows["cache"] == "warm") & ~rows["flushed"].astype("boolean").fillna(False).astype(bool)
    ring = rows["ring_byte"].astype(float)
    held = ring.where(ring > 0, rows["byte"]) / rows["cache_byte"].clip(lower=1)
    return (warm & (resident(held, 1.0) > 0)).to_numpy()


def _out_of_reach(rows: pd.DataFrame, run: DeviceRun) -> pd.Series:
    """Whether arithmetic may bound each of the rows, by a peak of the datasheet that the card does not reach.

    That is one of a card without power of its own, or one that no product of the run comes near. Convolutions
    do not tell: some algorithms do less arithmetic than is counted.
    """
    bounded = ~(rows["intensity"] <= FLAT * rows["ridge"])
    if run.datasheet is not None and (run.datasheet.power_w or math.inf) <= SLOT_W:
        return bounded
    share = (rows["compute_s"] / rows["median_s"]).where(bounded & rows["operator"].isin(PRODUCTS))
    of_unit = share.groupby([rows["arithmetic"], rows["dtype"]]).transform("max")
    return bounded & (of_unit < 1 / NEAR_PEAK)


def numbered(rows: pd.DataFrame, at: npt.NDArray[np.intp], names: Iterable[str]) -> npt.NDArray[np.intp]:
    """The number, for each of the rows at these places, of those that agree with it in all these columns.

    Numbers ascend in the order in which they occur first.
    """
    import pandas as pd

    numbers = np.zeros(len(at), dtype=np.intp)
    for name in names:
        values = rows[name]
        coded = values.cat.codes if isinstance(values.dtype, pd.CategoricalDtype) else values
        each = coded.to_numpy()[at]
        if len(each) and (each != each[0]).any():
            of_column, distinct = pd.factorize(each, use_na_sentinel=False)
            numbers = pd.factorize(numbers * len(distinct) + of_column)[0]
    return numbers


def _terms(rows: pd.DataFrame, roof: Callable[[str], Ceilings]) -> npt.NDArray[np.float64]:
    """`row_terms` [3, n] of the rows of a run, each under its condition."""
    terms = np.full((3, len(rows)), math.nan)
    byte, share = rows_traffic(rows)
    for condition in rows["condition"].unique():
        here = (rows["condition"] == condition).to_numpy()
        flop, arithmetic, dtype = (rows.loc[here, name] for name in ("flop", "arithmetic", "dtype"))
        terms[:, here] = terms_columns(flop, byte[here], share[here], arithmetic, dtype, roof(condition))
    return terms


def _roof_errors(rows: pd.DataFrame, run: DeviceRun) -> dict[str, Any]:
    """Errors of the terms of memory and compute; 0 where the roof is a datasheet's or a term is missing."""
    if run.imported:
        return dict.fromkeys(ROOF_ERRORS, 0.0)
    slowest, seen, quickest = (
        _terms(rows, roof)[1:]
        for roof in (lambda of: run.roof(of).slowest, run.roof, lambda of: run.roof(of).quickest)
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        down, up = (np.where(quickest > 0, np.log(each), 0.0) for each in (slowest / seen, seen / quickest))
    return dict(zip(ROOF_ERRORS, (down[0], up[0], down[1], up[1]), strict=True))


def _shares(rows: pd.DataFrame, ridge: npt.NDArray[np.float64]) -> dict[str, npt.NDArray[np.float64]]:
    """Shares of the classes into which a row's time is divided; NaN if it is not."""
    contraction, *others = (rows[name].to_numpy(dtype=np.float64) for name in CLASSES_S)
    beside = rows["byte_beside"].astype(float).fillna(0.0).to_numpy()
    with np.errstate(divide="ignore", invalid="ignore"):
        rest = 1 - contraction / (contraction + sum(others))
        slack = rows["flop"].to_numpy() / (rows["byte_moved"].to_numpy() - beside) < ridge
    return {"rest_share": rest, "below_ridge_share": np.where(slack & ~np.isnan(rest), 1.0, rest)}


def _formula_s(rows: pd.DataFrame, sheet: Datasheet | None) -> npt.NDArray[np.float64]:
    per_clock = np.full(len(rows), math.nan)
    for of, places in _units(rows):
        per_clock[places] = (sheet and sheet.flop_per_clock_per_sm(*of)) or math.nan
    clock_hz = rows["sm_clock_hz"].astype(float)
    return np.asarray(rows["flop"] / (per_clock * rows["sm_count"] * clock_hz.where(clock_hz > 0)))


def case_rows(cases: Iterable[Case], sm_count: int) -> pd.DataFrame:
    """Cases that were perhaps never measured, as far as selections can be evaluated on them."""
    import pandas as pd

    return pd.DataFrame(case_columns(cases, sm_count))


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


@cache  # several cases, and the sweeps of several devices, solve the same problem
def _problem_columns(problem: Problem) -> Mapping[str, Any]:
    parameters = problem.parameters()
    return {
        **problem.added, **parameters, "parameter_names": " ".join(parameters),
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
    there = "kernels" if column == "tensor_cores" else column
    if there not in rows or (unit and _UNITS[unit] not in rows):
        return np.full(len(rows), column in UNKNOWN or unit in UNKNOWN)
    values = _tensor_cores(rows) if column == "tensor_cores" else rows[column]
    held: Any
    if isinstance(condition, In):
        held = values.isin(condition.values)
    elif isinstance(condition, Matching):
        held = values.astype(object).fillna("").map(re.compile(condition.pattern).search).notna()
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


def _tensor_cores(rows: pd.DataFrame) -> pd.Series:
    """The answer of each row, as few claims ask for it."""
    import pandas as pd

    named = rows[["kernels", "implementation", "dtype"]].astype(object).fillna("")
    return pd.Series(list(map(tensor_cores, named.itertuples(index=False))), rows.index, dtype=object)
