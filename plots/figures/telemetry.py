"""Figure of telemetry: clock, power and temperature of a GPU; speed, pressure and steal of a CPU.

They are drawn over the time of the run, so that a period in which the device was slow shows as one. A virtual
machine cannot read a CPU's clock: a sentinel, a small fixed matrix product before and after each case, stands
for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from bench.format import share_text
from bench.judge.frame import DeviceRun
from plots.base import style
from plots.base.page import Page

SLOW = 0.95
"""Share of the run's median speed below which a case is marked."""
FAR = 3.0
"""Multiple of the 98th percentile beyond which a point stands on the edge of its panel."""
_WIDTH_IN, _HEIGHT_IN, _GAP_IN = 8.2, 1.15, 0.16
_OTHER, _PRODUCT = style.LineStyle(style.ORANGE, "s"), style.LineStyle(style.BLACK, "D")


@dataclass(frozen=True)
class _Fact:
    column: str
    factor: float
    label: str


_GPU = (
    _Fact("sm_clock_hz", 1e-6, "SM clock\n(MHz)"),
    _Fact("power_w", 1.0, "power\n(W)"),
    _Fact("temperature_c", 1.0, "temperature\n(°C)"),
)
_CPU = (
    _Fact("sentinel_s", 1e6, "fixed product\n(µs)"),
    _Fact("pressure", 100.0, "tasks waited\n(percent)"),
    _Fact("steal", 100.0, "stolen by host\n(percent)"),
    _Fact("throttled", 100.0, "quota held\n(percent)"),
)
"""The first fact of each device is its speed; the others may explain it."""


def draw(run: DeviceRun) -> Iterator[tuple[str, Page]]:
    """(stem, page), if this run recorded the speed of its machine; `missing` says why not."""
    if missing(run):
        return
    gpu = _is_gpu(run)
    rows = moments(run.frame)
    known = [fact for fact in (_GPU if gpu else _CPU) if rows[fact.column].notna().any()]
    facts = [fact for fact in known if rows[fact.column].max() > 0]
    # How fast the machine was at each row: Hz of a GPU, sentinels per second of a CPU.
    speed = (rows["sm_clock_hz"] if gpu else 1.0 / rows["sentinel_s"]).astype(float)
    slow = (speed < SLOW * speed.median()).to_numpy()
    visits = repeated(run)
    panels = len(facts) + bool(len(visits))
    page = Page(
        Page.LEFT + Page.RIGHT + _WIDTH_IN,
        panels * _HEIGHT_IN + (panels - 1) * _GAP_IN,
        "The device while it was measured" if gpu else "The machine while it was measured",
        style.facts(run, run.frame),
        _caption(gpu, slow, speed, [fact for fact in known if fact not in facts]),
    )
    what = "clock" if gpu else "speed"
    kinds = ((_OTHER, "a visit, other work"), (_PRODUCT, "a visit, matrix product")) if len(visits) else ()
    page.legend(
        [
            style.marker("a case", style.BLUE, "o", 3.4),
            Line2D([], [], color=style.BLUE, lw=0.6, alpha=0.6, label="from its first visit to its last"),
            style.marker(f"below {share_text(SLOW)} of the median {what}", style.VERMILLION, "v"),
            *(style.marker(words, look.color, look.marker, 3.6, mfc="none") for look, words in kinds),
        ]
    )
    grid = page.grid(panels, 1, hspace=_GAP_IN / _HEIGHT_IN)
    first: Axes | None = None
    for i, fact in enumerate(facts):
        axes = page.figure.add_subplot(grid[i], sharex=first)
        first = first or axes
        _panel(axes, rows, fact, slow)
        if fact is facts[0]:
            middle = float((rows[fact.column] * fact.factor).median())
            bar = middle * SLOW if gpu else middle / SLOW
            axes.axhline(bar, color=style.GREY, lw=0.9, ls="--", zorder=1, label="_bar")
        axes.tick_params(labelbottom=i + 1 == panels)
    if len(visits):
        axes = page.figure.add_subplot(grid[panels - 1], sharex=first)
        _visits_panel(axes, visits)
    axes.set_xlabel("time since the run's start (min)")
    yield "trace", page


def missing(run: DeviceRun) -> str | None:
    """Why there is nothing to draw, as a sentence; None if there is."""
    column = "sm_clock_hz" if _is_gpu(run) else "sentinel_before_s"
    timed = run.frame[run.frame["median_s"].notna()]
    if timed[column].notna().any():
        return None
    who = "its rows are imported" if timed["imported"].all() else "no row records it"
    return f"no trace of the {'clock' if _is_gpu(run) else 'speed'}: {who}"


def moments(rows: pd.DataFrame) -> pd.DataFrame:
    """The timed rows in the order of time, with `at_s`, `first_s`, `last_s` of the run, and `sentinel_s`.

    A row of several visits stands at their median time. Older files lack the times of visits: their rows
    stand at their end, counted from the end of the run's first row.
    """
    timed = rows[rows["median_s"].notna()]
    ended = pd.to_datetime(rows["utc"], format="ISO8601", utc=True)
    since = (ended - ended.min()).dt.total_seconds()[timed.index]
    visits = [
        np.sort(np.asarray(at, dtype=float))
        if at is not None and np.size(at) and np.all(np.isfinite(at))
        else np.array([end])
        for at, end in zip(timed["visit_at_s"], since, strict=True)
    ]
    sentinel_s = timed[["sentinel_before_s", "sentinel_after_s"]].mean(axis=1)
    return timed.assign(
        at_s=[float(np.median(at)) for at in visits],
        first_s=[float(at[0]) for at in visits],
        last_s=[float(at[-1]) for at in visits],
        sentinel_s=sentinel_s,
    ).sort_values("at_s", kind="stable")


def repeated(run: DeviceRun) -> pd.DataFrame:
    """A row for each visit to a case that was visited several times: `at_s` of the run, `change`, `product`.

    `change` is the median of its samples over that of all visits, less 1; `product` says whether the case is
    a matrix product, which a change of the memory's speed leaves alone.
    """
    visits = []
    for row in run.rows:
        medians = np.array([float(np.median(samples)) for samples in row.visit_samples_s])
        at_s = row.visit_at_s or []
        if row.is_timed and len(medians) == len(at_s) > 1:
            changes = medians / np.median(medians) - 1
            visits += [
                (at, change, row.arithmetic == "matrix") for at, change in zip(at_s, changes, strict=True)
            ]
    return pd.DataFrame(visits, columns=["at_s", "change", "product"])


def _is_gpu(run: DeviceRun) -> bool:
    return bool((run.frame["device_kind"] == "cuda").any())


def _panel(axes: Axes, rows: pd.DataFrame, fact: _Fact, slow: np.ndarray) -> None:
    y = rows[fact.column].to_numpy(dtype=float) * fact.factor
    at, first, last = (rows[name].to_numpy(dtype=float) / 60 for name in ("at_s", "first_s", "last_s"))
    spread = last > first
    faint: dict[str, Any] = {"color": style.BLUE, "lw": 0.6, "alpha": min(0.4, 40 / len(rows))}
    axes.hlines(y[spread], first[spread], last[spread], zorder=2, label="_visits", **faint)
    small = 3.0 if len(rows) <= 400 else 1.8
    axes.plot(at[~slow], y[~slow], "o", color=style.BLUE, ms=small, mew=0, zorder=3, label="_case")
    axes.plot(at[slow], y[slow], "v", color=style.VERMILLION, ms=small + 1.6, mew=0, zorder=4, label="_slow")
    axes.set_ylabel(fact.label)
    axes.yaxis.set_major_locator(MaxNLocator(4))
    known = y[np.isfinite(y)]
    low, high = float(known.min()), float(known.max())
    usual = float(np.quantile(known, 0.98))
    if high > FAR * usual > 0:  # one straggler must not flatten all others: it stands on the edge
        high = FAR * usual
        axes.plot(
            at[y > high], np.full((y > high).sum(), high), "^", color=style.VERMILLION, ms=4, label="_far"
        )
    margin = 0.08 * (high - low) or 0.5 * abs(high) or 1.0
    axes.set_ylim(max(0.0, low - margin) if low >= 0 else low - margin, high + margin)


def _visits_panel(axes: Axes, visits: pd.DataFrame) -> None:
    """The visits of each case against each other, on one axis in percent."""
    axes.axhline(0.0, color=style.GREY, lw=0.9, zorder=1, label="_even")
    for look, product in ((_OTHER, False), (_PRODUCT, True)):
        of_kind = visits[visits["product"] == product]
        at, change = of_kind["at_s"] / 60, 100 * of_kind["change"]
        axes.plot(
            at, change, look.marker, color=look.color, ms=3.6, mew=0.7, mfc="none", zorder=3, label="_visit"
        )
    axes.set_ylabel("visit against\nits case (percent)")
    axes.yaxis.set_major_locator(MaxNLocator(4))
    axes.margins(y=0.1)


def _caption(gpu: bool, slow: np.ndarray, speed: pd.Series, none: Sequence[_Fact]) -> list[str]:
    source = (
        "the SM clock just after timing"
        if gpu
        else "a fixed matrix product, the mean of just before and just after timing"
    )
    n = int(slow.sum())
    where = "below the dashed line" if gpu else "above the dashed line, being slower"
    return [
        f"{n} of {int(speed.notna().sum())} cases are {where}." if n else "No case is slow.",
        *(f"{fact.label.splitlines()[0].capitalize()}: 0 throughout." for fact in none),
        "Triangles on an upper edge stand beyond it.",
        f"A point a case with a time, as its row has it: {source}; of several visits the mean or the worst.",
    ]
