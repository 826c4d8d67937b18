"""Plot specifications: the plots that a sweep declared, or a guess from its rows if it declared none.

What is compared stands in one panel: a column of which a claim of the sweep compares values belongs to the
lines, whatever the plot says, and so do implementations and memory layouts where there is room for them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import pandas as pd
from pandas.api.types import is_bool_dtype, is_numeric_dtype
from pydantic import ValidationError

from bench.errors import UserError
from bench.judge.claims import kept
from bench.judge.frame import parameter_names
from bench.model.quantization import forced_tile
from bench.sweep.claims import Claim, Ratio, Spread
from bench.sweep.conditions import In, conditions
from bench.sweep.grammar import Plot

IDENTITY = ("operator", "implementation", "dtype", "cache", "threads_asked")
"""Columns, in addition to the parameters, that distinguish the rows of one sweep."""
HOW = ("implementation", "layout")
"""Columns that say how the same problem is computed: their values belong side by side."""
MOST_LINES = 6
"""Most lines of a panel up to which columns of HOW join them."""
MOST_GUESSED = 48
"""Most panels of a guessed curve."""
FEW_PANELS, FEWEST_POINTS = 4, 1.5
"""Beyond so many panels a guessed curve has lines of so many points in the mean, at least."""
Quantity = Literal["duration", "rate", ""]


@dataclass(frozen=True)
class Section:
    """One figure: the column on the x axis, and the columns that distinguish lines and panels."""

    x: str
    lines: tuple[str, ...] = ("implementation",)
    panels: tuple[str, ...] = ()
    log: frozenset[str] = frozenset()
    """The axes, x or y, that must be logarithmic; others are if their values span far."""
    per: tuple[str, ...] = ()
    """Numeric columns whose product durations are divided by; such a section has no rates."""
    kind: Literal["curve", "quantization"] = "curve"
    """The kind of figure; quantization uses only x."""
    quantity: Quantity = ""
    """What a curve shows; empty, of a sweep that declared no plot: both, one after the other."""
    title: str = ""
    """What the sweep says that it measures."""
    compared: frozenset[Any] = frozenset()
    """Values of the lines' columns that claims compare: their lines stand on the same page."""

    def heading(self, rows: pd.DataFrame) -> str:
        """What a title begins with: what the sweep of these rows measures, and its name."""
        sweep = str(rows["sweep"].iloc[0])
        return f"{self.title} ({sweep})" if self.title else sweep


def sections(rows: pd.DataFrame, declared: Mapping[str, Any]) -> list[Section]:
    """The sections for the declared plots that these rows can show, each once; without any, a guess.

    `declared` is what the result file keeps of the sweep (`bench.sweep.grammar.Sweep.declared`), or empty.
    UserError if it has a plot that this checkout cannot draw. The list is empty if no numeric column differs,
    or if no line would have two points. A section is completed by the columns in which its rows differ and
    which it does not name: a line must pass each x once.
    """
    # An implementation that does not exist here would otherwise make a legend of implementations necessary.
    here = rows.groupby("implementation")["median_s"].transform("count") > 0
    rows = rows[here] if here.any() else rows
    chosen = [section for section in _declared(declared) if _can_show(rows, section)] or _guess(rows)
    sides, title = _sides(declared), str(declared.get("title", ""))
    whole = [
        _side_by_side(completed(each, rows), rows, sides) if each.kind == "curve" else each for each in chosen
    ]
    return list(dict.fromkeys(replace(section, title=title) for section in whole))


def split(rows: pd.DataFrame, columns: Sequence[str]) -> list[tuple[tuple[Any, ...], pd.DataFrame]]:
    """The rows grouped by these columns, sorted; all under () if there are no columns."""
    return list(rows.groupby(list(columns), dropna=False)) if columns else [((), rows)]


def _sides(declared: Mapping[str, Any]) -> dict[str, set[Any]]:
    """Column -> its values that the sweep's claims compare; no values if they compare all of it."""
    claims = kept("", declared)
    sides: dict[str, set[Any]] = {}
    for claim in claims.claims if claims is not None else ():
        for column, values in _compared(claim):
            sides.setdefault(column, set()).update(values)
    return sides


def _compared(claim: Claim) -> Iterator[tuple[str, Iterable[Any]]]:
    """(column, values) of each column of which the claim compares values, not ranges."""
    test = claim.test[1]
    if isinstance(test, Spread):
        yield test.over, ()
    while isinstance(test, Ratio):
        for column in test.of.keys() & test.to.keys():
            both = [*conditions(test.of[column]), *conditions(test.to[column])]
            values = [value for each in both if isinstance(each, In) for value in each.values]
            if all(isinstance(each, In) for each in both):
                yield column, values
        test = test.less


def _can_show(rows: pd.DataFrame, section: Section) -> bool:
    """Whether these rows have what the section draws; a CPU, for instance, has no forced tiles."""
    if section.x not in rows.columns:
        return False
    if section.kind == "curve":
        return True
    gpu = rows[rows["median_s"].notna() & (rows["device_kind"] == "cuda")]
    return section.x in ("m", "n") and any(map(forced_tile, gpu["implementation"].unique()))


def _declared(declared: Mapping[str, Any]) -> list[Section]:
    """The sections of the declared plots; heatmaps, which older result files declare, are drawn no more."""
    try:
        plots = [Plot.model_validate(p) for p in declared.get("plot", ()) if p.get("kind") != "heatmap"]
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        title = declared.get("title", "a sweep")
        raise UserError(
            f"the plot of {title!r} in a result file is none this checkout draws: {problem['msg']}"
        ) from error
    return [_section(plot) for plot in plots]


def _section(plot: Plot) -> Section:
    quantity: Quantity = ("rate" if plot.y == "rate" else "duration") if plot.kind == "curve" else ""
    return Section(plot.x, plot.lines, plot.panels, frozenset(plot.log), plot.per, plot.kind, quantity)


def _numeric(rows: pd.DataFrame) -> list[str]:
    """The parameters that are numbers."""
    return [
        name
        for name in parameter_names(rows)
        if is_numeric_dtype(rows[name]) and not is_bool_dtype(rows[name]) and rows[name].notna().any()
    ]


def _guess(rows: pd.DataFrame) -> list[Section]:
    """A curve over the numeric parameter with most distinct values, if there is one.

    Nothing if that made too many panels, or panels of single points, as random sizes do.
    """
    numeric = _numeric(rows)
    count = {name: rows[name].nunique() for name in numeric}
    if not count:
        return []
    # What is known of a chain of loads is the time of one of them.
    per = ("steps",) if (rows["operator"] == "latency").all() else ()
    curve = Section(max(numeric, key=lambda name: count[name]), per=per)
    whole = completed(curve, rows)
    panels = rows.groupby(list(whole.panels), dropna=False).ngroups if whole.panels else 1
    points = rows.groupby([*whole.lines, *whole.panels], dropna=False)[curve.x].nunique()
    single = panels > FEW_PANELS and float(points.mean()) < FEWEST_POINTS
    return [curve] if panels <= MOST_GUESSED and not single and _in_step(rows, whole, numeric) else []


def _in_step(rows: pd.DataFrame, section: Section, numeric: Sequence[str]) -> bool:
    """Whether every parameter along a line rises or falls with x, as for m = n; otherwise it is no curve."""
    alike = [*section.lines, *section.panels]
    moving = [name for name in numeric if name not in (section.x, *alike)]
    # Without the other columns, all of which would be copied for each line.
    lines = rows[[section.x, *alike, *moving]].sort_values(section.x).groupby(alike, dropna=False)
    return all(
        line[name].is_monotonic_increasing or line[name].is_monotonic_decreasing
        for _, line in lines
        for name in moving
    )


def completed(section: Section, rows: pd.DataFrame) -> Section:
    """The section with lines and panels for the columns in which rows differ and which it does not name."""
    lines = tuple(n for n in section.lines if n in rows.columns and n != section.x)
    panels = tuple(n for n in section.panels if n in rows.columns and n != section.x and n not in lines)
    candidates = [n for n in (*IDENTITY, *parameter_names(rows)) if n not in (section.x, *lines, *panels)]
    differ = [n for n in candidates if rows[n].nunique(dropna=False) > 1]
    # Columns with fewest values first: a reader expects these side by side.
    for name in sorted(differ, key=lambda n: rows[n].nunique()):
        if _tells_apart(rows, name, [section.x, *lines, *panels]):
            if name == "implementation":
                lines = (name, *lines)
            else:
                panels = (*panels, name)
    known = [n for n in section.per if n in rows.columns and is_numeric_dtype(rows[n])]
    per = section.per if len(known) == len(section.per) else ()
    return replace(section, lines=lines, panels=panels, per=per)


def _side_by_side(section: Section, rows: pd.DataFrame, sides: Mapping[str, Collection[Any]]) -> Section:
    """The section with what is compared in its lines: `sides` always, HOW if the lines stay few."""
    timed = rows[rows["median_s"].notna()]
    lines, panels = section.lines, section.panels
    for name in dict.fromkeys((*sides, *HOW)):
        if name in panels and timed[name].nunique(dropna=False) > 1:
            together = [*lines, name]
            if name in sides or len(timed[together].drop_duplicates()) <= MOST_LINES:
                lines, panels = (*lines, name), tuple(column for column in panels if column != name)
    compared = frozenset(value for name in lines for value in sides.get(name, ()))
    return replace(section, lines=lines, panels=panels, compared=compared)


def _tells_apart(rows: pd.DataFrame, name: str, by: Sequence[str]) -> bool:
    """Whether rows that agree in `by` differ in this column."""
    return len(rows[[*by, name]].drop_duplicates()) > len(rows[list(by)].drop_duplicates())
