"""Nights as a table: what every case took in every run of one device, in the order of the runs.

A night is a run. A series is one case measured under the same conditions; what would change its time by
itself (protocol, clock, cache ...) is part of what it is, so that a time is only ever compared with times of
its own kind. What belongs to the whole machine (driver, torch, Triton, power limit ...) makes segments:
nights in a row that agree on all of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pandas as pd

from bench.judge.comparability import FACTS, NEVER_BLOCKING, Difference
from bench.store.schema import RunKey

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

CASE = ("sweep", "operator", "implementation", "parameters", "cache", "threads_asked")
CONDITIONS = ("protocol", "regime", "clock", "fill", "threads", "concurrent_gpus")
KEY = (*CASE, *CONDITIONS)
"""Columns that make a series: what was measured, and what changes its time without being a change of it."""
_OF_KEY = {"device", "device_id", "cache", *CONDITIONS, "source"}
SEGMENT = tuple(fact for fact in FACTS if fact.column not in _OF_KEY and fact.column != "commit")
"""What makes a segment: driver, torch, Triton, libraries, power limit, and other states of the machine."""
COMMIT = next(fact for fact in NEVER_BLOCKING if fact.column == "commit")


@dataclass(frozen=True)
class Night:
    """One run on one device."""

    run: RunKey
    utc: str
    """When it began, ISO 8601."""
    commit: str
    facts: Mapping[str, str]
    """What makes a segment: name of a fact -> its value as text."""
    timed: int
    """Rows with a time."""
    segment: int = 0
    """0 for the first nights; one more whenever a fact differs from the night before."""
    changed: tuple[Difference, ...] = ()
    """What differs from the night before: what makes segments, and the commit. Empty on the first night."""

    @property
    def run_id(self) -> str:
        """Its id, which runs on other units may share."""
        return self.run.run_id


@dataclass(frozen=True)
class History:
    """Every night of one device: of one GPU by its UUID, of one kind of CPU."""

    device: str
    """Slug, the folder's name."""
    device_name: str
    unit: str
    """Hash of the GPU's UUID; empty for a CPU, whose host has a name and no identity."""
    nights: tuple[Night, ...]
    """The nights in time order."""
    series: pd.DataFrame
    """A row for each series, ceilings included. Columns of the case: sweep, operator, implementation,
    parameters, cache, threads_asked, dtype; of the conditions: protocol, regime, clock, fill, threads,
    concurrent_gpus. And bound: memory | core, whose speed the machine's share
    of its time follows; ceiling: whether it is one."""
    log_s: Floats
    """[series, nights] natural logarithm of the median seconds; NaN where there is no time."""
    half: Floats
    """[series, nights] half of the 95 % interval of the median, ln; NaN where it is unknown."""
    doubted: Flags
    """[series, nights] whether a flag casts doubt on that time; False where there is no time."""

    def until(self, night: int) -> History:
        """The same up to this night, which is then the last."""
        end = night + 1
        arrays = {name: getattr(self, name)[:, :end] for name in ("log_s", "half", "doubted")}
        return replace(self, nights=self.nights[:end], **arrays)
