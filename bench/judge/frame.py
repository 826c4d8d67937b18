"""Result files -> one Run for each (device, run): its rows with the columns that are derived from them.

The only place that divides: what a figure shows is a column here, in SI units, NaN where a time or a
ceiling is missing. Derived columns:

    rate_per_s  rate_low_per_s  rate_high_per_s      flop or byte (as `rate` says) / time
    flop_per_s  flop_low_per_s  flop_high_per_s      flop / time
    predicted_s  limiter  predicted_per_s            calibrated roofline of the same run
    datasheet_s  datasheet_per_s                     roofline of the datasheet
    structured_s  structured_limiter  structured_per_s   with tiles, waves, caches
    of_roof                                          predicted_s / median_s
    imported  calibrating                            another's number; used to calibrate, so never scored
    intensity                                        flop / byte
    condition                                           which ceilings it is held against: cold, warm, ...
    scored                                           whether predictions are held against it
    flags  suspect                                   names, and whether one of them casts doubt on its time
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from bench.device.datasheet import Datasheet
from bench.errors import UserError
from bench.judge.flags import DOUBTFUL, flags
from bench.model.calibrated_runs import Known, known
from bench.model.ceilings import Ceilings, by_run, condition
from bench.model.ceilings import rows as ceiling_rows
from bench.model.predict import completed, structured, with_peaks
from bench.model.roofline import calibrated_columns, datasheet_s, traffic
from bench.store import parquet, schema


@dataclass(frozen=True)
class Run:
    """One run on one device."""

    device: str
    run_id: str
    rows: pd.DataFrame
    """Every row, measured or not, with the derived columns."""
    ceilings: Mapping[str, Ceilings]
    """Condition of measuring (`bench.model.ceilings.condition`) -> ceilings."""
    datasheet: Datasheet | None
    lent: Known | None = None
    """Another run of the same device, whose ceilings and calibration stand in for those that it lacks."""

    def roof(self, how: str) -> Ceilings:
        """What rows of this condition are held against.

        Warm rows of a run that measured no warm ceilings are held against the cold ones, which they
        may well beat. Those lent to the run, and else empty ceilings, if there are none.
        """
        cold = how.replace("warm", "cold")
        own = self.ceilings.get(how) or self.ceilings.get(cold)
        return own or (self.lent.ceilings if self.lent else Ceilings())

    @property
    def measured(self) -> int:
        """How many rows have a time."""
        return int(self.rows["median_s"].notna().sum())


def load(
    paths: Iterable[Path],
    datasheet_of: Callable[[str], Datasheet | None],
    left_out: Callable[[str], object] | None = None,
    lenders: Sequence[Path] = (),
) -> list[Run]:
    """Read the files and derive; one Run for each (device, run), in order.

    `datasheet_of` gives the datasheet of a device by its name; `left_out` is told of files that cannot be
    read (see parquet.read). A run without ceilings of its own borrows those of a run of the same device
    in the files `lenders`: asked for, never by itself. StoreError or UserError, one sentence, if none can be
    or no row has a time.
    """
    paths = list(paths)
    named = ", ".join(map(str, paths))
    try:
        frame = parquet.read(paths, left_out)
    except TypeError as error:
        raise UserError(f"{named}: columns of one name hold different types; draw them apart") from error
    missing = [name for name in schema.FIELDS if name not in frame.columns]
    if missing:
        raise UserError(f"{named}: lacks the column {missing[0]}; not a result of this suite")
    timed = (frame["status"] == "ok") & (frame["median_s"] > 0)
    if not timed.any():
        why = frame["status"].value_counts().to_dict()
        said = ", ".join(f"{n} {status}" for status, n in why.items()) or "no rows"
        raise UserError(f"{named}: no row has a time, so there is nothing to draw ({said})")
    frame["threads_asked"] = frame["threads_asked"].fillna("all")  # older files knew no other
    # A wrong result has no time, whatever a file may hold.
    frame.loc[~timed, ["median_s", "low_s", "high_s"]] = np.nan
    frame["condition"] = [condition(*one) for one in zip(frame["cache"], frame["threads_asked"], strict=True)]
    ceilings = by_run(ceiling_rows(frame))
    found = known(parquet.read(lenders), datasheet_of) if lenders else ()
    # A run that is lent measured one data type perhaps; its datasheet scales that to the others.
    lent = {
        one.device_name: replace(one, ceilings=with_peaks(one.ceilings, one.calibrations[-1]))
        for one in found
    }
    runs = []
    for (device, run_id), some in frame.groupby(["device", "run_id"], sort=True):
        roofs = {
            how: completed(c, some[some["condition"] == how])
            for (d, r, how), c in ceilings.items()
            if (d, r) == (device, run_id)
        }
        name = str(some["device_name"].iloc[0])
        lender = None if roofs else lent.get(name)
        run = Run(str(device), str(run_id), some.reset_index(drop=True), roofs, datasheet_of(name), lender)
        _derive(run)
        runs.append(run)
    return runs


def parameter_names(rows: pd.DataFrame) -> list[str]:
    """Parameters of these rows that have a column of their own, in the order in which they occur."""
    names: dict[str, None] = {}
    for text in rows["parameters"].unique():
        names |= dict.fromkeys(json.loads(text))
    return [name for name in names if name in rows.columns and name not in schema.FIELDS]


def _derive(run: Run) -> None:
    rows = run.rows
    counts = rows["flop"].where(rows["rate"] == "flop", rows["byte"]).astype(float)
    counts = counts.where(counts > 0)
    flop = rows["flop"].where(rows["flop"] > 0).astype(float)
    byte = rows["byte"].where(rows["byte"] > 0).astype(float)
    low_s, high_s = rows["low_s"].fillna(rows["median_s"]), rows["high_s"].fillna(rows["median_s"])
    rows["low_s"], rows["high_s"] = low_s, high_s
    # The quickest time is the highest rate: the ends of the interval change places.
    for name, count in (("rate", counts), ("flop", flop)):
        rows[f"{name}_per_s"] = count / rows["median_s"]
        rows[f"{name}_low_per_s"] = count / high_s
        rows[f"{name}_high_per_s"] = count / low_s
    rows["intensity"] = flop / byte

    rows["predicted_s"], rows["limiter"] = np.nan, ""
    again = rows["byte_again"].astype(float).fillna(0.0)
    written = rows["moved_written"].astype(float).fillna(rows["byte_written"])
    moved, share = traffic(rows["byte_moved"], again, written, rows["cache_byte"])
    for how in rows["condition"].unique():
        here = rows["condition"] == how
        some, at = rows[here], here.to_numpy()
        columns = (some["flop"], moved[at], share[at], some["arithmetic"], some["dtype"])
        seconds, limiters = calibrated_columns(*columns, run.roof(str(how)))
        rows.loc[here, "predicted_s"], rows.loc[here, "limiter"] = seconds, limiters
    stated = zip(rows["flop"], rows["byte"], rows["arithmetic"], rows["dtype"], strict=True)
    sheets = [datasheet_s(*one, run.datasheet) or np.nan for one in stated]
    rows["datasheet_s"] = np.asarray(sheets, dtype=float)
    rows["imported"] = rows["source"].notna()
    given = run.lent.calibrations if run.lent else None
    for level, column in structured(rows, run.roof, run.datasheet, given).items():
        rows[str(level)] = column
    rows["structured_per_s"] = counts / rows["structured_s"]
    rows["predicted_per_s"] = counts / rows["predicted_s"]
    rows["datasheet_per_s"] = counts / rows["datasheet_s"]
    rows["of_roof"] = rows["predicted_s"] / rows["median_s"]

    raised = [flags(one, run.roof(one.condition)) for one in rows.itertuples(index=False)]  # type: ignore[arg-type]
    rows["flags"] = pd.Series([" ".join(names) for names in raised], index=rows.index, dtype=str)
    # A row without a time is no point, whatever its result was.
    doubted = np.array([not DOUBTFUL.isdisjoint(names) for names in raised], dtype=bool)
    rows["suspect"] = doubted & rows["median_s"].notna()
    # Being quicker than a prediction casts doubt on one of the two, and must not spare the prediction.
    blamed = np.array([not (DOUBTFUL - {"above_roof"}).isdisjoint(names) for names in raised], dtype=bool)
    rows["scored"] = rows["median_s"].notna() & ~blamed & ~rows["calibrating"]
