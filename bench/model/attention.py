"""What attention in one pass takes on a GPU: two products and a softmax, tile by tile, and other kernels.

A program computes the output of 128 rows of queries (64 if there are no more) of one head and walks along
its keys in steps of 64. With `packs` its rows are those of all heads that share a head of keys. Where there
is one query, all implementations pack, and split the keys so that all SMs have work. In seconds and bytes:

    multiply = 4 rows * 64 * width / (rate * peak / SMs)
    softmax  = rows * 64 * (1 / special functions a clock + instructions / 128) / clock
    step     = (multiply^2 + softmax^2)^(1/2)
    tile     = steps * step + exposed * (multiply + softmax - step) + tile_s
    compute  = max(longest tile, all tiles / SMs + TAIL * longest tile * share of SMs in use)
    t        = t0 + start_s + (compute^p + memory^p)^(1/p) + beside * bytes beside / bandwidth

Peak, bandwidths, t0 and the exponent p are those of matrix products (bench/model/tile_wave.py). The exponent
of a step says that softmax and products overlap, but not wholly; the `exposed` steps of a tile, the first
and under a causal mask those on the diagonal, do not. Bytes other than q, k, v and o are what the
implementation moves besides, such as new keys and values that are copied to a cache. Five numbers and `packs`
are of the implementation: fitted to a few of its rows, which are not scored, or else priors that all share.

Where it comes from: public timings of FlashAttention 2, 3 and 4 and of TensorRT-LLM's kernels
(docs/predictions.md). Relatives: the count of softmax's cost relative to the products' in FlashAttention-3
(Shah et al., 2024, section 3.1).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from bench.model.calibration import Calibration, fit_numbers
from bench.model.implementation_factors import mark
from bench.model.roofline import Floats
from bench.model.tile_wave import MOST_OVERLAP, MOSTLY_EMPTY, OVERLAP_STEPS, Machine, memory_terms

if TYPE_CHECKING:
    import pandas as pd

    from bench.device.datasheet import Datasheet

TILE_ROWS, FEW_ROWS, STEP_KEYS = 128, 64, 64
VECTOR_LANES = 128
"""Instructions that an SM finishes in one clock, for as many threads."""
TAIL = 0.5
"""How much of its longest tile a device waits for at the end: longer tiles begin first, and tiles differ."""
LEAST_ROWS = 16
"""Rows of a kind from which a part is designated to fit its numbers."""
MOST_DESIGNATED = 32
"""Rows that are designated at most; else a quarter."""


SPECIAL_PER_CLOCK = 16
"""Special functions that an SM finishes in one clock, since Volta (CUDA C++ Programming Guide, 8.4.1)."""
MORE_SPECIAL = {(10, 3): 32}
"""Compute capability -> the same where it differs: Blackwell Ultra has twice as many (NVIDIA, "Making Softmax
More Efficient with NVIDIA Blackwell Ultra")."""
UNFUSED = ("math", "unfused")
"""Implementations of attention that write the scores to memory: not in one pass."""


@dataclass(frozen=True)
class Kernel:
    """What an implementation is on a device."""

    rate: float
    """Share of the matrix products' rate that its products reach."""
    instructions: float
    """Vector instructions for each score in addition to its exponential: scale, maximum, sum, conversion."""
    start_s: float
    """What a launch takes on top of the launch floor: further kernels, the scheduling of tiles."""
    tile_s: float
    """Beginning and ending a tile."""
    beside: float
    """How many times longer the other kernels' bytes take than the bandwidth allows."""
    packs: bool = False


PRIOR = Kernel(rate=0.95, instructions=5.0, start_s=5e-6, tile_s=2e-6, beside=2.0)
"""Shared by all devices and implementations: rounded geometric means of the fits to the public tables."""
SPREAD = {"rate": 0.2, "instructions": 0.7, "start_s": 0.7, "tile_s": 0.7, "beside": 0.4}
"""Field of Kernel -> how far a fit may draw it from PRIOR: the standard deviation of its logarithm."""


class Softmax(NamedTuple):
    """What a device has for a softmax."""

    clock_hz: float
    special_per_clock: float
    """Special functions that an SM finishes in one clock."""


@dataclass(frozen=True)
class AttentionLaunches:
    """Launches to predict, each an array [n]."""

    batch: Floats
    heads: Floats
    kv_heads: Floats
    queries: Floats
    keys: Floats
    width: Floats
    causal: npt.NDArray[np.bool_]
    byte: Floats
    """q, k, v and o."""
    beside: Floats
    """What is moved besides."""
    working_set: Floats
    """Bytes that launches go through before they come back to the same data."""

    def only(self, rows: npt.NDArray[np.int64]) -> AttentionLaunches:
        """The launches at these places."""
        return AttentionLaunches(**{name: getattr(self, name)[rows] for name in self.__dataclass_fields__})


class PredictedAttention(NamedTuple):
    """Predicted launches, each an array [n], in seconds."""

    seconds: Floats
    start_s: Floats
    compute_s: Floats
    """Products and softmax, with tiles and waves."""
    memory_s: Floats
    """Moving all bytes, those of other kernels included."""
    cache_share: Floats
    """Part of the time for q, k, v and o that is spent on what the cache holds."""
    used: Floats
    """Share of compute_s in which the SMs have a tile, 0 to 1."""
    softmax_share: Floats
    """Softmax's time for a step over the products'."""

    @property
    def bound_by(self) -> list[str]:
        """The largest term; of computing, whether SMs without a tile, the softmax or the products are it."""
        names = np.where(self.softmax_share > 1.0, "special functions", "compute").astype(object)
        names = np.where(self.used < MOSTLY_EMPTY, "wave tail", names)
        of_memory = np.where(self.cache_share > 0.5, "L2", "memory").astype(object)
        names = np.where(self.memory_s > self.compute_s, of_memory, names)
        names = np.where(self.start_s >= np.maximum(self.memory_s, self.compute_s), "launch", names)
        return [str(name) for name in names]


def predict(machine: Machine, softmax: Softmax, kernel: Kernel, of: AttentionLaunches) -> PredictedAttention:
    """What launches take on this machine, which is that of their data type."""
    decoding = of.queries == 1
    group = np.where(kernel.packs | decoding, of.heads / of.kv_heads, 1.0)
    packed_rows = of.queries * group
    rows = np.where(packed_rows <= FEW_ROWS, FEW_ROWS, TILE_ROWS)
    tiles = np.ceil(packed_rows / rows)
    programs = of.batch * of.heads / group * tiles
    longest = np.ceil(of.keys / STEP_KEYS)
    parts = np.where(decoding, np.clip(np.floor(machine.sm_count / programs), 1.0, longest), 1.0)
    longest, programs = np.ceil(longest / parts), programs * parts
    # The tiles of a head under a causal mask: each sees the keys up to its last query, the last one all.
    steps, before = rows / group / STEP_KEYS, tiles - 1.0
    triangle = before * ((before + 1.0) * steps + np.maximum(0.0, 1.0 - steps)) / 2.0 + longest
    mean_steps = np.where(of.causal & ~decoding, triangle / tiles, longest)

    multiply_s = 4.0 * rows * STEP_KEYS * of.width / (kernel.rate * machine.flop_per_s / machine.sm_count)
    clocks = 1.0 / softmax.special_per_clock + kernel.instructions / VECTOR_LANES
    softmax_s = rows * STEP_KEYS * clocks / softmax.clock_hz
    step_s = np.maximum(np.hypot(multiply_s, softmax_s), machine.step_s)
    exposed = np.minimum(longest, np.where(of.causal, rows / STEP_KEYS, 1.0))
    tile_s = kernel.tile_s + exposed * np.maximum(0.0, multiply_s + softmax_s - step_s)
    longest_s = longest * step_s + tile_s
    share = programs / machine.sm_count
    tiles_s = share * (mean_steps * step_s + tile_s)
    compute_s = np.maximum(longest_s, tiles_s + TAIL * longest_s * np.minimum(1.0, share))

    drawing = np.minimum(1.0, share)
    memory_s, in_cache_s = memory_terms(machine, of.byte, of.working_set, drawing)
    beside_s, _ = memory_terms(machine, of.beside, of.working_set, np.ones_like(drawing))
    exponent = np.minimum(1.0 + longest * np.maximum(1.0, share) / OVERLAP_STEPS, MOST_OVERLAP)
    longer, shorter = np.maximum(compute_s, memory_s), np.minimum(compute_s, memory_s)
    both_s = longer * (1.0 + (shorter / longer) ** exponent) ** (1.0 / exponent)
    start_s = np.full_like(both_s, machine.launch_s + kernel.start_s)
    return PredictedAttention(
        seconds=start_s + both_s + kernel.beside * beside_s,
        start_s=start_s,
        compute_s=compute_s,
        memory_s=memory_s + kernel.beside * beside_s,
        cache_share=in_cache_s / memory_s,
        used=tiles_s / compute_s,
        softmax_share=softmax_s / multiply_s,
    )


def fit(machine: Machine, softmax: Softmax, of: AttentionLaunches, seconds: Floats) -> Kernel:
    """The kernel whose predictions come nearest to these times, not far from PRIOR; packed or not."""

    def predicted(kernel: Kernel) -> Floats:
        return predict(machine, softmax, kernel, of).seconds

    starts, at_start = (PRIOR, replace(PRIOR, packs=True)), [np.zeros(len(SPREAD))]
    fits = [fit_numbers(start, SPREAD, predicted, seconds, at_start) for start in starts]
    return min(fits, key=lambda fit: fit[1])[0]


def designated(predicted_s: Floats) -> npt.NDArray[np.int64]:
    """Which rows of a kind its numbers are fitted to: evenly by what they are predicted to take."""
    count = min(MOST_DESIGNATED, len(predicted_s) // 4)
    order = np.argsort(predicted_s, kind="stable")
    return np.asarray(order[((np.arange(count) + 0.5) * len(order) / count).astype(int)])


# ---- the rows of a run


def in_one_pass(rows: pd.DataFrame) -> pd.Series:
    """Which rows are attention's forward pass without its scores in memory."""
    if "direction" not in rows:
        return rows["operator"].isna()
    forward = (rows["operator"] == "attention") & (rows["direction"] == "forward")
    return forward & ~rows["implementation"].isin(UNFUSED)


def predict_attention(
    predictions: pd.DataFrame,
    rows: pd.DataFrame,
    by: Sequence[Calibration],
    sheet: Datasheet | None,
    working_set: Floats,
) -> None:
    """L2-priors and L2 of attention in one pass, where its data type's products are calibrated.

    `predictions` has the columns of `predict.structured` for all rows of a run, `rows` are those to predict,
    `by` the calibrations without a fit and fitted, `working_set` the bytes that each row's launches go
    through.
    """
    if not (len(rows) and by and sheet and sheet.boost_clock_hz):
        return
    softmax = Softmax(sheet.boost_clock_hz, special_per_clock(sheet))
    kinds = rows.groupby(["dtype", "implementation", rows["causal"].eq(True)], sort=False)
    of_row = _launches(rows, working_set)
    for (dtype, _, _), kind in kinds:
        machines = [calibration.machine for known in by if (calibration := known.of(str(dtype)))]
        if not machines:
            continue
        launches = of_row.only(rows.index.get_indexer(kind.index))
        plain = predict(machines[0], softmax, PRIOR, launches)
        answer = plain
        timed = np.flatnonzero(kind["median_s"].gt(0) & ~predictions.loc[kind.index, "calibrating"])
        if len(machines) > 1 and len(timed) >= LEAST_ROWS:
            chosen = timed[designated(plain.seconds[timed])]
            seconds = kind["median_s"].to_numpy(dtype=float)[chosen]
            kernel = fit(machines[-1], softmax, launches.only(chosen), seconds)
            answer = predict(machines[-1], softmax, kernel, launches)
            mark(predictions, kind, kind.iloc[chosen])
        predictions.loc[kind.index, "priors_s"] = plain.seconds
        predictions.loc[kind.index, "structured_s"] = answer.seconds
        predictions.loc[kind.index, "structured_limiter"] = answer.bound_by


def _launches(rows: pd.DataFrame, working_set: Floats) -> AttentionLaunches:
    names = ("batch", "heads", "kv_heads", "head_width", "q_length", "byte")
    batch, heads, kv_heads, width, queries, byte = (rows[name].to_numpy(dtype=float) for name in names)
    keys = rows["kv_length"].to_numpy(dtype=float) if "kv_length" in rows else queries
    return AttentionLaunches(
        **{"batch": batch, "heads": heads, "kv_heads": kv_heads, "width": width},
        queries=queries,
        keys=np.where(np.isnan(keys), queries, keys),
        causal=rows["causal"].eq(True).to_numpy(),
        byte=byte,
        beside=rows["byte_moved"].to_numpy(dtype=float) - byte,
        working_set=working_set,
    )


def special_per_clock(sheet: Datasheet) -> int:
    """Special functions that an SM of this device finishes in one clock."""
    return MORE_SPECIAL.get(sheet.capability or (0, 0), SPECIAL_PER_CLOCK)
