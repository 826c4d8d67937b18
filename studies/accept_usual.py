"""`python -m studies.accept_usual RESULT...`: bench/accept/usual.yaml again, and how far sources agree.

RESULT... are the imported timings (`make public` puts them into results/imported; results/reference/public is
committed). Printed is what each source would be told if it were a unit: its usual rate against the other
sources on the same kind of device, and against the datasheet's shares of other kinds, as it is and at 85 and
70 % of its speed.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

from bench.accept.expected import by_datasheet, by_others
from bench.accept.judge import verdict_of
from bench.accept.readings import read
from bench.accept.usual import FILE, UsualRates, usual_of, usual_text
from bench.device.datasheet import find_datasheet

SPEEDS = (1.0, 0.85, 0.7)


def verdicts(entries: list[UsualRates]) -> Counter[tuple[str, float, str]]:
    """(evidence, speed, verdict) -> how many sources on how many devices would be told so."""
    counts: Counter[tuple[str, float, str]] = Counter()
    for entry in entries:
        sheet = find_datasheet(entry.device_name)
        row = SimpleNamespace(kind=entry.kind, device_name=entry.device_name, pcie_generation_most=None)
        rest = [
            each for each in entries if (each.device_name, each.source) != (entry.device_name, entry.source)
        ]
        for expects in (by_others(row, rest), by_datasheet(row, sheet, rest)):
            for speed in SPEEDS if expects else ():
                counts[expects.by, speed, verdict_of(speed * entry.usual, expects)] += 1
    return counts


def main(paths: list[Path]) -> None:
    """Write the file and print the table."""
    entries = usual_of(read(paths, print))
    FILE.write_text(usual_text(entries))
    print(f"{FILE}: {len(entries)} entries, {len({each.device_name for each in entries})} devices")
    counts = verdicts(entries)
    for by in ("others", "datasheet"):
        for speed in SPEEDS:
            told = {verdict: counts[by, speed, verdict] for verdict in ("PASS", "LOW", "FAIL")}
            print(f"{by}, at {speed:.0%} of its speed: {told}")


if __name__ == "__main__":
    main([Path(path) for path in sys.argv[1:]])
