"""The GPU runs that calibrate the model of matrix products, and how far its predictions are off."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bench.model.calibration import Calibration
from bench.model.ceiling import Ceiling
from bench.model.ceilings import Ceilings
from bench.model.predict import calibrated, unfitted
from bench.model.roofline import Floats

if TYPE_CHECKING:
    import pandas as pd

    from bench.device.datasheet import Datasheet


class Errors(NamedTuple):
    """How far predictions are from measured times."""

    n: int
    mape: float
    """Mean |predicted / measured - 1|, as a share."""
    median: float
    p90: float
    ratio: float
    """Geometric mean of predicted / measured: 1 where it errs to both sides alike."""

    @classmethod
    def of(cls, predicted_s: Floats, measured_s: Floats) -> Errors:
        """The errors over launches with both times. ValueError if there is none."""
        if not len(measured_s):
            raise ValueError("no launch has both a prediction and a time")
        ratio = predicted_s / measured_s
        off = np.abs(ratio - 1.0)
        middle, high = np.quantile(off, (0.5, 0.9))
        return cls(
            len(off), float(off.mean()), float(middle), float(high), float(np.exp(np.log(ratio).mean()))
        )


@dataclass(frozen=True)
class Known:
    """What one GPU run tells of matrix products to a run of the same device that lacks ceilings."""

    device_name: str
    run_id: str
    ceilings: Ceilings
    """Its own, with the calibration's peaks where it measured none."""
    calibrations: tuple[Calibration, ...]
    """Without a fit, and fitted where there are the shapes for it; at least one."""


def known(rows: pd.DataFrame, ceilings: Ceilings, sheet: Datasheet | None) -> Known | None:
    """The rows of one GPU run under one condition as a calibration.

    `ceilings` are those that they are compared with. None without rows, a datasheet or a matrix product's
    ceilings.
    """
    plain = unfitted(rows, ceilings, sheet) if len(rows) and sheet else None
    if plain is None:
        return None
    # A run measured one data type perhaps; its datasheet scales that to the others.
    scaled = {("matrix", kind): Ceiling(p, p, p, plain.said) for kind, p in plain.peaks.items()}
    first, peaked = rows.iloc[0], replace(ceilings, peak_flop_per_s={**scaled, **ceilings.peak_flop_per_s})
    return Known(first["device_name"], first["run_id"], peaked, calibrated(rows, peaked, sheet))
