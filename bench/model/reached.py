"""What memory and power allow on GPUs that were timed, and so may allow on one that was not.

Memory: the share of the datasheet's bandwidth that the largest element-wise launches draw. Power: the
datasheet's limit for each operation of its peak. An L4 has 2.4 pJ for an operation in float32 where an L40S
has 3.8 and, at its limit, reaches half of its peak.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from bench.model.calibration import SAME_UNITS
from bench.model.launch_features import START_S

if TYPE_CHECKING:
    import pandas as pd

    from bench.device.datasheet import Datasheet

LARGEST, CACHES = 16, 8
"""Launches of a GPU that say what its memory reaches: the largest, of so many caches at least."""
STREAMING = ("activations", "elementwise")
"""Operators whose launches go through memory once, whatever they compute, but for a power."""
USUAL_SHARE = 0.85
"""Share of the datasheet's bandwidth, where no GPU was timed."""
RATE_OF_POWER = 0.5
"""Exponent of power by which a rate rises: voltage falls with the clock, so that half of the power leaves
more than half of the rate. Assumed, between 1 (a fixed voltage) and 1/3 (one in proportion to the clock)."""


def largest(rows: pd.DataFrame, sheets: Mapping[str, Datasheet]) -> pd.Index:
    """The rows of each GPU that say what its memory reaches; `sheets` are by device name."""
    cache = rows["device_name"].map({name: sheet.l2_byte for name, sheet in sheets.items()})
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

    timed: frozenset[tuple[str, str, str]] = frozenset()
    """(device name, arithmetic, data type) that are learned from."""

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
        """The same where these rows are learned from."""
        kinds = zip(rows["device_name"], rows["arithmetic"], rows["dtype"].map(_like), strict=True)
        return replace(self, timed=frozenset(kinds))

    def paid(self, sheet: Datasheet, arithmetic: str, dtype: str) -> float:
        """Share of the peak that the power limit pays, of what it pays on the GPUs that are learned from.

        With as much power for each operation of the peak as they have, 1: what becomes of it, their times
        say. With less than all of its generation, whose units are of the same kind, a GPU is expected to be
        slower: a V100 with Tensor Cores pays for an operation in float16 a fifth of what a P100 does without.
        """
        if sheet.capability is None:
            return 1.0
        generation, _ = sheet.capability

        def joule(of: Datasheet) -> float:
            peak = of.peak_flop_per_s(arithmetic, dtype)
            return of.power_w / peak if of.power_w and peak else math.inf

        timed = [self.sheets[name] for name, *kind in self.timed if kind == [arithmetic, _like(dtype)]]
        alike = [of for of in timed if of.capability is not None and of.capability[0] == generation]
        least = min(map(joule, alike), default=math.inf)
        return (
            min(1.0, joule(sheet) / least) ** RATE_OF_POWER
            if least < math.inf and joule(sheet) < math.inf
            else 1.0
        )


def _like(dtype: str) -> str:
    """The type that stands for all that the same units multiply at the same rate."""
    return min(SAME_UNITS) if dtype in SAME_UNITS else dtype


def apart(one: Datasheet, other: Datasheet) -> float:
    """Difference of compute capabilities; infinite between makers, 0 between GPUs of AMD."""
    if one.capability is None or other.capability is None:
        return 0.0 if one.capability == other.capability else float("inf")
    first, second = (major + minor / 10 for major, minor in (one.capability, other.capability))
    return abs(first - second)
