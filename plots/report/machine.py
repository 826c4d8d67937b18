"""The section on the machine: what each device reaches, its roofline, and how its run was made."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

import pandas as pd

from bench.cli.findings import best_text, fit_sentence, noise_lines, reached_sentence
from bench.format import amount_text, count_text, ends_text, memory_text, seconds_text, share_text
from bench.judge.comparability import FACTS
from bench.judge.frame import DeviceRun
from bench.model.ceiling import Ceiling
from bench.model.ceilings import Ceilings
from bench.model.reached import PRODUCTS
from plots.base import style
from plots.figures import roofline
from plots.report.section import Head, Results, Section, ShownRun, filled, svg

Number = tuple[str, str]
"""One of the numbers of a device, and its interval, of how many cases it is made, or where it is from."""
MOST_BESIDE = 12
"""Runs whose facts stand side by side; a column for each of more could not be read."""
MOST_ROOFLINES = 6
"""Rooflines of the page; `python -m plots draw` has all."""


def section(results: Results) -> Section:
    """What the devices reach; a single one has its roofline, of several all is folded."""
    runs, alone = results.runs, results.alone
    with style.look():
        drawn = list(islice(roofline.draw(alone), MOST_ROOFLINES)) if alone else []
    html = filled(
        "machine.html.j2",
        whose=results.whose,
        heads=[run.head._replace(name=run.name) for run in runs]
        if results.whose == "run"
        else [run.head for run in runs],
        numbers=dict(_numbers(alone)) if alone else {},
        lines=_lines(runs) if len(runs) <= MOST_BESIDE else [],
        rooflines=[svg(page.figure, f"Roofline of {runs[0].device_name}, {name}") for name, page in drawn],
    )
    return Section("The machine" if len(runs) == 1 else "How each was measured", "machine", html)


def head(run: DeviceRun) -> Head:
    """What the section says of a run."""
    state = [f"imported, not measured by roofbench: {_sources(run)}"] if run.imported else []
    reached = reached_sentence(run) or f"{run.device_name}; this run measured no ceilings of its own."
    return Head(
        name=run.device_name,
        sentence=f"{fit_sentence(run)} {reached}".strip(),
        state=(*state, *noise_lines(run)),
        ceilings=tuple(
            (
                each.name,
                best_text(each.median, each.value, each.unit),
                _interval(each.low, each.high, each.unit),
                each.row,
            )
            for each in _roof(run).listed()
        ),
        facts=tuple(_facts(run)),
    )


def _sources(run: DeviceRun) -> str:
    """What the sources of its rows share: who, repository and licence, and the file if there is one alone."""
    first, *others = [source.split("; ") for source in run.columns["source"].fillna("").unique()]
    return "; ".join(part for part in first if all(part in other for other in others))


def _lines(runs: Sequence[ShownRun]) -> list[tuple[str, list[str]]]:
    """(fact, its value in each run); facts that no run has are left out."""
    lines = [
        (of[0][0], [value for _, value in of]) for of in zip(*(run.head.facts for run in runs), strict=True)
    ]
    return [(name, values) for name, values in lines if any(values)]


def _facts(run: DeviceRun) -> Iterator[tuple[str, str]]:
    """(fact, its values among the timed rows, at most three of them by name)."""
    yield from (("device", run.device_name), ("run", run.name), ("measured", _span(run)))
    yield from (
        ("cores or SMs", str(run.first.sm_count)),
        ("last-level cache", memory_text(run.first.cache_byte)),
    )
    timed = run.columns["median_s"].notna()
    for fact in FACTS:
        if fact.name == "device":  # it stands above, and would only be longer
            continue
        values = run.columns[fact.column][timed].unique() if run.first.device_kind in fact.kinds else ()
        shown = [fact.absent or "" if pd.isna(value) else fact.shown(value) for value in values]
        texts = [text for text in dict.fromkeys(shown) if text]
        more = f" and {len(texts) - 3} more" if len(texts) > 3 else ""
        yield fact.name, ", ".join(texts[:3]) + more


def _roof(run: DeviceRun) -> Ceilings:
    """What its rows with a cold cache are compared with, else those of its first row's condition."""
    return run.ceilings.get("cold") or run.roof_of(run.first)


def _fastest(run: DeviceRun) -> dict[str, float]:
    """Data type -> the highest rate of a matrix product, FLOP/s, suspect ones left out.

    Convolutions are none: Winograd's algorithm computes less than is counted.
    """
    frame = run.frame
    product = frame["operator"].isin(PRODUCTS) & (frame["arithmetic"] == "matrix")
    sound = frame[product & ~frame["suspect"] & frame["flop_per_s"].notna()]
    return {str(dtype): float(rate) for dtype, rate in sound.groupby("dtype")["flop_per_s"].max().items()}


def _numbers(run: DeviceRun) -> Iterator[tuple[str, Number]]:
    """(of what, number) of every sort that is known; one that a datasheet alone has is no number."""
    roof, sheet = _roof(run), run.datasheet
    copies, stated = roof.bandwidth_byte_per_s.get(0.5), sheet.bandwidth_byte_per_s if sheet else None
    if copies:
        value, beside = _measured(copies, "B/s")
        yield "memory bandwidth", (value, f"of a copy; {beside}")
    elif stated:
        yield "memory bandwidth", ("", f"not measured; its datasheet promises {amount_text(stated, 'B/s')}")
    fastest = _fastest(run)
    peaks = {dtype: peak.per_s for (kind, dtype), peak in roof.peak_flop_per_s.items() if kind == "matrix"}
    rates = peaks or fastest
    for dtype in sorted(rates, key=lambda dtype: -rates[dtype]):
        peak = roof.peak_flop_per_s.get(("matrix", dtype))
        rate = amount_text(fastest.get(dtype), "FLOP/s")
        value, beside = _measured(peak, "FLOP/s") if peak else (rate, "its fastest case")
        stated = sheet.peak_flop_per_s("matrix", dtype) if sheet else None
        promised = f"; its datasheet promises {amount_text(stated, 'FLOP/s')}" if stated else ""
        yield f"matrix multiplications in {dtype}", (value, f"{beside}{promised}")
    if floor := roof.launch:
        yield (
            "launch of an empty kernel",
            (seconds_text(floor.seconds), _interval(floor.low_s, floor.high_s, "s")),
        )
    if run.imported:  # its roof is the fastest of the same rows
        return
    frame = run.frame
    scored = frame[frame["scored"] & (frame["role"] == "measurement") & (frame["of_roof"] > 0)]
    if len(scored):
        low, middle, high = map(share_text, scored["of_roof"].quantile([0.1, 0.5, 0.9]))
        cases = count_text(len(scored), "case")
        yield "of the roof is reached", (middle, f"median of {cases}; four in five from {low} to {high}")


def _measured(roof: Ceiling, unit: str) -> Number:
    """The rate that tables show of its row; beside it the roof, if that is another, and its interval."""
    value, bracket, best = best_text(roof.median_per_s, roof.per_s, unit).partition(" (")
    interval = _interval(roof.low_per_s, roof.high_per_s, unit)
    return value, f"{best.removesuffix(')')}; {interval}" if bracket else interval


def _interval(low: float, high: float, unit: str) -> str:
    ends = ends_text(low, high, unit)
    return f"{ends} (95 %)" if low < high else ends


def _span(run: DeviceRun) -> str:
    """The first and the last moment of the run, UTC."""
    moments = sorted(filter(None, run.columns["utc"].unique()))
    ends = dict.fromkeys(moment[:16].replace("T", " ") for moment in (*moments[:1], *moments[-1:]))
    return f"{' to '.join(ends)} UTC" if ends else ""
