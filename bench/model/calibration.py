"""What a device is to matrix products: its ceilings, shared priors, and a fit to its calibration shapes.

Two calibrations, both reported. Without a fit: what the run's probes measured, and for the rest priors that
are the same rule for every device. Fitted: those as a starting point, and the rows whose role is calibration
(sweeps/ceilings/gemm_shapes.yaml), to whose times all nine numbers are drawn in logarithms, each as far as
its spread allows. Bandwidth is measured, so it hardly moves; what was not measured moves most. Shapes that
calibrate are never scored.

Each data type is calibrated by its own shapes. The peak of another type says too little of it: bfloat16's
fit at the peak of float8 was off by 37 to 57 % on eight GPUs (docs/predictions.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from bench.model import tile_wave
from bench.model.ceilings import Ceilings
from bench.model.roofline import Floats
from bench.model.tile_wave import Machine, PredictedGemms, Products

if TYPE_CHECKING:
    from bench.device.datasheet import Datasheet

LEAST_SHAPES = 32
"""Shapes with a time from which a fit is made: half of them were enough on Hopper and Blackwell."""
FITTED = {
    "flop_per_s": 0.10,
    "byte_per_s": 0.015,
    "launch_s": 0.30,
    "cached_byte_per_s": 0.60,
    "sm_byte_per_s": 0.60,
    "step_s": 0.60,
    "tile_s": 0.80,
    "split_s": 0.60,
    "tail": 0.50,
    "beside": 0.60,
}
"""Field of Machine -> how far a fit may draw it from where it starts: the standard deviation of its
logarithm."""
UNFITTED = 1.113
"""Measured time over what ceilings and priors predict: the geometric mean over the 64 calibration shapes of
nine GPUs (0.98 on L40S to 1.24 on A100). One number for all: a device is predicted without a fit where
nothing is known of it."""
SAME_UNITS = frozenset({"bfloat16", "float16"})
"""Data types that the same units multiply at the same rate: what is fitted to one holds for the other."""
ERROR = 0.10
"""The error of one shape's prediction that is taken for granted, as a share."""
BULK_COPIES = (9, 10)
"""Major compute capabilities of the devices that feed their tensor cores by bulk copies (TMA): a tile begins
sooner there. Consumer Blackwell (12) multiplies as Ampere does."""


@dataclass(frozen=True)
class Calibration:
    """A device as a run saw it, ready to predict matrix products."""

    machine: Machine
    """The rates for `dtype`."""
    dtype: str
    peaks: Mapping[str, float]
    """dtype -> FLOP/s of the largest products, measured, or else the same share of what is stated: for L1 of
    data types that were not measured."""
    fitted: bool
    shapes: int = 0
    """How many it was fitted to."""
    said: str = ""
    """Its origin: the device and the run."""
    others: Mapping[str, Calibration] = field(default_factory=dict)
    """dtype -> its own calibration, of the run's other data types."""

    def of(self, dtype: str) -> Calibration | None:
        """The calibration of a data type; None where neither it nor one of the same units has shapes."""
        if dtype == self.dtype:
            return self
        same = SAME_UNITS & {dtype, self.dtype} == {dtype, self.dtype}
        return self.others.get(dtype) or (self if same else None)

    def predict(self, products: Products, tile: tuple[int, int] | None = None) -> PredictedGemms:
        """What launches take, by the tile that is stated or by the quickest."""
        answer = tile_wave.predict(self.machine, products, tile)
        # A product that is held to a tile lacks the choice for which the factor stands.
        factor = 1.0 if self.fitted or tile else UNFITTED
        return answer._replace(seconds=factor * answer.seconds)


def started(
    ceilings: Ceilings, dtype: str, sm_count: int, cache_byte: int, sheet: Datasheet | None
) -> Machine | None:
    """The machine by its ceilings and, for what they lack, shared priors; None without a peak or bandwidth.

    The priors are what fits on public tables of eight devices had in common:

        step_s    three tenths of a step of a 128 x 128 tile at the peak, 80 ns at least
        tile_s    0.5 us where bulk copies feed the tensor cores, else 2 us
        split_s   3 us
        sm        1.4 times an SM's share of memory, 5 bytes a clock at least
        cache     2.5 times memory's bandwidth
        tail      0.3
        beside    2
    """
    peak = ceilings.peak("matrix", dtype)
    reads = ceilings.second_per_byte(0.0)
    if peak is None or reads is None:
        return None
    byte_per_s = 1.0 / float(reads)
    bulk = sheet is not None and (sheet.capability or (0,))[0] in BULK_COPIES
    step_of_tile_s = 2 * 128 * 128 * 64 / (peak / sm_count)
    draws = max(1.4 * byte_per_s / sm_count, 5.0 * ((sheet and sheet.boost_clock_hz) or 0.0))
    cached = max((c.per_s for c in ceilings.cached.values()), default=0.0)
    return Machine(
        sm_count=sm_count,
        cache_byte=cache_byte,
        flop_per_s=peak,
        byte_per_s=byte_per_s,
        launch_s=ceilings.launch_s or 0.0,
        cached_byte_per_s=max(cached, byte_per_s) if cached else 2.5 * byte_per_s,
        sm_byte_per_s=ceilings.sm_byte_per_s.per_s if ceilings.sm_byte_per_s else draws,
        # Not what the probe of one tile says of a step: its tile is large enough to be bound by multiplying.
        step_s=max(80e-9, 0.3 * step_of_tile_s),
        tile_s=ceilings.tile_s.get(dtype, 0.5e-6 if bulk else 2e-6),
        split_s=3e-6,
        tail=0.3,
    )


def with_launch(machine: Machine, shapes: Products, seconds: Floats) -> Machine:
    """The machine with the launch floor that the quickest shapes leave over, where no probe measured it.

    Of a launch that is as good as empty, what tiles and bytes do not explain; the least over the shapes that
    take less than 1.2 times the quickest.
    """
    bare = replace(machine, launch_s=0.0)
    quick = seconds <= 1.2 * seconds.min()
    rest = seconds[quick] - tile_wave.predict(bare, Products(*(part[quick] for part in shapes))).seconds
    return replace(machine, launch_s=float(max(rest.min(), 0.1 * seconds.min())))


def fit(start: Machine, shapes: Products, seconds: Floats) -> Machine:
    """The machine whose predictions of these shapes come nearest to their times, not far from its start.

    Least squares of log(predicted / measured) / ERROR and of the log change of each number over its spread,
    with a loss that outliers do not rule (soft L1).
    """
    # Importing it takes longer than most that imports this module.
    from scipy.optimize import least_squares

    idle = set() if shapes.beside.any() else {"beside"}
    spread = {name: FITTED[name] for name in FITTED if name not in idle and getattr(start, name) > 0}
    measured, widths = np.log(seconds), np.array(list(spread.values()))
    launches = tile_wave.Launches(shapes, start.sm_count)

    def moved(x: Floats) -> Machine:
        numbers = {n: getattr(start, n) * float(np.exp(v)) for n, v in zip(spread, x, strict=True)}
        return replace(start, **numbers)

    def residuals(x: Floats) -> Floats:
        return np.concatenate([(np.log(launches.predict(moved(x)).seconds) - measured) / ERROR, x / widths])

    # Tiles change by jumps, so that slopes are taken from two sides of the start.
    aside = 0.3 * widths * np.where(np.arange(len(spread)) % 2, 1.0, -1.0)
    fits = [
        least_squares(residuals, x, loss="soft_l1", diff_step=1e-2)  # type: ignore[arg-type]
        for x in (np.zeros(len(spread)), aside)
    ]
    return moved(min(fits, key=lambda fit: float(fit.cost)).x)
