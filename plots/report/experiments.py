"""The experiments of a run: each sweep with its question, its chart, and what there is to see."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import pandas as pd
from pandas.api.types import is_numeric_dtype

from bench.format import count_text, share_text
from bench.judge.claims import JudgedClaim
from bench.judge.frame import DeviceRun
from bench.store.parquet import Sweeps
from plots.base import prediction_lines, scale, style, verdict_lines
from plots.base.parameter_words import axis_words
from plots.base.plot_spec import Section, completed, sections, split
from plots.report import charts
from plots.report.cases import rounded

MOST_PANELS = 12
"""Panels of one experiment on the page; the figures have all."""
MOST_LINES = 12
"""Implementations of one chart of imported rows; of dozens of launch shapes the fastest tell enough."""
MOST_MARKED = 100
"""Points of one line up to which each has a marker of full size."""


class Chart(NamedTuple):
    """A chart, and what the page fills it with."""

    spec: Mapping[str, Any]
    quantity: str
    """duration, rate or ratio: which column of the cases goes up."""
    points: Mapping[str, Sequence[Any]]
    """`row` (place among the page's cases), x, y of a heatmap, `line`, `panel`, `per`, `expected`."""
    left_out: int
    """Panels for which there was no room."""


def experiments(
    run: DeviceRun,
    number: int,
    sweeps: Sweeps,
    judged: Sequence[JudgedClaim],
    places: Mapping[tuple[int, int], int],
) -> Iterator[dict[str, Any]]:
    """The experiments of a run, by the names of their sweeps; those without a timed row are left out.

    Each has a title, its source as the sweep names it, what is `decided` of claims, a remark and charts.
    `judged` are the verdicts on the run's claims; `places` gives the place of (`number`, row of the run's
    frame) among the page's cases.
    """
    frame = run.frame
    once = frame[(frame["visit"] == 0) & (frame["role"] == "measurement")]
    decided = verdict_lines.by_sweep(judged)
    for path, rows in once.groupby("sweep", sort=True):
        if not rows["median_s"].notna().any():
            continue
        sweep = str(path)
        # Of rows without a sweep of ours the operator of the imported table is the title.
        named = sweep.rpartition("/")[2].replace("_", " ") if sweep.startswith("imported/") else sweep
        declared = sweeps.get(sweep, {})
        timed = rows[rows["median_s"].notna()]
        drawn = [
            chart
            for section in sections(rows, declared)
            if (chart := _chart(timed, section, number, places)) is not None
        ]
        # Of tables that others made many have no curve; the table of cases has their rows.
        if run.imported and not drawn and sweep not in decided:
            continue
        yield dict(
            anchor="-".join([sweep.replace("/", "-"), *([str(number)] if number else [])]),
            sweep=sweep,
            title=str(declared.get("title", "")) or named,
            source=_source(declared.get("source", {})),
            decided=decided.get(sweep, ()),
            remark=remark(timed),
            charts=drawn,
        )


def remark(rows: pd.DataFrame) -> str:
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


def _chart(
    rows: pd.DataFrame, section: Section, number: int, places: Mapping[tuple[int, int], int]
) -> Chart | None:
    if section.kind == "quantization":
        section = completed(replace(section, kind="curve", quantity="rate"), rows)
    rows = rows[rows[section.x].notna()]
    rows = rows.assign(panel=[style.named(section.panels, key) for key in _keys(rows, section.panels)])
    lengths = rows.groupby("panel")[section.x].nunique()
    imported = bool(rows["source"].notna().all())
    # Tables that others made have single cases, which as panels would fill the page.
    fewest = 2 if imported else 1
    every = [style.named(section.panels, key) for key, _ in split(rows, section.panels)]
    panels = [panel for panel in every if lengths[panel] >= fewest]
    longest = sorted(panels, key=lambda panel: -lengths[panel])[:MOST_PANELS]
    shown = [panel for panel in panels if panel in longest]
    rows = rows[rows["panel"].isin(shown)]
    if rows.empty or (section.kind == "heatmap" and prediction_lines.best_s(rows).isna().all()):
        return None
    if imported and section.kind != "heatmap":
        rows = _fastest(rows, section)
    points: dict[str, Sequence[Any]] = {
        "row": [places[number, index] for index in rows.index],
        "panel": rows["panel"].tolist(),
    }
    if section.kind == "heatmap":
        operator = str(rows["operator"].iloc[0])
        points |= {"x": rounded(rows[section.x]), "y": rounded(rows[section.y])}
        spec = charts.heatmap(axis_words(section.x, operator), axis_words(section.y, operator), shown)
        return Chart(spec, "ratio", points, len(panels) - len(shown))
    return _curves(rows, section, points, shown, len(panels) - len(shown))


def _fastest(rows: pd.DataFrame, section: Section) -> pd.DataFrame:
    """The rows, of more than MOST_LINES implementations those that are least behind in the median."""
    names = rows["implementation"]
    if "implementation" not in section.lines or names.nunique() <= MOST_LINES:
        return rows
    least_s = rows.groupby(["parameters", "cache"])["median_s"].transform("min")
    behind = (rows["median_s"] / least_s).groupby(names).median()
    return rows[names.isin(behind.nsmallest(MOST_LINES).index)]


def _curves(
    rows: pd.DataFrame,
    section: Section,
    points: Mapping[str, Sequence[Any]],
    shown: Sequence[str],
    left_out: int,
) -> Chart:
    rate = bool(section.quantity == "rate" and rows["rate_per_s"].notna().any())
    words = not is_numeric_dtype(rows[section.x])
    per = rows[list(section.per)].prod(axis=1).astype(float) if section.per else pd.Series(1.0, rows.index)
    measured = rows["rate_per_s"] if rate else rows["median_s"] / per
    best_s = prediction_lines.best_s(rows).astype(float)
    expected = rows["rate_per_s"] * rows["median_s"] / best_s if rate else best_s / per
    keys = _keys(rows, section.lines)
    labels = {key: style.named(section.lines, key) or "measured" for key in dict.fromkeys(keys)}
    looks = style.of_lines(section.lines, list(labels))
    x = rows[section.x]
    title = "time of a launch" + (f" for each {' x '.join(section.per)}" if section.per else "")
    if rate:
        title = f"rate ({'/'.join(sorted({'FLOP/s' if r == 'flop' else 'B/s' for r in rows['rate']}))})"
    # The panel that spans farthest decides, measured and predicted together, as in the figures.
    log_y = "y" in section.log or any(
        scale.spans_far(pd.concat([measured[of], expected[of]]).to_numpy(dtype=float))
        for of in rows.groupby("panel").groups.values()
    )
    log_x = (
        not words and bool((x > 0).all()) and ("x" in section.log or scale.spans_far(x.to_numpy(dtype=float)))
    )
    across = charts.swept(axis_words(section.x, str(rows["operator"].iloc[0])), x, log_x)
    upright = charts.measured(title, measured.astype(float), log_y, seconds=not rate)
    named = {labels[key]: look for key, look in looks.items()}
    most = rows.groupby(["panel", *section.lines], dropna=False).size().max()
    spec = charts.curves(across, upright, named, shown, dense=most > MOST_MARKED)
    filled = {
        "x": x.map(str).tolist() if words else rounded(x),
        "line": [labels[key] for key in keys],
        "expected": rounded(expected),
        **({"per": rounded(per)} if section.per else {}),
    }
    return Chart(spec, "rate" if rate else "duration", {**points, **filled}, left_out)


def _keys(rows: pd.DataFrame, columns: Sequence[str]) -> list[tuple[Any, ...]]:
    if not columns:
        return [()] * len(rows)
    values = rows[list(columns)].astype(object)
    return list(values.where(values.notna(), None).itertuples(index=False, name=None))
