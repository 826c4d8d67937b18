"""What memory and matrix products reach on GPUs that were timed, and so may reach on one that was not.

Memory: the share of the datasheet's bandwidth that the largest element-wise launches draw. Products: the
share of the peak that those reach which arithmetic bounds (their median); on a GPU that was not timed that of
its nearest relative, as far as the power for an operation of the peak allows. A V100 has 17.9 pJ for one in
float32 and reaches 0.84 of its peak, a T4 has 8.6 and reaches 0.41. Convolutions tell no such share: their
algorithms compute less than is counted.
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
RATE_OF_POWER = 2 / 3
"""Exponent of power by which a rate rises. Assumed: midway between 1 (a fixed voltage) and 1/3 (one in
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

    def peak_share(self, sheet: Datasheet, operator: str, dtype: str) -> float:
        """Share of its peak that products reach on a GPU: its own, that of its relative with as much power
        for an operation, or the median; 1 where nothing was learned."""

        def joule(of: Datasheet) -> float:
            peak = of.peak_flop_per_s("matrix", dtype)
            return of.power_w / peak if of.power_w and peak else math.nan

        found: list[tuple[float, bool, float, float]] = []
        alike = {key: share for key, share in self.of_peak.items() if key[2] == _like(dtype)}
        for (name, of_operator, _), share in alike.items():
            if name in sheet.match and of_operator == operator:
                return share
            distance, more = apart(self.sheets[name], sheet), joule(sheet) / joule(self.sheets[name])
            same = (sheet.capability or (0,))[0] == (self.sheets[name].capability or (0,))[0]
            if same and distance <= RELATED and more > 0:
                allowed = min(max(share, MOST_OF_PEAK), share * more**RATE_OF_POWER)
                found.append((distance, of_operator != operator, abs(math.log(more)), allowed))
        own = [share for key, share in alike.items() if key[1] == operator]
        return min(found)[-1] if found else float(np.median(own or list(alike.values()) or [1.0]))


def _like(dtype: str) -> str:
    """The type that stands for all that the same units multiply at the same rate."""
    return min(SAME_UNITS) if dtype in SAME_UNITS else dtype


def apart(one: Datasheet, other: Datasheet) -> float:
    """Difference of compute capabilities; infinite between makers, 0 between GPUs of AMD."""
    if one.capability is None or other.capability is None:
        return 0.0 if one.capability == other.capability else float("inf")
    first, second = (major + minor / 10 for major, minor in (one.capability, other.capability))
    return abs(first - second)
