"""What a sweep wants drawn: the `plot` section of its YAML, or a guess from the rows where there is none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import pandas as pd
import yaml
from pandas.api.types import is_bool_dtype, is_numeric_dtype

from bench.model.quantization import forced_tile
from plots.frame import parameter_names

IDENTITY = ("operator", "implementation", "dtype", "cache", "threads_asked")
"""Columns beside the parameters that tell the rows of one sweep apart."""


@dataclass(frozen=True)
class Section:
    """Against which column time is drawn, and which columns tell lines and panels apart."""

    x: str
    lines: tuple[str, ...] = ("implementation",)
    panels: tuple[str, ...] = ()
    log: frozenset[str] = frozenset()
    """Which of x and y must be logarithmic; others are where their values span far."""
    per: tuple[str, ...] = ()
    """Numeric columns whose product durations are divided by; such a section has no rates."""
    kind: Literal["curve", "quantization"] = "curve"
    """What is drawn; quantization has its own lines and panels, and takes no more than x from here."""


def sections(rows: pd.DataFrame, sweep: str, sweeps: Path) -> list[Section]:
    """The sections of `sweeps`/<sweep>.yaml that these rows can show, each once; else one guess.

    Empty if no numeric column differs, i.e. nothing was swept. A section gets the columns it does not
    name but that its rows differ in: a line must pass each x once.
    """
    # An implementation that does not exist here would otherwise ask for a legend of implementations.
    here = rows.groupby("implementation")["median_s"].transform("count") > 0
    rows = rows[here] if here.any() else rows
    asked = [s for s in _declared(sweeps / f"{sweep}.yaml") if _can_show(rows, s)] or _guess(rows)
    merged: dict[Section, frozenset[str]] = {}
    for section in asked:
        # A section for duration and one for rate are one here: both are drawn of each.
        key = replace(section, log=frozenset())
        if section.kind == "curve":
            key = _complete(key, rows)
        merged[key] = merged.get(key, frozenset()) | section.log
    return [replace(section, log=log) for section, log in merged.items()]


def _can_show(rows: pd.DataFrame, section: Section) -> bool:
    """Whether there is what the section draws; a CPU, for one, has no tiles that can be forced."""
    if section.x not in rows.columns:
        return False
    if section.kind == "curve":
        return True
    timed = rows[rows["median_s"].notna() & (rows["device_kind"] == "cuda")]
    return section.x in ("m", "n") and any(map(forced_tile, timed["implementation"].unique()))


def _declared(path: Path) -> list[Section]:
    try:
        plot = yaml.safe_load(path.read_text("utf-8"))["plot"]
    except (OSError, yaml.YAMLError, KeyError, TypeError):
        return []  # results travel without their sweeps, and a sweep may have no opinion
    found = []
    for one in plot if isinstance(plot, list) else [plot]:
        if isinstance(one, dict) and isinstance(one.get("x"), str):
            if one.get("kind") == "quantization":
                found.append(Section(one["x"], kind="quantization"))
                continue
            lines = _names(one.get("lines")) or ("implementation",)
            log = frozenset(_names(one.get("log")))
            found.append(Section(one["x"], lines, _names(one.get("panels")), log, _names(one.get("per"))))
    return found


def _names(given: object) -> tuple[str, ...]:
    """One name or a list of them, as a tuple."""
    if isinstance(given, str):
        return (given,)
    return tuple(n for n in given if isinstance(n, str)) if isinstance(given, list) else ()


def _guess(rows: pd.DataFrame) -> list[Section]:
    """The numeric parameter with most distinct values, if any has two (or there is but one row)."""
    numeric = [
        name
        for name in parameter_names(rows)
        if is_numeric_dtype(rows[name]) and not is_bool_dtype(rows[name]) and rows[name].notna().any()
    ]
    if not numeric:
        return []
    return [Section(max(numeric, key=lambda name: len(set(rows[name].dropna()))))]


def _complete(section: Section, rows: pd.DataFrame) -> Section:
    lines = tuple(n for n in section.lines if n in rows.columns and n != section.x)
    panels = tuple(n for n in section.panels if n in rows.columns and n != section.x and n not in lines)
    candidates = [n for n in (*IDENTITY, *parameter_names(rows)) if n not in (section.x, *lines, *panels)]
    # Those with fewest values first: they are what a reader expects to see side by side.
    for name in sorted(candidates, key=lambda n: len(set(rows[n].dropna()))):
        if _tells_apart(rows, name, [section.x, *lines, *panels]):
            if name == "implementation":
                lines = (name, *lines)
            else:
                panels = (*panels, name)
    known = [n for n in section.per if n in rows.columns and is_numeric_dtype(rows[n])]
    per = section.per if len(known) == len(section.per) else ()
    return replace(section, lines=lines, panels=panels, per=per)


def _tells_apart(rows: pd.DataFrame, name: str, by: Sequence[str]) -> bool:
    """Whether rows that agree in `by` differ in this column."""
    # dropna=False: a parameter that only some cases have is null in the others.
    return bool((rows.groupby(list(by), dropna=False, observed=True)[name].nunique(dropna=False) > 1).any())
