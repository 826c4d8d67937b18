"""The section on the machine: what each device reaches, its roofline, and how its run was made."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from operator import attrgetter
from typing import NamedTuple

from bench.cli.findings import best_text, fit_sentence, noise_lines, reached_sentence
from bench.format import amount_text, count_text, ends_text, memory_text, seconds_text, share_text
from bench.judge.comparability import FACTS, Fact
from bench.judge.frame import DeviceRun
from bench.model.ceiling import Ceiling
from bench.model.ceilings import Ceilings
from plots.base import style
from plots.figures import roofline
from plots.report.section import Results, Section, filled, svg

Number = tuple[str, str]
"""One of the numbers of a device, and its interval, of how many cases it is made, or where it is from."""
MOST_BESIDE = 12
"""Runs whose facts stand side by side; a column for each of more could not be read."""
MOST_ROOFLINES = 6
"""Rooflines of the page; `python -m plots draw` has all."""


class Head(NamedTuple):
    """What the section says of one run."""

    name: str
    sentence: str
    state: tuple[str, ...]
    """How far its times can be trusted: noise from visit to visit."""
    ceilings: tuple[tuple[str, str, str, str], ...]
    """(name, value, interval, case) of each ceiling that was measured."""

    @property
    def trust(self) -> str:
        """The sentence and the state, by which runs are listed together."""
        return f"{self.sentence} {'; '.join(self.state)}"


def section(results: Results) -> Section:
    """What the devices reach; a single one has its roofline, of several all is folded."""
    runs = results.runs
    named = zip(runs, results.labels, strict=True)
    with style.look():
        drawn = list(islice(roofline.draw(runs[0]), MOST_ROOFLINES)) if len(runs) == 1 else []
    html = filled(
        "machine.html.j2",
        whose=results.whose,
        heads=[_head(run, label if results.whose == "run" else run.device_name) for run, label in named],
        numbers=dict(_numbers(runs[0])) if len(runs) == 1 else {},
        lines=_lines(runs) if len(runs) <= MOST_BESIDE else [],
        rooflines=[svg(page.figure, f"Roofline of {runs[0].device_name}, {name}") for name, page in drawn],
    )
    return Section("The machine" if len(runs) == 1 else "How each was measured", "machine", html)


def _head(run: DeviceRun, name: str) -> Head:
    state = [f"imported, not measured by roofbench: {_sources(run)}"] if run.imported else []
    reached = reached_sentence(run) or f"{run.device_name}; this run measured no ceilings of its own."
    return Head(
        name=name,
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
    )


def _sources(run: DeviceRun) -> str:
    """What the sources of its rows share: who, repository and licence, and the file if there is one alone."""
    first, *others = [source.split("; ") for source in run.columns["source"].fillna("").unique()]
    return "; ".join(part for part in first if all(part in other for other in others))


def _lines(runs: Sequence[DeviceRun]) -> list[tuple[str, list[str]]]:
    """(fact, its value in each run); facts that no run has are left out."""
    lines = [
        ("device", [run.device_name for run in runs]),
        ("run", [run.name for run in runs]),
        ("measured", [_span(run) for run in runs]),
        ("cores or SMs", [str(run.rows[0].sm_count) for run in runs]),
        ("last-level cache", [memory_text(run.rows[0].cache_byte) for run in runs]),
    ]
    # The device stands above; a fact that repeats it would only be longer.
    facts = [fact for fact in FACTS if fact.name != "device"]
    by_fact = zip(*(_values(run, facts) for run in runs), strict=True)
    lines += [(fact.name, [*values]) for fact, values in zip(facts, by_fact, strict=True)]
    return [(name, values) for name, values in lines if any(values)]


def _roof(run: DeviceRun) -> Ceilings:
    """What its rows with a cold cache are compared with, else those of its first row's condition."""
    return run.ceilings.get("cold") or run.roof_of(run.rows[0])


def _fastest(run: DeviceRun) -> dict[str, float]:
    """Data type -> the highest rate of a matrix product, FLOP/s, suspect ones left out."""
    frame = run.rated
    sound = frame[(frame["arithmetic"] == "matrix") & ~frame["suspect"] & frame["flop_per_s"].notna()]
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


def _values(run: DeviceRun, facts: Sequence[Fact]) -> Iterator[str]:
    """The values of each fact among the timed rows of a run, at most three of them by name."""
    kind, told = run.rows[0].device_kind, attrgetter(*(fact.column for fact in facts))
    different = list(dict.fromkeys(told(row) for row in run.rows if row.is_timed))
    for place, fact in enumerate(facts):
        values = dict.fromkeys(of_row[place] for of_row in different)
        shown = [fact.shown(value) if value is not None else fact.absent or "" for value in values]
        texts = [text for text in dict.fromkeys(shown) if text] if kind in fact.kinds else []
        more = f" and {len(texts) - 3} more" if len(texts) > 3 else ""
        yield ", ".join(texts[:3]) + more
