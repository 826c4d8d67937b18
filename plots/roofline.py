"""The roofline of a device and a data type: what its arithmetic reached, under what it can reach.

Thin grey: the datasheet. Solid: the ceilings measured in the same run, the slope being a copy's bandwidth,
in a light band from the slowest to the quickest kind of pass over memory. Points: every row with FLOPs.
The launch floor has no place in this picture, so small problems stand below the roof.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from plots import axes as scale
from plots import style
from plots.frame import Run, scaled
from plots.page import Page

VISIBLE = 0.04
"""Half-width of an interval, as a share of the median, from which its bar shows beside the marker."""
_BAND = "#CFE2F3"
_WIDTH_IN, _HEIGHT_IN = 7.2, 4.6


def draw(run: Run) -> Iterator[tuple[str, Page]]:
    """(dtype, or dtype-warm where both caches were measured, and the like) -> page, for each with a point."""
    points = run.rows[run.rows["flop_per_s"].notna() & run.rows["intensity"].notna()]
    several = points["manner"].nunique() > 1
    for (dtype, how), some in points.groupby(["dtype", "manner"], sort=True):
        name = f"{dtype}-{how}" if several and how != "cold" else str(dtype)
        yield name.replace(", ", "-").replace(" ", "-"), _page(run, some, str(dtype), str(how))


def _page(run: Run, points: pd.DataFrame, dtype: str, how: str) -> Page:
    page = Page(
        _WIDTH_IN + Page.LEFT + Page.RIGHT,
        _HEIGHT_IN,
        f"Roofline, {dtype}",
        style.facts(run, points),
        _caption(run, points, how),
    )
    roofs = _roofs(run, points, dtype, how)
    page.legend(_handles(points, roofs))
    axes = page.figure.add_subplot(page.grid(1, 1)[0])
    highest = pd.concat(
        [points["flop_per_s"], pd.Series([peak for _, peak, _ in roofs if peak], dtype=float)]
    )
    factor, unit = scaled(highest, "flop/s")
    _limits(axes, points, roofs, factor)
    _band(axes, run, roofs, how, factor)
    for solid, peak, bandwidth in roofs:
        _roof(axes, solid, peak, bandwidth, factor, unit)
    _points(axes, points, factor)
    axes.set_xlabel("arithmetic intensity (FLOP/byte)")
    axes.set_ylabel(unit)
    _letter_extremes(axes, points, factor)
    return page


_Roof = tuple[bool, float | None, float | None]
"""Whether measured (else stated), peak FLOP/s, bandwidth bytes/s."""


def _roofs(run: Run, points: pd.DataFrame, dtype: str, how: str) -> list[_Roof]:
    """The roofs of the arithmetic these points do; those without any number are left out."""
    ceilings, sheet = run.roof(how), run.datasheet
    roofs: list[_Roof] = []
    for unit in sorted(points["arithmetic"].unique()):
        if sheet is not None:
            roofs.append((False, sheet.peak_flop_per_s(unit, dtype), sheet.bandwidth_byte_per_s))
        roofs.append((True, ceilings.peak(unit, dtype), ceilings.copy_byte_per_s))
    # A slope without a peak (vector arithmetic, whose peak nobody measures) adds nothing to one that has one.
    whole = {(solid, bandwidth) for solid, peak, bandwidth in roofs if peak}
    roofs = [roof for roof in roofs if roof[1] or (roof[0], roof[2]) not in whole]
    return list(dict.fromkeys(roof for roof in roofs if roof[1] or roof[2]))


def _limits(axes: Axes, points: pd.DataFrame, roofs: list[_Roof], factor: float) -> None:
    """Room for every point, every ridge and the flat part behind it."""
    x = list(points["intensity"])
    # By the points, not by their intervals: one that is known to no digit must not flatten the others.
    y = [*(points["flop_per_s"] / 1.5), *(points["flop_per_s"] * 1.5)]
    for _, peak, bandwidth in roofs:
        if peak and bandwidth:
            x += [peak / bandwidth / 4, peak / bandwidth * 4]
        if peak:
            y.append(peak)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(min(x) / 1.6, max(x) * 1.6)
    axes.set_ylim(min(y) * factor / 1.8, max(y) * factor * 2.2)
    scale.measured(axes.xaxis, np.array(axes.get_xlim()), log=True)
    scale.measured(axes.yaxis, np.array(axes.get_ylim()), log=True)


def _flops(x: np.ndarray, peak: float | None, bandwidth: float | None) -> np.ndarray:
    """The roof at these intensities, FLOP/s."""
    return np.minimum(peak or np.inf, x * bandwidth if bandwidth else np.inf)


def _across(axes: Axes, peak: float | None, bandwidth: float | None) -> np.ndarray:
    """Intensities from edge to edge that include the ridge."""
    ridge = [peak / bandwidth] if peak and bandwidth else []
    return np.sort(np.array([*axes.get_xlim(), *ridge]))


def _band(axes: Axes, run: Run, roofs: list[_Roof], how: str, factor: float) -> None:
    rates = [c.per_s for c in run.roof(how).bandwidth_byte_per_s.values()]
    peaks = [peak for solid, peak, _ in roofs if solid]
    if len(rates) < 2:
        return
    x = np.geomspace(*axes.get_xlim(), 256)
    peak = max((p for p in peaks if p), default=None)
    low, high = (_flops(x, peak, rate) * factor for rate in (min(rates), max(rates)))
    axes.fill_between(x, low, high, color=_BAND, lw=0, zorder=1, label="_band")


def _roof(
    axes: Axes, solid: bool, peak: float | None, bandwidth: float | None, factor: float, unit: str
) -> None:
    x = _across(axes, peak, bandwidth)
    how: dict[str, Any] = {"color": style.BLACK, "lw": 1.6} if solid else {"color": style.GREY, "lw": 0.9}
    axes.plot(x, _flops(x, peak, bandwidth) * factor, zorder=2, label="_roof", **how)
    text: dict[str, Any] = {"size": 7, "color": how["color"], "textcoords": "offset points", "zorder": 5}
    if peak:
        said = f"{peak * factor:.3g} {unit}" + ("" if solid else " stated")
        # Side by side, for the two roofs may be close.
        at = (axes.get_xlim()[1], peak * factor)
        axes.annotate(said, at, (-2 if solid else -80, 3), ha="right", va="bottom", **text)
    if peak and bandwidth:
        x_ridge = peak / bandwidth
        axes.plot(
            x_ridge,
            peak * factor,
            "d",
            mfc="white",
            mec=how["color"],
            ms=5 if solid else 4,
            zorder=5,
            label="_ridge",
        )
        if solid:
            bottom = axes.get_ylim()[0]
            axes.vlines(x_ridge, bottom, peak * factor, color=style.GREY, lw=0.7, ls=":", zorder=1)
            said = f"ridge {x_ridge:.3g} FLOP/byte"
            axes.annotate(said, (x_ridge, bottom), (-3, 4), rotation=90, ha="right", va="bottom", **text)
    if bandwidth:
        _along_slope(axes, solid, bandwidth, factor, text)


def _along_slope(axes: Axes, solid: bool, bandwidth: float, factor: float, text: dict[str, Any]) -> None:
    """The bandwidth, written along the slope near where it enters the picture."""
    (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    start = max(left, bottom / factor / bandwidth)
    x = start * (right / left) ** (0.03 if solid else 0.2)
    y = x * bandwidth * factor
    if not bottom < y < top:
        return
    said = f"{bandwidth * 1e-9:.4g} GB/s " + ("copy" if solid else "stated")
    box = axes.get_position()
    inches = axes.figure.get_size_inches()  # type: ignore[union-attr]
    rise = box.height * inches[1] / np.log10(top / bottom)
    run = box.width * inches[0] / np.log10(right / left)
    angle = float(np.degrees(np.arctan2(rise, run)))
    # Above the line, for the points are below it; the two roofs' one after the other, for they may be close.
    axes.annotate(
        said, (x, y), (0, 3), rotation=angle, rotation_mode="anchor", ha="left", va="bottom", **text
    )


def _points(axes: Axes, points: pd.DataFrame, factor: float) -> None:
    small = 5.0 if len(points) <= 100 else 3.2
    for name, some in points.groupby("implementation", sort=True):
        look = style.of_implementation(str(name))
        wide = some[(some["high_s"] - some["low_s"]) / 2 > VISIBLE * some["median_s"]]
        ends = (wide["flop_low_per_s"] * factor, wide["flop_high_per_s"] * factor)
        axes.vlines(wide["intensity"], *ends, color=look.color, lw=0.8, zorder=3, label="_interval")
        for suspect, these in some.groupby("suspect"):
            face = "white" if suspect else look.color
            axes.plot(
                these["intensity"],
                these["flop_per_s"] * factor,
                look.marker,
                color=look.color,
                mfc=face,
                ms=small,
                mew=0.8,
                alpha=0.85,
                zorder=4,
                label="_measured",
            )


def _extremes(points: pd.DataFrame) -> dict[str, tuple[str, pd.Series]]:
    """Letter -> (why, row): the quickest case, and the one farthest below its roof."""
    found = {"A": ("highest rate", points.iloc[points["flop_per_s"].argmax()])}
    if points["of_roof"].notna().any():
        found["B"] = ("farthest below its roof", points.iloc[points["of_roof"].argmin()])
    elif len(points) > 1:
        found["B"] = ("lowest rate", points.iloc[points["flop_per_s"].argmin()])
    return found


def _letter_extremes(axes: Axes, points: pd.DataFrame, factor: float) -> None:
    """Ring and letter them; the caption says what they are, for words would cover points."""
    for letter, (_, row) in _extremes(points).items():
        x, y = float(row["intensity"]), float(row["flop_per_s"]) * factor
        axes.plot(x, y, "o", mfc="none", mec=style.BLACK, ms=9, mew=0.8, zorder=6, label="_extreme")
        box = {"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": 0.5}
        below: dict[str, Any] = {
            "xytext": (0, -7),
            "textcoords": "offset points",
            "ha": "center",
            "va": "top",
        }
        axes.annotate(letter, (x, y), size=8, weight="bold", zorder=6, bbox=box, **below)


def _case(row: pd.Series) -> str:
    parameters = json.loads(row["parameters"])
    told = [style.said(k, v) for k, v in parameters.items() if k != "dtype"]
    share = f", {row['of_roof'] * 100:.0f} % of roof" if row["of_roof"] == row["of_roof"] else ""
    flagged = f", {row['flags'].replace(' ', ', ')}" if row["flags"] else ""
    return f"{row['implementation']} {' '.join(told)}{share}{flagged}"


def _handles(points: pd.DataFrame, roofs: list[_Roof]) -> list[Artist]:
    handles: list[Artist] = []
    for name in sorted(points["implementation"].unique()):
        look = style.of_implementation(name)
        handles.append(Line2D([], [], color=look.color, marker=look.marker, ls="", ms=5, label=name))
    if any(solid for solid, *_ in roofs):
        handles.append(Line2D([], [], color=style.BLACK, lw=1.6, label="measured roof"))
        handles.append(Patch(color=_BAND, label="read to write bandwidth"))
    if any(not solid for solid, *_ in roofs):
        handles.append(Line2D([], [], color=style.GREY, lw=0.9, label="datasheet"))
    if points["suspect"].any():
        handles.append(style.flagged(5))
    return handles


def _caption(run: Run, points: pd.DataFrame, how: str) -> str:
    ceilings = run.roof(how)
    told = [f"{letter}: {why}, {_case(row)}." for letter, (why, row) in _extremes(points).items()]
    told.append(f"One point a case, {len(points)} in all, at its compulsory bytes.")
    told.append(style.flags_said(points))
    if not run.ceilings:
        told.append("No ceilings in this run, hence no measured roof.")
        return " ".join(told)
    if ceilings.manner != how:
        told.append(f"The roof is the {ceilings.manner} cache's; {how} rows may beat it.")
    if ceilings.launch_s is not None:
        told.append(
            f"A launch takes at least {ceilings.launch_s * 1e6:.3g} µs, which this picture cannot show: "
            "small problems stand below the roof for that alone. Shares of the roof include it."
        )
    return " ".join(told)
