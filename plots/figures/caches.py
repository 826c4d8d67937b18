"""Figure of the memory hierarchy over the footprint: rates of reads and copies, and the latency of a load.

A line is a device, with a ring where its last-level cache ends. What was measured here is drawn broad.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from bench.judge.achieved import by_age
from bench.judge.flags import SUSPECT
from bench.judge.frame import DeviceRun
from plots.base import scale, style
from plots.base.page import Page, PanelPage, Panels

PANELS: Mapping[str, tuple[str, str]] = {
    "read": ("reads by the whole device: each SM reads all, of large footprints a part", "byte/s"),
    "copy": ("copies by the whole device, source and target together", "byte/s"),
    "latency": ("latency of a load that needs the one before", "s"),
}
"""Measure -> title and SI unit of its panel."""
FEWEST = 5
"""Footprints below which points would be no curve."""
_POINT = ("footprint_byte", "value", "suspect")
_TICKS = 4.0 ** np.arange(5, 17)
"""1 KiB to 4 GiB."""
_WIDTH_IN = 8.2


def curves(measured_runs: Sequence[DeviceRun]) -> pd.DataFrame:
    """A row for each point that is drawn, by measure, device and footprint; no rows if there is no curve.

    Columns: `measure` (of PANELS), `device`, `footprint_byte`, `value` (bytes/s, or seconds of a load),
    `cache_byte` (last level), `ours` (whether it was measured here), `suspect`, `source`. Of several kernels
    the fastest counts at each footprint that most of them have, of several runs of a device the one with most
    footprints, or the newest of these.
    """
    chosen: dict[tuple[str, str], tuple[tuple[int, str], pd.DataFrame]] = {}
    for run in measured_runs:
        points = pd.DataFrame(_points(run), columns=["measure", "whole", *_POINT])
        for measure, of in points.groupby("measure"):
            # Where multiprocessors have parts of their own, a read of all by each says less of the device.
            parts_from = of.loc[~of["whole"], "footprint_byte"].min()
            of = of[~(of["whole"] & (of["footprint_byte"] >= parts_from))]
            # A file may end in the middle of a footprint, before its fastest kernel.
            kernels = of.groupby("footprint_byte")["value"].transform("size")
            of = of[kernels >= kernels.median() / 2].sort_values("value", ascending=measure == "latency")
            line = of.drop_duplicates("footprint_byte").sort_values("footprint_byte")[[*_POINT]]
            key, order = (str(measure), run.device), (len(line), run.run_id)
            if len(line) >= FEWEST and (key not in chosen or order > chosen[key][0]):
                row = run.rows[0]
                source = (row.source or "measured here").partition(";")[0]
                facts = {"cache_byte": row.cache_byte, "ours": not run.imported, "source": source}
                chosen[key] = order, line.assign(measure=key[0], device=key[1], **facts)
    return pd.concat([line for _, line in chosen.values()], ignore_index=True) if chosen else pd.DataFrame()


def _points(run: DeviceRun) -> Iterator[tuple[str, bool, int, float, bool]]:
    """(measure, whether each multiprocessor reads all, footprint, value, suspect) of the warm rows."""
    for row in run.rows:
        if row.operator not in ("cached_read", "latency", "stream") or row.cache != "warm" or row.visit:
            continue
        if not row.is_timed or row.median_s is None:
            continue
        given, suspect = json.loads(row.parameters), not SUSPECT.isdisjoint(run.flags_of(row))
        if row.operator == "latency":
            yield "latency", False, given["footprint_byte"], row.median_s / given["steps"], suspect
        elif row.operator == "cached_read":
            whole = given["readers"] == "each"
            yield "read", whole, given["footprint_byte"], row.byte / row.median_s, suspect
        # What a cache holds is copied in less time than a launch takes, or the gap before it.
        elif given["kind"] == "copy" and not row.time_includes:
            yield "copy", False, row.byte, row.byte / row.median_s, suspect


def draw(points: pd.DataFrame, measured_runs: Sequence[DeviceRun]) -> Iterator[tuple[str, Page]]:
    """(stem, page) of the `curves` of these runs: a panel for each measure, over the same footprints.

    Devices by age, those without a datasheet last.
    """
    measures = [measure for measure in PANELS if (points["measure"] == measure).any()]
    sheets = {run.device: run.datasheet for run in measured_runs}
    names = {run.device: (run.datasheet.name if run.datasheet else run.device_name) for run in measured_runs}
    devices = [each for each in by_age(sheets) if (points["device"] == each).any()]
    page = PanelPage(
        len(measures),
        Panels(1, _WIDTH_IN, 2.3, 0.36, 0.2),
        "Memory hierarchies: rate and latency over the footprint",
        f"{len(devices)} devices, {len(points)} points, by {'; '.join(sorted(set(points['source'])))}",
        [
            "Ring: capacity of the last-level cache. Broad: measured here. Hollow: suspect (flagged).",
            "The fastest kernel at each footprint counts.",
        ],
    )
    ours = points.groupby("device")["ours"].all()
    looks = {
        device: look | {"lw": 2.4 if ours[device] else 1.1}
        for device, look in style.of_devices(devices, 4.2).items()
    }
    entries = [Line2D([], [], **look, label=style.short_name(names[each])) for each, look in looks.items()]
    at = points["footprint_byte"]
    for axes, measure in zip(page.axes(entries, "footprint (bytes)", ""), measures, strict=True):
        _panel(axes, measure, points[points["measure"] == measure], looks)
        scale.swept(axes.xaxis, _TICKS, log=True, width_in=_WIDTH_IN)
        axes.set_xlim(at.min() / 2, at.max() * 2)
        axes.tick_params(axis="x", labelbottom=bool(axes.get_xlabel()))
    yield "caches", page


def _panel(axes: Axes, measure: str, points: pd.DataFrame, looks: Mapping[str, dict[str, Any]]) -> None:
    title, si = PANELS[measure]
    factor, unit = scale.scaled(points["value"], si)
    axes.set_title(f"{title} ({unit})")
    for place, (device, look) in enumerate(looks.items()):
        line = points[points["device"] == device]
        if line.empty:
            continue
        at, values = line["footprint_byte"].to_numpy(float), factor * line["value"].to_numpy(float)
        # Markers of different lines stand at different footprints, or they would hide each other.
        wanted = _TICKS * 4.0 ** (place / len(looks))
        marked = sorted({int(np.abs(np.log(at / each)).argmin()) for each in wanted})
        axes.plot(at, values, **look, markevery=marked)
        doubtful = line["suspect"].to_numpy(bool)
        axes.plot(at[doubtful], values[doubtful], look["marker"], color=look["color"], ms=4.2, mfc="white")
        cache = float(line["cache_byte"].iloc[0])
        if at[0] <= cache <= at[-1]:
            height = np.exp(np.interp(np.log(cache), np.log(at), np.log(values)))
            axes.plot(cache, height, "o", ms=9, mfc="none", mec=look["color"], mew=1.4, zorder=4)
    scale.measured(axes.yaxis, factor * points["value"].to_numpy(float), log=True)
