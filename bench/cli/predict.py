"""`python -m bench predict`: what launches would take on a GPU, which need not be in this machine.

Of sweeps each case has the datasheet's roofline and, where a run of the GPU has ceilings, two more levels
and the resource that bounds it. The launches of an operator have times learned from timings of many GPUs,
with the interval that holds nine launches in ten. Below either stands what they rest on, and how far such
predictions were from measured times.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import kernels
from bench.cli.run_command import refuse_unknown, sweep_file, sweep_of
from bench.cli.table import table_lines
from bench.device.datasheet import Datasheet, datasheets, find_datasheet
from bench.errors import UserError, unknown
from bench.format import seconds_text, share_text
from bench.judge.frame import known_runs, read
from bench.judge.timings import counts_text, sources_text
from bench.model import predict
from bench.model.calibrated_runs import Known
from bench.model.ceilings import Ceilings, condition
from bench.model.launch_features import with_parameters
from bench.model.pooled import LEAST_ROWS, OperatorPool, Pool, PooledPrediction
from bench.model.predict import with_peaks
from bench.model.roofline import datasheet_s
from bench.spec import parameters_text
from bench.sweep.load import Case, Loaded, load

COLUMNS = ("datasheet_s", "predicted_s", "structured_s")
"""The columns of the levels of prediction of a sweep's cases, in this order."""


def basis(wanted: Datasheet, results: Sequence[Path], left_out: Callable[[str], object]) -> Known | None:
    """The run among these results that calibrates the GPU, ours before an imported one; None without one."""
    known = known_runs(read(results, left_out), find_datasheet)
    return min(
        (run for run in known if run.sheet.name == wanted.name),
        key=lambda run: bool(run.imported),
        default=None,
    )


def basis_lines(wanted: Datasheet, of: Known | None) -> Iterator[str]:
    """Which calibration the predictions rest on, and how far such predictions were off."""
    learned = (
        "`predict OPERATOR NAME=VALUES...` learns from timings of all GPUs, and says how far off it was."
    )
    if of is None:
        unknown_levels = "with its ceilings is among the results: L1 and L2 are unknown."
        yield f"No run of {wanted.name} {unknown_levels} {learned}"
        return
    by = of.calibrations[-1]
    fitted = f"fitted to {by.shapes} shapes" if by.fitted else "its ceilings and shared priors, no fit"
    whose = f"imported: {of.imported.partition(';')[0]}" if of.imported else f"run {of.run_id}"
    yield f"L1 and L2 from the calibration of {of.device_name} ({whose}; {fitted})."
    if errors := of.errors(by):
        yield (
            f"On {errors.n} {by.dtype} matrix multiplications that were timed there, L2 is off by "
            f"{share_text(errors.mape)} on average: half by less than {share_text(errors.median)}, one in "
            f"ten by more than {share_text(errors.p90)}."
        )
    dtypes = ", ".join(sorted({by.dtype, *by.others}))
    yield (
        f"L2 knows data types with calibration shapes ({dtypes}; float16 as bfloat16); of other types L1 "
        "rests on their stated peaks."
    )
    yield f"Other operators were not compared: the error of their predictions is unknown. {learned}"


def datasheet_named(wanted: str) -> Datasheet:
    """The datasheet of a CUDA GPU by its file's name, its own or its driver's.

    UserError names those there are.
    """
    plain = _plain(wanted)
    cuda = [sheet for sheet in datasheets() if sheet.capability is not None]
    for sheet in cuda:
        if plain in (_plain(name) for name in (sheet.name, *sheet.match, sheet.slug)):
            return sheet
    slugs = [sheet.slug for sheet in cuda]
    raise UserError(f"--on: {unknown('CUDA GPU', wanted, 'bench/device/datasheets', slugs)}")


def _plain(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())


def predictions(wanted: Datasheet, by: Known | None, cases: Sequence[Case]) -> pd.DataFrame:
    """One row for each case: COLUMNS and `structured_limiter`; NaN and "" where a level has no prediction."""
    rows = unmeasured(cases, wanted)
    ceilings = with_peaks(by.ceilings, by.calibrations[-1]) if by else Ceilings()
    calibrations = by.calibrations if by else ()
    rows = pd.concat([rows, predict.structured(rows, lambda _: ceilings, wanted, calibrations)], axis=1)
    predict.add_rooflines(rows, lambda _: ceilings, wanted)
    return rows


def unmeasured(cases: Sequence[Case], sheet: Datasheet) -> pd.DataFrame:
    """A row for each case on this GPU, with the columns from which its time is predicted."""
    nothing: dict[str, Any] = {"run_id": "", "configuration": "", "kernels": None, "flushed": False}
    nothing |= dict.fromkeys(("ring_byte", "median_s", "clock_start_s"), np.nan)
    return pd.DataFrame(
        {
            **case.problem.facts(case.implementation),
            "sweep": case.sweep,
            "role": case.role,
            "parameters": parameters_text(case.problem.parameters()),
            "cache": case.cache,
            "condition": condition(case.cache, case.threads),
            "device_kind": "cuda",
            "device_name": sheet.match[0],
            "sm_count": sheet.sm_count,
            "cache_byte": sheet.l2_byte,
            **nothing,
        }
        for case in cases
    )


def prediction_lines(
    wanted: Datasheet, by: Known | None, loaded: Sequence[Loaded], each: bool
) -> Iterator[str]:
    """One line for each sweep, with `each` one for each of its cases; then the totals and their basis."""
    possible = [
        [case for case in sweep.cases if not case.missing("cuda", wanted.capability)] for sweep in loaded
    ]
    hint = "" if each else "; --cases lists every case"
    yield f"{wanted.name}: one launch of each case, predicted{hint}"
    known_s: dict[str, list[float]] = {column: [] for column in COLUMNS}
    lines: list[list[str]] = []
    for cases in filter(None, possible):
        rows = predictions(wanted, by, cases)
        for column, kept in known_s.items():
            kept += rows[column].dropna().tolist()
        bound = Counter(name for name in rows["structured_limiter"] if name)
        bounds = ", ".join(f"{name} {n}" for name, n in bound.most_common()) or "unknown"
        # A sum that leaves some out would be compared with one that does not.
        sums_s = [rows[column].sum(skipna=False) for column in COLUMNS]
        lines.append([cases[0].sweep, str(len(rows)), *map(_text, sums_s), bounds])
        if each:
            for case, row in zip(cases, rows.to_dict("records"), strict=True):
                texts = [_text(row[column]) for column in COLUMNS]
                lines.append([f"  {case.name}", "", *texts, row["structured_limiter"]])
    levels = (">L0 datasheet", ">L1 calibrated", ">L2 structure")
    yield from table_lines(("sweep", ">cases", *levels, "bound by (L2)"), lines)
    sums = zip(("L0", "L1", "L2"), known_s.values(), strict=True)
    totals = "; ".join(f"{level} {_text(sum(kept))} for {len(kept)} of them" for level, kept in sums)
    yield f"one launch of each of {sum(map(len, possible))} cases: {totals}"
    yield from basis_lines(wanted, by)


def _text(seconds: float | None) -> str:
    return seconds_text(seconds) if seconds and seconds > 0 else "-"


# ---- an operator, by timings of many GPUs


def cases_of(operator: str, given: Sequence[str], sheet: Datasheet) -> list[Case]:
    """The cases that these words ask for and that can run on the GPU. UserError for a word that is none."""
    refuse_unknown("predict", operator)
    with sweep_file("predict", sweep_of(operator, list(given), "", "cold")) as path:
        loaded = load(path, kernels.problem, sheet.sm_count)
    possible = [case for case in loaded.cases if not case.missing("cuda", sheet.capability)]
    if not possible:
        raise UserError(f"predict {operator}: none of these cases can run on {sheet.name}")
    return possible


def learned_lines(pool: Pool, cases: Sequence[Case], wanted: Datasheet) -> Iterator[str]:
    """The predicted times of one operator's cases on one GPU, and the evidence for them."""
    operator = pool.of(cases[0].problem.operator)
    yield f"{wanted.name}: one launch of each case, predicted"
    evidence: list[str] = []
    without: list[str] = []
    texts: dict[str, tuple[str, str]] = {}
    for name in dict.fromkeys(case.implementation for case in cases):
        of = [case for case in cases if case.implementation == name]
        known = operator.rows[operator.rows["implementation"] == name]
        if len(known) < LEAST_ROWS:
            without.append(f"{name} ({len(known)})" if len(known) else name)
            continue
        rows = with_parameters(unmeasured(of, wanted))
        learned, line = learned_of(OperatorPool(pool, known), rows, wanted)
        evidence.append(f"{name}: {line}")
        if learned is not None:
            for case, *times in zip(of, learned.seconds, learned.low_s, learned.high_s, strict=True):
                text, low, high = map(seconds_text, times)
                texts[case.key] = text, f"{low} to {high}" if low else "unknown"
    lines = []
    for case in cases:
        if case.key in texts or not texts:  # others are said below
            facts = case.problem.facts(case.implementation)
            least_s = datasheet_s(facts["flop"], facts["byte"], facts["arithmetic"], facts["dtype"], wanted)
            lines.append((case.name, _text(least_s), *texts.get(case.key, ("-", "-"))))
    yield from table_lines(("case", ">datasheet's roofline", ">predicted", ">90 % interval"), lines)
    yield from evidence
    if without:
        yield f"no prediction: fewer than {LEAST_ROWS} timings are among the results of {', '.join(without)}"
    if not evidence:
        yield "`make public` brings timings of many GPUs to results/imported"


def learned_of(
    known: OperatorPool, rows: pd.DataFrame, wanted: Datasheet
) -> tuple[PooledPrediction | None, str]:
    """What is learned of the rows, and on what it rests."""
    own, others = known.own(wanted), known.others(wanted)
    beside = counts_text(others) if len(others) else ""
    # The source with most rows: what others of this GPU include in their times differs.
    largest = own[own["run_id"] == own["run_id"].value_counts().idxmax()] if len(own) else own
    if len(largest) >= LEAST_ROWS:
        calibrating = largest.loc[known.designated(wanted, largest)]
        learned = known.calibrated(wanted, calibrating, rows)
        line = f"calibrated by {len(calibrating)} of {len(largest)} timings of this GPU "
        line += f"({sources_text(largest)})"
        line += f", beside {beside}" if beside else ""
        left = "timings"
    else:
        predicted = known.unseen(wanted, rows)
        if predicted is None:
            return None, f"{counts_text(own)} are too few, and no other GPU was timed"
        few = f"{counts_text(own)} are too few" if len(own) else "this GPU was never timed"
        learned, line, left = predicted, f"{few}; by {beside}", "GPUs"
    if np.isfinite(learned.error):
        line += f". Left out in turn, {left} were off by {share_text(learned.error)} on average"
    return learned, line
