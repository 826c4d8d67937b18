"""Figure of telemetry: clock, power and temperature of a GPU; speed, pressure and steal of a CPU.

They are drawn over the time of the run, so that a period in which the device was slow shows as one. A virtual
machine cannot read a CPU's clock: a sentinel, a small fixed matrix product before and after each case, stands
for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from bench.format import share_text
from bench.judge.frame import DeviceRun
from plots.base import style
from plots.base.page import Page, PanelPage, Panels

SLOW = 0.95
"""Share of the run's median speed below which a case is marked."""
FAR = 3.0
"""Multiple of the 98th percentile beyond which a point stands on the edge of its panel."""
_WIDTH_IN = 8.2
_VISITS = {
    False: ("a visit, other work", style.LineStyle(style.ORANGE, "s")),
    True: ("a visit, matrix product", style.LineStyle(style.BLACK, "D")),
}
"""Whether a case is a matrix product -> words and look of its visits."""
_GPU = {
    "sm_clock_hz": (1e-6, "SM clock\n(MHz)"),
    "power_w": (1.0, "power\n(W)"),
    "temperature_c": (1.0, "temperature\n(°C)"),
}
_CPU = {
    "sentinel_s": (1e6, "fixed product\n(µs)"),
    "pressure": (100.0, "tasks waited\n(percent)"),
    "steal": (100.0, "stolen by host\n(percent)"),
    "throttled": (100.0, "quota held\n(percent)"),
}
"""Column -> factor and label. The first of each device is its speed; the others may explain it."""


def draw(run: DeviceRun) -> Iterator[tuple[str, Page]]:
    """(stem, page), if this run recorded the speed of its machine; `missing` says why not."""
    if missing(run):
        return
    gpu = _is_gpu(run)
    rows = moments(run.frame)
    known = {column: of for column, of in (_GPU if gpu else _CPU).items() if rows[column].notna().any()}
    facts = {column: of for column, of in known.items() if rows[column].max() > 0}
    # How fast the machine was at each row: Hz of a GPU, sentinels per second of a CPU.
    speed = (rows["sm_clock_hz"] if gpu else 1.0 / rows["sentinel_s"]).astype(float)
    slow = (speed < SLOW * speed.median()).to_numpy()
    visits = repeated(run)
    panels = len(facts) + bool(len(visits))
    page = PanelPage(
        panels,
        Panels(1, _WIDTH_IN, 1.15, 0.16, 0.2),
        "The device while it was measured" if gpu else "The machine while it was measured",
        style.facts(run, run.frame),
        _caption(gpu, slow, speed, [label for column, (_, label) in known.items() if column not in facts]),
    )
    entries = [
        style.marker("a case", style.BLUE, "o", 3.4),
        Line2D([], [], color=style.BLUE, lw=0.6, alpha=0.6, label="from its first visit to its last"),
        style.marker(
            f"below {share_text(SLOW)} of the median {'clock' if gpu else 'speed'}", style.VERMILLION, "v"
        ),
    ]
    for words, look in _VISITS.values() if len(visits) else ():
        entries.append(style.marker(words, look.color, look.marker, 3.6, mfc="none"))
    first, *others = drawn = list(page.axes(entries, "time since the run's start (min)", ""))
    for axes in others:
        axes.sharex(first)
    for axes, (column, (factor, label)) in zip(drawn, facts.items(), strict=False):
        _panel(axes, rows, factor * rows[column].to_numpy(dtype=float), label, slow)
    for axes in drawn[:-1]:
        axes.tick_params(labelbottom=False)
    column, (factor, _) = next(iter(facts.items()))
    middle = factor * float(rows[column].median())
    bar = middle * SLOW if gpu else middle / SLOW
    first.axhline(bar, color=style.GREY, lw=0.9, ls="--", zorder=1, label="_bar")
    if len(visits):
        _visits_panel(drawn[-1], visits)
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


def _panel(axes: Axes, rows: pd.DataFrame, y: np.ndarray, label: str, slow: np.ndarray) -> None:
    at, first, last = (rows[name].to_numpy(dtype=float) / 60 for name in ("at_s", "first_s", "last_s"))
    spread = last > first
    faint: dict[str, Any] = {"color": style.BLUE, "lw": 0.6, "alpha": min(0.4, 40 / len(rows))}
    axes.hlines(y[spread], first[spread], last[spread], zorder=2, label="_visits", **faint)
    small = 3.0 if len(rows) <= 400 else 1.8
    axes.plot(at[~slow], y[~slow], "o", color=style.BLUE, ms=small, mew=0, zorder=3, label="_case")
    axes.plot(at[slow], y[slow], "v", color=style.VERMILLION, ms=small + 1.6, mew=0, zorder=4, label="_slow")
    axes.set_ylabel(label)
    axes.yaxis.set_major_locator(MaxNLocator(4))
    known = y[np.isfinite(y)]
    low, high = float(known.min()), float(known.max())
    usual = float(np.quantile(known, 0.98))
    if high > FAR * usual > 0:  # one straggler must not flatten all others: it stands on the edge
        high = FAR * usual
        far = at[y > high]
        axes.plot(far, np.full(far.size, high), "^", color=style.VERMILLION, ms=4, label="_far")
    margin = 0.08 * (high - low) or 0.5 * abs(high) or 1.0
    axes.set_ylim(max(0.0, low - margin) if low >= 0 else low - margin, high + margin)


def _visits_panel(axes: Axes, visits: pd.DataFrame) -> None:
    """The visits of each case against each other, on one axis in percent."""
    axes.axhline(0.0, color=style.GREY, lw=0.9, zorder=1, label="_even")
    how: dict[str, Any] = {"ms": 3.6, "mew": 0.7, "mfc": "none", "zorder": 3, "label": "_visit"}
    for product, (_, look) in _VISITS.items():
        of_kind = visits[visits["product"] == product]
        axes.plot(of_kind["at_s"] / 60, 100 * of_kind["change"], look.marker, color=look.color, **how)
    axes.set_ylabel("visit against\nits case (percent)")
    axes.yaxis.set_major_locator(MaxNLocator(4))
    axes.margins(y=0.1)


def _caption(gpu: bool, slow: np.ndarray, speed: pd.Series, zero: Sequence[str]) -> list[str]:
    """`zero` are the labels of what was 0 throughout."""
    source, where = "the SM clock just after timing", "below the dashed line"
    if not gpu:
        source = "a fixed matrix product, the mean of just before and just after timing"
        where = "above the dashed line, being slower"
    n = int(slow.sum())
    return [
        f"{n} of {int(speed.notna().sum())} cases are {where}." if n else "No case is slow.",
        *(f"{label.splitlines()[0].capitalize()}: 0 throughout." for label in zero),
        "Triangles on an upper edge stand beyond it.",
        f"A point a case with a time, as its row has it: {source}; of several visits the mean or the worst.",
    ]
