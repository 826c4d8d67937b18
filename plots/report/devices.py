"""The section on several devices: what each gains over the first, beside what its datasheet promises."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any

import pandas as pd

from bench.format import amount_text, share_text
from bench.judge.achieved import Achieved, achieved, by_age
from bench.judge.speedup import Gain, gains, speedups
from plots.base import style
from plots.figures import achieved as achieved_figure
from plots.figures import generations
from plots.report.section import Results, Section, filled, svg

BOUNDS: Mapping[str, str] = {
    "memory": "Memory-bound work",
    "compute": "Compute-bound work",
    "launch": "Launch-bound work",
    "cache": "Work from the cache",
    "": "Work whose bound is not known",
}
"""What bounds a case on the base -> the title of its part."""
MOST_FIGURES = 6
"""Figures of the section; `python -m plots draw` has all."""


def section(results: Results) -> Section | None:
    """Speed-ups over the first device, by what bounds the work, and rates; None for a single device."""
    runs = [run for run in results.runs if run.measured]
    sheets = {run.device: run.datasheet for run in runs}
    if len(sheets) < 2:
        return None
    base = runs[0].device
    gained = gains(dict(speedups(pd.concat([run.frame for run in runs]), base)), base, sheets)
    rates = achieved(runs)
    works = list(dict.fromkeys((each.work, each.width) for each in rates))
    devices = by_age(sheets)
    watts = {device: sheet.power_w if sheet else None for device, sheet in sheets.items()}
    with_gain = {base, *(gain.device for gain in gained)}
    with style.look():
        drawn = list(
            islice(chain(achieved_figure.draw(runs), generations.draw(runs, base, results.say)), MOST_FIGURES)
        )
    html = filled(
        "devices.html.j2",
        base=base,
        parts=list(_parts(gained, devices)),
        works=works,
        lines=[
            (device, watts[device], list(_rates(device, rates, works, watts[device]))) for device in devices
        ],
        lonely=[device for device in devices if device not in with_gain],
        figures=[svg(page.figure, str(page.figure.get_label() or name)) for name, page in drawn],
    )
    return Section("The devices compared", "devices", html)


def _parts(gained: Sequence[Gain], devices: Sequence[str]) -> Iterator[dict[str, Any]]:
    """The gains in the work that one thing bounds: a line for each device, a cell for each of the kinds."""
    for bound, title in BOUNDS.items():
        cells: dict[str, dict[tuple[str, str], Gain]] = {}
        for gain in gained:
            if gain.bound_by == bound:
                cells.setdefault(gain.device, {})[gain.operator, gain.dtype] = gain
        # The kinds that most devices have come first.
        kinds = sorted({kind for of in cells.values() for kind in of})
        kinds.sort(key=lambda kind: -sum(kind in of for of in cells.values()))
        if kinds:
            lines = [(name, [cells[name].get(kind) for kind in kinds]) for name in devices if name in cells]
            yield {"title": title, "kinds": kinds, "lines": lines}


def _rates(
    device: str, rates: Sequence[Achieved], works: Sequence[tuple[str, str]], limit_w: float | None
) -> Iterator[dict[str, Any] | None]:
    """The rate of a device in each class of work, in words; None where it has none."""
    mine = {(each.work, each.width): each for each in rates if each.device == device}
    for key in works:
        of = mine.get(key)
        if of is None:
            yield None
            continue
        watts = of.watts or limit_w
        unit = "FLOP" if of.width else "byte"
        yield {
            "rows": of.rows,
            "rate": amount_text(of.median, f"{unit}/s"),
            "promised": amount_text(of.stated, f"{unit}/s"),
            "share": share_text(of.median / of.stated if of.stated else None),
            "per_joule": amount_text(of.median / watts if watts else None, f"{unit}/J"),
            "power": f"{watts:.0f} W {'measured' if of.watts else 'by its limit'}" if watts else "",
        }
