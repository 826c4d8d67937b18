"""How much slower each unit of a kind is than the others in a class of cases, with what it is uncertain by.

log time = case + unit: the case's part is the median over the units, the unit's a weighted mean over the
cases of its class in which single odd cases count less (Huber).
"""

from __future__ import annotations

import warnings
from typing import cast

import numpy as np
import numpy.typing as npt
import pandas as pd

from bench.fleet.null import MANY, qn

Floats = npt.NDArray[np.float64]

LEAST_UNITS_OF_CASE = 3
"""A case on fewer units is compared with nothing."""
HALF_SE = 1.96
"""A 95 % interval has so many standard errors on each side."""
HUBER = 2.0
"""A case farther from its unit's mean than so many standard deviations counts less."""
PRIOR = 6
"""A unit's own scatter between cases is worth its count of cases, the scatter usual for a class this many."""
LEAST_SE = 1e-4
"""No median is known more exactly, ln."""
MOST_WEIGHT = 4.0
"""How many times the noise of the quietest case a case can have before it counts for more than it should."""
ROUNDS = 10


def class_effects(times: pd.DataFrame, run_sd: float) -> pd.DataFrame:
    """The effects of the units in these rows: newest times of one kind and class, all alone or all together.

    By unit: `effect` (ln of its time over the others', the median unit at 0) and `se` (its standard error:
    between cases, and between runs where there are several). `run_sd` is the noise between runs. Columns
    needed: unit, case, log_s, half.
    """
    table = times.pivot(index="unit", columns="case", values=["log_s", "half"])
    log_s, half = (table[name].to_numpy(dtype=np.float64) for name in ("log_s", "half"))
    there = np.isfinite(log_s)
    use = there.sum(axis=0) >= LEAST_UNITS_OF_CASE
    log_s, half, there = log_s[:, use], half[:, use], there[:, use]
    known = there.any(axis=1)
    log_s, half, there = log_s[known], half[known], there[known]
    if not known.any():
        return pd.DataFrame(columns=["effect", "se"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # units without a case, cases without a half
        noise = _case_noise(log_s, half)
        effect, residual, weight = _polished(log_s, noise)
    cases = there.sum(axis=1)
    scatter = np.nansum((residual / noise) ** 2, axis=1)
    moderated = (PRIOR + scatter) / (PRIOR + np.maximum(cases - 1, 0))
    se = np.hypot(np.sqrt(moderated / weight.sum(axis=1)), run_sd)
    return pd.DataFrame({"effect": effect, "se": np.maximum(se, LEAST_SE)}, table.index[known].astype(str))


def _case_noise(log_s: Floats, half: Floats) -> Floats:
    """[case] standard deviation of a case's time around what the unit's other cases say.

    At least what its published interval says, but many units cannot all be closer together than their noise:
    then the interval is too wide.
    """
    measured = np.nan_to_num(np.nanmedian(half, axis=0), nan=LEAST_SE) / HALF_SE
    count = log_s.shape[1]
    rough = log_s - np.nanmedian(log_s, axis=0)
    if len(rough) >= MANY:
        measured = np.minimum(measured, [qn(column[np.isfinite(column)]) for column in rough.T])
    between = np.zeros(count)
    for case in range(count if count > 1 else 0):
        others = np.nanmedian(np.delete(rough, case, axis=1), axis=1)
        apart = (rough[:, case] - others)[np.isfinite(rough[:, case] - others)]
        # the others' median has noise of its own: that of one case for one other, less for more
        between[case] = qn(apart) / np.sqrt(1 + 1 / (count - 1)) if len(apart) > 1 else 0.0
    noise = np.maximum(np.maximum(measured, np.nan_to_num(between)), LEAST_SE)
    return cast(Floats, np.maximum(noise, noise.max() / MOST_WEIGHT))


def _polished(log_s: Floats, noise: Floats) -> tuple[Floats, Floats, Floats]:
    """Effect [unit], residual [unit, case], weight [unit, case]; NaN where a unit lacks a case."""
    unit = np.nanmedian(log_s - np.nanmedian(log_s, axis=0), axis=1)
    there = np.isfinite(log_s)
    for _ in range(ROUNDS):
        case = np.nanmedian(log_s - unit[:, None], axis=0)
        residual = log_s - case - unit[:, None]
        far = np.abs(residual) / noise
        weight = np.where(there, np.where(far > HUBER, HUBER / far, 1.0) / noise**2, 0.0)
        step = np.nansum(weight * np.nan_to_num(residual), axis=1) / weight.sum(axis=1)
        unit = unit + step
        unit -= np.median(unit)
    case = np.nanmedian(log_s - unit[:, None], axis=0)
    return unit, log_s - case - unit[:, None], weight


def run_noise(times: pd.DataFrame) -> float:
    """Standard deviation of a unit's effect from one run to the next, ln; 0 if no unit was measured twice.

    Of rows of one kind and class, all alone or all together. What all units have in common, as after an
    update, is no noise; what a few do, as when one breaks, does not move a robust deviation.
    """
    ordered = times.sort_values("utc", kind="stable")
    step = ordered.groupby(["unit", "case"], observed=True)["log_s"].diff()
    steps = ordered.assign(step=step)[step.notna()]
    if steps.empty:
        return 0.0
    steps = steps.assign(
        step=steps["step"] - steps.groupby("case", observed=True)["step"].transform("median")
    )
    by_unit = steps.groupby(["unit", "run_id"], observed=True)["step"].mean().to_numpy()
    sd = qn(by_unit[-2000:]) / np.sqrt(2)
    return float(sd) if np.isfinite(sd) else 0.0
