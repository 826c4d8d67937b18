"""The section on a run's experiments: the figures of each sweep."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from bench.judge.frame import DeviceRun
from plots.base import style
from plots.figures import every_figure
from plots.report.section import Results, Section, filled, svg

MOST_FIGURES = 100
"""Figures of the page; `python -m plots draw` has all."""


def section(results: Results) -> Section | None:
    """The figures of every sweep with a time; None without any, and for several runs, which are compared."""
    if results.alone is None:
        return None
    with style.look():
        sweeps = [each for each in _sweeps(results.alone) if each["figures"]]
    if not sweeps:
        return None
    full = sum(len(each["figures"]) for each in sweeps) >= MOST_FIGURES
    html = filled("experiments.html.j2", sweeps=sweeps, full=full, most=MOST_FIGURES)
    return Section("Experiments", "experiments", html)


def _sweeps(run: DeviceRun) -> Iterator[dict[str, Any]]:
    """Each sweep with its title, its source as it names it, and its figures."""
    room = MOST_FIGURES
    for sweep, rows, pages in every_figure.of_sweeps(run):
        if not (rows["median_s"].notna() & (rows["role"] == "measurement")).any():
            continue
        declared = run.sweeps.get(sweep, {})
        title = str(declared.get("title", "")) or sweep
        drawn = [svg(page.figure, f"{title}: {name}") for name, page in islice(pages, room)]
        room -= len(drawn)
        yield {
            "sweep": sweep,
            "title": title,
            "source": _source(declared.get("source", {})),
            "figures": drawn,
        }


def _source(source: Mapping[str, Any]) -> str:
    names = {"document": "", "section": "section ", "figure": "figure ", "table": "table "}
    parts = [f"{word}{source[name]}" for name, word in names.items() if source.get(name)]
    return ", ".join(parts) if parts and parts[0] != "none" else ""
