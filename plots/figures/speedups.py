"""Devices against a base, and how a speed-up is shown: what the figures of generations have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from bench.device.datasheet import Datasheet
from bench.judge import speedup as judge
from plots.base import axes as scale
from plots.base import style

_TICKS = (
    *(1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 0.01, 0.02, 0.05, 0.1, 0.2, 0.33, 0.5, 0.7, 0.8, 0.9),
    *(1.1, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1e3, 2e3, 5e3, 1e4),
)
BANDWIDTH = {"color": style.BLACK, "ls": (0, (5, 1.5)), "lw": 1.1}
PEAK = {"color": "#777777", "ls": (0, (1, 1)), "lw": 1.6}


@dataclass(frozen=True)
class Compared:
    """The devices that have cases in common with the base, and what their datasheets promise."""

    base: str
    cases: Mapping[str, pd.DataFrame]
    """Device -> its cases (bench.judge.speedup), in the order in which they were named; none is empty."""
    sheets: Mapping[str, Datasheet | None]
    rows: pd.DataFrame
    """All rows of these devices and of the base."""

    def gain(self, device: str, some: pd.DataFrame) -> tuple[float | None, float | None]:
        """(bandwidth, peak) as stated, over the base's; for cases of one arithmetic and data type."""
        first = some.iloc[0]
        return judge.stated_gain(
            self.sheets[self.base], self.sheets[device], str(first["arithmetic"]), str(first["dtype"])
        )


def compare(
    rows: pd.DataFrame, base: str, sheets: Mapping[str, Datasheet | None]
) -> tuple[Compared | None, list[str]]:
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
    return Compared(base, met, sheets, rows[rows["device"].isin([base, *met])]), apart


def ratio_axis(axes: Axes, shown: Sequence[float]) -> None:
    """A logarithmic axis of ratios that holds these values."""
    margin = max((max(shown) / min(shown)) ** 0.08, 1.05)
    scale.ratios(axes, min(shown) / margin, max(shown) * margin, _TICKS, 7)


def devices(found: Compared, among: Mapping[str, object] | None = None) -> list[Artist]:
    """The legend's entries of the devices, of all or of these."""
    named = (device for device in found.cases if among is None or device in among)
    looks = ((device, style.of_device(device)) for device in named)
    return [style.marker(device, look.color, look.marker) for device, look in looks]


def promises(found: Compared) -> list[Artist]:
    """The legend's entries of the base and of what the datasheets promise."""
    handles: list[Artist] = [Line2D([], [], color=style.BLACK, lw=0.7, label=f"{found.base} (1)")]
    if (
        any(found.sheets[device] is not None for device in found.cases)
        and found.sheets[found.base] is not None
    ):
        handles.append(Line2D([], [], label="bandwidth by datasheet", **BANDWIDTH))  # type: ignore[arg-type]
        handles.append(Line2D([], [], label="peak by datasheet", **PEAK))  # type: ignore[arg-type]
    return handles


def middle() -> str:
    """What marker and bar are, for the caption."""
    return (
        "Marker: the median; bar or band: the middle 80 of 100 cases. A case's time is that of the quickest "
        "library which both devices have."
    )


def measured_alike(found: Compared) -> str:
    """What else differs, for a speed-up that two protocols made is none."""
    told = []
    for column, word in (
        ("protocol", "protocols"),
        ("regime", "regimes"),
        ("clock", "clocks"),
        ("imported", "sources"),
    ):
        if column in found.rows:
            ways = found.rows.groupby("device")[column].agg(
                lambda some: " ".join(sorted(map(str, some.unique())))
            )
            if ways.nunique() > 1:
                told.append(word)
    missing = [device for device in (found.base, *found.cases) if found.sheets[device] is None]
    said = [f"Measured in different ways: their {', '.join(told)} differ."] if told else []
    said += [f"No datasheet of {', '.join(missing)}."] if missing else []
    return " ".join(said)
