"""The kinds of work: cases of one kind vary alike, and one part of a device limits them.

The kind follows from units and intensity, not from the nearest roof: on a CPU many activations stay well
below the memory's speed and vary as much as it, and so do products of few FLOP for each byte, such as those
of a small batch. Whatever takes less than SMALL_S is a kind of its own: an interrupt, a wake-up or a
refilled cache is a large part of its time.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import numpy as np

from bench.judge.columns import Bools, Columns
from bench.store.schema import Measurement


class WorkClass(StrEnum):
    """A kind of work, by what limits it."""

    COMPUTE = "compute"
    """Matrix products of LEAST_INTENSITY or more."""
    MEMORY = "memory"
    """Other work whose data are in memory."""
    SMALL = "small"
    """Either of them in less than SMALL_S."""
    CACHE = "cache"
    """Any work from a warm cache that holds it."""
    LAUNCH = "launch"
    """Empty launches."""
    TRANSFER = "transfer"
    """Copies between host and device, which `work_of` counts as memory: their noise was never compared."""

    @property
    def text(self) -> str:
        """Its name in texts."""
        return _NAMES.get(self, self.value)


_NAMES: Mapping[WorkClass, str] = {
    WorkClass.COMPUTE: "matrix multiplications",
    WorkClass.SMALL: "small kernels",
    WorkClass.CACHE: "caches",
    WorkClass.LAUNCH: "launches",
    WorkClass.TRANSFER: "transfers",
}
SMALL_S: Mapping[str, float] = {"cpu": 2e-4, "cuda": 5e-5}
"""Kind of device -> seconds: ten launches of a GPU; what waking threads up may take on a CPU. In Vidur's
tables 95 in 100 pairs of an A40's runs agree within 7 % below 50 us and within 2 % above, products apart; of
an A100's within 3 to 5 % on either side."""
LEAST_INTENSITY: Mapping[str, float] = {"cpu": 16.0, "cuda": 64.0}
"""Kind of device -> FLOP for each byte from which a product varies as products do. Of a CPU by runs of one
commit (results/reference/tours and quiet_tours): products of 8 to 16 differ from run to run twice as much as
those of more than 64, and products of 2 to 4 four times as much. On a GPU those of few differ less, as
memory does: in Vidur's tables by 2 to 4 % (A100) and 1.5 to 2.6 % (A40) below 64, by 5 to 6 and 2.5 to 4.6 %
above 128."""


def work_of(row: Measurement) -> WorkClass:
    """The kind of work that a row measured."""
    if not row.flop and not row.byte:
        return WorkClass.LAUNCH
    if row.cache == "warm" and row.byte <= row.cache_byte:
        return WorkClass.CACHE
    return work_from_memory(row.arithmetic, row.flop, row.byte, row.median_s, row.device_kind)


def told_apart(rows: Columns) -> dict[str, Bools]:
    """What tells rows of several kinds of work apart: those that agree in all of these are of one kind."""
    is_gpu = rows["device_kind"].are("cuda")
    least_intensity = np.where(is_gpu, LEAST_INTENSITY["cuda"], LEAST_INTENSITY["cpu"])
    return {
        "empty": (rows["flop"] == 0) & (rows["byte"] == 0),
        "cached": rows["cache"].are("warm") & (rows["byte"] <= rows["cache_byte"]),
        "matrix": rows["arithmetic"].are("matrix"),
        "small": rows["median_s"] < np.where(is_gpu, SMALL_S["cuda"], SMALL_S["cpu"]),
        "intense": rows["flop"] >= least_intensity * rows["byte"],
    }


def work_from_memory(
    arithmetic: str, flop: float, byte: float, seconds: float | None, device_kind: str
) -> WorkClass:
    """The kind of work that finds its data in memory, by its units, its intensity and what a launch takes."""
    kind = device_kind if device_kind in SMALL_S else "cpu"
    if seconds is not None and seconds < SMALL_S[kind]:
        return WorkClass.SMALL
    intense = arithmetic == "matrix" and flop >= LEAST_INTENSITY[kind] * byte
    return WorkClass.COMPUTE if intense else WorkClass.MEMORY
