"""Figure of one operator in one data type on every device, as speed-up over a base, case by case.

A row for each device, a column for each thing that bounds cases on the base; x is the arithmetic intensity,
or the bytes of streams.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from bench.model.bound import BOUNDS, bound_text
from plots.base import scale, style
from plots.base.page import Page
from plots.figures import speedups
from plots.figures.speedups import ComparedDevices

BINS = 18
"""Bins over the width of a panel with many cases."""
LEAST = 5
"""Fewest cases of a bin that is shown."""
MANY = BINS * LEAST
"""Cases of one panel above which the median and the spread of bins are drawn instead of points."""
_WIDTH_IN, _ROW_IN, _GAP_IN = (2.7, 5.2), 1.5, 0.5
_LEFT_IN, _RIGHT_IN = 1.0, 0.25
_X_LABELS = {"intensity": "arithmetic intensity (FLOP/byte)", "byte": "bytes of a launch"}


def page(compared: ComparedDevices, operator: str, dtype: str) -> Page | None:
    """The figure; None if no case has a place on its x axis (an empty launch moves no byte)."""
    by_device, x = _cases(compared, operator, dtype)
    if not by_device:
        return None
    every = pd.concat(by_device.values())
    bounds = [name for name in (*reversed(BOUNDS), "") if (every["bound_by"] == name).any()]
    width_in = _WIDTH_IN[0] if len(bounds) > 1 else _WIDTH_IN[1]
    drawn = Page(
        _LEFT_IN + _RIGHT_IN + len(bounds) * width_in,
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
    grid = drawn.grid(len(by_device), len(bounds), hspace=_GAP_IN / _ROW_IN, wspace=0.1)
    # All of few cases; of thousands, an outlier must not flatten the others, and stands on the edge.
    ends = (0.0, 1.0) if len(every) <= MANY else (0.005, 0.995)
    shown = [1.0, *np.quantile(every["speedup"], ends)]
    stated = {
        (gain.device, gain.bound_by): gain.stated
        for gain in compared.gains
        if gain.stated is not None and (gain.operator, gain.dtype) == (operator, dtype)
    }
    shown += stated.values()
    for i, (device, cases) in enumerate(by_device.items()):
        for j, name in enumerate(bounds):
            axes = drawn.figure.add_subplot(grid[i, j])
            promise = stated.get((device, name))
            _against(axes, device, name, cases[cases["bound_by"] == name], x, promise, shown)
            wanted = every.loc[every["bound_by"] == name, x].to_numpy(dtype=float)
            scale.swept(axes.xaxis, wanted, scale.spans_far(wanted), width_in)
            margin = (wanted.max() / wanted.min()) ** 0.03
            axes.set_xlim(wanted.min() / margin / 1.02, wanted.max() * margin * 1.02)
            if i + 1 == len(by_device):
                axes.set_xlabel(_X_LABELS[x])
            if j:
                axes.tick_params(labelleft=False)
            else:
                axes.set_ylabel("\n".join([*textwrap.wrap(device.replace("-", " "), 20), "speed-up"]))
    return drawn


def _cases(compared: ComparedDevices, operator: str, dtype: str) -> tuple[dict[str, pd.DataFrame], str]:
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
    bound_by: str,
    rows: pd.DataFrame,
    x: str,
    stated: float | None,
    shown: Sequence[float],
) -> None:
    look = style.of_device(device)
    axes.axhline(1.0, color=style.BLACK, lw=0.7, zorder=1, label="_base")
    if stated is not None:
        name, promise = speedups.PROMISES[bound_by]
        axes.axhline(stated, zorder=2, label=f"_{name}", **promise)
        axes.annotate(f"{name} {stated:.2f} x", (0.02, 0.04), xycoords="axes fraction", size=6.5)
    scale.ratio(axes, shown, speedups.TICKS)
    title = bound_text(bound_by)
    if not len(rows):
        axes.set_title(f"{title}: no case")
        return
    at, speedup = rows[x].to_numpy(dtype=float), rows["speedup"].to_numpy(dtype=float)
    median = f"median {np.median(speedup):.2f}, n = {len(rows)}"
    axes.set_title(f"{title}: {median}")
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
