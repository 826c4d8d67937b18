"""Figures of several devices together: generations, and a matrix of transfers.

The matrix shows how far one device's calibration predicts another: rows are the calibrated devices, columns
those that were predicted from them, scaled by the ratio of their datasheets. On the diagonal a device is
predicted from itself, which shows the model's own error.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.colors import Normalize
from matplotlib.ticker import NullLocator

from bench.judge.frame import DeviceRun, known_runs
from bench.model.calibrated_runs import transfers
from plots.base import style
from plots.base.page import Page
from plots.figures import generations

DARKEST = 60.0
"""Percent of the darkest cell: larger errors are useless anyway, and smaller ones must be distinguishable."""
_CELL_IN = 0.72


def draw(runs: Sequence[DeviceRun], base: str, remark: Callable[[str], object]) -> Iterator[tuple[str, Page]]:
    """(path without ending, page) of each figure; `base` is the device that others are compared with.

    `remark` gets a sentence for each device that has no case in common with it.
    """
    rows = pd.concat([run.frame for run in runs], ignore_index=True)
    table = transfers_between(runs)
    if table["from"].nunique() > 1:
        yield "transfer", transfer(table, style.facts_together(rows[rows["device_kind"] == "cuda"]))
    sheets = {run.device: run.datasheet for run in runs}
    yield from generations.draw(rows, base, sheets, remark)


def transfers_between(runs: Sequence[DeviceRun]) -> pd.DataFrame:
    """Table for `transfer`: errors of each GPU's calibration on the products of each; one run a GPU."""
    sheets = {run.device_name: run.datasheet for run in runs}
    slug = {run.device_name: run.device for run in runs}
    known = list({run.device_name: run for run in known_runs(runs, sheets.get)}.values())
    pairs = [
        {"from": slug[run.device_name], "to": slug[name], "n": errors.n, "mape": 100 * errors.mape}
        for run in known
        for name, errors in transfers(known, run).items()
    ]
    return pd.DataFrame(pairs, columns=["from", "to", "n", "mape"])


def transfer(table: pd.DataFrame, below: str) -> Page:
    """The matrix of `table`: columns `from`, `to` (slugs of devices), `n` cases, `mape` in percent.

    It has one row for each pair, in the order of the figure; missing pairs are left blank. `below` is the
    second line of the title, which says whose numbers these are.
    """
    calibrated, predicted = (list(dict.fromkeys(table[name])) for name in ("from", "to"))
    names_in, cells_in = 1.7, len(predicted) * _CELL_IN
    width_in = max(6.5, names_in + cells_in + Page.RIGHT)
    drawn = Page(
        width_in,
        len(calibrated) * _CELL_IN + 0.35,
        "A device predicted from another's calibration",
        below,
        [
            "Mean of |predicted / measured - 1|, below it how many cases. Framed: from itself.",
            "From a row's device to a column's, scaled by nothing but the ratios of their datasheets.",
        ],
        right_in=width_in - names_in - cells_in,
        left_in=names_in,
    )
    axes = drawn.figure.add_subplot(drawn.grid(1, 1)[0])
    mape = np.full((len(calibrated), len(predicted)), np.nan)
    shade = Normalize(0.0, DARKEST)
    # Pale where the error is small, and even in grey; white letters where it is dark.
    colors = colormaps["cividis_r"]
    frame = 0.47 * np.array([[-1, 1, 1, -1, -1], [-1, -1, 1, 1, -1]])
    for pair in table.to_dict("records"):
        i, j = calibrated.index(pair["from"]), predicted.index(pair["to"])
        mape[i, j] = pair["mape"]
        ink = "white" if shade(pair["mape"]) > 0.5 else "black"
        axes.text(j, i - 0.1, f"{pair['mape']:.1f} %", ha="center", va="center", size=8.5, color=ink)
        axes.text(j, i + 0.24, f"{pair['n']}", ha="center", va="center", size=6.5, color=ink)
        if pair["from"] == pair["to"]:
            axes.plot(j + frame[0], i + frame[1], color="black", lw=1.6, label="_itself")
    axes.imshow(np.ma.masked_invalid(mape), cmap=colors, norm=shade, aspect="auto")
    axes.set_yticks(range(len(calibrated)), [_wrapped(name, 26) for name in calibrated])
    axes.set_xticks(range(len(predicted)), [_wrapped(name, 10) for name in predicted])
    axes.set(xlabel="predicted", ylabel="calibrated")
    axes.grid(visible=False)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.tick_params(length=0)
    return drawn


def _wrapped(slug: str, columns: int) -> str:
    """A device's name in at most three lines: more would run into the caption."""
    name = slug.removeprefix("nvidia-").replace("-", " ")
    return "\n".join(textwrap.wrap(name, columns, max_lines=3, placeholder="..."))
