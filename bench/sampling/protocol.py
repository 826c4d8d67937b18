"""The settings of a measurement that can change a published time."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import asdict, dataclass, replace
from functools import cache, cached_property
from typing import Literal

REGIME = "sustained"
"""The column `regime`: the device is kept loaded. Older files also have `boost`: short bursts after rests."""
OF_BOOST = {"regime": REGIME, "burst_s": 0.02, "rest_s": 0.3}
"""Settings of the regime that is no more: part of every hash, so that earlier rows keep their protocol."""


@dataclass(frozen=True)
class Protocol:
    """Every setting that can change a published time. Rows of different protocols are not compared.

    The defaults are a GPU's; `protocol` makes the others.
    """

    version: str = "p3"
    visits: int = 1
    """Requested visits per case."""
    most_visits: int = 8
    """Most visits: what a budget leaves narrows intervals by so many."""
    keep: int = 3
    """The last this many visits are published; what came before may have been settling."""
    agree: float = 0.01
    """Their medians span at most this share, or the row has not converged."""
    confidence: float = 0.95
    half_width: float = 0.01
    """Stop when the interval's half-width is this share of the median."""
    floor: float = 0.002
    """No interval is narrower than this share: batching alone moves a median with stragglers by as much."""
    blocks: int = 5
    """One visit's samples are also cut into this many blocks in time order; drift widens the interval."""
    least_samples: int = 12
    most_samples: int = 2000
    least_timed_s: float = 0.15
    """Timed work before a stop counts: long enough to see a neighbour, or another clock, come and go."""
    least_sample_s: float = 250e-6
    """Launches are batched until a sample lasts this long ..."""
    steps: float = 400
    """... and this many steps of the clock, so that its resolution is worth 0.25 %."""
    settle_window_s: float = 0.25
    settle_windows: int = 3
    settle_span: float = 0.005
    """Settled when the medians of the last windows span at most this share ..."""
    settle_trend: float = 0.00075
    """... and show no trend worth more than this share from the first of them to the last."""
    settle_most_s: float = 5.0
    """Settling takes no longer than this ..."""
    settle_share: float = 0.75
    """... nor than this share of the visit's budget."""
    light_window_s: float | None = 0.1
    """One window of this length settles a device that the work leaves far from its limits; None: never."""
    ring_factor: float = 2.5
    """A cold ring holds this many times the last-level cache."""
    most_slots: int = 4096
    """More slots than this are not built; the cache is then flushed before each turn of the ring."""

    def ring_slots(self, cache_byte: int, byte: int) -> int:
        """Slots of a cold ring, memory permitting: of a last-level cache, and sets of tensors of `byte`."""
        return min(self.most_slots, max(2, math.ceil(self.ring_factor * cache_byte / byte) + 1))

    @cached_property
    def hash(self) -> str:
        """Twelve hexadecimal digits that change with any setting.

        The code that follows the settings is not part of it: `version` names that, and is raised by hand when
        the same settings give other times. A row's `commit` tells the code itself.
        """
        text = json.dumps(asdict(self) | OF_BOOST, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]


SEVERAL = 3
"""Visits that a run makes to each case; from so many on a row is meant for a record, and must be narrower."""


@cache
def protocol(kind: Literal["cpu", "cuda"], visits: int = 1) -> Protocol:
    """The settings for a kind of device and so many visits a case."""
    several = Protocol(visits=visits, most_visits=max(8, visits))
    if kind == "cpu":
        # Shared with an operating system and its neighbours, it scatters by a few percent from window to
        # window, settled or not (on two cores of a Xeon three windows of 20 ms span 2.6 % in the middle
        # case, twice that in a noisy hour), and by one or two from visit to visit: half a percent is out
        # of reach, and by the bars of a GPU every row would be unsettled. Scatter is the interval's matter;
        # settling is a trend, so the trend is what must have ended.
        return replace(
            several,
            agree=0.03,
            least_timed_s=0.1,
            settle_window_s=0.02,
            settle_span=0.1,
            settle_trend=0.01,
            settle_most_s=3.0,
            settle_share=0.3,
            light_window_s=None,
        )
    return replace(several, half_width=0.005 if visits >= SEVERAL else 0.01)
