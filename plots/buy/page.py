"""What devices gain for a buyer, as a page: speed-ups measured and promised, by joule and by dollar."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bench.cli.across import MAKER, Across
from bench.errors import UserError
from bench.format import amount_text, count_text, share_text
from bench.judge.achieved import Achieved, achieved, by_age
from bench.judge.speedup import Gain
from plots.base.shell import page

BOUNDS: Mapping[str, str] = {
    "memory": "Memory-bound work",
    "compute": "Compute-bound work",
    "launch": "Launch-bound work",
    "cache": "Work from the cache",
    "": "Work whose bound is not known",
}
"""What bounds a case on the base -> the title of its part."""
HOUR = "/h"
"""End of a price for each hour."""


class UnitPrice(NamedTuple):
    """US dollars for a unit, or for an hour of it."""

    dollars: float
    hourly: bool

    def __str__(self) -> str:
        return f"{self.dollars:,g} USD{'/h' if self.hourly else ''}"


def prices(given: Sequence[str], devices: Sequence[str]) -> dict[str, UnitPrice]:
    """Device -> price, of `NAME=USD` or `NAME=USD/h`. UserError for others, for two of a device, or both."""
    prices_by_device: dict[str, UnitPrice] = {}
    for text in given:
        name, _, number = text.partition("=")
        of = [device for device in devices if name and name in (device, device.removeprefix(MAKER))]
        try:
            price = UnitPrice(float(number.removesuffix(HOUR)), number.endswith(HOUR))
        except ValueError:
            price = UnitPrice(0.0, False)
        if not 0 < price.dollars < 1e12:
            raise UserError(f"--price {text}: give NAME=USD for a unit, or NAME=USD/h for an hour of it")
        if not of:
            raise UserError(f"--price {text}: no device is called {name!r}; there are {', '.join(devices)}")
        if of[0] in prices_by_device:
            raise UserError(f"--price {text}: {of[0]} has a price already; give one for each device")
        prices_by_device[of[0]] = price
    if len({price.hourly for price in prices_by_device.values()}) > 1:
        raise UserError("--price: some are for a unit and some for an hour; give all of them in one way")
    return prices_by_device


def html(across: Across, priced: Mapping[str, UnitPrice]) -> str:
    """The page about these devices; all gains are over `across.base`."""
    devices = by_age(across.sheets)
    rates = achieved(across.runs)
    works = list(dict.fromkeys((each.work, each.width) for each in rates))
    compared = {across.base, *(gain.device for gain in across.gains)}
    return page(
        Path(__file__).with_name("buy.html.j2"),
        title=f"What {count_text(len(devices), 'device')} would do for your money",
        base=across.base,
        parts=list(_parts(across, devices, priced)),
        works=works,
        lines=[_line(across, device, priced.get(device), rates, works) for device in devices],
        lonely=[device for device in devices if device not in compared],
        hourly=any(price.hourly for price in priced.values()),
        priced=bool(priced),
        differing=list(across.differing()),
    )


def _parts(
    across: Across, devices: Sequence[str], priced: Mapping[str, UnitPrice]
) -> Iterator[dict[str, Any]]:
    """The gains in the work that one thing bounds: a line for each device, a cell for each of the kinds."""
    for bound, title in BOUNDS.items():
        cells: dict[str, dict[tuple[str, str], dict[str, Any]]] = {}
        for gain in across.gains:
            if gain.bound_by == bound:
                cell = {"gain": gain, "per_dollar": _per_dollar(gain, across.base, priced)}
                cells.setdefault(gain.device, {})[gain.operator, gain.dtype] = cell
        # The kinds that most devices have come first.
        kinds = sorted({kind for of in cells.values() for kind in of})
        kinds.sort(key=lambda kind: -sum(kind in of for of in cells.values()))
        if kinds:
            lines = [(name, [cells[name].get(kind) for kind in kinds]) for name in devices if name in cells]
            yield {"title": title, "kinds": kinds, "lines": lines}


def _per_dollar(gain: Gain, base: str, priced: Mapping[str, UnitPrice]) -> float | None:
    if base not in priced or gain.device not in priced:
        return None
    return gain.median * priced[base].dollars / priced[gain.device].dollars


def _line(
    across: Across,
    device: str,
    price: UnitPrice | None,
    rates: Sequence[Achieved],
    works: Sequence[tuple[str, str]],
) -> dict[str, Any]:
    """What one device is and achieves: its power by the datasheet, its price, its rates."""
    sheet = across.sheets[device]
    limit_w = sheet.power_w if sheet else None
    mine = {(each.work, each.width): each for each in rates if each.device == device}
    return {
        "device": device,
        "power": f"{limit_w:g} W" if limit_w else "",
        "price": str(price or ""),
        "works": [_work(mine[key], limit_w, price) if key in mine else None for key in works],
    }


def _work(of: Achieved, limit_w: float | None, price: UnitPrice | None) -> dict[str, Any]:
    """The rates of a class of work on one device, in words."""
    watts = of.watts or limit_w
    unit = "FLOP" if of.width else "byte"
    dollars = price.dollars / 3600 if price and price.hourly else price.dollars if price else None
    per_dollar = f"{unit}/USD" if price and price.hourly else f"{unit}/s/USD"
    return {
        "of": of,
        "rate": amount_text(of.median, f"{unit}/s"),
        "promised": amount_text(of.stated, f"{unit}/s"),
        "share": share_text(of.median / of.stated if of.stated else None),
        "per_joule": amount_text(of.median / watts if watts else None, f"{unit}/J"),
        "power": f"{watts:.0f} W {'measured' if of.watts else 'by its limit'}" if watts else "",
        "per_dollar": amount_text(of.median / dollars if dollars else None, per_dollar),
    }
