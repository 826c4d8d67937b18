"""`python -m bench predict OPERATOR NAME=VALUES... --on DEVICE`: what launches take, by timings of many GPUs.

Each time has the interval that holds nine launches in ten beside it; below them is what they rest on: how
many timings of which GPUs and sources, and how far such predictions were off where rows or GPUs were left
out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

import kernels
from bench.cli.run_command import sweep_file, sweep_of
from bench.cli.table import lines_of, table
from bench.device.datasheet import Datasheet
from bench.errors import UserError
from bench.format import seconds_text, share_text
from bench.judge.timings import counts_text, sources_text
from bench.model.launch_features import with_parameters
from bench.model.pooled import LEAST_ROWS, OperatorPool, Pool, PooledPrediction
from bench.model.roofline import datasheet_s
from bench.spec import parameters_text
from bench.sweep import load as sweep
from bench.sweep.load import Case

if TYPE_CHECKING:
    import pandas as pd


def cases_of(operator: str, given: Sequence[str], sheet: Datasheet) -> list[Case]:
    """The cases that these words ask for and that can run on the GPU. UserError for a word that is none."""
    with sweep_file("predict", sweep_of(operator, list(given), "", "cold")) as path:
        loaded = sweep.load(path, kernels.problem, sheet.sm_count)
    possible = [case for case in loaded.cases if not case.missing("cuda", sheet.capability)]
    if not possible:
        raise UserError(f"predict {operator}: none of these cases can run on {sheet.name}")
    return possible


def prediction_lines(pool: Pool, cases: Sequence[Case], wanted: Datasheet) -> Iterator[str]:
    """The predicted times of one operator's cases on one GPU, and the evidence for them."""
    operator = pool.of(cases[0].problem.operator)
    yield f"{wanted.name}: one launch of each case, predicted"
    shown = table("case", ">datasheet's roofline", ">predicted", ">90 % interval")
    evidence: list[str] = []
    without: list[str] = []
    texts: dict[int, tuple[str, str]] = {}
    for name in dict.fromkeys(case.implementation for case in cases):
        of = [i for i, case in enumerate(cases) if case.implementation == name]
        known = operator.rows[operator.rows["implementation"] == name]
        if len(known) < LEAST_ROWS:
            without.append(f"{name} ({len(known)})" if len(known) else name)
            continue
        rows = _rows([cases[i] for i in of], wanted)
        learned, line = learned_of(OperatorPool(pool, known), rows, wanted)
        evidence.append(f"{name}: {line}")
        if learned is not None:
            for i, *times in zip(of, learned.seconds, learned.low_s, learned.high_s, strict=True):
                texts[i] = _texts(*times)
    for i, case in enumerate(cases):
        if texts and i not in texts:
            continue  # said below
        facts = case.problem.facts(case.implementation)
        least_s = datasheet_s(facts["flop"], facts["byte"], facts["arithmetic"], facts["dtype"], wanted)
        shown.add_row(case.name, seconds_text(least_s) if least_s else "-", *texts.get(i, ("-", "-")))
    yield from lines_of(shown)
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


def _rows(cases: Sequence[Case], wanted: Datasheet) -> pd.DataFrame:
    import pandas as pd

    facts = [
        {
            **case.problem.facts(case.implementation),
            "parameters": parameters_text(case.problem.parameters()),
            "cache": case.cache,
            "device_name": wanted.match[0],
            "run_id": "",
            "median_s": np.nan,
            "clock_start_s": np.nan,
        }
        for case in cases
    ]
    return with_parameters(pd.DataFrame(facts))


def _texts(seconds: float, low_s: float, high_s: float) -> tuple[str, str]:
    if not np.isfinite(low_s):
        return seconds_text(seconds), "unknown"
    return seconds_text(seconds), f"{seconds_text(low_s)} to {seconds_text(high_s)}"
