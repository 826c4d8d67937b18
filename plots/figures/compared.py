"""What several runs show together: generations side by side, distributions, the scorecard of all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import pandas as pd

from bench.device.datasheet import Datasheet
from bench.judge.frame import Run
from bench.model.calibrated_runs import known, transfers
from plots.base import style
from plots.base.page import Page
from plots.figures import distribution, generations, scorecard, speedups, transfer


def draw(runs: Sequence[Run], base: str, told: Callable[[str], object]) -> Iterator[tuple[str, Page]]:
    """(path without ending, page) of each figure; `base` is the device that others are held against.

    `told` gets a sentence for each device that has no case in common with it.
    """
    rows = pd.concat([run.rows for run in runs], ignore_index=True)
    yield from scorecard.draw(rows)
    yield from distribution.draw(rows)
    sheets = {run.device: run.datasheet for run in runs}
    if len(sheets) > 1:
        table = transfers_between(rows, {run.rows["device_name"].iloc[0]: run.datasheet for run in runs})
        if table["from"].nunique() > 1:
            yield "transfer", transfer.page(table, style.facts_together(rows[rows["device_kind"] == "cuda"]))
        found, apart = speedups.compare(rows, base, sheets)
        for said in apart:
            told(said)
        if found is not None:
            yield from generations.draw(found)


def transfers_between(rows: pd.DataFrame, sheets: Mapping[str, Datasheet | None]) -> pd.DataFrame:
    """What `transfer.page` takes: each GPU's calibration, held against the products of each; one run a GPU.

    `sheets` are the devices' datasheets, by name.
    """
    runs = list({one.device_name: one for one in known(rows, sheets.get)}.values())
    slug = dict(zip(rows["device_name"], rows["device"], strict=True))
    pairs = [
        {"from": slug[one.device_name], "to": slug[name], "n": errors.n, "mape": 100 * errors.mape}
        for one in runs
        for name, errors in transfers(runs, one).items()
    ]
    return pd.DataFrame(pairs, columns=["from", "to", "n", "mape"])
