"""What others have measured of each kind of work on each kind of GPU: usual.yaml, from the public timings.

An entry is one source on one device: how many of its rows count, the rate that is usual among them, and the
highest. Usual is the median of products, whose shapes differ in how well they fit a device, and of memory the
rate that a tenth of the rows exceed, since only the largest show it. Of products those count that are at most
ALIKE times smaller or larger than `PRODUCT_FLOP`, which is what `accept` multiplies.

The file is written by `python -m studies.accept_usual RESULT...` from what `make public` imports; it names
each source. No row of theirs is in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple, cast

import pandas as pd
import yaml

from bench.accept.readings import CACHE, Kind, dtype_of, unit_of

FILE = Path(__file__).with_name("usual.yaml")
QUANTILE = {"FLOP/s": 0.5, "byte/s": 0.9}
"""Unit -> the quantile of a source's rates that is usual."""
LEAST_ROWS = 5
"""A source with fewer rows of a kind on a device says nothing of it."""
PRODUCT_FLOP, ALIKE = 2 * 8192**3, 8
"""The size of a product that counts, and by how much its FLOP may differ: twice in each dimension."""


class UsualRates(NamedTuple):
    """One kind of work on one kind of device by one source; rates in FLOP/s or bytes/s."""

    device_name: str
    kind: Kind
    source: str
    rows: int
    usual: float
    best: float


def usual_of(rows: pd.DataFrame) -> list[UsualRates]:
    """The usual rates by imported rows, as `readings.read` gives them."""
    products = rows["kind"].map(dtype_of) != ""
    alike = rows["flop"].between(PRODUCT_FLOP / ALIKE, PRODUCT_FLOP * ALIKE)
    # How fast a cache is depends on how much of it a copy takes, which nobody chose alike.
    one_size = rows["kind"].map(unit_of).isin(list(QUANTILE)) & ~rows["kind"].str.startswith(CACHE)
    rows = rows[(alike | ~products) & one_size & (rows["who"] != "") & (rows["device_kind"] == "cuda")]
    usual = []
    for key, rates in rows.groupby(["device_name", "kind", "who"])["rate"]:
        device, kind, who = map(str, cast(tuple[str, str, str], key))
        if len(rates) >= LEAST_ROWS:
            middle = float(rates.quantile(QUANTILE[unit_of(kind)]))
            usual.append(UsualRates(device, kind, who, len(rates), middle, float(rates.max())))
    return usual


@cache
def usual(file: Path = FILE) -> tuple[UsualRates, ...]:
    """The entries of the file."""
    devices: Mapping[str, Mapping[Kind, Mapping[str, Mapping[str, float]]]] = yaml.safe_load(file.read_text())
    return tuple(
        UsualRates(device, kind, source, int(entry["rows"]), entry["usual"], entry["best"])
        for device, kinds in devices.items()
        for kind, sources in kinds.items()
        for source, entry in sources.items()
    )


def usual_text(entries: Iterable[UsualRates]) -> str:
    """The file: device -> kind of work -> source -> rows, usual and best rate with three digits."""
    lines = []
    device = kind = ""
    for entry in sorted(entries):
        if entry.device_name != device:
            lines.append(f"{entry.device_name}:")
            device, kind = entry.device_name, ""
        if entry.kind != kind:
            lines.append(f'  "{entry.kind}":')
            kind = entry.kind
        lines.append(
            f'    "{entry.source}": {{rows: {entry.rows}, usual: {entry.usual:.3e}, best: {entry.best:.3e}}}'
        )
    return "\n".join([*lines, ""])
