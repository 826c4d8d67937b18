"""The formats by name, and what becomes of one: text on standard output, a file, or a folder of files."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from bench.case_name import row_name
from bench.errors import UserError, write_text
from bench.interop import export_otava, export_pytorch
from bench.interop.export_points import SECONDS_PER_MICROSECOND, Point, Results, latest

UNIT = "us"
"""github-action-benchmark: one unit for all, as a series whose unit followed its size would jump when it
crosses a power of ten."""
OTAVA = "otava"
"""The format of many nights: a folder."""


def github(points: Sequence[Point]) -> str:
    """For the action benchmark-action/github-action-benchmark, tool `customSmallerIsBetter`: one JSON array.

    The action knows a series by its `name` and holds its last `value` against the one before. It shows
    `range` after the value, and where that begins with a plus-minus sign reads the rest as a number in the
    value's unit. `extra` is what it shows when a point is pointed at. An empty array is an error to it.
    """
    return json.dumps([_entry(point) for point in points], indent=1, ensure_ascii=False) + "\n"


def _entry(point: Point) -> dict[str, str | float]:
    entry: dict[str, str | float] = {"name": point.name, "unit": UNIT, "value": point.microseconds}
    if half := _range(point):
        entry["range"] = half
    return entry | {"extra": _extra(point)}


def _range(point: Point) -> str:
    """Half of the 95 % interval as the action writes ranges itself; empty where it is unknown."""
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


ONE_FILE = {"github-action-benchmark": github, "pytorch": export_pytorch.text}
"""Formats of one time a series: name -> what makes its text."""
NAMES = (*ONE_FILE, OTAVA)


def exported(
    form: str,
    results: Sequence[Path],
    output: Path | None,
    left_out: Callable[[str], object],
    remark: Callable[[str], object],
) -> Iterator[str]:
    """Write these results in a format; yields what belongs on standard output: the text, or the files' names.

    `left_out` is told of each file that cannot be read, `remark` what was not exported. UserError
    is raised before anything is written.
    """
    if form not in NAMES:
        raise UserError(f"export {form}: no such format; there is {', '.join(NAMES)}")
    if form == OTAVA and output is None:
        raise UserError("export otava: makes a file for each implementation: give a folder by -o DIR")
    found = Results(results, left_out)
    if form == OTAVA and output is not None:
        files, more = export_otava.files(found.points(), str(output))
        targets = {output / name: text for name, text in files.items()}
    else:
        points, more = latest(found.points())
        text = ONE_FILE[form](points)
        targets = {output: text} if output is not None else {}
    for sentence in (*found.said(), *more):
        remark(sentence)
    if not targets:
        yield text
    for path, content in targets.items():
        write_text(path, content)
        yield f"{path}\n"
