"""Roofline of a device and a data type: measured rates over arithmetic intensity, below the roofs.

The roofs are those of `figures.roofs`. Every row with FLOPs is a point, which shows its operator, with a dot
inside if a kernel of ours in Triton computed it; or its implementation where all are of one operator. If
points are few enough, each kind has its name beside a point of it, and a thin line leads from each point to
the bar that is the prediction of the best level. Thousands of points are dots in a picture inside the SVG,
suspect ones pale. The launch floor cannot be shown, so small problems stand below the roof. A data type
without a peak, or with few points, has no figure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from bench.judge.frame import DeviceRun
from plots.base import prediction_lines, scale, style
from plots.base.measured_points import IMPORTED
from plots.base.page import MOST_ENTRIES, Page
from plots.figures import roofs

FEWEST = 5
"""Points below which a data type has no figure."""
MOST_PREDICTED = 120
"""Points up to which each shows its prediction, and names stand beside them."""
MOST_NAMED = 6
"""Kinds of points up to which their names stand beside them; more are in the legend."""
MOST_DRAWN = 1500
"""Points up to which each is a marker in the SVG; more are dots of one picture inside it."""
_EXPECTED: dict[str, Any] = {"color": "#555555", "ms": 6, "mew": 0.7, "alpha": 0.8}
_WIDTH_IN, _HEIGHT_IN = 7.2, 4.6
_DOT = 0.45
"""Diameter of the dot inside a point that is ours, in diameters of the point."""


def draw(run: DeviceRun) -> Iterator[tuple[str, Page]]:
    """(name, page) for each data type and condition that has a roofline: `float16`, `float16-warm`."""
    points = run.frame[run.frame["flop_per_s"].notna() & run.frame["intensity"].notna()]
    several = points["condition"].nunique() > 1
    for key, of_roof in points.groupby(["dtype", "condition"]):
        dtype, how = map(str, key)
        if len(of_roof) >= FEWEST and any(roof.peak for roof in roofs.of(run, of_roof, dtype, how)):
            name = f"{dtype}-{how}" if several and how != "cold" else dtype
            yield name.replace(", ", "-").replace(" ", "-"), _page(run, of_roof, dtype, how)


def _page(run: DeviceRun, points: pd.DataFrame, dtype: str, how: str) -> Page:
    page = Page(
        _WIDTH_IN + Page.LEFT + Page.RIGHT,
        _HEIGHT_IN,
        f"Roofline, {dtype}",
        style.facts(run, points),
        _caption(run, points, how),
    )
    drawn = roofs.of(run, points, dtype, how)
    hollow = points["suspect"].any() and len(points) <= MOST_DRAWN
    flagged = [style.flagged(5)] if hollow else []
    others = [*_predicted(points), *flagged, *roofs.entries(run, drawn)]
    by, kinds = _kinds(points, MOST_ENTRIES - len(others))
    dotted = by == "operator" and len(points) <= MOST_DRAWN and _ours(points).any()
    ours = [style.marker("ours, in Triton", style.BLACK, "o", _DOT * 5.0)] if dotted else []
    named = 1 < len(kinds) <= MOST_NAMED and len(points) <= MOST_PREDICTED
    page.legend([*([] if named else _handles(points, by, kinds)), *ours, *others])
    axes = page.figure.add_subplot(page.grid(1, 1)[0])
    peaks = [roof.peak for roof in drawn if roof.peak]
    factor, unit = scale.scaled(pd.Series([*points["flop_per_s"], *peaks]), "flop/s")
    roofs.limits(axes, points, drawn, factor)
    roofs.draw(axes, drawn, factor)
    _points(axes, points, factor, by, kinds)
    if named:
        _names(axes, points, factor, by, kinds)
    axes.set_xlabel("arithmetic intensity (FLOP/byte)")
    axes.set_ylabel(unit)
    return page


def _kinds(points: pd.DataFrame, most: int) -> tuple[str, Mapping[str, tuple[str, style.LineStyle]]]:
    """The column whose values have the colours, and each value's label and look in the legend."""
    operators = sorted(points["operator"].unique())
    if 1 < len(operators) <= MOST_ENTRIES:
        return "operator", {name: (name.replace("_", " "), style.of_operator(name)) for name in operators}
    by_points = (
        points["implementation"].value_counts().sort_index().sort_values(ascending=False, kind="stable")
    )
    return "implementation", style.grouped([*by_points.index], most)


def _points(
    axes: Axes, points: pd.DataFrame, factor: float, by: str, kinds: Mapping[str, tuple[str, style.LineStyle]]
) -> None:
    many = len(points) > MOST_DRAWN
    for name, line_rows in points.groupby(by, sort=True):
        look = kinds[str(name)][1]
        if many:
            how: dict[str, Any] = {"color": look.color, "ms": 1.6, "mew": 0, "rasterized": True}
            for doubtful, dots in line_rows.groupby("suspect"):
                how |= {"alpha": 0.06 if doubtful else 0.4, "zorder": 3.5 if doubtful else 4}
                axes.plot(dots["intensity"], dots["flop_per_s"] * factor, "o", label="_measured", **how)
            continue
        low, high = (line_rows[name] * factor for name in ("flop_low_per_s", "flop_high_per_s"))
        axes.vlines(line_rows["intensity"], low, high, color=look.color, lw=0.8, zorder=3, label="_interval")
        for (imported, suspect), these in line_rows.groupby(["imported", "suspect"]):
            how = {"color": look.color, "mfc": "white" if suspect else look.color, "mew": 0.8, "alpha": 0.85}
            how |= {"ms": 5.0 if len(points) <= 200 else 3.2, "label": "_measured", "zorder": 4}
            marker = IMPORTED if imported else look.marker
            axes.plot(these["intensity"], these["flop_per_s"] * factor, marker, **how)
            if by == "operator":
                ours, dot = these[_ours(these)], {"color": style.BLACK, "ms": _DOT * how["ms"]}
                at = ours["intensity"], ours["flop_per_s"] * factor
                axes.plot(*at, "o", mew=0, label="_ours", zorder=4.5, **dot)
    if len(points) <= MOST_PREDICTED:
        predicted = points["flop"] / prediction_lines.best_s(points) * factor
        axes.plot(points["intensity"], predicted, "_", label="_expected", zorder=3.5, **_EXPECTED)
        measured = points["flop_per_s"] * factor
        thin: dict[str, Any] = {"color": style.GREY, "lw": 0.5, "zorder": 2, "label": "_off"}
        axes.vlines(points["intensity"], measured, predicted, **thin)


def _names(
    axes: Axes, points: pd.DataFrame, factor: float, by: str, kinds: Mapping[str, tuple[str, style.LineStyle]]
) -> None:
    """Write the name of each kind at its point that is farthest from those of other kinds."""
    at = np.log(points[["intensity", "flop_per_s"]].to_numpy(dtype=float))
    for name, (label, look) in kinds.items():
        mine = (points[by] == name).to_numpy()
        apart = np.linalg.norm(at[mine][:, None] - at[~mine], axis=2).min(axis=1)
        one = points[mine].iloc[int(apart.argmax())]
        words = f"{label} (imported)" if points["imported"][mine].all() else label
        place = one["intensity"], one["flop_per_s"] * factor
        how: dict[str, Any] = {"color": look.color, "weight": "bold", "zorder": 6}
        axes.annotate(words, place, (7, -9), textcoords="offset points", **how)


def _ours(points: pd.DataFrame) -> pd.Series:
    """Which points are of kernels of ours in Triton."""
    return points["implementation"].str.startswith("triton")


def _handles(points: pd.DataFrame, by: str, kinds: Mapping[str, tuple[str, style.LineStyle]]) -> list[Artist]:
    handles: list[Artist] = []
    for label, look in dict.fromkeys(kinds.values()):
        names = [name for name, kind in kinds.items() if kind == (label, look)]
        imported = bool(points["imported"][points[by].isin(names)].all())
        marker = "o" if len(points) > MOST_DRAWN else IMPORTED if imported else look.marker
        handles.append(style.marker(f"{label} (imported)" if imported else label, look.color, marker))
    return handles


def _predicted(points: pd.DataFrame) -> list[Artist]:
    """The legend's entry of the bars, if points are few enough for them."""
    if len(points) > MOST_PREDICTED or prediction_lines.best_s(points).isna().all():
        return []
    return [Line2D([], [], marker="_", ls="", label="predicted, with a line to its point", **_EXPECTED)]


def _caption(run: DeviceRun, points: pd.DataFrame, how: str) -> list[str]:
    ceilings = run.roof(how)
    sentences = []
    if not run.ceilings:
        sentences.append("No ceilings in this run, hence no measured roof.")
    elif ceilings.condition != how:
        sentences.append(f"The roof is the {ceilings.condition} cache's; {how} rows may beat it.")
    sentences.append(style.flag_counts(points, "pale" if len(points) > MOST_DRAWN else "hollow"))
    if points["imported"].any():
        sentences.append("Imported times have no interval and were not checked by us.")
    sentences += [prediction_lines.bound(points), f"{len(points)} points, each at its compulsory bytes."]
    if run.ceilings and ceilings.launch_s is not None:
        sentences.append(
            f"A launch takes at least {ceilings.launch_s * 1e6:.3g} µs, which this picture cannot show: "
            "small problems stand below the roof for that alone."
        )
    return sentences
