"""What `python -m bench predict` says: a sweep on a device, which may be nowhere near.

Each case's four levels and what binds it, from the calibration of the device itself or of another, scaled by
what the two datasheets say; beside it how far such predictions were from what was measured.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.device.datasheet import Datasheet, datasheets, find_datasheet
from bench.errors import UserError
from bench.format import seconds_text, share_text
from bench.judge.frame import known_runs, read
from bench.model import predict
from bench.model.calibrated_runs import Known, nearest, transfers
from bench.model.ceilings import condition
from bench.model.predict import with_peaks
from bench.model.scale_to_device import transferred, transferred_ceilings
from bench.spec import parameters_text
from bench.sweep.load import Case, Loaded

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = ("datasheet_s", "predicted_s", "structured_s", "learned_s")
"""Of L0 to L3, in this order."""


@dataclass(frozen=True)
class Basis:
    """What a device's predictions rest on."""

    wanted: Datasheet
    of: Known
    others: Sequence[Known]
    """All runs that were found: what the calibration's error is taken from."""

    @property
    def own(self) -> bool:
        """Whether the device itself was measured."""
        return self.of.sheet.name == self.wanted.name

    def lines(self) -> Iterator[str]:
        """Whence the predictions, and how far off such ones were."""
        by = self.of.calibrations[-1]
        fitted = f"fitted to {by.shapes} shapes" if by.fitted else "its ceilings and shared priors, no fit"
        whose = (
            f"imported: {self.of.imported.partition(';')[0]}" if self.of.imported else f"run {self.of.run_id}"
        )
        scaled = "" if self.own else f", scaled to {self.wanted.name} by the datasheets"
        yield f"L1 and L2 from the calibration of {self.of.device_name} ({whose}; {fitted}){scaled}."
        found = transfers(self.others, self.of)
        here = next((errors for name, errors in found.items() if name in self.wanted.match), None)
        off = [errors.mape for name, errors in found.items() if name != self.of.device_name]
        if here is not None:
            yield (
                f"On {here.n} {by.dtype} products that were timed there, L2 is off by "
                f"{share_text(here.mape)} on average: half by less than {share_text(here.median)}, one in "
                f"ten by more than {share_text(here.p90)}."
            )
        elif off:
            devices = "device" if len(off) == 1 else "devices"
            yield (
                f"No timing from {self.wanted.name} is known. Scaled to {len(off)} other {devices} in the "
                f"same way, L2 was off by {share_text(min(off))} to {share_text(max(off))} on average, in "
                f"the middle {share_text(statistics.median(off))}."
            )
        else:
            yield f"No timing from {self.wanted.name} is known, so nobody knows how far off this is."
        dtypes = ", ".join(sorted({by.dtype, *by.others}))
        yield (
            f"L2 and L3 know data types with calibration shapes ({dtypes}; float16 as bfloat16), L3 only "
            "on the device that ran them; of other types L1 rests on their stated peaks."
        )
        yield "Other operators were not compared, so of theirs nobody knows."


def datasheet_named(wanted: str) -> Datasheet:
    """The datasheet of a CUDA GPU by its file's name, its own or its driver's.

    UserError names those there are.
    """
    plain = _plain(wanted)
    cuda = [sheet for sheet in datasheets() if sheet.capability is not None]
    for sheet in cuda:
        if plain in (_plain(name) for name in (sheet.name, *sheet.match, sheet.slug)):
            return sheet
    there = ", ".join(sheet.slug for sheet in cuda)
    raise UserError(f"--on {wanted}: no such CUDA GPU in bench/device/datasheets; there is {there}")


def _plain(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())


def basis(wanted: Datasheet, results: Sequence[Path], left_out: Callable[[str], object]) -> Basis:
    """What to predict from, of these results. UserError if no GPU among them calibrates anything."""
    runs = list(known_runs(read(results, left_out), find_datasheet))
    of = nearest(runs, wanted)
    if of is None:
        named = ", ".join(map(str, results))
        raise UserError(
            f"{named}: holds no run of a GPU with its ceilings, so nothing can be predicted from it"
        )
    return Basis(wanted, of, runs)


def predictions(on: Basis, cases: Sequence[Case]) -> pd.DataFrame:
    """A row a case: COLUMNS and `structured_limiter`; NaN and "" where a level cannot say."""
    import pandas as pd

    rows = pd.DataFrame([_facts(case, on) for case in cases])
    ceilings, by = on.of.ceilings, on.of.calibrations
    if not on.own:
        ceilings = transferred_ceilings(ceilings, on.of.sheet, on.wanted)
        by = tuple(transferred(one, on.of.sheet, on.wanted) for one in by)
    ceilings = with_peaks(ceilings, by[-1])
    return pd.concat([rows, predict.predictions(rows, lambda condition: ceilings, on.wanted, by)], axis=1)


def _facts(case: Case, on: Basis) -> dict[str, Any]:
    return {
        **case.problem.facts(case.implementation),
        "sweep": case.sweep,
        "role": case.role,
        "parameters": parameters_text(case.problem.parameters()),
        "cache": case.cache,
        "condition": condition(case.cache, case.threads),
        "device_kind": "cuda",
        "device_name": on.wanted.name,
        "run_id": "",
        "sm_count": on.wanted.sm_count,
        "cache_byte": on.wanted.l2_byte,
        "configuration": "",
        "kernels": None,
        "ring_byte": np.nan,
        "flushed": False,
        "median_s": np.nan,
    }


def prediction_lines(on: Basis, loaded: Sequence[Loaded], each: bool) -> Iterator[str]:
    """A line a sweep, with `each` a line a case below it; then the sum and what it rests on."""
    possible = [
        [case for case in some.cases if not case.missing("cuda", on.wanted.capability)] for some in loaded
    ]
    names = [f"  {case.name}" for cases in possible for case in cases] if each else []
    width = max([20, *map(len, names), *(len(cases[0].sweep) for cases in possible if cases)])
    yield f"{on.wanted.name}: one launch of each case, predicted"
    head = ("L0 datasheet", "L1 calibrated", "L2 structure", "L3 learned")
    yield _line(width, "", "cases", head, "bound by (L2)")
    known_s: dict[str, list[float]] = {column: [] for column in COLUMNS}
    count = 0
    for cases in filter(None, possible):
        rows = predictions(on, cases)
        count += len(rows)
        for column, kept in known_s.items():
            kept += rows[column].dropna().tolist()
        bound = Counter(name for name in rows["structured_limiter"] if name)
        told = ", ".join(f"{name} {n}" for name, n in bound.most_common()) or "nobody knows"
        # A sum that leaves some out would be compared with one that does not.
        sums_s = [rows[column].sum(skipna=False) for column in COLUMNS]
        yield _line(width, cases[0].sweep, str(len(rows)), [_text(seconds) for seconds in sums_s], told)
        if each:
            for case, row in zip(cases, rows.to_dict("records"), strict=True):
                texts = [_text(row[column]) for column in COLUMNS]
                yield _line(width, f"  {case.name}", "", texts, row["structured_limiter"])
    sums = zip(("L0", "L1", "L2", "L3"), known_s.values(), strict=True)
    told = "; ".join(f"{level} {_text(sum(kept))} for {len(kept)} of them" for level, kept in sums)
    yield f"one launch of each of {count} cases: {told}"
    yield from on.lines()


def _text(seconds: float) -> str:
    return seconds_text(seconds) if seconds > 0 else "-"


def _line(width: int, name: str, cases: str, texts: Sequence[str], told: str) -> str:
    columns = " ".join(f"{text:>13}" for text in texts)
    return f"{name:<{width}} {cases:>5} {columns}   {told}".rstrip()
