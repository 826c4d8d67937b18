"""Figure of transfer errors: a matrix of how far one device's calibration predicts another.

Rows are the calibrated devices, columns those that were predicted from them, scaled by the ratio of their
datasheets. On the diagonal a device is predicted from itself, which shows the model's own error.
"""

from __future__ import annotations

import textwrap

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.colors import Normalize
from matplotlib.ticker import NullLocator

from plots.base.page import Page

DARKEST = 60.0
"""Percent of the darkest cell: larger errors are useless anyway, and smaller ones must be distinguishable."""
_CELL_IN = 0.72


def page(table: pd.DataFrame, below: str) -> Page:
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
