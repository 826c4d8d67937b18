"""The section on a run's experiments: the figures of each sweep, and what there is to see in its times."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import pandas as pd

from bench.format import count_text, share_text
from plots.base import prediction_lines, style
from plots.figures import every_figure
from plots.report.section import Results, Section, filled, svg

MOST_FIGURES = 100
"""Figures of the page; `python -m plots draw` has all."""


def section(results: Results) -> Section | None:
    """The figures of every sweep with a time; None without any, and for several runs, which are compared."""
    if len(results.runs) > 1:
        return None
    with style.look():
        sweeps = [each for each in _sweeps(results) if each["figures"]]
    if not sweeps:
        return None
    full = sum(len(each["figures"]) for each in sweeps) >= MOST_FIGURES
    html = filled("experiments.html.j2", sweeps=sweeps, full=full, most=MOST_FIGURES)
    return Section("Experiments", "experiments", html)


def _sweeps(results: Results) -> Iterator[dict[str, Any]]:
    """Each sweep with its title, its source as it names it, what its times show, and its figures."""
    run = results.runs[0]
    room = MOST_FIGURES
    for sweep, rows, pages in every_figure.of_sweeps(run, results.sweeps.get(run.key, {})):
        timed = rows[rows["median_s"].notna() & (rows["role"] == "measurement")]
        if timed.empty:
            continue
        declared = results.sweeps.get(run.key, {}).get(sweep, {})
        title = str(declared.get("title", "")) or sweep
        drawn = [svg(page.figure, f"{title}: {name}") for name, page in islice(pages, room)]
        room -= len(drawn)
        yield {
            "sweep": sweep,
            "title": title,
            "source": _source(declared.get("source", {})),
            "remark": _remark(timed),
            "figures": drawn,
        }


def _remark(rows: pd.DataFrame) -> str:
    """What there is to see in a sweep's times: who is fastest, and how far off predictions are."""
    sentences = []
    sound = rows[~rows["suspect"].astype(bool)]
    rivals = sound.pivot_table(
        "median_s", ["parameters", "cache", "threads_asked"], "implementation"
    ).dropna()
    if rivals.shape[1] > 1 and len(rivals):
        first = rivals.idxmin(axis=1).value_counts()
        sentences.append(
            f"{first.index[0]} is the fastest of {rivals.shape[1]} implementations in {first.iloc[0]} of "
            f"{count_text(len(rivals), 'case')}."
        )
    ratio = (sound["median_s"] / prediction_lines.best_s(sound))[~sound["calibrating"].astype(bool)].dropna()
    if len(ratio):
        low, middle, high = ratio.quantile([0.1, 0.5, 0.9])
        spread = f", from {low:.2f} to {high:.2f} for four in five" if len(ratio) > 4 else ""
        sentences.append(f"Their times are {middle:.2f} times what was predicted in the median{spread}.")
    if len(sound) < len(rows):
        share = share_text(1 - len(sound) / len(rows))
        sentences.append(f"{share} of the times are suspect (hollow) and not counted here.")
    return " ".join(sentences)


def _source(source: Mapping[str, Any]) -> str:
    names = {"document": "", "section": "section ", "figure": "figure ", "table": "table "}
    parts = [f"{word}{source[name]}" for name, word in names.items() if source.get(name)]
    return ", ".join(parts) if parts and parts[0] != "none" else ""
