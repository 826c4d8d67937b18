"""The levels of prediction of all rows of a run: the roofline, and structure on top of it.

    L0  datasheet   max(FLOP / peak, bytes / bandwidth), as the maker states them
    L1  calibrated  t0 + max(FLOP / peak, bytes / bandwidth), as the run's ceilings were measured
    L2  structure   a GPU's matrix products: tiles, waves, split K, caches (bench/model/tile_wave.py)
                    all else: kernels * t0 + max(FLOP / peak, bytes by where they lie / bandwidth there,
                    special functions / the units for them)
    L3  learned     from timings of many GPUs, with the interval of nine in ten (bench/model/pooled.py)

L2 says by what a launch is bound: launch, compute, memory, L2 (a CPU's: cache), wave tail, special functions.
Of a GPU's matrix products its constants are fitted to calibration shapes; L2-priors is L2 with nothing
fitted: measured ceilings, shared priors. A CPU's matrix products have no tiles that we know.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from bench.case_name import row_name
from bench.model import calibration, tile_wave
from bench.model.calibration import Calibration
from bench.model.ceiling import Ceiling
from bench.model.ceilings import Ceilings
from bench.model.quantization import forced_tile
from bench.model.roofline import (
    WITHOUT_ROOF,
    Floats,
    calibrated_columns,
    calibrated_row,
    datasheet_s,
    of_roof,
    row_traffic,
    rows_traffic,
)
from bench.model.tile_wave import MOSTLY_EMPTY, Machine, Products, resident
from bench.spec import ITEM_BYTE, PACKED

if TYPE_CHECKING:
    import pandas as pd

    from bench.device.datasheet import Datasheet
    from bench.store.schema import Measurement

LEVELS: Mapping[str, str] = {
    "L0": "datasheet_s",
    "L1": "predicted_s",
    "L2": "structured_s",
    "L3": "learned_s",
    "L2-priors": "priors_s",
}
"""Level -> the column of seconds that it predicts."""
LEARNED = ("learned_s", "learned_low_s", "learned_high_s")
"""Columns of L3: expected seconds, and the ends of the interval that holds nine launches in ten. Filled by
`bench.judge.timings.with_learned`."""
SPECIAL_PER_CLOCK = 16
"""Special functions that an SM finishes in one clock, since Volta (CUDA C++ Programming Guide, 8.4.1)."""
MORE_SPECIAL = {(10, 3): 32}
"""Compute capability -> the same where it differs: Blackwell Ultra has twice as many (NVIDIA, "Making Softmax
More Efficient with NVIDIA Blackwell Ultra")."""
_STATED_TILE = re.compile(r"\b([1-9][0-9]*)x([1-9][0-9]*)x[1-9][0-9]* w[0-9]+ s[0-9]+")


def add_rooflines(rows: pd.DataFrame, roof: Callable[[str], Ceilings], sheet: Datasheet | None) -> None:
    """Add the columns `datasheet_s` (L0), `predicted_s` and `limiter` (L1); NaN and "" where it cannot say.

    `rows`, `roof` and `sheet` as `structured` takes them.
    """
    rows["predicted_s"], rows["limiter"] = np.nan, ""
    for how, here in rows.groupby("condition", sort=False):
        counts = here["flop"], *rows_traffic(here), here["arithmetic"], here["dtype"]
        seconds, terms = calibrated_columns(*counts, roof(str(how)), _beside(here))
        rows.loc[here.index, "predicted_s"], rows.loc[here.index, "limiter"] = seconds, terms
    stated = zip(rows["flop"], rows["byte"], rows["arithmetic"], rows["dtype"], strict=True)
    rows["datasheet_s"] = np.array([datasheet_s(*each, sheet) or np.nan for each in stated], dtype=float)


def structured(
    rows: pd.DataFrame,
    roof: Callable[[str], Ceilings],
    sheet: Datasheet | None,
    given: Sequence[Calibration] | None = None,
) -> pd.DataFrame:
    """Columns `structured_s`, `structured_limiter`, `priors_s` and `calibrating` of one run's rows.

    `rows` has the columns of a result file, and `condition`; `roof` gives the ceilings of one. `given`,
    without a fit and fitted, stands in for what the rows themselves would be calibrated by. NaN and "" where
    a level cannot say.
    """
    import pandas as pd

    predictions = pd.DataFrame(
        {
            "structured_s": np.nan,
            "structured_limiter": "",
            "priors_s": np.nan,
            "calibrating": rows["role"] != "measurement",
        },
        index=rows.index,
    )
    gpu = (rows["device_kind"] == "cuda") & (rows["arithmetic"] == "matrix") & rows["product_m"].notna()
    for how, of_condition in rows.groupby("condition", sort=False):
        ceilings = roof(str(how))
        of_gpu = of_condition[gpu[of_condition.index]]
        of_products = given
        if of_products is None:
            of_products = calibrated(of_condition, ceilings, sheet) if len(of_gpu) else ()
        for column, by in zip(("priors_s", "structured_s"), of_products, strict=False):
            _predict_products(predictions, column, of_gpu, by)
        others = ~gpu[of_condition.index] & ~of_condition["arithmetic"].isin(WITHOUT_ROOF)
        _predict_others(predictions, of_condition[others], ceilings, sheet)
        # Nothing but products is fitted, and a fit of one data type says nothing of another's.
        plain = of_condition.index.difference(of_gpu.index if len(of_products) == 2 else [])
        predictions.loc[plain, "structured_s"] = predictions["priors_s"]
        predictions.loc[of_gpu.index, "calibrating"] |= _as_shapes(of_gpu)
    return predictions


# ---- matrix products of a GPU


def calibrated(rows: pd.DataFrame, ceilings: Ceilings, sheet: Datasheet | None) -> tuple[Calibration, ...]:
    """(without a fit, fitted) for the rows of one run and condition.

    The second only where enough calibration shapes have a time; none without a product's ceilings. What it
    says of data types other than the one with the most shapes is among its `others`.
    """
    plain = unfitted(rows, ceilings, sheet)
    if plain is None:
        return ()
    fits = {
        dtype: _fitted(start, shapes)
        for dtype, shapes in _shapes(rows).items()
        if len(shapes) >= calibration.LEAST_SHAPES and (start := plain.of(dtype)) is not None
    }
    fitted = fits.pop(plain.dtype, None)
    return (plain, replace(fitted, others=fits)) if fitted else (plain,)


def _fitted(start: Calibration, shapes: pd.DataFrame) -> Calibration:
    of, seconds = products(shapes), shapes["median_s"].to_numpy(dtype=float)
    machine = calibration.fit(start.machine, of, seconds)
    return replace(start, machine=machine, fitted=True, shapes=len(shapes))


def unfitted(rows: pd.DataFrame, ceilings: Ceilings, sheet: Datasheet | None) -> Calibration | None:
    """Measured ceilings and shared priors; None without peak, bandwidth, SMs or cache.

    For the data type of most calibration shapes; `others` holds those of every other measured peak.
    """
    shapes = _shapes(rows)
    dtype = next(iter(shapes), "") or _commonest(rows, ceilings)
    sm_count, cache_byte = int(rows["sm_count"].iloc[0]), int(rows["cache_byte"].iloc[0])
    if not sm_count or not cache_byte:
        return None
    run_name = f"{rows['device_name'].iloc[0]}, run {rows['run_id'].iloc[0]}"
    calibrations = {}
    for kind in (dtype, *(of for unit, of in ceilings.peak_flop_per_s if unit == "matrix" and of != dtype)):
        start = calibration.started(ceilings, kind, sm_count, cache_byte, sheet)
        if start is not None and ceilings.launch is None and kind in shapes:
            seconds = shapes[kind]["median_s"].to_numpy(dtype=float)
            start = calibration.with_launch(start, products(shapes[kind]), seconds)
        if start is not None:
            calibrations[kind] = Calibration(
                start, kind, _peaks(ceilings, kind, sheet), fitted=False, said=run_name
            )
    plain = calibrations.pop(dtype, None)
    return replace(plain, others=calibrations) if plain else None


def _shapes(rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """dtype -> the timed calibration shapes; the type of most shapes first."""
    timed = rows[(rows["role"] == "calibration") & rows["product_m"].notna() & (rows["median_s"] > 0)]
    return {str(of): timed[timed["dtype"] == of] for of in timed["dtype"].value_counts().index}


def _as_shapes(rows: pd.DataFrame) -> np.ndarray:
    """Which rows have the product and data type of a calibration shape: what was learned is no test of it."""
    same = ["dtype", "product_m", "product_n", "product_k"]
    keys = rows[same].apply(tuple, axis=1) if len(rows) else rows["dtype"]
    known = set(keys[(rows["role"] == "calibration") & (rows["median_s"] > 0)])
    return keys.isin(known).to_numpy(dtype=bool)


def _peaks(ceilings: Ceilings, dtype: str, sheet: Datasheet | None) -> dict[str, float]:
    """Matrix peaks by data type. One that was not measured reaches the share of its stated peak that `dtype`
    does."""
    peaks = {kind: c.per_s for (unit, kind), c in ceilings.peak_flop_per_s.items() if unit == "matrix"}
    whole = sheet.peak_flop_per_s("matrix", dtype) if sheet else None
    if sheet is None or not whole:
        return peaks
    stated = {kind: sheet.peak_flop_per_s("matrix", kind) for kind in ITEM_BYTE}
    return {kind: peaks[dtype] * per_s / whole for kind, per_s in stated.items() if per_s} | peaks


def completed(ceilings: Ceilings, rows: Iterable[Measurement]) -> Ceilings:
    """The ceilings of a run that has no probes of memory and launch, with what its calibration shapes say
    instead.

    Imported timings are such runs. Memory: the highest rate among the shapes of twice the last-level cache
    and more; of reading, as such shapes write next to nothing. Launch: the quickest shape. `rows` are those
    of one run and condition.
    """
    if ceilings.bandwidth_byte_per_s or ceilings.launch_s is not None:
        return ceilings
    shapes = [
        (row, row.median_s) for row in rows if row.role == "calibration" and row.is_timed and row.median_s
    ]
    if not shapes:
        return ceilings
    rates = [(row.byte / seconds, row) for row, seconds in shapes if row.byte >= 2 * row.cache_byte]
    bandwidth = {}
    if rates:
        highest, best = max(rates, key=lambda rate: rate[0])
        bandwidth = {0.0: Ceiling(highest, highest, highest, row_name(best))}
    launch_s = min(seconds for _, seconds in shapes)
    return replace(ceilings, bandwidth_byte_per_s=bandwidth, launch_s=launch_s)


def reached(row: Measurement, ceilings: Ceilings) -> float | None:
    """The share of the roof that a row reached: L1's, but for what the cache held.

    Bytes that launches find in the last-level cache are compared with its bandwidth.
    Without a ceiling of the cache there is no share of memory's that would mean anything: None.
    """
    roof = calibrated_row(row, ceilings)
    if roof is None or ceilings.launch_s is None:
        return None
    working_set = row.ring_byte or row.byte
    warm = row.cache == "warm" and not row.flushed
    inside = float(resident(working_set, max(row.cache_byte, 1))) if warm else 0.0
    byte, write_share = row_traffic(row)
    rate = ceilings.cached_byte_per_s(working_set)
    per_byte_s = ceilings.second_per_byte(write_share)
    if inside and rate is None and roof.bound_by == "memory":
        return None
    if not inside or rate is None or per_byte_s is None:
        return of_roof(row.median_s, roof.seconds)
    peak = ceilings.peak(row.arithmetic, row.dtype)
    compute_s = row.flop / peak if peak else 0.0
    moving_s = inside * byte / float(rate) + (1.0 - inside) * byte * float(per_byte_s)
    return of_roof(row.median_s, ceilings.launch_s + max(compute_s, moving_s))


def _commonest(rows: pd.DataFrame, ceilings: Ceilings) -> str:
    """The data type of most products that has a peak."""
    counts = rows.loc[rows["product_m"].notna(), "dtype"].value_counts()
    return next((str(kind) for kind in counts.index if ceilings.peak("matrix", str(kind))), "")


def products(rows: pd.DataFrame) -> Products:
    """The rows' matrix products, as the model of tiles takes them. All must be some."""
    m, n, k = (rows[f"product_{side}"].to_numpy(dtype=float) for side in "mnk")
    item = np.array([ITEM_BYTE[dtype] / PACKED.get(dtype, 1) for dtype in rows["dtype"]], dtype=np.float64)
    byte, _ = rows_traffic(rows)
    quantizing = (rows["operator"] == "quantized_linear").to_numpy()
    beside = np.where(quantizing, (rows["byte_moved"] - rows["byte"]).to_numpy(dtype=float), 0.0)
    return Products(m, n, k, item, byte - beside, working_set(rows), beside)


def working_set(rows: pd.DataFrame) -> Floats:
    """Bytes that launches go through before they come back; infinite where the cache is flushed or cold."""
    ring = rows["ring_byte"].astype(float)
    known = ring.where(ring.notna(), rows["byte"].astype(float).where(rows["cache"] == "warm", np.inf))
    flushed = rows["flushed"].fillna(False).astype(bool)
    return np.asarray(known.mask(flushed, np.inf), dtype=np.float64)


def stated_tile(implementation: str, configuration: str) -> tuple[int, int] | None:
    """The tile that a row states, where each is computed by one program from its first step to its last."""
    if forced := forced_tile(implementation):
        return forced
    match = _STATED_TILE.search(configuration)
    shared = any(word in f"{implementation} {configuration}" for word in ("split", "stream"))
    return (int(match[1]), int(match[2])) if match and not shared else None


def _predict_products(predictions: pd.DataFrame, column: str, rows: pd.DataFrame, by: Calibration) -> None:
    tiles = [stated_tile(*pair) for pair in zip(rows["implementation"], rows["configuration"], strict=True)]
    keys = list(zip(rows["dtype"], tiles, strict=True))
    for key in dict.fromkeys(keys):
        of_dtype = by.of(str(key[0]))
        if of_dtype is None:
            continue
        own_rows = rows[[own == key for own in keys]]
        answer = of_dtype.predict(products(own_rows), key[1])
        predictions.loc[own_rows.index, column] = answer.seconds
        predictions.loc[own_rows.index, "structured_limiter"] = bound_by(of_dtype.machine, answer)


def bound_by(machine: Machine, answer: tile_wave.PredictedGemms) -> list[str]:
    """What binds each launch: the largest term; of computing, whether the empty places of waves do."""
    launch = machine.launch_s + np.where(answer.parts > 1, machine.split_s, 0.0)
    names = np.where(answer.used < MOSTLY_EMPTY, "wave tail", "compute").astype(object)
    of_memory = np.where(answer.cache_share > 0.5, "L2", "memory").astype(object)
    names = np.where(answer.memory_s > answer.compute_s, of_memory, names)
    names = np.where(launch >= np.maximum(answer.memory_s, answer.compute_s), "launch", names)
    return [str(name) for name in names]


# ---- everything else


def _predict_others(
    predictions: pd.DataFrame, rows: pd.DataFrame, ceilings: Ceilings, sheet: Datasheet | None
) -> None:
    byte, share = rows_traffic(rows)
    t0, second_per_byte = ceilings.launch_s, ceilings.second_per_byte(share)
    if t0 is None or second_per_byte is None or not len(rows):
        return
    # Kernels that one launch runs, as its captured graph says; 1 where it is unknown.
    kernels = rows["kernels"].astype(object).fillna("").str.count(";").to_numpy(dtype=float) + 1
    launch = t0 * kernels
    ring = working_set(rows)
    inside = resident(ring, max(float(rows["cache_byte"].iloc[0]), 1.0))
    held = ceilings.cached_byte_per_s(np.where(np.isfinite(ring), ring, 1.0))
    if held is None:
        inside, held = np.zeros_like(inside), np.ones_like(inside)
    in_cache, in_memory = inside * byte / held, (1.0 - inside) * byte * second_per_byte
    flop = rows["flop"].to_numpy(dtype=float)
    units = list(zip(rows["arithmetic"], rows["dtype"], strict=True))
    peaks = np.array([ceilings.peak(*unit) or (np.inf if unit[0] == "vector" else np.nan) for unit in units])
    compute = np.where(flop > 0, flop / peaks, 0.0)
    special = np.zeros_like(flop)
    if sheet is not None and sheet.boost_clock_hz and (rows["device_kind"] == "cuda").all():
        per_clock = MORE_SPECIAL.get(sheet.capability or (0, 0), SPECIAL_PER_CLOCK)
        rate = per_clock * sheet.sm_count * sheet.boost_clock_hz
        special = rows["special_functions"].astype(float).fillna(0.0).to_numpy() / rate
    moving, beside = in_cache + in_memory, _beside(rows)
    terms = np.stack([launch, moving, compute, special])
    seconds = launch + np.maximum.reduce([moving * (1 - beside), compute, special]) + moving * beside
    cache = "cache" if (rows["device_kind"] == "cpu").all() else "L2"
    names = np.array(["launch", "memory", "compute", "special functions"], dtype=object)[
        np.where(np.isfinite(terms), terms, 0.0).argmax(axis=0)
    ]
    names[(names == "memory") & (in_cache > in_memory)] = cache
    predictions.loc[rows.index, "priors_s"] = seconds
    predictions.loc[rows.index, "structured_limiter"] = np.where(np.isfinite(seconds), names, "")


def _beside(rows: pd.DataFrame) -> Floats:
    """The share of the bytes that is moved by kernels other than those with the arithmetic."""
    beside, moved = (rows[name].fillna(0).to_numpy(dtype=float) for name in ("byte_beside", "byte_moved"))
    return np.asarray(np.divide(beside, moved, out=np.zeros_like(beside), where=moved > 0))
