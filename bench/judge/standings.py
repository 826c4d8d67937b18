"""Standings: an implementation over the cases of a region, by one figure of each case.

    ratio   seconds of an opponent / seconds of ours; the opponent is the fastest of those named, or of all
            libraries if none is
    copy    (bytes that any implementation must move / seconds) / bandwidth of a copy in the same run: below
            1 also where more is moved, and possibly above 1 where most is read, which is faster than writing
    peak    (FLOP / seconds) / the datasheet's dense rate of matrix products of this data type

`python -m bench goals` holds them against bars, `duel` and `efficiency` list them. A problem that several
sweeps timed is one problem: its latest row counts, of those that no flag makes suspect. Each figure has a
95 % interval, of the rows' own combined as the root of the sum of squared logarithms.
"""

from __future__ import annotations

import json
import math
import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from bench.case_name import row_name
from bench.errors import UserError
from bench.judge.noise import OURS
from bench.model.roofline import WITHOUT_ROOF
from bench.spec import is_custom

if TYPE_CHECKING:
    import pandas as pd

    from bench.judge.frame import DeviceRun

Measure = Literal["ratio", "copy", "peak"]
PROBLEM = ["operator", "parameters"]
_NAME = [*PROBLEM, "sweep", "implementation", "cache", "threads_asked"]
"""Columns of which the name of a case is made."""
_JUDGED = [*_NAME, "dtype", "byte", "flop", "median_s", "half"]
"""Columns that a figure is made of. Selecting rows copies every column."""
LIBRARIES = ("cublas", "cublaslt")
"""The opponents of our GEMMs."""
ALL_16_BIT = "16-bit, all aligned"
CACHE_REGIONS = ("<= 1/2 cache", "<= 4 x cache", "> 4 x cache")
"""The bytes of a launch relative to the last-level cache."""
REGIONS = (
    *(f"16-bit {shape}" for shape in ("large", "large, short K", "middle", "small", "decode", "other")),
    *("float8 TN large", "float8 other", "int8 TN large", "int8 other", "tf32 TN large", "tf32 other"),
    *("float32 large", "float32 other", "float64", "mxfp8 large", "mxfp8 other", "nvfp4 large"),
    *("nvfp4 other", "unaligned", "batched"),
)
"""Regions of shapes of a GEMM, each with a goal of its own (goals.yaml), and the rest of each data type."""
_IN_16_BYTES = {
    **dict.fromkeys(("float16", "bfloat16"), (8, 8)),
    **dict.fromkeys(("tf32", "float32"), (4, 4)),
    **dict.fromkeys(("float8_e4m3", "float8_e5m2", "mxfp8"), (16, 8)),
    **{"float64": (2, 2), "nvfp4": (32, 8), "int8": (16, 4)},
}
"""Elements of an operand, and of the result, in 16 bytes: the alignment that a load or bulk copy needs."""
_TN_ONLY = ("float8", "int8", "tf32")
"""Data types whose large products have a goal in the layout that tensor cores read, TN, alone."""
_ORDER = (*REGIONS, ALL_16_BIT, *CACHE_REGIONS)


class CaseFigure(NamedTuple):
    """One case."""

    value: float
    low: float
    high: float
    """Ends of its 95 % interval; 0 and infinite where a time has none."""
    name: str
    """Name of our case."""
    parameters: str
    """JSON."""
    opponent: str = ""


@dataclass(frozen=True)
class Standing:
    """One implementation in one region."""

    operator: str
    kind: str
    """The parameters of the cases that are no numbers, `forward NHWC float16`; empty for a GEMM."""
    region: str
    implementation: str
    figures: tuple[CaseFigure, ...]
    """The lowest first; never empty."""

    @property
    def median(self) -> float:
        """The median figure."""
        return statistics.median(each.value for each in self.figures)

    @property
    def least(self) -> float:
        """The lowest figure."""
        return self.figures[0].value

    @property
    def most(self) -> float:
        """The highest figure."""
        return self.figures[-1].value

    @property
    def mean(self) -> float:
        """The geometric mean of the figures."""
        return math.exp(statistics.fmean(math.log(each.value) for each in self.figures))

    @property
    def ahead(self) -> float:
        """Share of the cases that are above 1 by more than the interval."""
        return sum(each.low > 1 for each in self.figures) / len(self.figures)

    @property
    def behind(self) -> float:
        """Share of the cases that are below 1 by more than the interval."""
        return sum(each.high < 1 for each in self.figures) / len(self.figures)


def median_ends(of: Sequence[CaseFigure]) -> tuple[float, float]:
    """The median of the lower ends and that of the upper ends, wider than the median's own interval."""
    return statistics.median(each.low for each in of), statistics.median(each.high for each in of)


def timed(run: DeviceRun, cache: str = "cold") -> pd.DataFrame:
    """The run's rows with a time and this cache, ceilings left out, with four columns more.

    `half` of the 95 % interval, |ln|, NaN where there is none; `suspect`; `words`, the kind, and `region`.
    """
    rows = run.columns
    rows = rows[(rows["median_s"] > 0) & (rows["cache"] == cache)]
    rows = rows[(rows["role"] == "measurement") & (rows["visit"] == 0)]
    below, above = rows["median_s"] / rows["low_s"], rows["high_s"] / rows["median_s"]
    half = np.log(np.maximum(below.to_numpy(), above.to_numpy()))  # NaN if either end is
    names = ("operator", "parameters", "byte", "cache_byte")
    places = [_place(*row) for row in zip(*(rows[name] for name in names), strict=True)]
    return rows.assign(
        half=np.where(half > 0, half, math.nan),
        suspect=run.suspect[rows.index],
        words=[words for words, _ in places],
        region=[region for _, region in places],
    )


def latest(rows: pd.DataFrame, sound: bool = True) -> pd.DataFrame:
    """The last row of each problem and implementation, of those that are not suspect if `sound`."""
    rows = rows[~rows["suspect"]] if sound else rows
    return rows.drop_duplicates([*PROBLEM, "implementation"], keep="last")


def _place(operator: str, parameters: str, byte: int, cache_byte: int) -> tuple[str, str]:
    given = json.loads(parameters)
    if operator == "gemm":
        return "", gemm_region(given)
    return " ".join(value for value in given.values() if isinstance(value, str)), region(byte, cache_byte)


def region(byte: int, cache_byte: int) -> str:
    """The region of a launch's bytes."""
    if byte <= cache_byte / 2:
        return CACHE_REGIONS[0]
    return CACHE_REGIONS[1] if byte <= 4 * cache_byte else CACHE_REGIONS[2]


def gemm_region(parameters: Mapping[str, Any]) -> str:
    """The region of a GEMM with these `m`, `n`, `k`, `layout`, `dtype`, and `pitch` and `batch` if given."""
    if parameters.get("batch", 1) > 1:
        return "batched"
    if not _aligned(parameters):
        return "unaligned"
    m, n, k, dtype = (parameters[name] for name in ("m", "n", "k", "dtype"))
    if dtype in ("float16", "bfloat16"):
        return f"16-bit {_shape(min(m, n), max(m, n), k)}"
    if dtype == "float64":
        return "float64"
    kind, large = dtype.partition("_")[0], min(m, n) >= 4096 and k >= 1024
    if kind in _TN_ONLY:
        return f"{kind} TN large" if large and parameters["layout"] == "TN" else f"{kind} other"
    return f"{kind} large" if large else f"{kind} other"


def _shape(short: int, long: int, k: int) -> str:
    if short <= 64 and long >= 4096 and k >= 4096:
        return "decode"
    if short >= 4096 and (k >= 1024 or k <= 512):
        return "large" if k >= 1024 else "large, short K"
    if long <= 1024:
        return "small"
    return "middle" if short > 1024 and long < 4096 else "other"


def _aligned(parameters: Mapping[str, Any]) -> bool:
    """Whether every row of A, B and D begins at a multiple of 16 bytes."""
    if parameters.get("pitch") == "padded":
        return True
    m, n, k, layout = (parameters[name] for name in ("m", "n", "k", "layout"))
    of_operand, of_result = _IN_16_BYTES[parameters["dtype"]]
    row_a, row_b = m if layout[0] == "N" else k, k if layout[1] == "N" else n
    return not (row_a % of_operand or row_b % of_operand or m % of_result)


def figures(
    rows: pd.DataFrame,
    run: DeviceRun,
    implementation: str,
    measure: Measure = "ratio",
    to: Sequence[str] = (),
) -> tuple[CaseFigure, ...]:
    """The figures of an implementation, the lowest first, of rows one for each problem and implementation."""
    rows = rows[_JUDGED]
    names = rows["implementation"]
    own = rows[names == implementation].assign(opponent="", half_to=0.0)
    seconds = own["median_s"]
    if measure == "ratio":
        others = rows[names.isin(to) if to else ~names.map(_is_own).astype(bool)]
        best = others.sort_values("median_s", kind="stable").drop_duplicates(PROBLEM)
        best = best[[*PROBLEM, "median_s", "half", "implementation"]]
        best.columns = [*PROBLEM, "other_s", "half_to", "opponent"]
        own = own.drop(columns=["half_to", "opponent"]).merge(best, on=PROBLEM)
        values = own["other_s"] / own["median_s"]
    elif measure == "copy":
        values = own["byte"] / seconds / (run.roof("cold").copy_byte_per_s or math.nan)
    else:
        rates = {dtype: _dense_flop_per_s(run, dtype) for dtype in set(own["dtype"])}
        values = own["flop"] / seconds / [rates[dtype] for dtype in own["dtype"]]
    # Without an interval of a time anything is possible.
    halves = np.hypot(own["half"].to_numpy(), own["half_to"].to_numpy())
    spans = np.exp(np.where(np.isnan(halves), math.inf, halves))
    case_figures = []
    cases = own[[*_NAME, "opponent"]].itertuples(index=False)
    for value, span, case in zip(values.tolist(), spans.tolist(), cases, strict=True):
        if not math.isnan(value):
            ends = value / span, value * span
            case_figures.append(
                CaseFigure(value, *ends, row_name(case), str(case.parameters), str(case.opponent))
            )
    return tuple(sorted(case_figures, key=lambda each: (each.value, each.parameters)))


def _dense_flop_per_s(run: DeviceRun, dtype: str) -> float:
    """The datasheet's peak without sparsity; NaN if it has none for this type."""
    return (run.datasheet.peak_flop_per_s("matrix", dtype) if run.datasheet else None) or math.nan


def _is_own(implementation: str) -> bool:
    """Whether it is one of ours or a custom kernel, which the libraries are compared with."""
    return implementation.startswith(OURS) or is_custom(implementation)


def standings(
    rows: pd.DataFrame, run: DeviceRun, measure: Measure = "ratio", to: Sequence[str] = ()
) -> list[Standing]:
    """The standings by operator, kind, region and implementation; of a ratio, of our implementations."""
    results = []
    place_columns = ["operator", "words", "region"]
    for (operator, kind, place), here in rows[[*_JUDGED, "words", "region"]].groupby(place_columns):
        for name in here["implementation"].unique():
            if measure == "ratio" and not _is_own(name):
                continue
            if of := figures(here, run, name, measure, to):
                results.append(Standing(str(operator), str(kind), str(place), name, of))
    return sorted(results, key=_in_order)


def _in_order(each: Standing) -> tuple[str, str, int, str]:
    return each.operator, each.kind, _ORDER.index(each.region), each.implementation


def duels(run: DeviceRun, cache: str) -> tuple[list[Standing], int]:
    """(our GEMMs against cuBLAS, the number of pairs left out because one side is suspect).

    The last standings are over all aligned 16-bit shapes.
    """
    rows = timed(run, cache)
    rows = rows[rows["operator"] == "gemm"]
    compared, every = (standings(latest(rows, sound), run, "ratio", LIBRARIES) for sound in (True, False))
    of_16_bit: dict[str, list[CaseFigure]] = defaultdict(list)
    for each in compared:
        if each.region.startswith("16-bit"):
            of_16_bit[each.implementation] += each.figures
    whole = [Standing("gemm", "", ALL_16_BIT, name, tuple(sorted(of))) for name, of in of_16_bit.items()]
    left_out = sum(len(each.figures) for each in every) - sum(len(each.figures) for each in compared)
    return sorted([*compared, *whole], key=_in_order), left_out


def efficiencies(run: DeviceRun) -> Iterator[tuple[Standing, Standing | None]]:
    """(share of a copy, ours against the best library) of every implementation of what is quoted in bytes/s.

    UserError if the run measured no copy.
    """
    if run.roof("cold").copy_byte_per_s is None:
        raise UserError("this run measured no bandwidth of a copy, so nothing can be compared with it")
    rows = latest(timed(run))
    rows = rows[(rows["rate"] == "byte") & (rows["byte"] > 0) & ~rows["arithmetic"].isin([*WITHOUT_ROOF])]
    against = {_in_order(each): each for each in standings(rows, run)}
    for each in standings(rows, run, "copy"):
        yield each, against.get(_in_order(each))
