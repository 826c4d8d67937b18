"""The section on several devices: a table of what each reaches and gains, to buy by, and its evidence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.sparse import coo_array

from bench.format import amount_text, count_text, share_text
from bench.judge.achieved import LAYERS, Achieved, achieved, by_age
from bench.judge.columns import Columns
from bench.judge.speedup import CASE, Gain, gains, speedups
from plots.report.section import Results, Section, filled

BOUNDS: Mapping[str, str] = {
    "memory": "Memory-bound work",
    "compute": "Compute-bound work",
    "launch": "Launch-bound work",
    "cache": "Work from the cache",
    "": "Work whose bound is not known",
}
"""What bounds a case on the base -> the title of its part."""
PRODUCTS = "matrix multiplications"


class Cell(NamedTuple):
    """A number of a device, with its bar."""

    value: float
    """What the column is sorted by, and the script divides by a price."""
    text: str
    beside: str
    bar: float
    """Percent of the highest of the column."""


class Column(NamedTuple):
    """A column of the table of devices."""

    name: str
    below: str
    unit: str
    cells: Mapping[str, Cell]
    """Of each device that has one."""


def section(results: Results) -> Section | None:
    """The devices side by side, the number of a column for each; None for a single device."""
    runs = [run for run in results.runs if run.measured]
    sheets = {run.device: run.datasheet for run in runs}
    if len(sheets) < 2:
        return None
    rows = pd.concat([run.compared for run in runs], ignore_index=True)
    first, *others = results.files
    # A folder of many devices asks for none of them.
    base = _base(rows, asked=bool(others) and not any(first.glob("*/")))
    gained = gains(dict(speedups(rows, base)), base, sheets)
    rates = achieved([run.rates for run in runs], sheets)
    works = Counter((each.work, each.width) for each in rates)
    products = [of for of, _ in works.most_common() if of[0] == PRODUCTS][:2]
    bought = [of for of in works if of[0] == LAYERS or of in products]
    devices = by_age(sheets)
    watts = {device: sheet.power_w if sheet else None for device, sheet in sheets.items()}
    names = {name: sheet.slug if sheet else name for name, sheet in sheets.items()}
    columns = [*_of_rates(rates, bought), *_of_gains(gained, base, names[base])]
    best = columns[0].cells if columns else {}
    ordered = sorted(devices, key=lambda device: -best[device].value if device in best else 0.0)
    html = filled(
        "devices.html.j2",
        base=names[base],
        names={device: names[device] for device in ordered},
        columns=columns,
        parts=list(_parts(gained, devices)),
        others=list(_of_rates(rates, [of for of in works if of not in bought])),
        watts=watts,
        lonely=[
            names[device] for device in devices if device not in {base, *(gain.device for gain in gained)}
        ],
    )
    return Section("The devices compared", "devices", html)


def _base(rows: pd.DataFrame, asked: bool) -> str:
    """The device that others are compared with: the first, if it is `asked` for and shares cases with any;
    else that which shares cases with most.
    """
    timed = rows[rows["median_s"] > 0]
    of, devices = pd.factorize(timed["device"])
    has = coo_array((np.ones(len(timed)), (of, Columns.of(timed[[*CASE]]).numbered(CASE)))).tocsr()
    others = ((has @ has.T) > 0).sum(axis=1) - 1
    return str(devices[0 if asked and others[0] else others.argmax()])


def _of_rates(rates: Sequence[Achieved], works: Iterable[tuple[str, str]]) -> Iterator[Column]:
    """What the devices reach in each class of work; those without a rate have none."""
    for work, width in works:
        mine = {each.device: each for each in rates if (each.work, each.width) == (work, width)}
        unit = "FLOP/s" if width else "B/s"
        numbers = {device: (each.median, _of_datasheet(each)) for device, each in mine.items()}
        yield Column(work, width, unit, _cells(numbers, unit))


def _of_datasheet(of: Achieved) -> str:
    share = [f"{share_text(of.median / of.stated)} of its datasheet"] if of.stated else []
    return ", ".join([*share, *([f"at {of.watts:.0f} W"] if of.watts else [])])


def _of_gains(gained: Sequence[Gain], base: str, name: str) -> Iterator[Column]:
    """The speed-up over the base by what bounds work there: the median over operators and data types."""
    for bound, title in BOUNDS.items():
        of_bound = [gain for gain in gained if gain.bound_by == bound]
        numbers: dict[str, tuple[float, str]] = {base: (1.0, "compared with it")} if of_bound else {}
        for device in dict.fromkeys(gain.device for gain in of_bound):
            mine = [gain for gain in of_bound if gain.device == device]
            cases = count_text(sum(gain.cases for gain in mine), "case")
            kinds = f"{len(mine)} kinds, " if len(mine) > 1 else ""
            numbers[device] = float(np.median([gain.median for gain in mine])), f"{kinds}{cases}"
        if numbers:
            yield Column(title, f"over {name}", "times", _cells(numbers, ""))


def _cells(numbers: Mapping[str, tuple[float, str]], unit: str) -> dict[str, Cell]:
    highest = max(value for value, _ in numbers.values())
    return {
        device: Cell(
            value, amount_text(value, unit) if unit else f"{value:.2f} times", beside, 100 * value / highest
        )
        for device, (value, beside) in numbers.items()
    }


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
