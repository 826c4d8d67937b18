"""What stands out in runs, a sentence each: what is farthest below its roof, what the model misses most, what
varied most.

Each is the candidate with the largest effect beyond its 95 % interval, to which a share of the roof adds the
roof's: the logarithm of a ratio less half of the interval's, so that neither a small effect that is
well known nor a large one that is unknown stands first. Rows without an interval and suspect ones are no
candidates. A finding that could be as small as LEAST is none.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bench.case_name import problem_name, row_name
from bench.format import count_text, seconds_text, share_text
from bench.model.predict import reached

if TYPE_CHECKING:
    import pandas as pd

    from bench.judge.frame import DeviceRun

LEAST = math.log(1.2)
"""Roofs and predictions are often off by a fifth, which is no news."""


class _Finding(NamedTuple):
    effect: float
    """What is left of |ln ratio| after the interval."""
    about: str
    device: str
    says: str


class _Point(NamedTuple):
    value: float
    """The number in which neighbours differ."""
    median_s: float
    half: float
    best_s: float
    """Seconds by the best level of the model."""


def findings(runs: Sequence[DeviceRun]) -> list[str]:
    """At most a sentence of each sort, on the runs together; it names the device if they are of several."""
    several = len({run.device for run in runs}) > 1
    sentences = []
    rows_of = [(run, _candidates(run)) for run in runs]
    for candidates in (_below_roof, _surprises, _varied):
        best = max((each for run, rows in rows_of for each in candidates(run, rows)), default=None)
        if best is not None and best.effect > LEAST:
            sentences.append(f"{best.about}{f' ({best.device})' if several else ''}: {best.says}.")
    return sentences


def _candidates(run: DeviceRun) -> pd.DataFrame:
    """Timed rows with an interval, `half` of its |ln|, and the `words` and `numbers` of their parameters."""
    import pandas as pd

    frame = run.frame
    rows = frame[(frame["role"] == "measurement") & (frame["visit"] == 0) & (frame["median_s"] > 0)]
    rows = rows[~rows["suspect"] & (rows["low_s"] > 0) & (rows["high_s"] > rows["low_s"])]
    half = 0.5 * np.log(rows["high_s"].astype(float) / rows["low_s"].astype(float))
    given = [json.loads(text) for text in rows["parameters"]]
    numbers = [{name: value for name, value in each.items() if _is_number(value)} for each in given]
    words = [
        problem_name({name: each[name] for name in each.keys() - of.keys()}).replace("-", " ")
        for each, of in zip(given, numbers, strict=True)
    ]
    return rows.assign(half=half, numbers=pd.Series(numbers, index=rows.index, dtype=object), words=words)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _below_roof(run: DeviceRun, rows: pd.DataFrame) -> Iterator[_Finding]:
    """Cases that differ in numbers alone, by their median; none that a launch bounds, whatever its kernel."""
    rows = rows[(rows["of_roof"] > 0) & ~rows["bound_by"].isin(["launch", ""])]
    for (sweep, implementation, words), alike in rows.groupby(["sweep", "implementation", "words"]):
        shares, of = alike["of_roof"], [run.rows[place] for place in alike.index]
        # The roof may be as low as its own interval allows.
        most = [share for row in of if (share := reached(row, run.roof_of(row).slowest)) is not None]
        low, middle, high = (share_text(share) for share in (shares.min(), shares.median(), shares.max()))
        among = f" in {count_text(len(alike), 'case')}" if low == high else ""
        among = among or f", the median of {low} to {high} in {len(alike)} cases"
        bounds = sorted(set(alike["bound_by"]))
        allowed = f"{' and '.join(bounds)} {'allow' if len(bounds) > 1 else 'allows'}"
        yield _Finding(
            -math.log(np.median(most)) - float(alike["half"].median()) if most else -math.inf,
            "Farthest below its roof",
            run.device,
            f"{sweep} by {implementation}, {words}, reaches {middle} of what {allowed}{among}",
        )


def _surprises(run: DeviceRun, rows: pd.DataFrame) -> Iterator[_Finding]:
    """Neighbours, cases next to each other in one number and alike in all else, by their ratio."""
    lines: dict[tuple[Any, ...], list[_Point]] = {}
    of = (rows[name] for name in ("sweep", "implementation", "words", "cache", "threads_asked"))
    times = (rows[name].astype(float) for name in ("median_s", "half"))
    best_s = rows["structured_s"].fillna(rows["predicted_s"]).astype(float)
    for kind, numbers, *point in zip(zip(*of, strict=True), rows["numbers"], *times, best_s, strict=True):
        for name, value in numbers.items() if point[-1] > 0 else ():
            others = tuple(sorted(each for each in numbers.items() if each[0] != name))
            lines.setdefault((kind, name, others), []).append(_Point(value, *point))
    for ((sweep, implementation, words, *_), name, _), points in lines.items():
        for neighbours in pairwise(sorted(points)):
            first, second = sorted(neighbours, key=lambda point: point.median_s)
            measured = second.median_s / first.median_s
            predicted = second.best_s / first.best_s
            both = f"{seconds_text(second.median_s)}, {seconds_text(first.median_s)}"
            yield _Finding(
                abs(math.log(measured / predicted)) - math.hypot(first.half, second.half),
                "The model's largest miss",
                run.device,
                f"{sweep} by {implementation}, {words}, takes {measured:.2f} times as long with {name} "
                f"{second.value:g} as with {name} {first.value:g} ({both}); predicted: {predicted:.2f} times",
            )


def _varied(run: DeviceRun, _: pd.DataFrame) -> Iterator[_Finding]:
    """Cases whose visits differ by more than the samples of a visit among themselves."""
    for row in run.rows:
        if not row.is_timed or len(row.visit_samples_s) < 2:
            continue
        middles, halves = zip(*map(_middle, row.visit_samples_s), strict=True)
        low, high = min(middles), max(middles)
        if low <= 0:
            continue
        yield _Finding(
            math.log(high / low) - math.hypot(*sorted(halves)[-2:]),
            "What varied most",
            run.device,
            f"{row_name(row)} took from {seconds_text(low)} to {seconds_text(high)} in its "
            f"{count_text(len(middles), 'visit')}",
        )


def _middle(samples_s: npt.NDArray[np.float64]) -> tuple[float, float]:
    """The median of a visit, and half of its 95 % interval by the samples' quartiles as a share of it."""
    low, middle, high = np.quantile(samples_s, (0.25, 0.5, 0.75))
    # Of a normal law: a median's error is 1.25 sigma / sqrt(n), and its quartiles are 1.35 sigma apart.
    half = 1.96 * 1.25 * (high - low) / 1.35 / math.sqrt(samples_s.size)
    return float(middle), float(half / middle) if middle > 0 else 0.0
