"""What memory and matrix products reach on GPUs that were timed, and so may reach on one that was not.

Memory: the share of the datasheet's bandwidth that the largest element-wise launches draw. Products: the
share of the peak that those reach which arithmetic bounds (their median); on a GPU that was not timed that of
its nearest relative, as far as power allows. A launch draws power as it keeps the units busy and as its clock
rises, so where power is short busy launches slow down most, by a law that is assumed: a V100 reaches 0.5 to
0.95 of its peak in float32 as a layer grows, a T4, with 0.56 of the power for each unit, 0.4 to 0.5.
Convolutions tell no such share, as their algorithms compute less than is counted.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.model.calibration import SAME_UNITS
from bench.model.launch_features import START_S, peaks

if TYPE_CHECKING:
    import pandas as pd

    from bench.device.datasheet import Datasheet

LARGEST, CACHES = 16, 8
"""Launches of a GPU that say what its memory reaches: the largest, of so many caches at least."""
STREAMING = ("activations", "elementwise")
"""Operators whose launches go through memory once, whatever they compute, but for a power."""
USUAL_SHARE = 0.85
"""Share of the datasheet's bandwidth, where no GPU was timed."""
PRODUCTS = ("gemm", "linear")
"""Operators that compute what is counted."""
CLOCK_OF_POWER = 2 / 3
"""Exponent of power by which the clock rises. Assumed: midway between 1 (a fixed voltage) and 1/3 (one in
proportion to the clock). Taken after 0.7 and 1 had been scored on GEMM, so with its errors in view."""
MOST_OF_PEAK = 0.9
"""Share of a peak that more power leads to at most. Assumed."""
RELATED = 0.5
"""Difference of compute capabilities up to which, within a generation, units spend alike on an operation.
Assumed."""
BOUND, LEAST_BOUND = 2.0, 20
"""Products whose arithmetic takes so many times longer than their bytes are bound by it; so many of them say
what they reach. Chosen with the errors of all GPUs in view."""


def largest(rows: pd.DataFrame, sheets: Mapping[str, Datasheet]) -> pd.Index:
    """The rows of each GPU that say what its memory reaches; `sheets` are by device name."""
    cache = rows["device_name"].map({name: sheet.l2_byte for name, sheet in sheets.items()}).astype(float)
    streaming = rows["operator"].isin(STREAMING) & ~rows["parameters"].str.contains('"power"')
    streams = rows[streaming & (rows["byte_moved"] > CACHES * cache)].sort_values("byte_moved", kind="stable")
    return streams.groupby("device_name", sort=False).tail(LARGEST).index


@dataclass(frozen=True)
class Reached:
    """What is known of some GPUs."""

    sheets: Mapping[str, Datasheet]
    """Device name -> its datasheet."""
    shares: Mapping[str, float]
    """Device name -> share of the datasheet's bandwidth that its largest launches reach."""

    of_peak: Mapping[tuple[str, str, str], float] = field(default_factory=dict)
    """(device name, operator, data type) -> share of the peak that products reach, where it was learned."""

    @classmethod
    def of(cls, rows: pd.DataFrame, sheets: Mapping[str, Datasheet]) -> Reached:
        """What these rows say of the GPUs."""
        streams = rows.loc[largest(rows, sheets)]
        bandwidth = streams["device_name"].map({n: s.bandwidth_byte_per_s for n, s in sheets.items()})
        working_s = streams["median_s"] - streams["clock_start_s"].astype(float).fillna(START_S)
        shares = (streams["byte_moved"] / bandwidth.astype(float) / working_s).groupby(streams["device_name"])
        return cls(sheets, {str(name): float(share) for name, share in shares.median().items() if share > 0})

    def without(self, names: Collection[str]) -> Reached:
        """What is known without these GPUs."""
        return replace(self, shares={name: s for name, s in self.shares.items() if name not in names})

    def share(self, sheet: Datasheet) -> float:
        """What memory reaches on a GPU: its own, or the median of those with the same maker and memory."""
        own = [self.shares[name] for name in sheet.match if name in self.shares]
        alike = own or [
            share
            for other, share in self.shares.items()
            if (of := self.sheets[other]).memory_type == sheet.memory_type
            and (of.capability is None) == (sheet.capability is None)
        ]
        return float(np.median(alike or list(self.shares.values()) or [USUAL_SHARE]))

    def learning(self, rows: pd.DataFrame) -> Reached:
        """The same with what these rows say of peaks."""
        rows = rows[rows["operator"].isin(PRODUCTS)]
        usual = {n: self.share(s) * (s.bandwidth_byte_per_s or math.nan) for n, s in self.sheets.items()}
        computing_s = rows["flop"] / peaks(rows, self.sheets)
        bound = computing_s > BOUND * rows["byte_moved"] / rows["device_name"].map(usual).astype(float)
        working_s = rows["median_s"] - rows["clock_start_s"].astype(float).fillna(START_S)
        kinds = [rows["device_name"][bound], rows["operator"][bound], rows["dtype"][bound].map(_like)]
        shares = (computing_s / working_s.clip(lower=1e-9))[bound].groupby(kinds).agg(["median", "size"])
        learned: dict[Any, float] = shares["median"][shares["size"] >= LEAST_BOUND].to_dict()
        return replace(self, of_peak=learned)

    def peak_shares(self, sheet: Datasheet, operator: str, dtype: str) -> tuple[float, float]:
        """(share of its peak that products reach on a GPU, the same as far as its power allows).

        Its own; that of its relative with as much power for a unit; or the median. 1 where nothing was
        learned; the second is infinite where power is not known to be short.
        """

        def of_unit(of: Datasheet) -> tuple[float, float]:
            """(Hz of the boost clock, watt for an operation in each clock)"""
            clock, peak = of.boost_clock_hz or math.nan, of.peak_flop_per_s("matrix", dtype) or math.nan
            return clock, (of.power_w or math.nan) * clock / peak

        found: list[tuple[float, bool, float, float, float]] = []
        alike = {key: share for key, share in self.of_peak.items() if key[2] == _like(dtype)}
        clock, watt = of_unit(sheet)
        for (name, of_operator, _), share in alike.items():
            if name in sheet.match and of_operator == operator:
                return share, math.inf
            relative = self.sheets[name]
            its_clock, its_watt = of_unit(relative)
            same = (sheet.capability or (0,))[0] == (relative.capability or (0,))[0]
            if same and (distance := apart(relative, sheet)) <= RELATED and watt / its_watt > 0:
                powered = share * its_clock / clock * (watt / its_watt) ** CLOCK_OF_POWER
                most = max(share, min(MOST_OF_PEAK, powered))
                allowed = powered if powered < share else math.inf
                found.append(
                    (distance, of_operator != operator, abs(math.log(watt / its_watt)), most, allowed)
                )
        own = [share for key, share in alike.items() if key[1] == operator]
        usual = float(np.median(own or list(alike.values()) or [1.0]))
        return min(found)[-2:] if found else (usual, math.inf)


def _like(dtype: str) -> str:
    """The type that stands for all that the same units multiply at the same rate."""
    return min(SAME_UNITS) if dtype in SAME_UNITS else dtype


def apart(one: Datasheet, other: Datasheet) -> float:
    """Difference of compute capabilities; infinite between makers, 0 between GPUs of AMD."""
    if one.capability is None or other.capability is None:
        return 0.0 if one.capability == other.capability else float("inf")
    first, second = (major + minor / 10 for major, minor in (one.capability, other.capability))
    return abs(first - second)
