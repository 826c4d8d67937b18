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

from bench.judge.columns import Bools, Columns, Floats, Texts
from bench.judge.comparison_side import case_of, of_run
from bench.judge.flags import ABOVE_ROOF, SUSPECT
from bench.judge.tensor_cores import tensor_cores
from bench.model.roofline import WITHOUT_ROOF, largest_terms, nearest_terms, terms_columns, traffic
from bench.model.tile_wave import resident
from bench.spec import ITEM_BYTE
from bench.store.schema import FIELDS, RunKey
from bench.sweep.claims import FACTS, MEASURED
from bench.sweep.conditions import UNITS, Compare, Condition, Divisible, In, Matching, MultipleOf, conditions

if TYPE_CHECKING:
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
UNIT = ("arithmetic", "dtype")
"""Columns of what a peak is of."""
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


def claim_rows(runs: Sequence[DeviceRun]) -> Columns:
    """The timed rows of the runs of one device, those of older files' second visits left out."""
    rows = Columns.joined([_of_run(run) for run in runs])
    return rows.changed({"key": rows.numbered(CASE)})


def _of_run(run: DeviceRun) -> Columns:
    timed = ((run.columns["visit"] == 0) & (run.columns["median_s"] > 0)).to_numpy()
    names = [name for name in run.columns if name not in FIELDS or name in {*ASKED, *READ}]
    evidence = {name: each[timed] for name, each in _evidence(run).items()}
    rows = Columns.of(run.columns[names]).at(timed).changed(evidence)
    launch_s, memory_s, compute_s = _terms(rows, run.roof)
    stated = _stated_terms(rows, run.datasheet)
    flop, byte, median_s = map(rows.floats, ("flop", "byte", "median_s"))
    with np.errstate(divide="ignore", invalid="ignore"):
        intensity = flop / np.where(byte > 0, byte, math.nan)
        read = np.where(np.isfinite(memory_s + compute_s), (memory_s, compute_s), stated)
        ridge = np.where((flop > 0) & (read[1] != 0), intensity * read[0] / read[1], math.nan)
        ridge[(byte > 0) & (read[1] == 0)] = math.inf  # no arithmetic that could limit it
    cached = _cached(rows)
    if run.imported:  # nobody measured its launch floor, and a time that says much of a launch is flagged
        launch_s = np.nan_to_num(launch_s)
        memory_s, compute_s = stated
        memory_s = np.where(cached, math.nan, memory_s)  # of what a cache serves nothing is known
    # A cache that serves a row is none of these terms.
    terms = np.where(cached, math.nan, (launch_s, memory_s, compute_s))
    predicted, measured = largest_terms(terms), nearest_terms(median_s, terms)
    agree = (measured == predicted).astype(object)
    agree[~measured.astype(bool)] = None
    rows = rows.changed({
        "launch_s": launch_s, "memory_s": memory_s, "compute_s": compute_s,
        "formula_s": _formula_s(rows, run.datasheet), "ridge": ridge, "intensity": intensity,
        "bound_by": Texts.of(predicted), "assumed": rows["run_by"].are("assumed"),
        "item_byte": rows["dtype"].told(lambda dtype: ITEM_BYTE.get(dtype, math.nan)),
        **_roof_errors(rows, run), **_shares(rows, ridge),
    })  # fmt: skip
    unknown = np.zeros(rows.count, dtype=bool)
    if run.imported:
        quicker = np.fmax(memory_s, compute_s) > ABOVE_ROOF * median_s
        unknown = _out_of_reach(rows, run)
        compute_s = np.where(unknown, math.nan, compute_s)
        rows = rows.changed({"above_roof": rows["above_roof"] | quicker, "compute_s": compute_s})
    answers = {"measured_bound_by": measured, "as_predicted": agree}
    rows = rows.changed({name: Texts.of(np.where(unknown, None, each)) for name, each in answers.items()})
    return Columns({name: rows[name] for name in rows if name not in READ or name in ASKED}, rows.count)


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


def _stated_terms(rows: Columns, sheet: Datasheet | None) -> npt.NDArray[np.float64]:
    """Seconds [2, n] of memory and arithmetic by the datasheet; NaN where it does not say."""
    terms = np.full((2, rows.count), math.nan)
    if sheet is None:
        return terms
    counts = np.stack([rows.floats("byte"), rows.floats("flop")])
    for (arithmetic, dtype), places in rows.parts(UNIT):
        if arithmetic not in WITHOUT_ROOF:
            rates = (sheet.bandwidth_byte_per_s, sheet.peak_flop_per_s(arithmetic, dtype))
            seconds = [count[places] / (rate or math.nan) for count, rate in zip(counts, rates, strict=True)]
            terms[:, places] = np.where(counts[:, places] > 0, seconds, 0.0)
    return terms


def _cached(rows: Columns) -> Bools:
    """Whether launches find some of their data in the last-level cache."""
    flushed = rows["flushed"]
    warm = rows["cache"].are("warm") & ~(flushed.are(True) if isinstance(flushed, Texts) else flushed)
    ring = rows.floats("ring_byte")
    held = np.where(ring > 0, ring, rows["byte"]) / np.maximum(rows["cache_byte"], 1)
    return np.asarray(warm & (resident(held, 1.0) > 0))


def _out_of_reach(rows: Columns, run: DeviceRun) -> Bools:
    """Whether arithmetic may bound each of the rows, by a peak of the datasheet that the card does not reach.

    That is one of a card without power of its own, or one that no product of the run comes near. Convolutions
    do not tell: some algorithms do less arithmetic than is counted.
    """
    bounded: Bools = ~(rows["intensity"] <= FLAT * rows["ridge"])
    if run.datasheet is not None and (run.datasheet.power_w or math.inf) <= SLOT_W:
        return bounded
    telling = bounded & rows["operator"].told(PRODUCTS.__contains__)
    share = np.where(telling, rows["compute_s"] / rows["median_s"], math.nan)
    reached = np.full(rows.count, math.nan)
    for _, places in rows.parts(UNIT):
        reached[places] = np.fmax.reduce(share[places])
    return bounded & (reached < 1 / NEAR_PEAK)


def _terms(rows: Columns, roof: Callable[[str], Ceilings]) -> npt.NDArray[np.float64]:
    """`row_terms` [3, n] of the rows of a run, each under its condition."""
    terms = np.full((3, rows.count), math.nan)
    written = rows.floats("moved_written")
    written = np.where(np.isnan(written), rows["byte_written"], written)
    again = np.nan_to_num(rows.floats("byte_again"))
    byte, share = traffic(rows["byte_moved"], again, written, rows["cache_byte"])
    condition = rows["condition"]
    for number, of in enumerate(condition.distinct):
        here = condition.numbers == number
        arithmetic, dtype = (rows[name][here].told(str) for name in UNIT)
        terms[:, here] = terms_columns(
            rows["flop"][here], byte[here], share[here], arithmetic, dtype, roof(of)
        )
    return terms


def _roof_errors(rows: Columns, run: DeviceRun) -> dict[str, Any]:
    """Errors of the terms of memory and compute; 0 where the roof is a datasheet's or a term is missing."""
    if run.imported:
        return dict.fromkeys(ROOF_ERRORS, np.zeros(rows.count))
    slowest, seen, quickest = (
        _terms(rows, roof)[1:]
        for roof in (lambda of: run.roof(of).slowest, run.roof, lambda of: run.roof(of).quickest)
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        down, up = (np.where(quickest > 0, np.log(each), 0.0) for each in (slowest / seen, seen / quickest))
    return dict(zip(ROOF_ERRORS, (down[0], up[0], down[1], up[1]), strict=True))


def _shares(rows: Columns, ridge: Floats) -> dict[str, Floats]:
    """Shares of the classes into which a row's time is divided; NaN if it is not."""
    contraction, *others = map(rows.floats, CLASSES_S)
    beside = np.nan_to_num(rows.floats("byte_beside"))
    with np.errstate(divide="ignore", invalid="ignore"):
        rest = 1 - contraction / (contraction + sum(others))
        slack = rows["flop"] / (rows["byte_moved"] - beside) < ridge
    return {"rest_share": rest, "below_ridge_share": np.where(slack & ~np.isnan(rest), 1.0, rest)}


def _formula_s(rows: Columns, sheet: Datasheet | None) -> Floats:
    per_clock = np.full(rows.count, math.nan)
    for of, places in rows.parts(UNIT):
        per_clock[places] = (sheet and sheet.flop_per_clock_per_sm(*of)) or math.nan
    clock_hz = rows.floats("sm_clock_hz")
    return np.asarray(
        rows["flop"] / (per_clock * rows["sm_count"] * np.where(clock_hz > 0, clock_hz, math.nan))
    )


def case_rows(cases: Iterable[Case], sm_count: int) -> Columns:
    """Cases that were perhaps never measured, as far as selections can be evaluated on them."""
    import pandas as pd

    cases = list(cases)
    facts = [_problem_columns(case.problem) for case in cases]
    names = dict.fromkeys(name for each in facts for name in each)
    columns = {name: [each.get(name, math.nan) for each in facts] for name in names} | {
        "key": [case.key for case in cases],
        "implementation": [case.implementation for case in cases],
        "cache": [case.cache for case in cases],
        "threads_asked": [case.threads for case in cases],
        "byte_moved": [case.problem.byte_moved(case.implementation) for case in cases],
        "sm_count": [sm_count] * len(cases),
    }
    return Columns.of(pd.DataFrame(columns, range(len(cases))))


@cache  # several cases, and the sweeps of several devices, solve the same problem
def _problem_columns(problem: Problem) -> Mapping[str, Any]:
    parameters = problem.parameters()
    return {
        **problem.added, **parameters, "parameter_names": " ".join(parameters),
        "flop": problem.flop, "byte": problem.byte, "item_byte": problem.item_byte,
    }  # fmt: skip


def holds(rows: Columns, select: Mapping[str, Any]) -> Bools:
    """Whether a selection names each of the rows. What is not known of a case (`UNKNOWN`) rules none out."""
    keep = np.ones(rows.count, dtype=bool)
    for column, value in select.items():
        for condition in conditions(value):
            keep &= _holds(rows, column, condition)
    return keep


def _holds(rows: Columns, column: str, condition: Condition) -> Bools:
    unit = condition.unit if isinstance(condition, Compare) else ""
    there = "kernels" if column == "tensor_cores" else column
    if there not in rows or (unit and _UNITS[unit] not in rows):
        return np.full(rows.count, column in UNKNOWN or unit in UNKNOWN)
    values = rows[there]
    held: Any
    if isinstance(condition, In) and column == "tensor_cores":
        held = values.told(lambda kernels: tensor_cores(kernels) in condition.values)
    elif isinstance(condition, In) and isinstance(values, Texts):
        held = values.told(condition.values.__contains__)
    elif isinstance(condition, In):
        held = np.logical_or.reduce([values == each for each in condition.values])
    elif isinstance(condition, Matching):
        held = values.told(lambda text: re.search(condition.pattern, text) is not None, "")
    elif isinstance(condition, Compare):
        held = condition.compare(values, condition.bar * (rows[_UNITS[unit]] if unit else 1.0))
    elif isinstance(condition, MultipleOf):
        held = values == condition.factor * rows[condition.column]
    elif isinstance(condition, Divisible):
        divisor: Any = condition.divisor
        if condition.in_bytes:
            divisor = np.maximum(1, condition.divisor // rows["item_byte"])
        held = ~np.isnan(values) & ((values % divisor == 0) == condition.wanted)
    else:
        held = values == condition.per_sm * rows["sm_count"] + condition.plus
    return np.asarray(held, dtype=bool)
