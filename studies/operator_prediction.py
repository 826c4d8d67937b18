"""How far predictions of any operator are off on GPUs that others timed: with a few timings there, and none.

Every model is scored on the same rows: times of ten launch overheads and more, of GPUs with a datasheet, but
for those that calibrate (bench/model/pooled.py). Beside the model stand the datasheet's roofline and a
*twin*: the same cases as they were timed on that other GPU which is most like it in hindsight, times the one
factor that fits best. No model that learns from other GPUs can be expected to be much better.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pandas as pd

from bench.cli.table import table_lines
from bench.judge.flags import OVERHEAD
from bench.model.calibrated_runs import Errors
from bench.model.launch_features import PARAMETER, START_S
from bench.model.pooled import OperatorPool, Pool, PooledPrediction
from bench.model.reached import PRODUCTS
from bench.model.roofline import Floats
from bench.spec import ITEM_BYTE

if TYPE_CHECKING:
    from bench.device.datasheet import Datasheet

MOST = 2000
"""Rows of an operator, implementation, GPU and source that are scored."""
LEAST = 20
"""Rows of a kind, GPU and source below which they are not scored. A twin has as many of their cases, and half
of them."""
MEANT = 80.0, 97.0
"""Percent of a group's times that an interval of nine in ten should hold."""


@dataclass(frozen=True)
class Scored:
    """One kind of one operator on one GPU by one source, times in seconds of the same rows."""

    operator: str
    kind: str
    """Implementation, data type, the pass where there are several, and of gemm and linear whether all sides
    of the product are multiples of 16 bytes: `cublas float32 forward aligned`."""
    device: str
    source: str
    measured_s: Floats
    roofline_s: Floats
    learned_s: Floats
    inside: npt.NDArray[np.bool_] | None
    """Whether each time is inside the interval; None without intervals, which need two other GPUs."""
    twin: tuple[float, str]
    """(Mean |predicted / measured - 1| by the twin, its name); NaN and "" without one."""

    @property
    def covered(self) -> float:
        """Percent of the times inside the interval; NaN without one."""
        return 100.0 * float(self.inside.mean()) if self.inside is not None else float("nan")

    @property
    def errors(self) -> list[Errors]:
        """Of the roofline, the model, and the model without the factor by which it is off."""
        known_s = self.learned_s * np.median(self.measured_s / self.learned_s)
        predicted = (self.roofline_s, self.learned_s, known_s)
        return [Errors.of(seconds, self.measured_s) for seconds in predicted]


def scored(
    pool: Pool, operators: Sequence[str], unseen: bool, say: Callable[[str], object]
) -> Iterator[Scored]:
    """Every kind of operator on every GPU of every source that has LEAST rows of it to be scored."""
    for operator in operators:
        implementations = pool.rows.loc[pool.rows["operator"] == operator, "implementation"]
        for implementation in sorted(implementations.unique()):
            known = pool.of(operator, implementation)
            for (device, _), rows in known.rows.groupby(["device_name", "run_id"], sort=True):
                start_s = rows["clock_start_s"].astype(float).fillna(START_S)
                rows = rows[rows["median_s"] >= OVERHEAD * start_s].drop(pool.largest, errors="ignore")
                if len(rows) >= LEAST:
                    yield from _scored(known, str(device), rows, unseen)
        say(f"{operator}: scored")


def _scored(known: OperatorPool, device: str, rows: pd.DataFrame, unseen: bool) -> Iterator[Scored]:
    sheet = known.pool.sheets[device]
    designated = rows.loc[known.designated(sheet, rows)]
    rest = rows.drop(designated.index)
    rest = rest.sample(min(MOST, len(rest)), random_state=0).sort_index()
    learned: PooledPrediction | None
    learned = known.unseen(sheet, rest) if unseen else known.calibrated(sheet, designated, rest)
    if learned is None:
        return
    measured_s, roofline_s = rest["median_s"].to_numpy(dtype=float), _roofline(rest, sheet)
    inside = (learned.low_s <= measured_s) & (measured_s <= learned.high_s)
    passes = rest.get(PARAMETER + "direction")
    kinds = rest["implementation"] + " " + rest["dtype"]
    if passes is not None:
        kinds += " " + passes.fillna("")
    if known.family["operator"].isin(PRODUCTS).all():
        step = 16 // rest["dtype"].map(ITEM_BYTE)
        odd = pd.concat([rest[f"product_{side}"] % step > 0 for side in "mnk"], axis=1).any(axis=1)
        kinds += odd.map({True: " unaligned", False: " aligned"})
    operator, source = (str(rest[name].iloc[0]) for name in ("operator", "run_id"))
    for kind, count in kinds.value_counts().sort_index().items():
        if count < LEAST:
            continue
        of = (kinds == kind).to_numpy()
        yield Scored(
            *(operator, " ".join(str(kind).split()), device, source),
            *(measured_s[of], roofline_s[of], learned.seconds[of]),
            inside[of] if np.isfinite(learned.high_s[of]).any() else None,
            _twin(rest[of], known.others(sheet)),
        )


def _twin(rows: pd.DataFrame, others: pd.DataFrame) -> tuple[float, str]:
    """How far the same cases on another GPU are off with the best factor, and on which that is least."""
    same = ["operator", "cache", "parameters"]
    found = [(float("nan"), "")]
    for name, other in others.groupby("device_name"):
        times = rows[[*same, "median_s"]].merge(other.groupby(same)["median_s"].median(), on=same)
        if len(times) >= max(LEAST, len(rows) / 2):
            ratio = times["median_s_y"] / times["median_s_x"]
            found.append((float((ratio / ratio.median() - 1.0).abs().mean()), str(name)))
    return min(found[1:] or found)


def score_lines(found: Sequence[Scored], each: bool) -> Iterator[str]:
    """A line for each kind of operator, means over GPUs and sources; with `each` one for each of these."""
    columns = (">rows", ">roofline", ">model", ">its factor known", ">twin", ">median", ">90th")
    rows: list[tuple[str, ...]] = []
    for operator, kind in dict.fromkeys((one.operator, one.kind) for one in found):
        some = [one for one in found if (one.operator, one.kind) == (operator, kind)]
        models = list(zip(*(one.errors for one in some), strict=True))
        learned = models[1]
        worst = int(np.argmax([errors.mape for errors in learned]))
        twins = [one.twin[0] for one in some if one.twin[1]]
        rows.append(
            (
                *(operator, kind, str(len({one.device for one in some}))),
                str(sum(len(one.measured_s) for one in some)),
                *(_percent(np.mean([errors.mape for errors in of])) for of in models),
                _percent(np.mean(twins)) if twins else "-",
                _percent(np.mean([errors.median for errors in learned])),
                _percent(np.mean([errors.p90 for errors in learned])),
                _covered([one.covered for one in some]),
                f"{some[worst].device} {_percent(learned[worst].mape)}",
            )
        )
        for one, errors in zip(some, learned, strict=True) if each else ():
            rows.append(
                (
                    *("", f"  {one.source}", "", str(len(one.measured_s))),
                    *(_percent(of.mape) for of in one.errors),
                    f"{_percent(one.twin[0])} {one.twin[1]}" if one.twin[1] else "-",
                    *(_percent(errors.median), _percent(errors.p90), _covered([one.covered]), one.device),
                )
            )
    yield from table_lines(("operator", "kind", ">GPUs", *columns, ">in the interval", "worst GPU"), rows)
    covered = np.array([one.covered for one in found if one.inside is not None])
    low, high = MEANT
    yield (
        f"An interval holds {_covered(covered)} % of the times of a GPU and source on average: {low:.0f} to "
        f"{high:.0f} % in {((low <= covered) & (covered <= high)).sum()} of {len(covered)}, more in "
        f"{(covered > high).sum()}, less in {(covered < low).sum()}."
    )


def _percent(share: float) -> str:
    return f"{100 * share:.1f}"


def _covered(percents: Sequence[float]) -> str:
    known = [percent for percent in percents if np.isfinite(percent)]
    return f"{np.mean(known):.0f}" if known else "-"


def _roofline(rows: pd.DataFrame, sheet: Datasheet) -> Floats:
    """The datasheet's, of bytes alone where it has no peak of the type."""
    peaks = np.array(
        [
            sheet.peak_flop_per_s(*unit) or np.inf
            for unit in zip(rows["arithmetic"], rows["dtype"], strict=True)
        ]
    )
    computing_s = rows["flop"].to_numpy(dtype=float) / peaks
    moving_s = rows["byte"].to_numpy(dtype=float) / (sheet.bandwidth_byte_per_s or np.nan)
    return np.asarray(np.maximum(computing_s, moving_s))
