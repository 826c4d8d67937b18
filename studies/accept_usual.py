"""`python -m studies.accept_usual RESULT...`: bench/accept/usual.yaml again, and how far sources agree.

RESULT... are the imported timings (`make public` puts them into results/imported; results/reference/public is
committed). Printed is what each source would be told if it were a unit: its usual rate against the other
sources on the same kind of device, as it is and at 85 and 70 % of its speed.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pandas as pd

from bench.accept.expected import by_others
from bench.accept.judge import verdict_of
from bench.accept.readings import CACHE, dtype_of, read, unit_of
from bench.accept.usual import FILE, UsualRates

QUANTILE = {"FLOP/s": 0.5, "byte/s": 0.9}
"""Unit -> the quantile of a source's rates that is usual."""
LEAST_ROWS = 5
"""A source with fewer rows of a kind on a device says nothing of it."""
PRODUCT_FLOP, ALIKE = 2 * 8192**3, 8
"""The size of a product that counts, and by how much its FLOP may differ: twice in each dimension."""
SPEEDS = (1.0, 0.85, 0.7)


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


def verdicts(entries: list[UsualRates]) -> Counter[tuple[float, str]]:
    """(speed, verdict) -> how many sources on how many devices would be told so."""
    counts: Counter[tuple[float, str]] = Counter()
    for entry in entries:
        row = SimpleNamespace(kind=entry.kind, device_name=entry.device_name)
        rest = [
            each for each in entries if (each.device_name, each.source) != (entry.device_name, entry.source)
        ]
        if expects := by_others(row, rest):
            counts.update((speed, verdict_of((speed * entry.usual,) * 3, expects)) for speed in SPEEDS)
    return counts


def main(paths: list[Path]) -> None:
    """Write the file and print the table."""
    entries = usual_of(read(paths, print))
    FILE.write_text(usual_text(entries))
    print(f"{FILE}: {len(entries)} entries, {len({each.device_name for each in entries})} devices")
    counts = verdicts(entries)
    for speed in SPEEDS:
        told = {verdict: counts[speed, verdict] for verdict in ("PASS", "LOW", "FAIL", "UNKNOWN")}
        print(f"at {speed:.0%} of its speed: {told}")


if __name__ == "__main__":
    main([Path(path) for path in sys.argv[1:]])
