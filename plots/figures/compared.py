"""Figures of several runs together: generations side by side, distributions, a scorecard of all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pandas as pd

from bench.judge.frame import DeviceRun, known_runs
from bench.model.calibrated_runs import transfers
from plots.base import style
from plots.base.page import Page
from plots.figures import distribution, generations, scorecard, speedups, transfer


def draw(runs: Sequence[DeviceRun], base: str, remark: Callable[[str], object]) -> Iterator[tuple[str, Page]]:
    """(path without ending, page) of each figure; `base` is the device that others are compared with.

    `remark` gets a sentence for each device that has no case in common with it.
    """
    rows = pd.concat([run.frame for run in runs], ignore_index=True)
    yield from scorecard.draw(rows)
    yield from distribution.draw(rows)
    sheets = {run.device: run.datasheet for run in runs}
    if len(sheets) > 1:
        table = transfers_between(runs)
        if table["from"].nunique() > 1:
            yield "transfer", transfer.page(table, style.facts_together(rows[rows["device_kind"] == "cuda"]))
        compared, apart = speedups.compare(rows, base, sheets)
        for sentence in apart:
            remark(sentence)
        if compared is not None:
            yield from generations.draw(compared)


def transfers_between(runs: Sequence[DeviceRun]) -> pd.DataFrame:
    """Table for `transfer.page`: errors of each GPU's calibration on the products of each; one run a GPU."""
    sheets = {run.device_name: run.datasheet for run in runs}
    slug = {run.device_name: run.device for run in runs}
    known = list({run.device_name: run for run in known_runs(runs, sheets.get)}.values())
    pairs = [
        {"from": slug[run.device_name], "to": slug[name], "n": errors.n, "mape": 100 * errors.mape}
        for run in known
        for name, errors in transfers(known, run).items()
    ]
    return pd.DataFrame(pairs, columns=["from", "to", "n", "mape"])
