"""Speed-ups of devices over a base, and how they are drawn: shared by the figures of generations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd

from bench.device.datasheet import Datasheet
from bench.judge import speedup as judge
from plots.base import style

PROMISES: Mapping[str, tuple[str, dict[str, Any]]] = {
    "memory": ("bandwidth", {"color": style.BLACK, "ls": (0, (5, 1.5)), "lw": 1.1}),
    "compute": ("peak", {"color": "#777777", "ls": (0, (1, 1)), "lw": 1.6}),
}
"""What bounds cases -> the number of the datasheet that promises a speed-up, and the look of its line."""
TICKS = 7
"""About how many ticks an axis of speed-ups has."""
PROMISED = "Dashed: bandwidth by datasheet; dotted: peak."
"""The sentence of a caption that explains the lines of PROMISES."""
MIDDLE = (
    "Marker: the median; bar or band: the middle 80 % of the cases.",
    "A case's time is that of the quickest library which both devices have.",
    "What bounds it follows from the base's ridge and launch overhead.",
)
"""The sentences of a caption that explain marker, bar and panels."""


@dataclass(frozen=True)
class ComparedDevices:
    """The devices that have cases in common with the base, with their datasheets."""

    base: str
    cases: Mapping[str, pd.DataFrame]
    """Device -> its cases (bench.judge.speedup), in the order in which they were named; none is empty."""
    sheets: Mapping[str, Datasheet | None]
    rows: pd.DataFrame
    """All rows of these devices and of the base."""

    @cached_property
    def gains(self) -> Sequence[judge.Gain]:
        """What the devices gain, by operator, data type and bound: the numbers of the command line."""
        return judge.gains(self.cases, self.base, self.sheets)


def compare(
    rows: pd.DataFrame, base: str, sheets: Mapping[str, Datasheet | None]
) -> tuple[ComparedDevices | None, list[str]]:
    """(what can be drawn, or None; a sentence for each device that has no case in common with the base)."""
    met = dict(judge.speedups(rows, base))
    apart = [
        f"{device} has no case in common with {base}: no speed-ups are drawn"
        for device in met
        if not len(met[device])
    ]
    met = {device: cases for device, cases in met.items() if len(cases)}
    if not met:
        return None, apart
    return ComparedDevices(base, met, sheets, rows[rows["device"].isin([base, *met])]), apart


def measured_alike(compared: ComparedDevices) -> list[str]:
    """The sentences of a caption on what else differs: a speed-up between two protocols is none."""
    words = {"protocol": "protocols", "regime": "regimes", "clock": "clocks", "imported": "sources"}
    by_device = compared.rows.groupby("device")
    differing = [
        word
        for column, word in words.items()
        if len({tuple(sorted(map(str, values))) for values in by_device[column].unique()}) > 1
    ]
    missing = [device for device in (compared.base, *compared.cases) if compared.sheets[device] is None]
    sentences = [f"Measured in different ways: their {', '.join(differing)} differ."] if differing else []
    return [*sentences, f"No datasheet of {', '.join(missing)}."] if missing else sentences
