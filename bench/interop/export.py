"""Export of times: the formats by name, written to standard output or a file."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from bench.case_name import row_name
from bench.errors import UserError, unknown, write_text
from bench.interop import export_openmetrics
from bench.interop.export_points import SECONDS_PER_MICROSECOND, Point, Results, latest

UNIT = "us"
"""Unit of github-action-benchmark, one for all sizes: a series whose unit changed would jump."""


def github(points: Sequence[Point]) -> str:
    """The JSON array for benchmark-action/github-action-benchmark, tool `customSmallerIsBetter`.

    The action identifies a series by its `name` and compares its last `value` with the one before. It shows
    `range` after the value, and if that begins with a plus-minus sign reads the rest as a number in the
    value's unit. `extra` is its tooltip for a point. An empty array is an error to it.
    """
    return json.dumps([_entry(point) for point in points], indent=1, ensure_ascii=False) + "\n"


def _entry(point: Point) -> dict[str, str | float]:
    entry: dict[str, str | float] = {"name": point.name, "unit": UNIT, "value": point.microseconds}
    if half := _range(point):
        entry["range"] = half
    return entry | {"extra": _extra(point)}


def _range(point: Point) -> str:
    """Half of the 95 % interval in the form in which the action writes ranges; empty if unknown."""
    low_s, high_s = point.row.low_s, point.row.high_s
    if low_s is None or high_s is None:
        return ""
    half = (high_s - low_s) / 2 / SECONDS_PER_MICROSECOND
    return f"± {float(f'{half:.3g}'):.12g}"


def _extra(point: Point) -> str:
    row = point.row
    lines = [f"case: {row_name(row)}"]
    lines += [f"flags: {' '.join(point.flags) or 'none'}", f"device: {row.device_name}", f"run: {row.run_id}"]
    lines += [f"driver: {row.driver}", f"torch: {row.torch}", f"commit: {row.commit or 'unknown'}"]
    return "\n".join(lines)


GITHUB = "github-action-benchmark"
OPENMETRICS = "openmetrics"
"""The format that is replaced at once, as something else reads it at any time."""
NAMES = (GITHUB, OPENMETRICS)


def exported(
    form: str,
    results: Sequence[Path],
    output: Path | None,
    left_out: Callable[[str], object],
    remark: Callable[[str], object],
) -> Iterator[str]:
    """Write these results in a format; yields the output of the command: the text, or the file's name.

    `left_out` gets a sentence for each file that cannot be read, `remark` one for whatever is not exported.
    UserError is raised before anything is written.
    """
    if form not in NAMES:
        raise UserError(unknown("format", form, "export", NAMES))
    source = Results(results, left_out)
    gather, make = (
        (export_openmetrics.newest, export_openmetrics.text) if form == OPENMETRICS else (latest, github)
    )
    points, more = gather(source.points())
    text = make(points)
    for sentence in (*source.omissions(), *more):
        remark(sentence)
    if output is None:
        yield text
        return
    if form == OPENMETRICS:
        export_openmetrics.write(output, points)
    else:
        write_text(output, text)
    yield f"{output}\n"
