"""Imported rows: the columns that they share, their source, and where their file lies.

An imported row has one time. It has no samples and no interval, its clocks are unknown, and its `source` says
who measured it. An unknown value is null, or an empty text where a column must not be null.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from bench.device.datasheet import Datasheet, find_datasheet, near_gpus, slug_of
from bench.errors import suggestion, unknown
from bench.spec import DeviceKind, Problem
from bench.store.parquet import Sweeps, write
from bench.store.schema import Measurement
from bench.sweep.grammar import worded
from bench.sweep.load import SWEEPS, Find, load

FOLDER = "imported"
"""Folder below a folder of results, apart from what was measured there."""
CLAIMS = Path(__file__).with_name("claims")
"""Folder of the claims about imported tables, a file each (`bench.sweep.load.table_claims`)."""
POSSIBLE = 1.05
"""A rate above so much of the datasheet's is no rate of this problem on this device."""


@dataclass(frozen=True)
class Imported:
    """One device's rows of one import, and the file that they belong in."""

    path: Path
    rows: Sequence[Measurement]
    sweeps: Sweeps
    """See `declared`."""

    def save(self) -> bool:
        """Write the file; False if it is there already. UserError if it cannot be written."""
        if self.path.exists():
            return False
        write(self.path, self.rows, self.sweeps)
        return True


def declared(rows: Iterable[Measurement], find: Find) -> Sweeps:
    """What this checkout's sweeps with the names of these rows declare; figures are drawn by it."""
    files = {row.sweep: SWEEPS / f"{row.sweep}.yaml" for row in rows}
    return {name: load(file, find, 1).sweep.declared for name, file in files.items() if file.is_file()}


def source_text(who: str, *more: str) -> str:
    """The column `source`: who measured, a semicolon, then the rest. The first part identifies the source."""
    parts = (" ".join(part.split()) for part in (who.replace(";", ","), *more))
    return "; ".join(filter(None, parts))


def device_columns(name: str, kind: DeviceKind, sheet: Datasheet | None) -> dict[str, Any]:
    """The columns of a device, whose name is the driver's; counts are 0 if it has no datasheet."""
    sm_count, cache_byte = (sheet.sm_count, sheet.l2_byte) if sheet else (0, 0)
    named = {"device": slug_of(name), "device_name": name, "device_kind": kind, "device_id": ""}
    return {**named, "sm_count": sm_count, "cache_byte": cache_byte, "threads": 1}


def foreign_row(columns: Mapping[str, Any]) -> Measurement:
    """A row with these columns, `run_id` and `source` among them; all others are unknown."""
    nothing: dict[str, Any] = dict.fromkeys(
        ("utc", "commit", "driver", "torch", "triton", "libraries", "clock", "fill"), ""
    )
    return Measurement(**(nothing | {"seed": 0, "role": "measurement", "status": "ok"} | dict(columns)))


def above(rate: str) -> str:
    """The sentence on a time that is too short for this rate of the datasheet."""
    return f"faster than {POSSIBLE:.0%} of {rate}"


def times_possible(
    problem: Problem, seconds: float, sheet: Datasheet | None, cache: str, fewer_flop: bool = False
) -> Iterator[tuple[float, str]]:
    """How many times the datasheet's rates such a time would be, and which; none that nobody knows."""
    if sheet is None:
        return
    bandwidth, peak = sheet.bandwidth_byte_per_s, sheet.peak_flop_per_s(problem.arithmetic, problem.dtype)
    # What the last-level cache holds of warm data need not come from memory.
    from_memory = problem.byte - (sheet.l2_byte if cache == "warm" else 0)
    if bandwidth:
        yield from_memory / (bandwidth * seconds), "the datasheet's bandwidth"
    if peak and not fewer_flop:
        yield problem.flop / (peak * seconds), f"the datasheet's peak in {problem.dtype}"


def without_datasheet(gpus: Iterable[str]) -> list[str]:
    """A remark on each GPU whose name no datasheet has, with names that are nearly so."""
    unknown_here = "no file in bench/device/datasheets has this name"
    return [
        f"{name}: {unknown_here}{suggestion(near_gpus(name))}: claims that need its peaks are not judged"
        for name in dict.fromkeys(gpus)
        if find_datasheet(name) is None
    ]


def problem_from(kind: type[Problem], parameters: Mapping[str, Any]) -> Problem | str:
    """The problem of these parameters, or why there is none."""
    try:
        return kind(**parameters)
    except ValidationError as error:
        return wrong(error, kind.operator, kind.model_fields)


def wrong(errors: ValidationError, of: str, possible: Iterable[str] = ()) -> str:
    """The sentence on one of these mistakes; a misspelt name comes before one that is thus missing."""
    error = min(errors.errors(include_url=False), key=lambda each: each["type"] == "missing")
    name = str(error["loc"][0]) if error["loc"] else of
    if error["type"] == "missing":
        return f"{of} needs {name}"
    if error["type"] == "extra_forbidden":
        return unknown("parameter", name, of, possible)
    return worded(error, name)
