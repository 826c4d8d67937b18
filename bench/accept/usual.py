"""What others have measured of each kind of work on each kind of GPU: usual.yaml, from the public timings.

An entry is one source on one device: how many of its rows count, the rate that is usual among them, and the
highest. Usual is the median of products, whose shapes differ in how well they fit a device, and of memory the
rate that a tenth of the rows exceed, since only the largest show it. Of products those count that are at most
eight times smaller or larger than what `accept` multiplies (studies/accept_usual.py).

The file is written by `python -m studies.accept_usual RESULT...` from what `make public` imports; it names
each source. No row of theirs is in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

import yaml

FILE = Path(__file__).with_name("usual.yaml")


class UsualRates(NamedTuple):
    """One kind of work on one kind of device by one source; rates in FLOP/s or bytes/s."""

    device_name: str
    kind: str
    source: str
    rows: int
    usual: float
    best: float


@cache
def usual(file: Path = FILE) -> tuple[UsualRates, ...]:
    """The entries of the file."""
    devices: Mapping[str, Mapping[str, Mapping[str, Mapping[str, float]]]] = yaml.safe_load(file.read_text())
    return tuple(
        UsualRates(device, kind, source, int(entry["rows"]), entry["usual"], entry["best"])
        for device, kinds in devices.items()
        for kind, sources in kinds.items()
        for source, entry in sources.items()
    )
