"""What the roofline predicts for one launch: from the datasheet, and from the ceilings of the same run.

    datasheet    t = max(flop / peak, byte / bandwidth)
    calibrated   t = t0 + max(flop / peak, traffic / bandwidth(write share))

A launch of several kernels, some with the arithmetic and others without (a layer), takes the traffic of the
others on top, since they run one after the other: a sum of maxima, with one maximum for all that multiply.

Seconds, FLOP, bytes. The launch floor t0 is added, not max-ed: replaying about 150,000 public GEMM
timings on five GPUs with the same ceilings, adding t0 beat max-ing it (mean error 12-25 % against
23-34 %; better on four, a tie on L40S).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from bench.model.ceilings import Ceilings

if TYPE_CHECKING:
    import pandas as pd

    from bench.device.datasheet import Datasheet
    from bench.store.schema import Measurement

Term = Literal["launch", "memory", "compute"]
"""The largest of the three terms t0, traffic / bandwidth and flop / peak, a tie in this order."""

TERMS: tuple[Term, ...] = ("launch", "memory", "compute")

LINK = "link"
"""The `arithmetic` of rows whose bytes cross the link to the host."""
WITHOUT_ROOF: Mapping[str, str] = {
    LINK: "its bytes cross the link to the host, whose bandwidth is not known",
    "latency": "its loads wait for each other, and no rate of the device bounds that",
    "unbounded": "caches serve it, or its work is not counted",
}
"""The `arithmetic` of rows that nothing known here bounds -> why."""

NEAR = 2.0
"""A time is near a term of the roofline if neither is more than so many times the other. Ours."""

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Prediction:
    """Seconds of one launch and what bounds it."""

    seconds: float
    bound_by: Term
    lower_bound_s: float
    """Without t0: no launch should take less, while t0 + max(...) is what one is expected to take."""


def of_roof(median_s: float | None, predicted_s: float | None) -> float | None:
    """Predicted / measured time: the share of the roof that was reached, 1 = on it.

    Never clipped: above 1 is news of a wrong count, a cache or a wrong roof. None without both times.
    """
    return predicted_s / median_s if median_s and predicted_s else None


def datasheet_s(
    flop: float, byte: float, arithmetic: str, dtype: str, datasheet: Datasheet | None
) -> float | None:
    """Seconds = max(flop / peak, byte / bandwidth) with stated numbers: no launch can take less.

    None without a datasheet, where it lacks a number the launch needs, and where nothing bounds a row.
    """
    if datasheet is None or arithmetic in WITHOUT_ROOF:
        return None
    peak = datasheet.peak_flop_per_s(arithmetic, dtype)
    bandwidth = datasheet.bandwidth_byte_per_s
    if (byte and not bandwidth) or (flop and not peak):
        return None
    return max(flop / peak if peak else 0.0, byte / bandwidth if bandwidth else 0.0)


def traffic(
    byte_moved: npt.ArrayLike,
    byte_again: npt.ArrayLike,
    moved_written: npt.ArrayLike,
    cache_byte: npt.ArrayLike,
) -> tuple[Floats, Floats]:
    """(bytes that reach memory at least, share of them that are written, 0 to 1) of one launch or of many.

    What is read again comes from the cache as far as that can hold what was moved until then. A cache may
    keep less, so this is a bound; the rest is moved whatever the cache.
    """
    moved, again, written, cache = (
        np.asarray(a, dtype=np.float64) for a in (byte_moved, byte_again, moved_written, cache_byte)
    )
    once = moved - again
    held = np.minimum(1.0, np.divide(cache, once, out=np.zeros_like(once), where=once > 0))
    byte = moved - again * held
    return byte, np.divide(written, byte, out=np.zeros_like(byte), where=byte > 0)


def row_traffic(row: Measurement) -> tuple[float, float]:
    """`traffic` of a row; one from before these parts were counted reads nothing again."""
    written = row.byte_written if row.moved_written is None else row.moved_written
    byte, share = traffic(row.byte_moved, row.byte_again or 0, written, row.cache_byte)
    return float(byte), float(share)


def rows_traffic(rows: pd.DataFrame) -> tuple[Floats, Floats]:
    """`traffic` of many rows, with the columns of a result file."""
    again = rows["byte_again"].astype(float).fillna(0.0)
    written = rows["moved_written"].astype(float).fillna(rows["byte_written"])
    return traffic(rows["byte_moved"], again, written, rows["cache_byte"])


def calibrated(
    flop: float,
    byte: float,
    write_share: float,
    arithmetic: str,
    dtype: str,
    ceilings: Ceilings,
    beside: float = 0.0,
) -> Prediction | None:
    """Seconds = t0 + max(flop / peak, byte / bandwidth(write_share)) and what bounds them.

    The share `beside` of the bytes is moved by kernels other than those with the arithmetic, and adds to
    them.

    `byte` reach memory, `write_share` of them written (see `traffic`). None if a ceiling that the launch
    needs was not measured; only vector arithmetic may go without a peak of its own and then has no compute
    term (its kernels are bound by memory).
    """
    flops, moved, share = (np.asarray(count, dtype=np.float64) for count in (flop, byte, write_share))
    terms = _terms(flops, moved, share, arithmetic, dtype, ceilings)
    if not np.isfinite(terms).all():
        return None
    seconds = float(_seconds(terms, np.asarray(beside)))
    lower_bound_s = seconds - float(terms[0])
    return Prediction(seconds, TERMS[int(terms.argmax(axis=0))], lower_bound_s)


def calibrated_row(row: Measurement, ceilings: Ceilings) -> Prediction | None:
    """`calibrated` for a row: with what it moves, on its units."""
    beside = (row.byte_beside or 0) / row.byte_moved if row.byte_moved else 0.0
    return calibrated(row.flop, *row_traffic(row), row.arithmetic, row.dtype, ceilings, beside)


def row_terms(row: Measurement, ceilings: Ceilings) -> tuple[float, float, float]:
    """Seconds of launch, memory and compute of a row; NaN where a ceiling that it needs was not measured."""
    flop, byte, share = (np.asarray([count], dtype=np.float64) for count in (row.flop, *row_traffic(row)))
    launch, memory, compute = _terms(flop, byte, share, row.arithmetic, row.dtype, ceilings)[:, 0].tolist()
    return launch, memory, compute


def largest_terms(terms: Floats) -> npt.NDArray[np.object_]:
    """What is predicted to bound launches of such terms [3, ...], in seconds; None if one is NaN."""
    return _where_known(terms, np.array(TERMS, dtype=object)[np.nan_to_num(terms).argmax(axis=0)])


def nearest_terms(seconds: npt.ArrayLike, terms: Floats) -> npt.NDArray[np.object_]:
    """What bounds launches by the times that they took: the nearest, as a ratio, of their terms [3, ...].

    `none` if one is near none of them (NEAR); None if one is NaN. A time above all terms is nearest to the
    largest, the predicted one: that something else bounds a launch shows as `none`.
    """
    far = np.full(terms.shape, np.inf)
    np.divide(seconds, terms, out=far, where=terms > 0)
    far = np.abs(np.log(far))
    nearest = np.array(TERMS, dtype=object)[far.argmin(axis=0)]
    return _where_known(terms, np.where(far.min(axis=0) <= np.log(NEAR), nearest, "none"))


def _where_known(terms: Floats, names: npt.ArrayLike) -> npt.NDArray[np.object_]:
    """These names, but None where a term is NaN."""
    named = np.array(names, dtype=object)
    named[~np.isfinite(terms).all(axis=0)] = None
    return named


def calibrated_columns(
    flop: npt.ArrayLike,
    byte: npt.ArrayLike,
    write_share: npt.ArrayLike,
    arithmetic: npt.ArrayLike,
    dtype: npt.ArrayLike,
    ceilings: Ceilings,
    beside: npt.ArrayLike = 0.0,
) -> tuple[Floats, npt.NDArray[np.str_]]:
    """`calibrated` for many launches of one run at once: seconds (NaN for None), bound_by ("" for None).

    All arguments are of one length n. About a million predictions a second on one core.
    """
    terms = terms_columns(flop, byte, write_share, arithmetic, dtype, ceilings)
    known = np.isfinite(terms).all(axis=0)
    bound_by = np.where(known, np.asarray(TERMS)[np.where(known, terms, 0.0).argmax(axis=0)], "")
    seconds = _seconds(terms, np.asarray(beside, dtype=np.float64))
    return np.where(known, seconds, np.nan), bound_by


def terms_columns(
    flop: npt.ArrayLike,
    byte: npt.ArrayLike,
    write_share: npt.ArrayLike,
    arithmetic: npt.ArrayLike,
    dtype: npt.ArrayLike,
    ceilings: Ceilings,
) -> Floats:
    """`row_terms` [3, n] of many launches, whose n arithmetics and data types may differ."""
    flops, moved, shares = (np.asarray(a, dtype=np.float64) for a in (flop, byte, write_share))
    arithmetics, dtypes = np.asarray(arithmetic, dtype=np.str_), np.asarray(dtype, dtype=np.str_)
    terms = np.full((3, flops.size), np.nan)
    for unit, kind in set(zip(arithmetics.tolist(), dtypes.tolist(), strict=True)):
        here = (arithmetics == unit) & (dtypes == kind)
        terms[:, here] = _terms(flops[here], moved[here], shares[here], unit, kind, ceilings)
    return terms


def _terms(
    flop: Floats, byte: Floats, write_share: Floats, arithmetic: str, dtype: str, ceilings: Ceilings
) -> Floats:
    """Seconds [3, n] of launch, memory and compute; NaN where a ceiling that is needed is missing.

    NaN too of memory for bytes that cross the link to the host: memory's bandwidth is not their roof.
    """
    t0 = ceilings.launch_s
    peak = ceilings.peak(arithmetic, dtype)
    second_per_byte = None if arithmetic in WITHOUT_ROOF else ceilings.second_per_byte(write_share)
    without_peak = 0.0 if arithmetic == "vector" else np.nan
    launch = np.full_like(flop, np.nan if t0 is None else t0)
    memory = np.nan if second_per_byte is None else byte * second_per_byte
    compute = without_peak if peak is None else flop / peak
    return np.stack([launch, np.where(byte == 0, 0.0, memory), np.where(flop == 0, 0.0, compute)])


def _seconds(terms: Floats, beside: Floats) -> Floats:
    launch, memory, compute = terms
    return np.asarray(launch + np.maximum(memory * (1 - beside), compute) + memory * beside)
