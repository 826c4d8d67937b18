"""Roofline of a device and a data type: measured rates over arithmetic intensity, below the roofs.

The roofs are those of `figures.roofs`. Every row with FLOPs is a point; a small bar shows the prediction of
the best level, if points are few enough. Thousands of points are dots in a picture inside the SVG, suspect
ones pale; of imported ones the colour shows the operator, as few libraries make them. The launch floor cannot
be shown, so small problems stand below the roof.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from bench.case_name import row_name
from bench.format import share_text
from bench.judge.frame import Run
from plots.base import axes as scale
from plots.base import prediction_lines, style
from plots.base.measured_points import IMPORTED
from plots.base.page import MOST_ENTRIES, Entry, Page
from plots.figures import roofs

VISIBLE = 0.04
"""Half-width of an interval, as a share of the median, from which its bar shows beside the marker."""
MOST_PREDICTED = 120
"""Points up to which each shows its prediction."""
MOST_DRAWN = 1500
"""Points up to which each is a marker in the SVG; more are dots of one picture inside it."""
_EXPECTED: dict[str, Any] = {"color": "#555555", "ms": 6, "mew": 0.7, "alpha": 0.8}
_BELOW: dict[str, Any] = {"xytext": (0, -7), "textcoords": "offset points", "ha": "center", "va": "top"}
_WIDTH_IN, _HEIGHT_IN = 7.2, 4.6


def draw(run: Run) -> Iterator[tuple[str, Page]]:
    """(name, page) for each data type and condition with a point: `float16`, `float16-warm`."""
    points = run.frame[run.frame["flop_per_s"].notna() & run.frame["intensity"].notna()]
    several = points["condition"].nunique() > 1
    for (dtype, how), of_roof in points.groupby(["dtype", "condition"], sort=True):
        name = f"{dtype}-{how}" if several and how != "cold" else str(dtype)
        yield name.replace(", ", "-").replace(" ", "-"), _page(run, of_roof, str(dtype), str(how))


def _page(run: Run, points: pd.DataFrame, dtype: str, how: str) -> Page:
    page = Page(
        _WIDTH_IN + Page.LEFT + Page.RIGHT,
        _HEIGHT_IN,
        f"Roofline, {dtype}",
        style.facts(run, points),
        _caption(run, points, how),
        decided=[f"{letter}: {why}, {_case(row)}." for letter, (why, row) in _extremes(points).items()],
    )
    drawn = roofs.of(run, points, dtype, how)
    hollow = points["suspect"].any() and len(points) <= MOST_DRAWN
    flagged = [style.flagged(5)] if hollow else []
    others = [*_predicted(points), *flagged, *roofs.entries(run, drawn, how)]
    by, kinds = _kinds(points, MOST_ENTRIES - len(others))
    page.legend([*_handles(points, by, kinds), *others])
    axes = page.figure.add_subplot(page.grid(1, 1)[0])
    highest = pd.concat(
        [points["flop_per_s"], pd.Series([roof.peak for roof in drawn if roof.peak], dtype=float)]
    )
    factor, unit = scale.scaled(highest, "flop/s")
    roofs.limits(axes, points, drawn, factor)
    roofs.draw(axes, run, drawn, how, factor, unit)
    _points(axes, points, factor, by, kinds)
    axes.set_xlabel("arithmetic intensity (FLOP/byte)")
    axes.set_ylabel(unit)
    _letter_extremes(axes, points, factor)
    return page


def _kinds(points: pd.DataFrame, most: int) -> tuple[str, Mapping[str, tuple[str, style.Look]]]:
    """The column whose values have the colours, and each value's label and look in the legend."""
    operators = sorted(points["operator"].unique())
    if len(points) > MOST_DRAWN and points["imported"].all() and 1 < len(operators) <= most:
        return "operator", {name: (name.replace("_", " "), style.of_operator(name)) for name in operators}
    return "implementation", style.grouped(sorted(points["implementation"].unique()), most)


def _points(
    axes: Axes,
    points: pd.DataFrame,
    factor: float,
    by: str,
    kinds: Mapping[str, tuple[str, style.Look]],
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
        wide = line_rows[(line_rows["high_s"] - line_rows["low_s"]) / 2 > VISIBLE * line_rows["median_s"]]
        ends = (wide["flop_low_per_s"] * factor, wide["flop_high_per_s"] * factor)
        axes.vlines(wide["intensity"], *ends, color=look.color, lw=0.8, zorder=3, label="_interval")
        for (imported, suspect), these in line_rows.groupby(["imported", "suspect"]):
            how = {"color": look.color, "mfc": "white" if suspect else look.color, "mew": 0.8, "alpha": 0.85}
            how |= {"ms": 5.0 if len(points) <= 100 else 3.2, "label": "_measured", "zorder": 4}
            marker = IMPORTED if imported else look.marker
            axes.plot(these["intensity"], these["flop_per_s"] * factor, marker, **how)
    if len(points) <= MOST_PREDICTED:
        predicted = points["flop"] / prediction_lines.best_s(points) * factor
        axes.plot(points["intensity"], predicted, "_", label="_expected", zorder=3.5, **_EXPECTED)


def _extremes(points: pd.DataFrame) -> dict[str, tuple[str, pd.Series]]:
    """Letter -> (why, row): the case with the highest rate, and the one farthest below its roof."""
    extremes = {"A": ("highest rate", points.iloc[points["flop_per_s"].argmax()])}
    if points["of_roof"].notna().any():
        extremes["B"] = ("farthest below its roof", points.iloc[points["of_roof"].argmin()])
    elif len(points) > 1:
        sound = points[~points["suspect"]] if not points["suspect"].all() else points
        extremes["B"] = ("lowest rate", sound.iloc[sound["flop_per_s"].argmin()])
    return extremes


def _letter_extremes(axes: Axes, points: pd.DataFrame, factor: float) -> None:
    """Ring and letter the extremes; lines below name them, as words would cover points."""
    for letter, (_, row) in _extremes(points).items():
        x, y = float(row["intensity"]), float(row["flop_per_s"]) * factor
        axes.plot(x, y, "o", mfc="none", mec=style.BLACK, ms=9, mew=0.8, zorder=6, label="_extreme")
        box = {"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": 0.5}
        axes.annotate(letter, (x, y), size=8, weight="bold", zorder=6, bbox=box, **_BELOW)


def _case(row: pd.Series) -> str:
    share = f", {share_text(row['of_roof'])} of roof" if row["of_roof"] == row["of_roof"] else ""
    flagged = f", {row['flags'].replace(' ', ', ')}" if row["flags"] else ""
    return f"{row_name(row)}{share}{flagged}"


def _handles(points: pd.DataFrame, by: str, kinds: Mapping[str, tuple[str, style.Look]]) -> list[Entry]:
    handles: list[Entry] = []
    for label, look in dict.fromkeys(kinds.values()):
        names = [name for name, kind in kinds.items() if kind == (label, look)]
        imported = bool(points["imported"][points[by].isin(names)].all())
        marker = "o" if len(points) > MOST_DRAWN else IMPORTED if imported else look.marker
        handles.append(style.marker(f"{label} (imported)" if imported else label, look.color, marker))
    return handles


def _predicted(points: pd.DataFrame) -> list[Entry]:
    """The legend's entry of the bars, if points are few enough for them."""
    if len(points) > MOST_PREDICTED or prediction_lines.best_s(points).isna().all():
        return []
    return [Line2D([], [], marker="_", ls="", label="predicted of a point", **_EXPECTED)]


def _caption(run: Run, points: pd.DataFrame, how: str) -> list[str]:
    ceilings = run.roof(how)
    sentences = []
    if not run.ceilings:
        sentences.append("No ceilings in this run, hence no measured roof.")
    elif ceilings.condition != how:
        sentences.append(f"The roof is the {ceilings.condition} cache's; {how} rows may beat it.")
    sentences.append(style.flag_counts(points, "pale" if len(points) > MOST_DRAWN else "hollow"))
    if points["imported"].any():
        sentences.append("Imported times have no interval and were not checked by us.")
    for kind, share in roofs.above(run, points, how).items():
        over = share[share > 1] - 1
        if len(over):
            most = f"by {style.number(round(over.max() * 100))} %" + (" at most" if len(over) > 1 else "")
            sentences.append(
                f"Above the {'datasheet' if kind == 'stated' else 'measured'} roof: {len(over)}, {most}."
            )
    sentences += [prediction_lines.bound(points), f"{len(points)} points, each at its compulsory bytes."]
    if run.ceilings and ceilings.launch_s is not None:
        sentences.append(
            f"A launch takes at least {ceilings.launch_s * 1e6:.3g} µs, which this picture cannot show: "
            "small problems stand below the roof for that alone. Shares of the roof include it."
        )
    return sentences
