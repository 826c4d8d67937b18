"""Figure of one operator in one data type on every device, as speed-up over a base, case by case.

A row for each device, a column for each problem size; x is the arithmetic intensity, or the bytes of streams.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from plots.base import axes as scale
from plots.base import problem_sizes, style
from plots.base.page import Page
from plots.figures import speedups
from plots.figures.speedups import Compared

BINS = 18
"""Bins over the width of a panel with many cases."""
LEAST = 5
"""Fewest cases of a bin that is shown."""
MANY = BINS * LEAST
"""Cases of one panel above which the median and the spread of bins are drawn instead of points."""
_WIDTH_IN, _ROW_IN, _GAP_IN = (2.7, 5.2), 1.5, 0.5
_LEFT_IN, _RIGHT_IN = 1.0, 0.85
_X_LABELS = {"intensity": "arithmetic intensity (FLOP/byte)", "byte": "bytes of a launch"}


def page(compared: Compared, operator: str, dtype: str) -> Page | None:
    """The figure; None if no case has a place on its x axis (an empty launch moves no byte)."""
    by_device, x = _cases(compared, operator, dtype)
    if not by_device:
        return None
    every = pd.concat(by_device.values())
    sizes = [size for size in (*problem_sizes.SIZES, "") if (problem_sizes.sizes(every) == size).any()]
    width_in = _WIDTH_IN[0] if len(sizes) > 1 else _WIDTH_IN[1]
    drawn = Page(
        _LEFT_IN + _RIGHT_IN + len(sizes) * width_in,
        len(by_device) * _ROW_IN + (len(by_device) - 1) * _GAP_IN,
        f"{operator}, {dtype}: speed-up over {compared.base}",
        style.facts_together(
            compared.rows[(compared.rows["operator"] == operator) & (compared.rows["dtype"] == dtype)]
        ),
        [
            speedups.PROMISED,
            *speedups.measured_alike(compared),
            *speedups.MIDDLE,
            f"Same problems. Up to {MANY} cases are points, each one.",
        ],
        _RIGHT_IN,
        _LEFT_IN,
    )
    many = any(len(cases) > MANY for cases in by_device.values())
    spread = [Patch(color="#CCCCCC", label="10 to 90 of 100")] if many else []
    drawn.legend(spread)
    grid = drawn.grid(len(by_device), len(sizes), hspace=_GAP_IN / _ROW_IN, wspace=0.1)
    # All of few cases; of thousands, an outlier must not flatten the others, and stands on the edge.
    ends = (0.0, 1.0) if len(every) <= MANY else (0.005, 0.995)
    shown = [1.0, *np.quantile(every["speedup"], ends)]
    gains = {device: compared.gains(device, cases) for device, cases in by_device.items()}
    shown += [gain for of_device in gains.values() for gain in of_device.values()]
    for i, (device, cases) in enumerate(by_device.items()):
        size = problem_sizes.sizes(cases)
        for j, name in enumerate(sizes):
            axes = drawn.figure.add_subplot(grid[i, j])
            of_size = cases[size == name]
            _against(axes, device, name, of_size, x, gains[device], shown)
            wanted = every.loc[problem_sizes.sizes(every) == name, x].to_numpy(dtype=float)
            scale.swept(axes.xaxis, wanted, scale.spans_far(wanted), width_in)
            margin = (wanted.max() / wanted.min()) ** 0.03
            axes.set_xlim(wanted.min() / margin / 1.02, wanted.max() * margin * 1.02)
            if i + 1 == len(by_device):
                axes.set_xlabel(_X_LABELS[x])
            if j:
                axes.tick_params(labelleft=False)
            else:
                axes.set_ylabel("\n".join([*textwrap.wrap(device.replace("-", " "), 20), "speed-up"]))
            if j + 1 == len(sizes):
                _gain_labels(axes, gains[device])
    return drawn


def _cases(compared: Compared, operator: str, dtype: str) -> tuple[dict[str, pd.DataFrame], str]:
    """(device -> its cases with an x, none empty; the column of x)."""
    by_device = {
        device: cases[(cases["operator"] == operator) & (cases["dtype"] == dtype)]
        for device, cases in compared.cases.items()
    }
    products = any((cases["arithmetic"] == "matrix").any() for cases in by_device.values())
    x = "intensity" if products else "byte"
    placed = {device: cases[cases[x] > 0] for device, cases in by_device.items()}
    return {device: cases for device, cases in placed.items() if len(cases)}, x


def _against(
    axes: Axes,
    device: str,
    size: str,
    rows: pd.DataFrame,
    x: str,
    gains: Mapping[str, float],
    shown: Sequence[float],
) -> None:
    look = style.of_device(device)
    axes.axhline(1.0, color=style.BLACK, lw=0.7, zorder=1, label="_base")
    for name, gain in gains.items():
        axes.axhline(gain, zorder=2, label=f"_{name}", **speedups.PROMISES[name])
    speedups.ratio_axis(axes, shown)
    if not len(rows):
        axes.set_title(f"{size}: no case" if size else "no case")
        return
    at, speedup = rows[x].to_numpy(dtype=float), rows["speedup"].to_numpy(dtype=float)
    median = f"median {np.median(speedup):.2f}, n = {len(rows)}"
    axes.set_title(f"{size}: {median}" if size else median)
    if len(rows) <= MANY:
        inside = np.clip(speedup, *axes.get_ylim())
        axes.plot(at, inside, look.marker, color=look.color, ms=3.6, mew=0.5, zorder=3, label="_case")
        return
    place, low, middle, high = binned(at, speedup)
    axes.fill_between(place, low, high, color=look.color, alpha=0.25, lw=0, zorder=2, label="_spread")
    axes.plot(place, middle, color=look.color, marker=look.marker, ms=3.2, lw=1.2, zorder=3, label="_median")


def binned(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(x, 10th percentile, median, 90th percentile of y) of neighbours: BINS of equal width in log x.

    The x of a bin is the geometric mean of its own cases; bins with fewer than LEAST cases are left out.
    """
    edges = np.geomspace(x.min(), x.max() * (1 + 1e-9), BINS + 1)
    bins = np.clip(np.searchsorted(edges, x, side="right") - 1, 0, BINS - 1)
    kept = [bins == i for i in range(BINS) if (bins == i).sum() >= LEAST]
    place = np.array([np.exp(np.log(x[here]).mean()) for here in kept])
    low, middle, high = np.array([np.quantile(y[here], (0.1, 0.5, 0.9)) for here in kept]).reshape(-1, 3).T
    return place, low, middle, high


def _gain_labels(axes: Axes, gains: Mapping[str, float]) -> None:
    """Write what the datasheets promise to the right of the panel, without overlap."""
    low, high = axes.get_ylim()
    labels = [
        (math.log(gain / low) / math.log(high / low), f"{name}\n{gain:.2f} x") for name, gain in gains.items()
    ]
    labels.sort()
    if len(labels) == 2 and labels[1][0] - labels[0][0] < 0.24:
        middle = (labels[0][0] + labels[1][0]) / 2
        labels = [(middle - 0.12, labels[0][1]), (middle + 0.12, labels[1][1])]
    for y, label in labels:
        axes.annotate(
            label, (1.0, y), (4, 0), xycoords="axes fraction", textcoords="offset points", size=7, va="center"
        )
