"""The GPU runs that calibrate the model of matrix products, and how far its predictions are off."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bench.model.calibration import Calibration
from bench.model.ceilings import Ceilings
from bench.model.predict import calibrated, products, stated_tile, unfitted
from bench.model.roofline import Floats

if TYPE_CHECKING:
    import pandas as pd

    from bench.device.datasheet import Datasheet


MOST = 4000
"""Products from which an error is taken: more change it by a tenth of a percent."""


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
    """One run on one GPU that calibrates the model of matrix products."""

    device_name: str
    run_id: str
    imported: str
    """The author of the measurement, if not roofbench."""
    rows: pd.DataFrame
    """The rows of the condition that has the ceilings."""
    ceilings: Ceilings
    sheet: Datasheet

    @cached_property
    def unfitted(self) -> Calibration | None:
        """Ceilings and priors; None where they do not suffice."""
        return unfitted(self.rows, self.ceilings, self.sheet)

    @cached_property
    def calibrations(self) -> tuple[Calibration, ...]:
        """Without a fit, and fitted where there are the shapes for it."""
        return calibrated(self.rows, self.ceilings, self.sheet)

    @cached_property
    def _scored(self) -> pd.DataFrame:
        rows = self.rows
        sound = rows["product_m"].notna() & (rows["status"] == "ok") & (rows["median_s"] > 0)
        # A launch that is held to a tile is no example of what the quickest of many takes.
        names = zip(rows["implementation"], rows["configuration"], strict=True)
        free = np.array([stated_tile(*name) is None for name in names], dtype=bool)
        return rows[sound & (rows["role"] == "measurement") & free]

    def errors(self, by: Calibration) -> Errors | None:
        """Errors of one of its calibrations on the run's products of its type.

        The shapes that calibrate are left out. Of many, MOST spread evenly over the rows. None without any.
        """
        rows = self._scored[self._scored["dtype"] == by.dtype]
        if not len(rows):
            return None
        rows = rows.iloc[np.linspace(0, len(rows) - 1, min(MOST, len(rows))).astype(int)]
        seconds = by.predict(products(rows)).seconds
        return Errors.of(seconds, rows["median_s"].to_numpy(dtype=float))


def known(
    rows: pd.DataFrame, ceilings: Ceilings, datasheet_of: Callable[[str], Datasheet | None]
) -> Known | None:
    """The rows of one GPU run under one condition as a calibration.

    `ceilings` are those that they are compared with. None without rows, a datasheet or a matrix product's
    ceilings.
    """
    sheet = datasheet_of(str(rows["device_name"].iloc[0])) if len(rows) else None
    if sheet is None:
        return None
    first = rows.iloc[0]
    imported = first["source"] if isinstance(first["source"], str) else ""
    run = Known(first["device_name"], first["run_id"], imported, rows, ceilings, sheet)
    return run if run.unfitted else None
