"""The GPUs that results tell of: each run with its ceilings and calibrations, and how far one predicts
another."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bench.errors import UserError
from bench.model.calibration import Calibration
from bench.model.ceilings import Ceilings
from bench.model.predict import calibrated, products, stated_tile, unfitted
from bench.model.residual import Sample
from bench.model.roofline import Floats
from bench.model.scale_to_device import dtype_on, transferred

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

    @property
    def samples(self) -> Mapping[str, Sample]:
        """dtype -> what its calibration shapes leave of its L2, where there is a fit."""
        by = self.calibrations[-1]
        return {
            calibration.dtype: calibration.sample
            for calibration in (by, *by.others.values())
            if calibration.sample
        }

    @cached_property
    def _scored(self) -> pd.DataFrame:
        rows = self.rows
        sound = rows["product_m"].notna() & (rows["status"] == "ok") & (rows["median_s"] > 0)
        # A launch that is held to a tile is no example of what the quickest of many takes.
        names = zip(rows["implementation"], rows["configuration"], strict=True)
        free = np.array([stated_tile(*name) is None for name in names], dtype=bool)
        return rows[sound & (rows["role"] == "measurement") & free]

    def errors(self, by: Calibration) -> Errors | None:
        """Errors of a calibration, its own or another's scaled to it, on the run's products of its type.

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


def nearest(known_runs: Sequence[Known], wanted: Datasheet) -> Known | None:
    """The run that predicts a device: its own if there is one, ours before others', else of the most similar.

    Likest: of the same major compute capability if any is; then what an SM multiplies and what it draws
    from memory differ least, in logarithms. None of none.
    """

    def unlike(known: Known) -> tuple[bool, bool, float, bool]:
        same = known.sheet.name == wanted.name
        major = [sheet.capability[0] if sheet.capability else None for sheet in (known.sheet, wanted)]
        return not same, major[0] != major[1], _distance(known, wanted), bool(known.imported)

    return min(known_runs, key=unlike, default=None)


def _distance(known: Known, wanted: Datasheet) -> float:
    per_sm = []
    dtype = dtype_on(known.unfitted.dtype if known.unfitted else "", wanted)
    for sheet in (known.sheet, wanted):
        peak = sheet.peak_flop_per_s("matrix", dtype)
        if not peak or not sheet.bandwidth_byte_per_s:
            return math.inf
        per_sm.append(
            (math.log(peak / sheet.sm_count), math.log(sheet.bandwidth_byte_per_s / sheet.sm_count))
        )
    return math.dist(*per_sm)


def transfers(known_runs: Sequence[Known], of: Known) -> Mapping[str, Errors]:
    """Device -> errors of `of`'s calibration on it, scaled by datasheets; its own device as it is."""
    by_device = {}
    for other in known_runs:
        by = of.calibrations[-1]
        if other.sheet.name != of.sheet.name:
            try:
                by = transferred(by, of.sheet, other.sheet)
            except UserError:
                continue
        if errors := other.errors(by):
            by_device[other.device_name] = errors
    return by_device
