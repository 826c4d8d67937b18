"""`python -m bench predict`: what an operator's launches would take on a GPU, which need not be here.

The times are learned from timings of many GPUs, with the interval that holds nine launches in ten. Below them
stands what they rest on, and how far such predictions were from measured times.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from bench.cli import run_command
from bench.cli.list_cases import of_datasheet
from bench.cli.table import table_lines
from bench.device.datasheet import Datasheet
from bench.errors import UserError
from bench.format import seconds_text, share_text, span_text
from bench.judge.timings import counts_text, sources_text
from bench.model.ceilings import condition
from bench.model.launch_features import with_parameters
from bench.model.pooled import LEAST_ROWS, OperatorPool, Pool, PooledPrediction
from bench.model.roofline import datasheet_s
from bench.spec import parameters_text
from bench.sweep.load import Case


def unmeasured(cases: Sequence[Case], sheet: Datasheet) -> pd.DataFrame:
    """A row for each case on this GPU, with the columns from which its time is predicted."""
    nothing: dict[str, Any] = {"run_id": "", "configuration": "", "kernels": None}
    nothing |= dict.fromkeys(("median_s", "clock_start_s"), np.nan)
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


def cases_of(operator: str, given: Sequence[str], sheet: Datasheet) -> list[Case]:
    """The cases that these words ask for and that can run on the GPU. UserError for a word that is none."""
    cases = run_command.cases_of("predict", [operator, *given], of_datasheet(sheet))
    possible = [case for case in cases if not case.missing("cuda", sheet.capability)]
    if not possible:
        raise UserError(f"predict {operator}: none of these cases can run on {sheet.name}")
    return possible


def learned_lines(pool: Pool, cases: Sequence[Case], wanted: Datasheet) -> Iterator[str]:
    """The predicted times of one operator's cases on one GPU, and the evidence for them."""
    yield f"{wanted.name}: one launch of each case, predicted"
    evidence: list[str] = []
    without: list[str] = []
    texts: dict[str, tuple[str, str]] = {}
    for name in dict.fromkeys(case.implementation for case in cases):
        of = [case for case in cases if case.implementation == name]
        known = pool.of(cases[0].problem.operator, name)
        if (count := len(known.rows)) < LEAST_ROWS:
            without.append(f"{name} ({count})" if count else name)
            continue
        rows = with_parameters(unmeasured(of, wanted))
        learned, line = learned_of(known, rows, wanted)
        evidence.append(f"{name}: {line}")
        if learned is not None:
            for case, *times in zip(of, learned.seconds, learned.low_s, learned.high_s, strict=True):
                text, low, high = map(seconds_text, times)
                texts[case.key] = text, span_text(low, high) if low else "unknown"
    lines = []
    for case in cases:
        if case.key in texts or not texts:  # others are said below
            work = case.problem
            least_s = datasheet_s(work.flop, work.byte, work.arithmetic, work.dtype, wanted)
            lines.append((case.name, seconds_text(least_s or None), *texts.get(case.key, ("-", "-"))))
    yield from table_lines(("case", ">datasheet's roofline", ">predicted", ">90 % interval"), lines)
    yield from evidence
    if without:
        yield f"no prediction: fewer than {LEAST_ROWS} timings are among the results of {', '.join(without)}"
        yield "`make public` brings timings of many GPUs to results/imported"


def learned_of(
    known: OperatorPool, rows: pd.DataFrame, wanted: Datasheet
) -> tuple[PooledPrediction | None, str]:
    """What is learned of the rows, and on what it rests."""
    own, others = known.own(wanted), known.others(wanted)
    beside = _evidence(others, rows["dtype"].unique()) if len(others) else ""
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


def _evidence(rows: pd.DataFrame, dtypes: Collection[str]) -> str:
    """What these types rest on: `160 timings of 2 GPUs (DeepBench) in float16 and 900 in other types`."""
    of = rows[rows["dtype"].isin(dtypes)]
    types, others = " and ".join(dtypes), len(rows) - len(of)
    told = counts_text(of if len(of) else rows)
    if others:
        told += f" in {types} and {others:,} in other types" if len(of) else f", none of them {types}"
    operators = sorted(rows["operator"].unique())
    return told + (f", of {' and '.join(operators)}" if len(operators) > 1 else "")
